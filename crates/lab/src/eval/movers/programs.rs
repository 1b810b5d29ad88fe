//! Programs of others, as they are found on the machine.

use std::{
    fs::File,
    io::ErrorKind,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::Value;
use units::ByteCount;

use super::{Moved, Unmoved};
use crate::{
    eval::{
        cell::{Cell, Direction},
        stage::{self, Stage},
    },
    ftp::content::hash_file,
    wan::Site,
};

/// One file in eight parts at once.
pub(super) fn lftp_pget(stage: &mut Stage, cell: &Cell, limit: Duration) -> Result<Moved, Unmoved> {
    let work = cell.work;
    if (work.direction, work.files) != (Direction::Down, 1) {
        let why = "pget downloads single files only";
        return Err(Unmoved::NotTried(why.to_owned()));
    }
    let local = stage.client_file("pget.bin");
    let _ = std::fs::remove_file(&local);
    use_cubic(stage)?;
    let script = format!(
        "set net:max-retries 1; set xfer:use-temp-file no; set pget:save-status never; \
         open ftp://anonymous:eval@{}; pget -n 8 {} -o {}",
        stage.server_address,
        stage::name(Direction::Down, 0),
        local.display()
    );
    let mut command = stage.command(Site::A, "lftp")?;
    command.args(["-c", &script]);
    let ended = run_limited(command, limit)?;
    let blocks = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        // Parts lie apart: the length says nothing.
        path.metadata().map_or(0, |file| file.blocks() * 512)
    };
    if !ended.is_over {
        return Ok(cut_off(blocks(&local).min(work.size_bytes), ended.time));
    }
    ended.succeeded()?;
    let expected = stage.content.hash(ByteCount::new(work.size_bytes));
    let hash = hash_file(&local).context("what lftp brought")?;
    if hash != expected {
        return Err(anyhow::anyhow!("the hashes differ").into());
    }
    Ok(Moved {
        bytes: work.size_bytes,
        time: ended.time,
        is_complete: true,
    })
}

/// One TCP connection without files.
pub(super) fn iperf3(stage: &mut Stage, cell: &Cell, limit: Duration) -> Result<Moved, Unmoved> {
    use_cubic(stage)?;
    let before = stage.read()?;
    let port = "5201";
    let mut server = stage.command(Site::B, "iperf3")?;
    server.args(["-s", "-1", "-p", port]).stdout(Stdio::null());
    let _server = Background::start(server)?;
    thread::sleep(Duration::from_millis(300));
    let bytes = cell.work.bytes().bytes();
    let host = stage.server_address.ip().to_string();
    let mut command = stage.command(Site::A, "iperf3")?;
    command.args(["-c", &host, "-p", port, "-J", "-n", &bytes.to_string()]);
    if cell.work.direction == Direction::Down {
        command.arg("-R");
    }
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        let index = usize::from(cell.work.direction == Direction::Down);
        let passed = stage.read()?.delivered_bytes[index] - before.delivered_bytes[index];
        // The payload of packets of 1500 bytes.
        return Ok(cut_off(passed * 1448 / 1500, ended.time));
    }
    ended.succeeded()?;
    let said: Value = serde_json::from_str(&ended.said).context("what iperf3 printed")?;
    let sum = &said["end"]["sum_received"];
    let (received, seconds) = sum["bytes"]
        .as_u64()
        .zip(sum["seconds"].as_f64())
        .context("iperf3 printed no sum")?;
    Ok(Moved {
        bytes: received,
        time: Duration::from_secs_f64(seconds),
        is_complete: true,
    })
}

fn use_cubic(stage: &mut Stage) -> anyhow::Result<()> {
    for site in Site::BOTH {
        stage.wan.set_congestion_control(site, "cubic")?;
    }
    Ok(())
}

fn cut_off(bytes: u64, time: Duration) -> Moved {
    Moved {
        bytes,
        time,
        is_complete: false,
    }
}

/// A program that ended, or was ended.
struct Ended {
    is_over: bool,
    success: bool,
    time: Duration,
    said: String,
}

impl Ended {
    fn succeeded(&self) -> anyhow::Result<()> {
        if !self.success {
            let last: Vec<_> = self.said.lines().rev().take(3).collect();
            bail!("{}", last.join(" / "));
        }
        Ok(())
    }
}

/// Runs a program, and ends it after `limit`.
fn run_limited(mut command: Command, limit: Duration) -> Result<Ended, Unmoved> {
    let log = crate::scratch::folder("program")?;
    let path = log.join("said");
    let file = File::create(&path).context("a log")?;
    let err = file.try_clone().context("a log")?;
    command.stdin(Stdio::null()).stdout(file).stderr(err);
    let begun = Instant::now();
    let mut child = Background::start(command)?;
    let ended = loop {
        let status = child.0.try_wait().context("a program's end")?;
        let time = begun.elapsed();
        if status.is_some() || time >= limit {
            break Ended {
                is_over: status.is_some(),
                success: status.is_some_and(|status| status.success()),
                time,
                said: String::new(),
            };
        }
        thread::sleep(Duration::from_millis(2));
    };
    drop(child);
    let said = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&log);
    Ok(Ended { said, ..ended })
}

/// A program that is ended when dropped.
struct Background(Child);

impl Background {
    fn start(mut command: Command) -> Result<Self, Unmoved> {
        let program = command.get_program().to_string_lossy().into_owned();
        match command.spawn() {
            Ok(child) => Ok(Self(child)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Unmoved::NotTried(format!("{program} is not installed")))
            }
            Err(error) => Err(anyhow::Error::from(error).context(program).into()),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
