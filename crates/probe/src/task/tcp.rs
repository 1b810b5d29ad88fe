//! Task of a bulk TCP test.

use std::{io, time::Duration};

use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};

/// Direction of the data, as seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpDirection {
    /// From the client to the peer.
    Up,
    /// From the peer to the client.
    Down,
    /// Both directions at the same time, with the same number of streams in each direction.
    Both,
}

/// Condition that ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StreamLimit {
    /// The sender stops after this time. Queued bytes still arrive.
    Time {
        /// Time in milliseconds.
        ms: u64,
    },
    /// The sender stops after this number of bytes.
    Bytes {
        /// Number of bytes for each stream.
        count: u64,
    },
}

/// Task of a bulk TCP test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpTask {
    /// Direction of the data.
    pub direction: TcpDirection,
    /// Number of connections in each direction.
    pub streams: u16,
    /// Size of the send and receive buffers on both hosts, in bytes. [`crate::tcp::StreamEnd`]
    /// contains the effective sizes. If `None`, the kernel adjusts the buffers.
    pub window_bytes: Option<u64>,
    /// Kernel's name of the congestion control algorithm. If `None`, the system's default is used.
    pub congestion: Option<String>,
    /// Condition that ends each stream.
    pub limit: StreamLimit,
}

impl TcpTask {
    /// Creates a test that sends to the peer for 10 s over one connection.
    pub fn new() -> Self {
        Self {
            direction: TcpDirection::Up,
            streams: 1,
            window_bytes: None,
            congestion: None,
            limit: StreamLimit::Time { ms: 10_000 },
        }
    }

    /// Checks that all fields are within their limits. The error names the field that exceeds its
    /// limits.
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

    /// Returns the number of connections of both directions together.
    pub(crate) fn all_streams(&self) -> usize {
        let ways = if self.direction == TcpDirection::Both {
            2
        } else {
            1
        };
        usize::from(self.streams) * ways
    }

    /// Returns whether the client sends on the stream with this number.
    pub(crate) fn client_sends(&self, index: u16) -> bool {
        match self.direction {
            TcpDirection::Up => true,
            TcpDirection::Down => false,
            TcpDirection::Both => index < self.streams,
        }
    }

    /// Returns the longest time that the test may take.
    pub(crate) fn time_max(&self) -> Duration {
        let sending = match self.limit {
            StreamLimit::Time { ms } => Duration::from_millis(ms),
            StreamLimit::Bytes { .. } => Duration::from_millis(TIME_MAX_MS),
        };
        sending + 4 * STALL_MAX
    }

    /// Sets the task's window and congestion control on a socket.
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

/// Time without progress after which a stream fails.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// Maximum number of streams in each direction. Streams in both directions together stay below the
/// peer's limit on connections.
const STREAMS_MAX: u16 = 100;
const WINDOW_MAX_BYTES: u64 = 1 << 30;
/// Maximum time of a test in milliseconds: one hour.
const TIME_MAX_MS: u64 = 60 * 60 * 1000;
const BYTES_MAX: u64 = 1 << 40;
