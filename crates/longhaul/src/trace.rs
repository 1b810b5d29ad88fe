//! `longhaul trace`: writes what the link to a peer does as qlog.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use gatewayd::admin_socket;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::{sleep, timeout},
};

use crate::{admin::AdminPlace, exit, output, places};

/// A connection to a gateway.
type Stream = Box<dyn Connection>;

trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection for T {}

/// Write down what the link to a peer does
///
/// The gateway samples each of the peer's connections every 10 ms while something changes, and otherwise every
/// second: round trip, queue, allowed rate, bytes in flight, packets sent, received, lost and repeated. Changes of
/// state are written as they come. The file is qlog in JSON text sequences, for qvis for example. The command
/// ends after --seconds, at Ctrl-C, or when the gateway ends. The gateway must run on this machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul trace oslo --seconds 30
  longhaul trace oslo --out oslo.sqlog
  longhaul trace oslo --out - | tr -d '\\036' | jq -c 'select(.name == \"longhaul:packets_lost\")'

Exit codes: 0 done; 1 no gateway answers, it ended first, it has four traces already, or the file
cannot be written; 2 wrong use, or an unknown peer.")]
pub(crate) struct Args {
    /// The name of the peer, as 'longhaul status' shows it
    peer: String,
    /// End after this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Write to this file, and replace it; '-' is standard output [default: longhaul-PEER-TIME.sqlog]
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
    let mut asked = Err(anyhow::anyhow!("no place is known"));
    for place in places {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let answer = timeout(PATIENCE, ask(place, &args.peer)).await;
        let answer = answer.unwrap_or_else(|_| Err(late().into()));
        asked = answer
            .map(|answer| (place, answer))
            .with_context(|| place.no_answer());
        if asked.is_ok() {
            break;
        }
    }
    let (admin, (code, mut stream, first)) = asked?;
    if code != 200 {
        let mut text = first;
        let mut rest = stream.take(HEAD_MAX_BYTES as u64);
        // What has come says enough.
        let _ = timeout(PATIENCE, rest.read_to_end(&mut text)).await;
        let text = String::from_utf8_lossy(&text);
        return Err(match code {
            404 if !text.is_empty() => exit::misuse(text.trim().to_owned()),
            _ => anyhow::anyhow!("the gateway at {admin} begins no trace: {}", text.trim()),
        });
    }
    let mut file = Written::create(args)?;
    file.take(&first)?;
    let time = async {
        match args.seconds {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(interrupted, time);
    let mut buffer = vec![0; 64 << 10];
    let is_whole = loop {
        tokio::select! {
            () = &mut interrupted => break true,
            () = &mut time => break true,
            read = stream.read(&mut buffer) => match read {
                Ok(0) | Err(_) => break false,
                Ok(length) => file.take(&buffer[..length])?,
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

/// Asks for a trace. Returns the status of HTTP, and what has come of the body.
async fn ask(admin: &AdminPlace, peer: &str) -> anyhow::Result<(u16, Stream, Vec<u8>)> {
    let mut stream: Stream = match admin {
        AdminPlace::Socket { path, key_file } => {
            let stream = admin_socket::connect(path, key_file.as_deref())?;
            stream.set_nonblocking(true)?;
            Box::new(UnixStream::from_std(stream)?)
        }
        AdminPlace::Address(address) => Box::new(TcpStream::connect(address).await?),
    };
    let host = admin.host();
    let peer = utf8_percent_encode(peer, NON_ALPHANUMERIC);
    let request = format!("GET /trace?peer={peer} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        let length = stream.read_buf(&mut head).await?;
        anyhow::ensure!(
            length > 0 && head.len() < HEAD_MAX_BYTES,
            "the answer is not HTTP"
        );
    };
    let body = head.split_off(end);
    let code = String::from_utf8_lossy(&head);
    let code = code.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.context("the answer is not HTTP")?, stream, body))
}

/// The file, and what has been written.
struct Written {
    name: String,
    out: Box<dyn Write>,
    /// The beginning of a record.
    pending: Vec<u8>,
    events: u64,
    samples_lost: u64,
    progress: ProgressBar,
    is_standard_output: bool,
}

impl Written {
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

    /// Writes the records that are whole.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.pending.extend_from_slice(bytes);
        let Some(end) = self.pending.iter().rposition(|it| *it == b'\n') else {
            let is_record = self.pending.len() < RECORD_MAX_BYTES;
            anyhow::ensure!(is_record, "what the gateway sends is no trace");
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
        // The first record says what the others are.
        let events = self.events.saturating_sub(1);
        match self.samples_lost {
            0 => format!("{events} events"),
            lost => format!(
                "{events} events; {lost} samples were lost, because nobody took them in time"
            ),
        }
    }
}

/// Samples that the gateway lost, as a record says.
fn lost(record: &[u8]) -> u64 {
    let name = br#""longhaul:samples_lost""#;
    if !record.windows(name.len()).any(|it| it == name) {
        return 0;
    }
    let record: Value = serde_json::from_slice(record).unwrap_or_default();
    record["data"]["count"].as_u64().unwrap_or_default()
}

/// A name that no other trace has.
fn usual_name(peer: &str) -> PathBuf {
    let is_plain = |it: char| it.is_alphanumeric() || "-_.".contains(it);
    let peer: String = peer
        .chars()
        .map(|it| if is_plain(it) { it } else { '_' })
        .collect();
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    PathBuf::from(format!("longhaul-{peer}-{time}.sqlog"))
}

/// Begins each record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;
const PATIENCE: Duration = Duration::from_secs(5);
const HEAD_MAX_BYTES: usize = 64 << 10;
/// A record has some 300 bytes.
const RECORD_MAX_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn to_memory() -> Written {
        Written {
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
