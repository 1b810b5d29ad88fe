//! Movers that are separate programs: lftp, iperf3, UFTP, TFTP, and a QUIC library.

use std::{fs::File, process::Stdio, time::Duration};

use anyhow::Context;
use serde_json::Value;
use units::ByteCount;

use super::{
    TrialFailure, TrialResult,
    arrived::{compare, stored_bytes},
    process::{BackgroundProcess, at, run_limited},
};
use crate::{
    cell::{Cell, TrialDirection},
    side::{TFTP_BLOCK_BYTES, TFTP_WINDOW_BLOCKS},
    stage::{self, Stage},
};
use emulator::Site;
use units::calc::SEGMENT;

/// Moves one file with lftp, in eight concurrent parts.
pub(super) fn lftp_pget(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let work = cell.work;
    if (work.direction, work.files) != (TrialDirection::Down, 1) {
        let why = "pget downloads single files only";
        return Err(TrialFailure::NotTried(why.to_owned()));
    }
    let local = stage.client_file("pget.bin");
    let _ = std::fs::remove_file(&local);
    let script = format!(
        "set net:max-retries 1; set ftp:use-abor no; set xfer:use-temp-file no; set pget:save-status never; \
         set file:use-fallocate no; \
         open ftp://anonymous:eval@{}; cd /; shell date +{MARK}%s.%N; pget -n 8 {} -o {}; shell date +{MARK}%s.%N",
        stage.server_address,
        stage::name(TrialDirection::Down, 0),
        local.display()
    );
    let mut command = at(stage, Site::A, "lftp")?;
    command.args(["-c", &script]);
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        return Ok(TrialResult::cut_off(
            stored_bytes(&local).min(work.size_bytes),
            ended.time,
        ));
    }
    ended.succeeded()?;
    compare(&local, stage.content.hash(ByteCount::new(work.size_bytes)))?;
    // The time counts from the transfer command. As with the other clients, it excludes the login.
    let marks = ended
        .said
        .lines()
        .filter_map(|line| line.strip_prefix(MARK));
    let marks: Vec<f64> = marks.filter_map(|mark| mark.parse().ok()).collect();
    let [begun, over] = marks[..] else {
        return Err(anyhow::anyhow!("lftp has not told its times").into());
    };
    Ok(TrialResult::complete(
        cell,
        Duration::from_secs_f64(over - begun),
    ))
}

/// Sends bytes with iperf3 over one TCP connection, without files.
pub(super) fn iperf3(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let before = stage.read()?;
    let port = IPERF3_PORT.to_string();
    let mut server = at(stage, Site::B, "iperf3")?;
    server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null());
    let _server = BackgroundProcess::serve(server, stage, Site::B, IPERF3_PORT)?;
    let bytes = cell.work.bytes().bytes();
    let host = stage.server_address.ip().to_string();
    let mut command = at(stage, Site::A, "iperf3")?;
    command.args(["-c", &host, "-p", &port, "-J", "-n", &bytes.to_string()]);
    if cell.work.direction == TrialDirection::Down {
        command.arg("-R");
    }
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        let index = usize::from(cell.work.direction == TrialDirection::Down);
        let passed = stage.read()?.delivered_bytes[index] - before.delivered_bytes[index];
        let payload = passed * SEGMENT.bytes() / FULL_PACKET_BYTES;
        return Ok(TrialResult::cut_off(payload, ended.time));
    }
    ended.succeeded()?;
    let said: Value = serde_json::from_str(&ended.said).context("what iperf3 printed")?;
    let sum = &said["end"]["sum_received"];
    let (received, seconds) = sum["bytes"]
        .as_u64()
        .zip(sum["seconds"].as_f64())
        .context("iperf3 printed no sum")?;
    Ok(TrialResult {
        bytes: received,
        time: Duration::from_secs_f64(seconds),
        is_complete: true,
        ..TrialResult::default()
    })
}

/// Moves files with UFTP, a paced UDP protocol without congestion control, at the path's rate.
pub(super) fn uftp(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let work = cell.work;
    if work.clients > 1 {
        return Err(TrialFailure::NotTried("one sender has one rate".to_owned()));
    }
    // The sender runs at the site that has the files.
    let (sender, receiver) = match work.direction {
        TrialDirection::Down => (Site::B, Site::A),
        TrialDirection::Up => (Site::A, Site::B),
    };
    let sources = (0..work.files).map(|number| stage::name(work.direction, number));
    let sources: Vec<_> = sources
        .map(|name| stage.source(&name, cell))
        .collect::<Result<_, _>>()?;
    let arrived = stage.client_file("uftp");
    let _ = std::fs::remove_dir_all(&arrived);
    std::fs::create_dir(&arrived).context("a folder for UFTP")?;
    let port = UFTP_PORT.to_string();
    let mut daemon = at(stage, receiver, "uftpd")?;
    daemon.arg("-d").arg("-D").arg(&arrived).args(["-p", &port]);
    daemon.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = BackgroundProcess::serve(daemon, stage, receiver, UFTP_PORT)?;
    let mut command = at(stage, sender, "uftp")?;
    let rate_kbit = format!("{:.0}", uftp_rate_kbit_per_s(cell));
    command.args(["-R", &rate_kbit, "-p", &port]);
    command
        .args(["-M", &stage.address(receiver).to_string()])
        .args(&sources);
    let ended = run_limited(command, limit)?;
    let stored = || {
        let names = sources.iter().filter_map(|path| path.file_name());
        names
            .map(|name| stored_bytes(&arrived.join(name)))
            .sum::<u64>()
    };
    if !ended.is_over {
        return Ok(TrialResult::cut_off(
            stored().min(work.bytes().bytes()),
            ended.time,
        ));
    }
    ended.succeeded()?;
    let expected = stage.content.hash(ByteCount::new(work.size_bytes));
    for source in &sources {
        let path = arrived.join(source.file_name().unwrap_or_default());
        compare(&path, expected)?;
    }
    Ok(TrialResult::complete(cell, ended.time))
}

/// Returns the rate to set in UFTP: slightly less than the payload rate that the path permits. UFTP
/// counts only payload in its rate, and a higher rate would overflow the queue.
fn uftp_rate_kbit_per_s(cell: &Cell) -> f64 {
    let wire_bytes = ByteCount::new(UFTP_PACKET_BYTES as u64 + ETHERNET_BYTES);
    let packet_time = match cell.path.radio() {
        Some(radio) => radio.airtime(UFTP_PACKET_BYTES),
        None => cell.transfer().rate.time_to_send(wire_bytes),
    };
    UFTP_RATE_SHARE * UFTP_BLOCK_BYTES * 8.0 / packet_time.as_secs_f64() / 1e3
}

/// Moves one file with TFTP in windows of 64 blocks (RFC 7440).
pub(super) fn tftp(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let work = cell.work;
    if (work.direction, work.files) != (TrialDirection::Down, 1) {
        let why = "tried with downloads of single files only";
        return Err(TrialFailure::NotTried(why.to_owned()));
    }
    let host = stage.address(Site::B).to_string();
    let port = TFTP_PORT.to_string();
    let mut daemon = at(stage, Site::B, "atftpd")?;
    daemon.args(["--daemon", "--no-fork", "--port", &port]);
    daemon.args(["--bind-address", &host]);
    daemon
        .args(["--user", "root.root", "--verbose=0"])
        .arg(stage.server_folder());
    daemon.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = BackgroundProcess::serve(daemon, stage, Site::B, TFTP_PORT)?;
    let local = stage.client_file("tftp.bin");
    let _ = std::fs::remove_file(&local);
    let mut command = at(stage, Site::A, "atftp")?;
    command.args(["--get", "--option", &format!("blksize {TFTP_BLOCK_BYTES}")]);
    command.args(["--option", &format!("windowsize {TFTP_WINDOW_BLOCKS}")]);
    command
        .args(["-r", &stage::name(TrialDirection::Down, 0), "-l"])
        .arg(&local)
        .args([&host, &port]);
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        let bytes = local.metadata().map_or(0, |file| file.len());
        return Ok(TrialResult::cut_off(bytes, ended.time));
    }
    ended.succeeded()?;
    compare(&local, stage.content.hash(ByteCount::new(work.size_bytes)))?;
    Ok(TrialResult::complete(cell, ended.time))
}

/// Moves files with the QUIC example program of this crate.
pub(super) fn quic(
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let example = |site: Site| {
        let why = "the example is not built: cargo build --release -p longhaul-eval --example quic";
        let command = stage.example(site, "quic")?;
        command.ok_or(TrialFailure::NotTried(why.to_owned()))
    };
    let address = format!("{}:{QUIC_PORT}", stage.address(Site::B));
    let [server_said, certificate] =
        ["quic-server", "quic.der"].map(|name| stage.client_file(name));
    let mut server = example(Site::B)?;
    server.args(["serve", &address]).arg(&certificate);
    server.stdout(File::create(&server_said).context("a log")?);
    let _server = BackgroundProcess::serve(server, stage, Site::B, QUIC_PORT)?;
    let what = match cell.work.direction {
        TrialDirection::Down => "get",
        TrialDirection::Up => "put",
    };
    let bytes = cell.work.bytes().bytes();
    let mut command = example(Site::A)?;
    command.args([what, &address, &bytes.to_string()]);
    command.arg(&certificate);
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        // The receiver reports its progress.
        let said = match cell.work.direction {
            TrialDirection::Down => ended.said,
            TrialDirection::Up => std::fs::read_to_string(&server_said).context("a log")?,
        };
        let told = said.lines().rev().find_map(|line| line.parse().ok());
        return Ok(TrialResult::cut_off(told.unwrap_or(0), ended.time));
    }
    ended.succeeded()?;
    let mut seconds = ended
        .said
        .lines()
        .filter_map(|line| line.strip_prefix("seconds: "));
    let seconds = seconds.next().and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.context("the QUIC client told no time")?;
    Ok(TrialResult::complete(
        cell,
        Duration::from_secs_f64(seconds),
    ))
}

/// Text before a time in lftp's output.
const MARK: &str = "time:";
/// Payload bytes of a UFTP block, by UFTP's default.
const UFTP_BLOCK_BYTES: f64 = 1300.0;
/// Bytes of a block's IP packet: payload 1300, UFTP header 28, UDP header 8, IP header 20.
const UFTP_PACKET_BYTES: usize = 1356;
/// UFTP's sending rate as a fraction of the path's rate. The remaining rate serves packets in the
/// other direction.
const UFTP_RATE_SHARE: f64 = 0.97;
/// Ethernet framing bytes of a packet: header 14, check sequence 4, preamble 8, gap 12.
const ETHERNET_BYTES: u64 = 38;
/// Bytes of a full IP packet. Its TCP payload is a [`SEGMENT`].
const FULL_PACKET_BYTES: u64 = 1500;
const UFTP_PORT: u16 = 1044;
const QUIC_PORT: u16 = 4433;
const IPERF3_PORT: u16 = 5201;
const TFTP_PORT: u16 = 69;
