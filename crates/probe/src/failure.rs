//! Failure of one trial. Each failure has a kind, so that failures can be counted by kind.

use std::{collections::BTreeMap, fmt, io, time::Duration};

use serde::{Deserialize, Serialize};

/// Failure of one trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{during}: {kind}: {detail}")]
pub struct Failure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// The step that failed, such as `RETR` or `connecting`.
    pub during: String,
    /// Text of the error, or text that the server sent.
    pub detail: String,
}

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The connection was refused, because no program listens at the address.
    Refused,
    /// No route leads to the address.
    Unreachable,
    /// The peer did not react within the time limit.
    TimedOut,
    /// The peer or a middlebox reset the connection.
    Reset,
    /// The peer closed the connection without an error before the expected end.
    Ended,
    /// A reply with an unexpected code or content.
    UnexpectedReply,
    /// The received bytes differ from the bytes that were stored or sent.
    WrongData,
    /// Fewer bytes arrived than expected.
    TooShort,
    /// The operating system of this machine refused an operation.
    Local,
}

impl Failure {
    pub(crate) fn new(
        kind: FailureKind,
        during: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            during: during.into(),
            detail: detail.into(),
        }
    }

    /// Returns the failure for an error of a socket.
    pub(crate) fn io(during: &str, error: &io::Error) -> Self {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            E::ConnectionRefused => FailureKind::Refused,
            E::HostUnreachable | E::NetworkUnreachable => FailureKind::Unreachable,
            E::TimedOut | E::WouldBlock => FailureKind::TimedOut,
            E::ConnectionReset | E::ConnectionAborted | E::BrokenPipe => FailureKind::Reset,
            E::UnexpectedEof => FailureKind::Ended,
            _ => FailureKind::Local,
        };
        Self::new(kind, during, error.to_string())
    }

    /// Returns the failure of a step that made no progress during the time `after`.
    pub(crate) fn timed_out(during: &str, after: Duration) -> Self {
        let detail = format!("nothing for {} s", after.as_secs_f64());
        Self::new(FailureKind::TimedOut, during, detail)
    }
}

/// Waits for a socket operation. Returns a failure if the operation takes longer than
/// `reply_timeout`.
pub(super) async fn within<T>(
    during: &str,
    reply_timeout: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(reply_timeout, work).await {
        Ok(done) => done.map_err(|error| Failure::io(during, &error)),
        Err(_) => Err(Failure::timed_out(during, reply_timeout)),
    }
}

/// Returns the number of failures of each kind.
pub(super) fn count<'a>(
    failures: impl Iterator<Item = &'a Failure>,
) -> BTreeMap<FailureKind, usize> {
    let mut counts = BTreeMap::new();
    for failure in failures {
        *counts.entry(failure.kind).or_default() += 1;
    }
    counts
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed out",
            Self::Reset => "reset",
            Self::Ended => "ended early",
            Self::UnexpectedReply => "unexpected reply",
            Self::WrongData => "wrong data",
            Self::TooShort => "too short",
            Self::Local => "refused by this system",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_sockets_are_distinguished() {
        for (error, kind) in [
            (io::ErrorKind::ConnectionRefused, FailureKind::Refused),
            (io::ErrorKind::ConnectionReset, FailureKind::Reset),
            (io::ErrorKind::TimedOut, FailureKind::TimedOut),
            (io::ErrorKind::UnexpectedEof, FailureKind::Ended),
            (io::ErrorKind::AddrInUse, FailureKind::Local),
        ] {
            assert_eq!(Failure::io("x", &error.into()).kind, kind, "{error:?}");
        }
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let failures = [FailureKind::Reset, FailureKind::Ended, FailureKind::Reset]
            .map(|kind| Failure::new(kind, "RETR", ""));
        let counts = count(failures.iter());
        assert_eq!(counts[&FailureKind::Reset], 2);
        assert_eq!(counts[&FailureKind::Ended], 1);
    }
}
