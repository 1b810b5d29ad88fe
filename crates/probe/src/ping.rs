//! Round-trip times. The probe measures them by UDP echoes from a peer, or by connecting to any
//! open TCP port.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Failure, FailureKind, ProbeError, TcpInfo, clock,
    datagram::{DatagramPurpose, HEADER_BYTES, Header},
    hello::{ProbeHello, TestReady},
    line,
};
use bench_kit::stats;

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct PingProbe {
    /// Address of the probe's peer. With [`PingMethod::Tcp`], the address of any open TCP port.
    pub target: SocketAddr,
    /// Kind of the packets.
    pub by: PingMethod,
    /// Number of packets.
    pub count: u64,
    /// Time between the sending of two packets.
    pub interval: Duration,
    /// Time after which a missing answer counts as lost.
    pub timeout: Duration,
    /// Length of the UDP payload in bytes.
    pub payload_bytes: u16,
}

/// Kind of packets by which the probe measures a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PingMethod {
    /// A UDP datagram and its echo.
    Udp,
    /// A TCP SYN and the answer to it.
    Tcp,
}

/// Record of one packet and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// Number of the packet, counted from 0.
    pub number: u64,
    /// Time at which the packet was sent, in microseconds since 1970.
    pub sent_unix_us: u64,
    /// Time from sending to the first answer, in microseconds. `None` if no answer arrived in time.
    pub rtt_us: Option<u64>,
    /// Number of further answers within 1 s of the first answer.
    pub duplicates: u64,
    /// Reason why an answer is missing, if the kernel has reported a reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Statistics of many round trips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PingSummary {
    /// Number of packets that were sent.
    pub sent: usize,
    /// Number of packets without an answer.
    pub lost: usize,
    /// Number of answers in addition to the first answer of each packet.
    pub duplicates: u64,
    /// Statistics of the round-trip times in seconds. `None` if no answer arrived.
    pub rtt_s: Option<stats::Summary>,
    /// Mean difference between consecutive round-trip times, in seconds.
    pub jitter_s: Option<f64>,
}

impl PingProbe {
    /// Creates a probe that sends ten datagrams, one per second.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            by: PingMethod::Udp,
            count: 10,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            payload_bytes: 64,
        }
    }
}

impl PingSummary {
    /// Computes the statistics of round trips, which must be in order.
    pub fn of(pings: &[Ping]) -> Self {
        let times: Vec<f64> = pings
            .iter()
            .filter_map(|ping| Some(ping.rtt_us? as f64 / 1e6))
            .collect();
        let steps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).abs())
            .collect();
        let mean = steps.iter().sum::<f64>() / steps.len().max(1) as f64;
        Self {
            sent: pings.len(),
            lost: pings.len() - times.len(),
            duplicates: pings.iter().map(|ping| ping.duplicates).sum(),
            rtt_s: stats::Summary::of(&times),
            jitter_s: (!steps.is_empty()).then_some(mean),
        }
    }
}

/// Measures the round trips. Calls `on_ping` with each record when it is final. With UDP, a record
/// is final 1 s after the answer, or when the timeout has passed without an answer.
///
/// # Errors
/// [`ProbeError::Invalid`] if the count is zero or the payload is shorter than a header.
/// [`ProbeError::Failed`] if the peer cannot be reached.
pub fn run(probe: &PingProbe, on_ping: impl FnMut(&Ping)) -> Result<Vec<Ping>, ProbeError> {
    if probe.count == 0 {
        let message = "the count is 0; at least 1 is needed";
        return Err(ProbeError::Invalid(message.to_owned()));
    }
    match probe.by {
        PingMethod::Udp => by_udp(probe, on_ping),
        PingMethod::Tcp => Ok(by_tcp(probe, on_ping)),
    }
}

fn by_tcp(probe: &PingProbe, mut on_ping: impl FnMut(&Ping)) -> Vec<Ping> {
    let mut pings = Vec::new();
    let start = Instant::now();
    for number in 0..probe.count {
        let due = probe.interval.mul_f64(number as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
        let sent_unix_us = clock::unix_us();
        let began = Instant::now();
        let connected = TcpStream::connect_timeout(&probe.target, probe.timeout);
        let rtt = began.elapsed().as_micros() as u64;
        let failure = match connected {
            // A retransmitted SYN measures the kernel's timer, not the path.
            Ok(stream) if TcpInfo::of(&stream).is_ok_and(|info| info.retransmissions > 0) => {
                let detail = "the first SYN, or its answer, was lost";
                Some(Failure::new(FailureKind::TimedOut, "connecting", detail))
            }
            Ok(_) => None,
            Err(error) => Some(Failure::io("connecting", &error)),
        };
        let ping = Ping {
            number,
            sent_unix_us,
            rtt_us: failure.is_none().then_some(rtt),
            duplicates: 0,
            failure,
        };
        on_ping(&ping);
        pings.push(ping);
    }
    pings
}

fn by_udp(probe: &PingProbe, mut on_ping: impl FnMut(&Ping)) -> Result<Vec<Ping>, ProbeError> {
    let length = usize::from(probe.payload_bytes);
    if length < HEADER_BYTES {
        let message = format!("a datagram of the probe has {HEADER_BYTES} bytes at least");
        return Err(ProbeError::Invalid(message));
    }
    let mut control = line::connect(probe.target, &ProbeHello::Ping {}, probe.timeout)?;
    let ready: TestReady = line::answer(&mut control, "starting", probe.timeout)?;
    let own = control
        .local_addr()
        .map_err(ProbeError::system("own address"))?;
    let socket = UdpSocket::bind((own.ip(), 0))
        .and_then(|socket| socket.connect(probe.target).map(|()| socket))
        .map_err(ProbeError::system("a UDP port"))?;
    let mut pings: Vec<Ping> = Vec::new();
    let mut sent_at: HashMap<u64, Instant> = HashMap::new();
    let mut told = 0;
    let start = Instant::now();
    let mut bytes = vec![0; length];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let now = Instant::now();
        let next = pings.len() as u64;
        let due = start + probe.interval.mul_f64(next as f64);
        if next < probe.count && now >= due {
            let header = Header {
                kind: DatagramPurpose::Echo,
                id: ready.id,
                number: next,
                sent_ns: 0,
            };
            header.write(&mut bytes);
            sent_at.insert(next, Instant::now());
            let sent_unix_us = clock::unix_us();
            // This call may also report an ICMP message about an earlier datagram.
            let failure = socket.send(&bytes).err();
            pings.push(Ping {
                number: next,
                sent_unix_us,
                rtt_us: None,
                duplicates: 0,
                failure: failure.map(|error| Failure::io("sending", &error)),
            });
            continue;
        }
        // The records are passed on in order, each as soon as it is final.
        while let Some(ping) = pings.get(told) {
            let since = sent_at[&ping.number].elapsed();
            let known = match ping.rtt_us {
                Some(rtt_us) => Duration::from_micros(rtt_us) + COPIES_WITHIN,
                None => probe.timeout,
            };
            if since < known {
                break;
            }
            on_ping(ping);
            told += 1;
        }
        if told as u64 == probe.count {
            return Ok(pings);
        }
        let wait = if next < probe.count {
            due.saturating_duration_since(now)
        } else {
            LOOK_AROUND
        };
        let wait = wait.clamp(Duration::from_micros(100), LOOK_AROUND);
        socket
            .set_read_timeout(Some(wait))
            .map_err(ProbeError::system("a UDP port"))?;
        let Ok(count) = socket.recv(&mut buffer) else {
            continue;
        };
        let now = Instant::now();
        let header = Header::parse(&buffer[..count]);
        let header =
            header.filter(|header| (header.kind, header.id) == (DatagramPurpose::Answer, ready.id));
        let number = header.and_then(|header| usize::try_from(header.number).ok());
        // A record that was already passed on no longer changes.
        let number = number.filter(|number| *number >= told);
        if let Some(ping) = number.and_then(|number| pings.get_mut(number)) {
            let rtt = now - sent_at[&ping.number];
            match ping.rtt_us {
                Some(_) => ping.duplicates += 1,
                None if rtt <= probe.timeout => ping.rtt_us = Some(rtt.as_micros() as u64),
                None => {}
            }
        }
    }
}

const LOOK_AROUND: Duration = Duration::from_millis(50);
/// Longest time to wait for duplicates of an answer. The probe assumes that no path delays a
/// duplicate longer.
const COPIES_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_tells_loss_and_jitter() {
        let ping = |number, rtt_us| Ping {
            number,
            sent_unix_us: 0,
            rtt_us,
            duplicates: number,
            failure: None,
        };
        let pings = [
            ping(0, Some(1000)),
            ping(1, None),
            ping(2, Some(4000)),
            ping(3, Some(2000)),
        ];
        let summary = PingSummary::of(&pings);
        assert_eq!((summary.sent, summary.lost, summary.duplicates), (4, 1, 6));
        assert!((summary.jitter_s.expect("some") - 0.0025).abs() < 1e-12);
        assert_eq!(PingSummary::of(&[]).jitter_s, None);
    }

    /// Starts a peer that answers each datagram twice. The peer sends the second answer 50 ms after
    /// the first.
    fn stuttering_peer() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let socket = UdpSocket::bind(address).expect("the same port");
        thread::spawn(move || {
            let (mut control, _) = listener.accept().expect("a client");
            let deadline = Instant::now() + Duration::from_secs(5);
            line::read(&mut control, 1000, deadline).expect("a hello");
            line::write(&mut control, &TestReady::new(7)).expect("a client");
            let mut bytes = [0; 100];
            while let Ok((count, from)) = socket.recv_from(&mut bytes) {
                let header = Header::parse(&bytes[..count]).expect("a probe's");
                let answer = Header {
                    kind: DatagramPurpose::Answer,
                    ..header
                };
                answer.write(&mut bytes);
                for _ in 0..2 {
                    let _ = socket.send_to(&bytes[..count], from);
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        address
    }

    #[test]
    fn copies_of_answers_are_in_what_is_handed_over() {
        let probe = PingProbe {
            count: 3,
            interval: Duration::from_millis(200),
            ..PingProbe::new(stuttering_peer())
        };
        let mut handed_over = Vec::new();
        let pings = run(&probe, |ping| handed_over.push(ping.clone())).expect("it runs");
        assert_eq!(handed_over, pings);
        for ping in pings {
            assert!(ping.rtt_us.is_some() && ping.duplicates == 1, "{ping:?}");
        }
    }

    #[test]
    fn a_closed_port_is_reported() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = closed.local_addr().expect("bound");
        drop(closed);
        let probe = PingProbe {
            by: PingMethod::Tcp,
            count: 1,
            ..PingProbe::new(target)
        };
        let pings = run(&probe, |_| {}).expect("it runs");
        let failure = pings[0].failure.as_ref().expect("refused");
        assert_eq!(failure.kind, FailureKind::Refused);
    }
}
