//! First line of each connection to the probe's peer. The line states the purpose of the
//! connection.
//!
//! The line consists of `longhaul-probe/1 `, a JSON object and a newline. Every TCP forward can
//! transfer this line. Each kind of measurement defines the peer's answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Failure,
    task::{tcp, udp},
};

/// Purpose of a connection to the probe's peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProbeHello {
    /// A short request. The peer answers with the token and `answer_bytes` bytes, and closes the
    /// connection.
    Transaction {
        /// Number that the peer sends before the other bytes of the answer.
        token: u64,
        /// Number of bytes of the answer after the token.
        answer_bytes: u64,
    },
    /// A bulk transfer of `bytes` bytes. The peer returns the last [`ECHO_BYTES`] bytes.
    Bulk {
        /// Number of bytes that follow.
        bytes: u64,
    },
    /// A ping test. The peer answers with [`TestReady`], and then echoes this client's datagrams
    /// until the connection ends.
    Ping {},
    /// A bulk TCP test. The peer answers with [`TestReady`]. At the end it sends its own
    /// measurements.
    Tcp(tcp::TcpTask),
    /// A stream of a bulk TCP test.
    Stream {
        /// Number of the test, from [`TestReady`].
        id: u64,
        /// Number of the stream, counted from 0.
        index: u16,
    },
    /// A UDP test. The peer answers with [`TestReady`]. At the end it sends its own measurements.
    Udp(udp::UdpTask),
}

/// The peer's answer to a test that uses several connections or datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReady {
    /// Number of the test. The number is random, so that no other client can guess it.
    pub id: u64,
    /// Port for the streams of a test with a fixed window. If the client cannot reach this port, it
    /// uses the usual port. The kernel derives the window scale of a connection from the buffers of
    /// the listening socket. Therefore the test needs its own listening socket.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
}

impl TestReady {
    pub(super) fn new(id: u64) -> Self {
        Self { id, port: None }
    }
}

/// The peer's answer after all streams of a bulk TCP test have connected. The client then sends
/// [`GO`], which starts the streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsJoined {
    /// Reason why a stream cannot be used. `None` if all streams can be used.
    pub failure: Option<Failure>,
}

/// The peer's answer to [`GO`]. The peer sends this answer when its own streams begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsBegun {}

/// Reason why a peer refuses the first line of a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The line belongs to another protocol or to another version of this protocol.
    #[error("not a probe of this version")]
    Foreign,
    /// The JSON object does not describe a known purpose.
    #[error("not understood: {0}")]
    Malformed(String),
    /// The request exceeds a limit of the peer.
    #[error("out of bounds: {0}")]
    OutOfBounds(&'static str),
}

impl ProbeHello {
    /// Parses a line without its newline.
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

    /// Returns the line, including its newline.
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

/// Maximum length of the line in bytes, including its newline.
pub const LINE_MAX_BYTES: usize = 1024;
/// Line that starts all streams of a bulk TCP test. The client sends it over the test's control
/// connection.
pub const GO: &str = "go\n";
/// Longest time that a peer waits for the first line.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes that the peer returns at the end of a bulk transfer.
pub const ECHO_BYTES: usize = 16;
/// Maximum length of a transaction's answer in bytes.
pub const ANSWER_MAX_BYTES: u64 = 1 << 20;
/// Maximum size of a bulk transfer: 1 TiB, which takes 2.4 hours at 1 Gbit/s.
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
