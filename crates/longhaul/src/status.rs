//! `longhaul status`: what a running gateway is doing.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context as _;
use gateway::status::Snapshot;

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the snapshot as JSON.
    #[arg(long)]
    json: bool,
    /// The gateway's admin address.
    #[arg(long, default_value = "127.0.0.1:9810")]
    admin: SocketAddr,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let body = fetch(args.admin)
        .with_context(|| format!("no gateway answers at {} (set [admin] listen?)", args.admin))?;
    let snapshot: Snapshot = serde_json::from_str(&body).with_context(|| {
        format!(
            "what answers at {} is no gateway of this version",
            args.admin
        )
    })?;
    let text = if args.json {
        format!("{body}\n")
    } else {
        snapshot.to_string()
    };
    output::print(&text)
}

/// The body of `/status.json`. One request, one answer: HTTP/1.0 needs no library.
fn fetch(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /status.json HTTP/1.0\r\nHost: gateway\r\n\r\n")?;
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
