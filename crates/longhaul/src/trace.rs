//! `longhaul trace`: records the link to a peer, in the format qlog.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::Request;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    admin::{self, AdminPlace},
    exit, output, places,
};

/// Record the activity of the link to a peer
///
/// The gateway samples each connection of the peer every 10 ms during changes, and otherwise every
/// second. A sample contains the round-trip time, the queue, the permitted rate and the bytes in
/// flight. It also contains the numbers of packets sent, received, lost and retransmitted. The
/// trace also records each change of state. The file has the format qlog (JSON text sequences),
/// which tools such as qvis read. The command ends after --seconds, at Ctrl-C, or when the gateway
/// ends. The gateway must run on this machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul trace oslo --seconds 30
  longhaul trace oslo --out oslo.sqlog
  longhaul trace oslo --out - | tr -d '\\036' | jq -c 'select(.name == \"longhaul:packets_lost\")'

Exit codes: 0 done; 1 no gateway answers, the gateway ended first, the gateway already has four
traces, or the file cannot be written; 2 wrong use, or an unknown peer.")]
pub(crate) struct Args {
    /// Name of the peer, as 'longhaul status' shows the name
    peer: String,
    /// End after this number of seconds [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Write the trace to this file, and replace an existing file; '-' means standard output
    /// [default: longhaul-PEER-TIME.sqlog]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let places = args.gateway.places();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(trace(args, &places))
}

async fn trace(args: &Args, places: &[AdminPlace]) -> anyhow::Result<ExitCode> {
    let interrupted = exit::interrupted();
    let peer = utf8_percent_encode(&args.peer, NON_ALPHANUMERIC);
    let path = format!("/trace?peer={peer}");
    let mut asked = Err(anyhow::anyhow!("no address is known"));
    for place in places {
        let answer = admin::open(place, Request::get(&path), "", admin::TIMEOUT).await;
        asked = answer
            .map(|answer| (place, answer))
            .with_context(|| place.no_answer());
        if asked.is_ok() {
            break;
        }
    }
    let (admin, answer) = asked?;
    let code = answer.status().as_u16();
    let mut body = answer.into_body();
    if code != 200 {
        let text = admin::read(body, admin::TIMEOUT).await.unwrap_or_default();
        return Err(match code {
            404 if !text.is_empty() => exit::misuse(text.trim().to_owned()),
            _ => anyhow::anyhow!("the gateway at {admin} begins no trace: {}", text.trim()),
        });
    }
    let mut file = TraceFile::create(args)?;
    let time = async {
        match args.seconds {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(interrupted, time);
    let is_whole = loop {
        tokio::select! {
            () = &mut interrupted => break true,
            () = &mut time => break true,
            frame = body.frame() => match frame {
                Some(Ok(frame)) => file.take(frame.data_ref().map_or(&[], |it| &it[..]))?,
                Some(Err(_)) | None => break false,
            },
        }
    };
    file.end()?;
    if !is_whole {
        eprintln!("longhaul: the gateway has ended the trace");
    }
    Ok(match is_whole {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The output file, with counts of the recorded events.
struct TraceFile {
    name: String,
    out: Box<dyn Write>,
    /// Start of a record whose end has not arrived.
    pending: Vec<u8>,
    events: u64,
    samples_lost: u64,
    progress: ProgressBar,
    is_standard_output: bool,
}

impl TraceFile {
    fn create(args: &Args) -> anyhow::Result<Self> {
        let path = args.out.clone().unwrap_or_else(|| usual_name(&args.peer));
        let is_standard_output = path == Path::new("-");
        let out: Box<dyn Write> = match is_standard_output {
            true => Box::new(io::stdout()),
            false => {
                let file = File::create(&path);
                let file = file.with_context(|| format!("{} cannot be written", path.display()));
                Box::new(BufWriter::new(file?))
            }
        };
        let progress = match output::is_quiet() {
            true => ProgressBar::hidden(),
            false => ProgressBar::new_spinner(),
        };
        let style = ProgressStyle::with_template("{elapsed_precise} {msg}");
        progress.set_style(style.expect("a template"));
        progress.enable_steady_tick(Duration::from_millis(500));
        Ok(Self {
            name: path.display().to_string(),
            out,
            pending: Vec::new(),
            events: 0,
            samples_lost: 0,
            progress,
            is_standard_output,
        })
    }

    /// Adds received bytes. Writes all complete records to the file.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.pending.extend_from_slice(bytes);
        let Some(end) = self.pending.iter().rposition(|it| *it == b'\n') else {
            let is_record = self.pending.len() < RECORD_MAX_BYTES;
            anyhow::ensure!(is_record, "the gateway's answer is not a trace");
            return Ok(());
        };
        let rest = self.pending.split_off(end + 1);
        for record in self.pending.split(|it| *it == RECORD_SEPARATOR).skip(1) {
            self.events += 1;
            self.samples_lost += lost(record);
        }
        let written = self.out.write_all(&self.pending);
        written.with_context(|| format!("{} cannot be written", self.name))?;
        self.pending = rest;
        self.progress.set_message(self.summary());
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<()> {
        let written = self.out.flush();
        written.with_context(|| format!("{} cannot be written", self.name))?;
        self.progress.finish_and_clear();
        let summary = self.summary();
        match self.is_standard_output {
            true if output::is_quiet() => {}
            true => eprintln!("longhaul: {summary}"),
            false => output::print(&format!("{}: {summary}\n", self.name))?,
        }
        Ok(())
    }

    fn summary(&self) -> String {
        // The first record is a header, and no event.
        let events = self.events.saturating_sub(1);
        match self.samples_lost {
            0 => output::counted(events, "event"),
            lost => format!(
                "{}; lost: {}, because this program read too slowly",
                output::counted(events, "event"),
                output::counted(lost, "sample")
            ),
        }
    }
}

/// Returns the number of lost samples that a record reports. Returns zero for any other record.
fn lost(record: &[u8]) -> u64 {
    let name = br#""longhaul:samples_lost""#;
    if !record.windows(name.len()).any(|it| it == name) {
        return 0;
    }
    let record: Value = serde_json::from_slice(record).unwrap_or_default();
    record["data"]["count"].as_u64().unwrap_or_default()
}

/// Returns a file name from the peer's name and the present time.
fn usual_name(peer: &str) -> PathBuf {
    let is_plain = |it: char| it.is_alphanumeric() || "-_.".contains(it);
    let peer: String = peer
        .chars()
        .map(|it| if is_plain(it) { it } else { '_' })
        .collect();
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    PathBuf::from(format!("longhaul-{peer}-{time}.sqlog"))
}

/// Byte that starts each record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;
/// Maximum length of a record in bytes. A usual record has about 300 bytes.
const RECORD_MAX_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn to_memory() -> TraceFile {
        TraceFile {
            name: "memory".into(),
            out: Box::new(io::sink()),
            pending: Vec::new(),
            events: 0,
            samples_lost: 0,
            progress: ProgressBar::hidden(),
            is_standard_output: false,
        }
    }

    #[test]
    fn records_are_counted_however_they_come() {
        let text = "\u{1e}{\"qlog_version\":\"0.3\"}\n\u{1e}{\"name\":\"a\"}\n\
             \u{1e}{\"name\":\"longhaul:samples_lost\",\"data\":{\"count\":5}}\n\u{1e}{\"na";
        for at_once in 1..text.len() {
            let mut written = to_memory();
            for bytes in text.as_bytes().chunks(at_once) {
                written.take(bytes).expect("a sink");
            }
            assert_eq!((written.events, written.samples_lost), (3, 5), "{at_once}");
            assert_eq!(written.pending, b"\x1e{\"na", "what is not whole waits");
        }
        let endless = to_memory().take(&[b'x'; RECORD_MAX_BYTES]);
        assert!(endless.is_err());
    }

    #[test]
    fn the_usual_name_stays_in_the_folder() {
        let name = usual_name("../a b/Ålesund").display().to_string();
        assert!(name.starts_with("longhaul-.._a_b_Ålesund-"), "{name}");
    }
}
