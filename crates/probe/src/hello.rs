//! The first line of each connection to a probe's peer: what the connection is for.
//!
//! `longhaul-probe/1 ` and a JSON object, ended by a newline. It travels through anything that forwards
//! TCP. What a peer answers is the business of each measurement.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Failure,
    task::{tcp, udp},
};

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Hello {
    /// A short request: the peer answers with the token and so many bytes, and ends the connection.
    Transaction {
        /// Comes back in front of the answer.
        token: u64,
        /// Bytes of the answer behind the token.
        answer_bytes: u64,
    },
    /// So many bytes follow, and the peer returns the last [`ECHO_BYTES`] of them.
    Bulk {
        /// How many.
        bytes: u64,
    },
    /// Datagrams of this client come back as long as this connection lasts. The peer answers with [`Ready`].
    Ping {},
    /// A test of bulk TCP. The peer answers with [`Ready`], and at the end with its part of the record.
    Tcp(tcp::Task),
    /// A stream of such a test.
    Stream {
        /// From [`Ready`].
        id: u64,
        /// From 0.
        index: u16,
    },
    /// A test of UDP. The peer answers with [`Ready`], and at the end with its part of the record.
    Udp(udp::Task),
}

/// The peer's answer where a test has several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Belongs to all parts; nobody else can know it.
    pub id: u64,
    /// Where streams with the test's window are taken, if the way leads there: a window's scale is chosen
    /// while a connection is made, from the buffers of the socket that listens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
}

impl Ready {
    pub(super) fn new(id: u64) -> Self {
        Self { id, port: None }
    }
}

/// The peer's answer when all streams of a test of TCP are there. [`GO`] from the client starts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Why one cannot be used.
    pub failure: Option<Failure>,
}

/// The peer's answer to [`GO`], when its own streams begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {}

/// Why a line is no hello.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It is not of this protocol, or of another version of it.
    #[error("not a probe of this version")]
    Foreign,
    /// It names nothing that a peer does.
    #[error("not understood: {0}")]
    Malformed(String),
    /// It asks for more than any peer gives.
    #[error("out of bounds: {0}")]
    OutOfBounds(&'static str),
}

impl Hello {
    /// Reads a line without its newline.
    ///
    /// # Errors
    /// [`HelloError`] if a peer must not do what it says.
    pub fn parse(line: &[u8]) -> Result<Self, HelloError> {
        let json = line
            .strip_prefix(PREFIX.as_bytes())
            .ok_or(HelloError::Foreign)?;
        let hello: Self =
            serde_json::from_slice(json).map_err(|e| HelloError::Malformed(e.to_string()))?;
        hello.check()?;
        Ok(hello)
    }

    /// The line, with its newline.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).expect("plain values");
        format!("{PREFIX}{json}\n")
    }

    fn check(&self) -> Result<(), HelloError> {
        let bounded = |what, value: u64, max: u64| {
            (value <= max)
                .then_some(())
                .ok_or(HelloError::OutOfBounds(what))
        };
        match self {
            Self::Transaction { answer_bytes, .. } => {
                bounded("answer: 1 MiB at most", *answer_bytes, ANSWER_MAX_BYTES)
            }
            Self::Bulk { bytes } if *bytes < ECHO_BYTES as u64 => {
                Err(HelloError::OutOfBounds(BULK_BOUNDS))
            }
            Self::Bulk { bytes } => bounded(BULK_BOUNDS, *bytes, BULK_MAX_BYTES),
            Self::Ping {} | Self::Stream { .. } => Ok(()),
            Self::Tcp(task) => task.check().map_err(HelloError::OutOfBounds),
            Self::Udp(task) => task.check().map_err(HelloError::OutOfBounds),
        }
    }
}

/// Longest line, newline included.
pub const LINE_MAX_BYTES: usize = 1024;
/// What starts all streams of a test of TCP, over its control connection.
pub const GO: &str = "go\n";
/// How long a peer waits for the line.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that come back at the end of a bulk transfer.
pub const ECHO_BYTES: usize = 16;
/// Of a transaction.
pub const ANSWER_MAX_BYTES: u64 = 1 << 20;
/// A tebibyte: hours at 1 Gbit/s.
const BULK_MAX_BYTES: u64 = 1 << 40;
const BULK_BOUNDS: &str = "size: from 16 B to 1 TiB";
const PREFIX: &str = "longhaul-probe/1 ";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for hello in [
            Hello::Transaction {
                token: u64::MAX,
                answer_bytes: 0,
            },
            Hello::Bulk { bytes: 1 << 40 },
            Hello::Ping {},
            Hello::Stream { id: 7, index: 1 },
            Hello::Tcp(tcp::Task {
                direction: tcp::Direction::Both,
                streams: 4,
                window_bytes: Some(65_536),
                congestion: Some("bbr".to_owned()),
                limit: tcp::Limit::Time { ms: 10_000 },
            }),
            Hello::Udp(udp::Task {
                direction: udp::Direction::Down,
                packets: 1000,
                payload_bytes: 1400,
                rate_bits_per_s: 1_000_000,
            }),
        ] {
            let line = hello.line();
            assert!(line.len() <= LINE_MAX_BYTES);
            assert_eq!(Hello::parse(line.trim_end().as_bytes()), Ok(hello));
        }
    }

    #[test]
    fn what_a_peer_must_not_do_is_refused() {
        for (line, error) in [
            ("GET / HTTP/1.1", HelloError::Foreign),
            ("longhaul-probe/2 {}", HelloError::Foreign),
            (
                r#"longhaul-probe/1 {"bulk":{"bytes":1099511627777}}"#,
                HelloError::OutOfBounds(BULK_BOUNDS),
            ),
            (
                r#"longhaul-probe/1 {"bulk":{"bytes":15}}"#,
                HelloError::OutOfBounds(BULK_BOUNDS),
            ),
            (
                r#"longhaul-probe/1 {"udp":{"direction":"down","packets":9,"payload_bytes":31,"rate_bits_per_s":9}}"#,
                HelloError::OutOfBounds("size: from 32 to 65507 bytes"),
            ),
        ] {
            assert_eq!(Hello::parse(line.as_bytes()), Err(error), "{line}");
        }
        let unknown = br#"longhaul-probe/1 {"bulk":{"bytes":99,"x":1}}"#;
        assert!(matches!(
            Hello::parse(unknown),
            Err(HelloError::Malformed(_))
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_an_error(
            is_ours in any::<bool>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let line = if is_ours { [PREFIX.as_bytes(), &bytes].concat() } else { bytes };
            let _ = Hello::parse(&line);
        }
    }
}
