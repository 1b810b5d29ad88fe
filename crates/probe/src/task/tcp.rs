//! The task of a bulk TCP test.

use std::{io, time::Duration};

use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};

/// The direction of the data, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpDirection {
    /// Towards the peer.
    Up,
    /// From the peer.
    Down,
    /// Both at once, with the same number of streams in each direction.
    Both,
}

/// When a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StreamLimit {
    /// The sender stops after this time; queued bytes still arrive.
    Time {
        /// Time in milliseconds.
        ms: u64,
    },
    /// After this many bytes.
    Bytes {
        /// For each stream.
        count: u64,
    },
}

/// A bulk TCP test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpTask {
    /// Direction of the bytes.
    pub direction: TcpDirection,
    /// Connections in each direction.
    pub streams: u16,
    /// Send and receive buffers at both ends; [`crate::tcp::StreamEnd`] has the effective sizes.
    /// `None`: buffers that grow.
    pub window_bytes: Option<u64>,
    /// Congestion control by the kernel's name; `None`: the system's choice.
    pub congestion: Option<String>,
    /// End of each stream.
    pub limit: StreamLimit,
}

impl TcpTask {
    /// Ten seconds to the peer over one connection.
    pub fn new() -> Self {
        Self {
            direction: TcpDirection::Up,
            streams: 1,
            window_bytes: None,
            congestion: None,
            limit: StreamLimit::Time { ms: 10_000 },
        }
    }

    /// Checks the bounds. The error names the field that is out of bounds.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            return Err("streams: from 1 to 100");
        }
        if self
            .window_bytes
            .is_some_and(|bytes| !(1..=WINDOW_MAX_BYTES).contains(&bytes))
        {
            return Err("window: from 1 B to 1 GiB");
        }
        let is_name = |name: &String| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            (1..=15).contains(&name.len()) && name.bytes().all(is_plain)
        };
        if !self.congestion.as_ref().is_none_or(is_name) {
            return Err("congestion: 1 to 15 letters, digits, _ and -");
        }
        match self.limit {
            StreamLimit::Time { ms } if (1..=TIME_MAX_MS).contains(&ms) => Ok(()),
            StreamLimit::Bytes { count } if (1..=BYTES_MAX).contains(&count) => Ok(()),
            StreamLimit::Time { .. } => Err("time: from 1 ms to 1 h"),
            StreamLimit::Bytes { .. } => Err("bytes: from 1 B to 1 TiB"),
        }
    }

    /// Connections of both directions together.
    pub(crate) fn all_streams(&self) -> usize {
        let ways = if self.direction == TcpDirection::Both {
            2
        } else {
            1
        };
        usize::from(self.streams) * ways
    }

    /// Whether the client sends on the stream with this number.
    pub(crate) fn client_sends(&self, index: u16) -> bool {
        match self.direction {
            TcpDirection::Up => true,
            TcpDirection::Down => false,
            TcpDirection::Both => index < self.streams,
        }
    }

    /// Longest time of a test.
    pub(crate) fn time_max(&self) -> Duration {
        let sending = match self.limit {
            StreamLimit::Time { ms } => Duration::from_millis(ms),
            StreamLimit::Bytes { .. } => Duration::from_millis(TIME_MAX_MS),
        };
        sending + 4 * STALL_MAX
    }

    /// Applies the task's window and congestion control to a socket.
    pub(crate) fn prepare(&self, socket: impl std::os::fd::AsFd) -> io::Result<()> {
        if let Some(bytes) = self.window_bytes {
            // The kernel doubles the size, for its own overhead.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            setsockopt(&socket, sockopt::RcvBuf, &bytes)?;
            setsockopt(&socket, sockopt::SndBuf, &bytes)?;
        }
        if let Some(name) = &self.congestion {
            setsockopt(&socket, sockopt::TcpCongestion, &name.into())?;
        }
        Ok(())
    }
}

impl Default for TcpTask {
    fn default() -> Self {
        Self::new()
    }
}

/// Silence after which a stream fails.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// Largest number of streams: in both directions together below a peer's limit of connections.
const STREAMS_MAX: u16 = 100;
const WINDOW_MAX_BYTES: u64 = 1 << 30;
/// An hour.
const TIME_MAX_MS: u64 = 60 * 60 * 1000;
const BYTES_MAX: u64 = 1 << 40;
