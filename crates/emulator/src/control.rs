//! The protocol between commands and an emulator in the background. The client sends one line of
//! JSON over a Unix socket, and the emulator replies with one line.
//!
//! A message may also transfer file descriptors. A reply can transfer namespaces, and a request can
//! transfer a file.

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
    /// Request for a site's namespaces. The reply transfers the descriptor of the network
    /// namespace. If the emulator has a user namespace, the descriptor of the user namespace comes
    /// first.
    Namespaces {
        site: Site,
    },
    /// Start of a capture. The request transfers the file's descriptor. The capture lasts until the
    /// client closes its sending half. The emulator then sends a second reply with the size of the
    /// capture.
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

/// Process and configuration of an emulator that runs in the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// Process id of the emulator.
    pub pid: u32,
    /// The configuration with which the emulator started.
    pub config: WanConfig,
}

/// Sends one message. The file descriptors are attached to its first byte.
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

/// Receives one message and its file descriptors.
pub(super) fn hear<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut first = [0];
    let descriptors = sys::receive_with_descriptors(stream, &mut [IoSliceMut::new(&mut first)])?;
    let mut line = first.to_vec();
    let rest = BufReader::new(io::Read::take(stream, LONGEST_MESSAGE)).read_until(b'\n', &mut line);
    rest?;
    Ok((serde_json::from_slice(&line)?, descriptors))
}

/// Timeout for a message. The client and the emulator both reply at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a message: 1 MiB. Usual messages have a few kilobytes.
const LONGEST_MESSAGE: u64 = 1 << 20;
