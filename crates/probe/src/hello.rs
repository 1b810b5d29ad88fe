//! The first line of each connection to a probe's peer. It names the purpose of the connection.
//!
//! The line is `longhaul-probe/1 `, a JSON object and a newline. It passes through anything that
//! forwards TCP. Each kind of measurement defines the peer's answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Failure,
    task::{tcp, udp},
};

/// The purpose of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProbeHello {
    /// A short request: the peer answers with the token and `answer_bytes` bytes, and closes the
    /// connection.
    Transaction {
        /// Precedes the answer.
        token: u64,
        /// Bytes of the answer after the token.
        answer_bytes: u64,
    },
    /// `bytes` bytes follow, and the peer returns the last [`ECHO_BYTES`] of them.
    Bulk {
        /// Number of bytes.
        bytes: u64,
    },
    /// The peer echoes this client's datagrams as long as this connection lasts. The peer answers
    /// with [`TestReady`].
    Ping {},
    /// A bulk TCP test. The peer answers with [`TestReady`], and at the end with its part of the
    /// record.
    Tcp(tcp::TcpTask),
    /// A stream of a bulk TCP test.
    Stream {
        /// The test's number, from [`TestReady`].
        id: u64,
        /// The stream's number, from 0.
        index: u16,
    },
    /// A UDP test. The peer answers with [`TestReady`], and at the end with its part of the record.
    Udp(udp::UdpTask),
}

/// The peer's answer to a test that has several connections or datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReady {
    /// Number of the test. It is random, so that only the client can use it.
    pub id: u64,
    /// Port for streams with the test's window, if the client can reach it. The kernel chooses the
    /// shift of a connection's window from the listening socket's buffers, so this port has a
    /// listening socket of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
}

impl TestReady {
    pub(super) fn new(id: u64) -> Self {
        Self { id, port: None }
    }
}

/// The peer's answer after all streams of a bulk TCP test have joined. [`GO`] from the client then
/// starts the streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsJoined {
    /// Why a stream cannot be used.
    pub failure: Option<Failure>,
}

/// The peer's answer to [`GO`], sent when the peer's own streams begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsBegun {}

/// Why a peer refuses a first line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Another protocol, or another version of this one.
    #[error("not a probe of this version")]
    Foreign,
    /// Not the JSON of a known purpose.
    #[error("not understood: {0}")]
    Malformed(String),
    /// A request beyond a peer's limits.
    #[error("out of bounds: {0}")]
    OutOfBounds(&'static str),
}

impl ProbeHello {
    /// Reads a line without its newline.
    ///
    /// # Errors
    /// [`HelloError`] if a peer must refuse the line.
    pub fn parse(line: &[u8]) -> Result<Self, HelloError> {
        let json = line
            .strip_prefix(PREFIX.as_bytes())
            .ok_or(HelloError::Foreign)?;
        let hello: Self =
            serde_json::from_slice(json).map_err(|e| HelloError::Malformed(e.to_string()))?;
        hello.check()?;
        Ok(hello)
    }

    /// The line with its newline.
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

/// Longest line, with its newline.
pub const LINE_MAX_BYTES: usize = 1024;
/// Starts all streams of a bulk TCP test, over its control connection.
pub const GO: &str = "go\n";
/// Longest time that a peer waits for the line.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the peer returns at the end of a bulk transfer.
pub const ECHO_BYTES: usize = 16;
/// Longest answer of a transaction.
pub const ANSWER_MAX_BYTES: u64 = 1 << 20;
/// Longest bulk transfer, a tebibyte: 2.4 hours at 1 Gbit/s.
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
            ProbeHello::Transaction {
                token: u64::MAX,
                answer_bytes: 0,
            },
            ProbeHello::Bulk { bytes: 1 << 40 },
            ProbeHello::Ping {},
            ProbeHello::Stream { id: 7, index: 1 },
            ProbeHello::Tcp(tcp::TcpTask {
                direction: tcp::TcpDirection::Both,
                streams: 4,
                window_bytes: Some(65_536),
                congestion: Some("bbr".to_owned()),
                limit: tcp::StreamLimit::Time { ms: 10_000 },
            }),
            ProbeHello::Udp(udp::UdpTask {
                direction: udp::UdpDirection::Down,
                packets: 1000,
                payload_bytes: 1400,
                rate_bits_per_s: 1_000_000,
            }),
        ] {
            let line = hello.line();
            assert!(line.len() <= LINE_MAX_BYTES);
            assert_eq!(ProbeHello::parse(line.trim_end().as_bytes()), Ok(hello));
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
            assert_eq!(ProbeHello::parse(line.as_bytes()), Err(error), "{line}");
        }
        let unknown = br#"longhaul-probe/1 {"bulk":{"bytes":99,"x":1}}"#;
        assert!(matches!(
            ProbeHello::parse(unknown),
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
            let _ = ProbeHello::parse(&line);
        }
    }
}
