//! `longhaul status`: what a running gateway is doing.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context as _;
use gateway::status::Snapshot;

use serde_json::{Map, Value};

use crate::output::Format;

/// Show what a running gateway is doing
///
/// The command reads `/status.json` at the gateway's admin address. It shows the state of each peer, each
/// transfer with its rate, and what limits the rate: the client, the WAN or the server.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul status
  longhaul status --admin 127.0.0.1:9811 --json

Exit codes: 0 done; 1 no gateway answers; 2 wrong use.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    /// Ask the gateway at this admin address
    #[arg(long, default_value = "127.0.0.1:9810", value_name = "ADDRESS:PORT")]
    admin: SocketAddr,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let body = fetch(args.admin)
        .with_context(|| format!("no gateway answers at {} (set [admin] listen?)", args.admin))?;
    let other = || {
        let at = args.admin;
        format!("what answers at {at} is no gateway of this version")
    };
    let snapshot: Snapshot = serde_json::from_str(&body).with_context(other)?;
    // JSON has all that the gateway tells, also what this program does not know.
    let fields: Map<String, Value> = serde_json::from_str(&body).with_context(other)?;
    args.format.print(&fields, |_| snapshot.to_string())
}

/// The body of `/status.json`. One request, one answer: HTTP/1.0 needs no library.
fn fetch(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /status.json HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX_BYTES).read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    anyhow::ensure!(status.contains(" 200 "), "the answer is {status:?}");
    Ok(body.to_owned())
}

const PATIENCE: Duration = Duration::from_secs(5);

/// Room for tens of thousands of transfers.
const ANSWER_MAX_BYTES: u64 = 64 << 20;
