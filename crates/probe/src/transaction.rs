//! Short requests and answers. Each request uses its own connection. The probe measures the time
//! until the connection is open, and the time until the answer is complete. The middlebox study
//! measured finger (RFC 1288) in this way.

use std::{
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Arrivals, Failure, FailureKind, ProbeError, clock,
    failure::{self, within},
    hello::{ANSWER_MAX_BYTES, ProbeHello},
};
use bench_kit::stats;

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct TransactionProbe {
    /// Address of the server, or of a forward that leads to the server.
    pub server: SocketAddr,
    /// Name of the route in the records.
    pub label: String,
    /// The request of each transaction.
    pub request: TransactionRequest,
    /// Time without progress after which a transaction fails. The default is 30 s.
    pub timeout: Duration,
    /// Number of transactions, and their start times.
    pub arrivals: Arrivals,
}

/// Request of a transaction. The answer ends when the server closes the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionRequest {
    /// A request to the probe's peer. The probe checks the answer.
    Peer {
        /// Number of bytes in the answer. The maximum is 1 MiB.
        answer_bytes: u64,
    },
    /// A request to any server, which consists of these bytes. An empty answer is a failure.
    Bytes(Vec<u8>),
}

/// Record of one transaction. Times are counted from the beginning of the transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Name of the route.
    pub side: String,
    /// Number of the transaction in the order of arrival, counted from 0.
    pub number: u64,
    /// Time at which the transaction began, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// Time at which the connection was open, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// Time at which the first byte of the answer arrived, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte_us: Option<u64>,
    /// Time at which the server had closed the connection or the transaction had failed, in
    /// microseconds.
    pub ended_us: u64,
    /// Number of bytes of the answer that arrived.
    pub answer_bytes: u64,
    /// Failure of the transaction. `None` after a complete answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Statistics of many transactions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransactionSummary {
    /// Number of transactions that were tried.
    pub tried: usize,
    /// Number of transactions with a complete answer.
    pub complete: usize,
    /// Number of failed transactions, by kind of failure.
    pub failures: std::collections::BTreeMap<FailureKind, usize>,
    /// Statistics of the time until the connection was open, in seconds.
    pub setup_s: Option<stats::Summary>,
    /// Statistics of the duration of successful transactions, in seconds.
    pub total_s: Option<stats::Summary>,
}

impl TransactionProbe {
    /// Creates a probe with one transaction. The server is the probe's peer, and the answer has
    /// 1,000 bytes.
    pub fn new(server: SocketAddr) -> Self {
        Self {
            server,
            label: "direct".to_owned(),
            request: TransactionRequest::Peer { answer_bytes: 1000 },
            timeout: Duration::from_secs(30),
            arrivals: Arrivals::default(),
        }
    }
}

impl Transaction {
    /// Returns the time until the connection was open, in seconds.
    pub fn setup_seconds(&self) -> Option<f64> {
        Some(self.connected_us? as f64 / 1e6)
    }

    /// Returns the duration of the transaction in seconds. Returns `None` if the transaction
    /// failed.
    pub fn total_seconds(&self) -> Option<f64> {
        self.failure.is_none().then_some(self.ended_us as f64 / 1e6)
    }
}

impl TransactionSummary {
    /// Computes the statistics of transactions, which may be in any order.
    pub fn of<'a>(transactions: impl Iterator<Item = &'a Transaction> + Clone) -> Self {
        let seconds = |of: fn(&Transaction) -> Option<f64>| {
            stats::Summary::of(&transactions.clone().filter_map(of).collect::<Vec<_>>())
        };
        let failures = failure::count(transactions.clone().filter_map(|t| t.failure.as_ref()));
        let tried = transactions.clone().count();
        Self {
            tried,
            complete: tried - failures.values().sum::<usize>(),
            failures,
            setup_s: seconds(Transaction::setup_seconds),
            total_s: seconds(Transaction::total_seconds),
        }
    }
}

/// Runs all transactions. Calls `on_record` with each transaction as soon as it has ended. Returns
/// the transactions in the order of arrival.
///
/// # Errors
/// [`ProbeError`] if no transaction could be tried. A failed transaction is a record and not an
/// error.
pub fn run(
    probe: &TransactionProbe,
    on_record: impl FnMut(&Transaction),
) -> Result<Vec<Transaction>, ProbeError> {
    run_by_turns(&[probe], on_record)
}

/// Runs several probes in turn. The arrivals of the first probe are used for all probes. Each probe
/// runs as many transactions as these arrivals contain.
///
/// # Errors
/// [`ProbeError`] if no transaction could be tried.
pub fn run_by_turns(
    probes: &[&TransactionProbe],
    on_record: impl FnMut(&Transaction),
) -> Result<Vec<Transaction>, ProbeError> {
    let Some(first) = probes.first() else {
        return Ok(Vec::new());
    };
    for probe in probes {
        if let TransactionRequest::Peer { answer_bytes } = probe.request
            && answer_bytes > ANSWER_MAX_BYTES
        {
            let message = format!("an answer has {ANSWER_MAX_BYTES} bytes at most");
            return Err(ProbeError::Invalid(message));
        }
    }
    let start = |probe: Rc<TransactionProbe>, number| async move { one(&probe, number).await };
    first.arrivals.drive_by_turns(probes, start, on_record)
}

async fn one(probe: &TransactionProbe, number: u64) -> Transaction {
    let mut record = Transaction {
        side: probe.label.clone(),
        number,
        begun_unix_us: clock::unix_us(),
        connected_us: None,
        first_byte_us: None,
        ended_us: 0,
        answer_bytes: 0,
        failure: None,
    };
    let began = Instant::now();
    record.failure = exchange(probe, &mut record, began).await.err();
    record.ended_us = began.elapsed().as_micros() as u64;
    record
}

async fn exchange(
    probe: &TransactionProbe,
    record: &mut Transaction,
    began: Instant,
) -> Result<(), Failure> {
    let reply_timeout = probe.timeout;
    let now_us = || began.elapsed().as_micros() as u64;
    let connecting = TcpStream::connect(probe.server);
    let mut stream = within("connecting", reply_timeout, connecting).await?;
    record.connected_us = Some(now_us());
    let token = record.begun_unix_us ^ record.number.rotate_left(40);
    let request = match &probe.request {
        TransactionRequest::Bytes(bytes) => bytes.clone(),
        TransactionRequest::Peer { answer_bytes } => ProbeHello::Transaction {
            token,
            answer_bytes: *answer_bytes,
        }
        .line()
        .into_bytes(),
    };
    within("request", reply_timeout, stream.write_all(&request)).await?;
    let mut answer = Vec::new();
    while within("answer", reply_timeout, stream.read_buf(&mut answer)).await? > 0 {
        record.first_byte_us.get_or_insert(now_us());
        record.answer_bytes = answer.len() as u64;
        if record.answer_bytes > ANSWER_MAX_BYTES + 8 {
            let detail = format!("an answer of more than {ANSWER_MAX_BYTES} bytes");
            return Err(Failure::new(FailureKind::WrongData, "answer", detail));
        }
    }
    let failed = |kind, detail: &str| Err(Failure::new(kind, "answer", detail));
    let TransactionRequest::Peer { answer_bytes } = probe.request else {
        return match answer.is_empty() {
            true => failed(FailureKind::Ended, "the connection ended without an answer"),
            false => Ok(()),
        };
    };
    let expected = peer_answer(token, answer_bytes);
    if answer == expected {
        Ok(())
    } else if expected.starts_with(&answer) {
        let (got, all) = (answer.len(), expected.len());
        failed(FailureKind::TooShort, &format!("{got} of {all} bytes"))
    } else {
        failed(FailureKind::WrongData, "another answer than the peer's")
    }
}

/// Returns the answer of a peer: the token, followed by `bytes` bytes.
pub(super) fn peer_answer(token: u64, bytes: u64) -> Vec<u8> {
    let mut answer = token.to_be_bytes().to_vec();
    answer.extend((0..bytes).map(|at| (at % 251) as u8));
    answer
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Starts a server that reads the first bytes of each request, and answers with `answer`.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.read(&mut [0; 500]);
                let _ = stream.write_all(answer);
            }
        });
        address
    }

    #[test]
    fn any_server_can_be_asked() {
        let probe = TransactionProbe {
            request: TransactionRequest::Bytes(b"root\r\n".to_vec()),
            arrivals: Arrivals {
                count: 20,
                rate_per_s: Some(500.0),
                at_once: 5,
                ..Arrivals::default()
            },
            ..TransactionProbe::new(server(b"Login: root\r\n"))
        };
        let all = run(&probe, |_| {}).expect("it runs");
        let summary = TransactionSummary::of(all.iter());
        assert_eq!((summary.tried, summary.complete), (20, 20));
        assert!(all.iter().all(|t| t.answer_bytes == 13));
        let (setup, total) = (
            summary.setup_s.expect("some"),
            summary.total_s.expect("some"),
        );
        assert!(setup.median <= total.median);
    }

    #[test]
    fn answers_that_are_not_the_peers_are_failures() {
        for (answer, kind) in [
            (&b"Login: root\r\n"[..], FailureKind::WrongData),
            (b"", FailureKind::TooShort),
        ] {
            let probe = TransactionProbe::new(server(answer));
            let all = run(&probe, |_| {}).expect("it runs");
            let failure = all[0].failure.as_ref().expect("it must fail");
            assert_eq!(failure.kind, kind, "{failure}");
        }
    }
}
