//! Measurement of goodput with an end-to-end acknowledgement. At the end of each transfer, the peer
//! returns the last bytes. These bytes are different for each transfer.
//!
//! If a middlebox ends TCP connections, a TCP acknowledgement does not show that the peer has
//! received the bytes (M. Allman, "On the Performance of Middleboxes", IMC 2003, section 6).

use std::{
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use units::ByteCount;

use super::{
    Arrivals, Failure, FailureKind, ProbeError, clock,
    failure::{self, within},
    hello::{ECHO_BYTES, ProbeHello},
    payload::{self, Payload},
};
use bench_kit::stats;

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct BulkProbe {
    /// Address of the probe's peer, or of a forward that leads to the peer.
    pub peer: SocketAddr,
    /// A proxy through which the probe connects to the peer.
    pub proxy: Option<Proxy>,
    /// Name of the route in the records.
    pub label: String,
    /// Number of bytes in each transfer. The default is 1 MB, as in the middlebox study.
    pub size: ByteCount,
    /// Kind of the bytes that are sent.
    pub payload: Payload,
    /// Time without progress after which a transfer fails. The default is 30 s.
    pub timeout: Duration,
    /// Number of transfers, and their start times.
    pub arrivals: Arrivals,
}

/// Protocol and address of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// SOCKS version 5 without authentication (RFC 1928).
    Socks5(SocketAddr),
    /// The method `CONNECT` of HTTP (RFC 9110 section 9.3.6).
    Http(SocketAddr),
}

/// Record of one transfer. Times are counted from the beginning of the transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkTransfer {
    /// Name of the route.
    pub side: String,
    /// Number of the transfer in the order of arrival, counted from 0.
    pub number: u64,
    /// Time at which the transfer began, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// Time at which the connection was open, in microseconds. If the probe uses a proxy, the time
    /// includes the proxy's acceptance of the request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// Time at which the kernel had accepted the last byte, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub taken_us: Option<u64>,
    /// Time at which the echo had arrived or the transfer had failed, in microseconds.
    pub ended_us: u64,
    /// Number of bytes that the kernel accepted.
    pub bytes: u64,
    /// Failure of the transfer. `None` after a correct echo.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Statistics of many transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkSummary {
    /// Number of transfers that were tried.
    pub tried: usize,
    /// Number of transfers with a correct echo.
    pub complete: usize,
    /// Number of failed transfers, by kind of failure.
    pub failures: std::collections::BTreeMap<FailureKind, usize>,
    /// Statistics of the rate from the beginning of a transfer to its echo, in bits per second.
    pub goodput_bits_per_s: Option<stats::Summary>,
    /// Statistics of the rate until the kernel had accepted the last byte, in bits per second. A
    /// program that waits for no echo would measure this rate.
    pub apparent_bits_per_s: Option<stats::Summary>,
}

impl BulkProbe {
    /// Creates a probe with one transfer of 1 MB.
    pub fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            proxy: None,
            label: "direct".to_owned(),
            size: ByteCount::megabytes(1),
            payload: Payload::default(),
            timeout: Duration::from_secs(30),
            arrivals: Arrivals::default(),
        }
    }
}

impl BulkTransfer {
    /// Returns the rate from the beginning to the echo, in bits per second. Returns `None` if no
    /// echo arrived.
    pub fn goodput_bits_per_s(&self) -> Option<f64> {
        let rate = self.bytes as f64 * 8e6 / self.ended_us as f64;
        (self.failure.is_none() && rate.is_finite()).then_some(rate)
    }

    /// Returns the rate until the kernel had accepted the last byte, in bits per second.
    pub fn apparent_bits_per_s(&self) -> Option<f64> {
        let rate = self.bytes as f64 * 8e6 / self.taken_us? as f64;
        (self.failure.is_none() && rate.is_finite()).then_some(rate)
    }
}

impl BulkSummary {
    /// Computes the statistics of transfers, which may be in any order.
    pub fn of<'a>(transfers: impl Iterator<Item = &'a BulkTransfer> + Clone) -> Self {
        let rates = |of: fn(&BulkTransfer) -> Option<f64>| {
            stats::Summary::of(&transfers.clone().filter_map(of).collect::<Vec<_>>())
        };
        let failures = failure::count(transfers.clone().filter_map(|t| t.failure.as_ref()));
        let tried = transfers.clone().count();
        Self {
            tried,
            complete: tried - failures.values().sum::<usize>(),
            failures,
            goodput_bits_per_s: rates(BulkTransfer::goodput_bits_per_s),
            apparent_bits_per_s: rates(BulkTransfer::apparent_bits_per_s),
        }
    }
}

/// Runs all transfers. Calls `on_record` with each transfer as soon as it has ended.
///
/// # Errors
/// [`ProbeError`] if no transfer could be tried. A failed transfer is a record and not an error.
pub fn run(
    probe: &BulkProbe,
    on_record: impl FnMut(&BulkTransfer),
) -> Result<Vec<BulkTransfer>, ProbeError> {
    let bytes = probe.size.bytes();
    let hello = ProbeHello::Bulk { bytes }.line();
    ProbeHello::parse(hello.trim_end().as_bytes())
        .map_err(|error| ProbeError::Invalid(error.to_string()))?;
    probe.payload.prepare();
    let start = |probe: Rc<BulkProbe>, number| async move { one(&probe, number).await };
    probe.arrivals.drive_by_turns(&[probe], start, on_record)
}

async fn one(probe: &BulkProbe, number: u64) -> BulkTransfer {
    let mut record = BulkTransfer {
        side: probe.label.clone(),
        number,
        begun_unix_us: clock::unix_us(),
        connected_us: None,
        taken_us: None,
        ended_us: 0,
        bytes: 0,
        failure: None,
    };
    let began = Instant::now();
    record.failure = transfer(probe, &mut record, began).await.err();
    record.ended_us = began.elapsed().as_micros() as u64;
    record
}

async fn transfer(
    probe: &BulkProbe,
    record: &mut BulkTransfer,
    began: Instant,
) -> Result<(), Failure> {
    let reply_timeout = probe.timeout;
    let mut stream = connect(probe).await?;
    record.connected_us = Some(began.elapsed().as_micros() as u64);
    let bytes = probe.size.bytes();
    let hello = ProbeHello::Bulk { bytes }.line();
    within("sending", reply_timeout, stream.write_all(hello.as_bytes())).await?;
    let mut stream_bytes = payload::PayloadStream::new(probe.payload);
    // The echoed bytes are random for every kind of payload.
    let mut tail = [0; ECHO_BYTES];
    Payload::Random.fill(payload::unique(), 0, &mut tail);
    let before_tail = bytes - ECHO_BYTES as u64;
    while record.bytes < before_tail {
        let step = stream_bytes.ahead(before_tail - record.bytes);
        let count = step.len();
        within("sending", reply_timeout, stream.write_all(step)).await?;
        stream_bytes.advance(count);
        record.bytes += count as u64;
    }
    within("sending", reply_timeout, stream.write_all(&tail)).await?;
    record.bytes += ECHO_BYTES as u64;
    record.taken_us = Some(began.elapsed().as_micros() as u64);
    let mut echo = [0; ECHO_BYTES];
    within("echo", reply_timeout, stream.read_exact(&mut echo)).await?;
    if echo != tail {
        let detail = "the echo is not what was sent last";
        return Err(Failure::new(FailureKind::WrongData, "echo", detail));
    }
    Ok(())
}

async fn connect(probe: &BulkProbe) -> Result<TcpStream, Failure> {
    let to = match probe.proxy {
        None => probe.peer,
        Some(Proxy::Socks5(at) | Proxy::Http(at)) => at,
    };
    let mut stream = within("connecting", probe.timeout, TcpStream::connect(to)).await?;
    let asked = async {
        match probe.proxy {
            None => Ok(()),
            Some(Proxy::Socks5(_)) => ask_socks5(&mut stream, probe.peer).await,
            Some(Proxy::Http(_)) => ask_http(&mut stream, probe.peer).await,
        }
    };
    match timeout(probe.timeout, asked).await {
        Ok(asked) => asked?,
        Err(_) => return Err(Failure::timed_out("proxy", probe.timeout)),
    }
    Ok(stream)
}

async fn ask_socks5(stream: &mut TcpStream, peer: SocketAddr) -> Result<(), Failure> {
    let failed = |error| Failure::io("proxy", &error);
    let refused = |detail: String| Failure::new(FailureKind::UnexpectedReply, "proxy", detail);
    stream.write_all(&[5, 1, 0]).await.map_err(failed)?;
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).await.map_err(failed)?;
    if choice != [5, 0] {
        return Err(refused(format!(
            "no way in without authentication: {choice:?}"
        )));
    }
    let mut request = vec![5, 1, 0];
    match peer.ip() {
        std::net::IpAddr::V4(ip) => {
            request.push(1);
            request.extend(ip.octets());
        }
        std::net::IpAddr::V6(ip) => {
            request.push(4);
            request.extend(ip.octets());
        }
    }
    request.extend(peer.port().to_be_bytes());
    stream.write_all(&request).await.map_err(failed)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.map_err(failed)?;
    if head[..2] != [5, 0] {
        return Err(refused(format!("SOCKS reply {}", head[1])));
    }
    let rest = match head[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await.map_err(failed)?),
        other => return Err(refused(format!("SOCKS address type {other}"))),
    } + 2;
    stream
        .read_exact(&mut vec![0; rest])
        .await
        .map_err(failed)?;
    Ok(())
}

async fn ask_http(stream: &mut TcpStream, peer: SocketAddr) -> Result<(), Failure> {
    let failed = |error| Failure::io("proxy", &error);
    let request = format!("CONNECT {peer} HTTP/1.1\r\nHost: {peer}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = Vec::new();
    // Reads byte by byte, since the bytes after the head belong to the peer.
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX_BYTES {
        head.push(stream.read_u8().await.map_err(failed)?);
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).unwrap_or_default();
    if status.len() == 3 && status.starts_with('2') && head.ends_with(b"\r\n\r\n") {
        return Ok(());
    }
    let words = line.chars().take(100).collect::<String>();
    Err(Failure::new(FailureKind::UnexpectedReply, "proxy", words))
}

/// Maximum length of the header section in a proxy's response, in bytes.
const HEAD_MAX_BYTES: usize = 16 * 1024;
