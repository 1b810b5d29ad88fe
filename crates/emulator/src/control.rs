//! The protocol between commands and an emulator in the background: one line of JSON in each
//! direction over a Unix socket. A message may carry file descriptors: an answer carries
//! namespaces, and a request carries a file.

use std::{
    io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use wansim::PathConfig;

use super::{
    capture::{CaptureOptions, CaptureReport},
    config::{Direction, Site, WanConfig},
    report::WanReport,
    sys,
};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ControlRequest {
    Describe,
    Report,
    Configure {
        direction: Direction,
        path: PathConfig,
    },
    Interface {
        site: Site,
        up: bool,
    },
    /// The answer carries descriptors: that of the user namespace, if there is one, and that of the
    /// network namespace.
    Namespaces {
        site: Site,
    },
    /// The request carries the file's descriptor. The capture lasts until the client closes its
    /// sending half; a second answer then has the report.
    Capture {
        site: Site,
        options: CaptureOptions,
    },
    Down,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ControlAnswer {
    Done,
    Description(Box<Description>),
    Report(Box<WanReport>),
    Namespaces { user: bool },
    Captured(CaptureReport),
    Failed(String),
}

/// An emulator that runs in the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// Number of the emulator's process.
    pub pid: u32,
    /// The configuration at its start.
    pub config: WanConfig,
}

/// Sends one message. Descriptors travel with its first byte.
pub(super) fn say<T: Serialize>(
    mut stream: &UnixStream,
    message: &T,
    descriptors: &[OwnedFd],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let first = [IoSlice::new(&line[..1])];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &first,
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    stream.write_all(&line[1..])
}

/// Receives one message and its descriptors.
pub(super) fn hear<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut first = [0];
    let descriptors = sys::receive_with_descriptors(stream, &mut [IoSliceMut::new(&mut first)])?;
    let mut line = first.to_vec();
    let rest = BufReader::new(io::Read::take(stream, LONGEST_MESSAGE)).read_until(b'\n', &mut line);
    rest?;
    Ok((serde_json::from_slice(&line)?, descriptors))
}

/// Longest wait for a message: both ends answer at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest message: 1 MiB, where usual messages have a few kilobytes.
const LONGEST_MESSAGE: u64 = 1 << 20;
