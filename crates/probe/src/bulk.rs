//! Throughput with an acknowledgement from end to end: the peer returns the last bytes of a
//! transfer, which differ each time.
//!
//! If a middlebox ends TCP connections, neither the sender's kernel nor a TCP acknowledgement gives
//! information about the peer (M. Allman, "On the Performance of Middleboxes", IMC 2003, section
//! 6).

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
    /// A probe's peer, or a forward to a peer.
    pub peer: SocketAddr,
    /// A proxy through which the probe reaches the peer.
    pub proxy: Option<Proxy>,
    /// Name of this route in records.
    pub label: String,
    /// Bytes of each transfer. Default 1 MB, as in the study.
    pub size: ByteCount,
    /// Kind of the bytes.
    pub payload: Payload,
    /// Longest silence before a transfer fails. Default 30 s.
    pub timeout: Duration,
    /// The number of transfers and their times.
    pub arrivals: Arrivals,
}

/// The protocol and address of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// SOCKS version 5 without authentication (RFC 1928).
    Socks5(SocketAddr),
    /// HTTP's CONNECT (RFC 9110, 9.3.6).
    Http(SocketAddr),
}

/// One transfer. Times count from its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkTransfer {
    /// Name of the route.
    pub side: String,
    /// Counts from 0 in the order of arrival.
    pub number: u64,
    /// Begin, in microseconds since 1970.
    pub begun_unix_us: u64,
    /// When the connection was open, including the proxy's consent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connected_us: Option<u64>,
    /// When the kernel had taken the last byte.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub taken_us: Option<u64>,
    /// When the echo had arrived or the transfer had failed.
    pub ended_us: u64,
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// Failure of the transfer. `None` after a correct echo.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Figures over many transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkSummary {
    /// Number of transfers.
    pub tried: usize,
    /// Transfers with a correct echo.
    pub complete: usize,
    /// The other transfers, by kind of failure.
    pub failures: std::collections::BTreeMap<FailureKind, usize>,
    /// Bits per second from the beginning to the echo.
    pub goodput_bits_per_s: Option<stats::Summary>,
    /// Bits per second until the kernel had accepted the last byte: the rate for a program that
    /// waits for no echo.
    pub apparent_bits_per_s: Option<stats::Summary>,
}

impl BulkProbe {
    /// One transfer of 1 MB.
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
    /// Bits per second from the beginning to the echo; `None` without an echo.
    pub fn goodput_bits_per_s(&self) -> Option<f64> {
        let rate = self.bytes as f64 * 8e6 / self.ended_us as f64;
        (self.failure.is_none() && rate.is_finite()).then_some(rate)
    }

    /// Bits per second until the kernel had taken the last byte.
    pub fn apparent_bits_per_s(&self) -> Option<f64> {
        let rate = self.bytes as f64 * 8e6 / self.taken_us? as f64;
        (self.failure.is_none() && rate.is_finite()).then_some(rate)
    }
}

impl BulkSummary {
    /// Summarises transfers in any order.
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

/// Runs all transfers, and calls back with each one as soon as it has ended.
///
/// # Errors
/// [`ProbeError`] if no transfer could be tried. A failed transfer is a record, not an error.
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

/// Longest head of a proxy's answer.
const HEAD_MAX_BYTES: usize = 16 * 1024;
