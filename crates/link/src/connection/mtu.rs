//! Path MTU discovery: finds the largest datagram that the path carries.
//!
//! Input: which probes and packets arrived or were lost. Output: the size of datagrams, the next
//! probe, and whether the path MTU has become smaller.
//!
//! A connection starts with a size that every path carries. It then sends padded probes (RFC 8899)
//! of common sizes, largest first. A probe that arrives raises the datagram size. A lost probe does
//! not change the datagram size. A lost probe counts neither for congestion control nor for the
//! measured loss.
//!
//! After a change of route, the path MTU may be smaller. All large packets are then lost while
//! small packets arrive. Random loss does not cause this pattern.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{recovery::ResolvedPacket, time::Time};

/// Present size of datagrams, and the state of the search for a larger size.
#[derive(Debug)]
pub(crate) struct Mtu {
    headers_bytes: usize,
    payload_bytes: usize,
    /// Index in [`PACKETS`] of the packet size that is being tested.
    candidate: usize,
    probes_sent: u32,
    next_probe: Time,
    /// Pause between the present search and the next search.
    pause: Duration,
    large_losses: LargePacketLosses,
}

/// Losses and arrivals since a large packet last arrived.
#[derive(Debug, Default)]
struct LargePacketLosses {
    large_lost: u32,
    small_arrived: u32,
    /// Time at which the first of the lost large packets was sent, in seconds.
    began_s: f64,
}

/// Common path MTUs in bytes: Ethernet, PPPoE, tunnels over IPv4, WireGuard, and nested tunnels.
const PACKETS: [usize; 7] = [1500, 1492, 1476, 1460, 1420, 1400, 1360];
/// UDP payload in bytes that every path must carry: the minimum IPv6 MTU of 1280 bytes minus the
/// IPv6 and UDP headers.
const PAYLOAD_MIN: usize = 1280 - 40 - 8;
const HEADERS_V4: usize = 20 + 8;
const HEADERS_V6: usize = 40 + 8;
/// Minimum time between two probes. On a path with a longer round trip, probes are one round trip
/// apart.
const PROBES_APART_MIN: Duration = Duration::from_millis(1);
/// Number of probes of the largest size before smaller sizes are tested. At 50 % loss, all ten are
/// lost in one of a thousand searches.
const PROBES_LARGEST: u32 = 10;
/// Number of probes of each smaller size.
const PROBES_SMALLER: u32 = 4;
/// Pause between two searches. It doubles after each search, up to the limit of RFC 8899 section
/// 5.1.1.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Thresholds for three values: large packets lost in a row, seconds over which these packets were
/// sent, and small packets received meanwhile. If all three values reach their thresholds, the path
/// MTU counts as reduced.
///
/// An overflowing queue also drops large packets first, but only for a shorter time.
const LARGE_LOST: u32 = 64;
const LARGE_LOST_FOR_S: f64 = 1.5;
const SMALL_ARRIVED: u32 = 6;

impl Mtu {
    pub(crate) fn new(peer: IpAddr) -> Self {
        let headers_bytes = match peer {
            IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => HEADERS_V6,
            _ => HEADERS_V4,
        };
        Self {
            headers_bytes,
            payload_bytes: PAYLOAD_MIN,
            candidate: 0,
            probes_sent: 0,
            next_probe: Time::default(),
            pause: PAUSE_MIN,
            large_losses: LargePacketLosses::default(),
        }
    }

    /// Returns the maximum UDP payload of a datagram, in bytes.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Returns the time of the next probe, or `None` if the largest size has been reached.
    pub(crate) fn probe_due(&self) -> Option<Time> {
        (self.payload_bytes < self.payload_of(0)).then_some(self.next_probe)
    }

    /// Returns the size of the probe to send now, and sets the time of the next probe.
    pub(crate) fn take_probe(&mut self, now: Time, rtt: Duration) -> usize {
        let size = self.payload_of(self.candidate);
        self.probes_sent += 1;
        let is_largest = self.candidate == 0;
        let enough = if is_largest {
            PROBES_LARGEST
        } else {
            PROBES_SMALLER
        };
        self.next_probe = now + rtt.max(PROBES_APART_MIN);
        if self.probes_sent >= enough {
            self.probes_sent = 0;
            self.candidate += 1;
            let is_over = self.candidate == PACKETS.len()
                || self.payload_of(self.candidate) <= self.payload_bytes;
            if is_over {
                self.candidate = 0;
                self.next_probe = now + self.pause;
                self.pause = (2 * self.pause).min(PAUSE_MAX);
            }
        }
        size
    }

    /// Handles the arrival of a probe. `packet_bytes` includes the IP and UDP headers.
    pub(crate) fn on_probe_arrived(&mut self, packet_bytes: usize) {
        let payload_bytes = packet_bytes - self.headers_bytes;
        self.payload_bytes = self.payload_bytes.max(payload_bytes);
    }

    /// Records which packets arrived or were lost. Returns whether the path MTU has become smaller.
    /// In that case, the search restarts.
    pub(crate) fn on_resolved(&mut self, packets: &[ResolvedPacket]) -> bool {
        let small_max = PAYLOAD_MIN + self.headers_bytes;
        if self.payload_bytes <= PAYLOAD_MIN {
            return false;
        }
        let mut lost_for_s = 0.0;
        for packet in packets {
            let is_large = packet.bytes > small_max;
            match (is_large, packet.lost) {
                (true, true) => {
                    if self.large_losses.large_lost == 0 {
                        self.large_losses.began_s = packet.sent_s;
                    }
                    self.large_losses.large_lost += 1;
                }
                (true, false) => self.large_losses = LargePacketLosses::default(),
                (false, false) if self.large_losses.large_lost > 0 => {
                    self.large_losses.small_arrived += 1
                }
                (false, _) => {}
            }
            lost_for_s = packet.sent_s - self.large_losses.began_s;
        }
        let has_shrunk = self.large_losses.large_lost >= LARGE_LOST
            && self.large_losses.small_arrived >= SMALL_ARRIVED
            && lost_for_s >= LARGE_LOST_FOR_S;
        if has_shrunk {
            *self = Self {
                headers_bytes: self.headers_bytes,
                ..Self::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
            };
        }
        has_shrunk
    }

    fn payload_of(&self, candidate: usize) -> usize {
        PACKETS[candidate] - self.headers_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn mtu() -> Mtu {
        Mtu::new("10.0.0.1".parse().expect("an address"))
    }

    /// Runs `probes` probes of the search over a path with the MTU `packet_bytes`.
    fn search(mtu: &mut Mtu, packet_bytes: usize, probes: u32) {
        for number in 0..probes {
            let size = mtu.take_probe(Time(u64::from(number)), RTT) + HEADERS_V4;
            if size <= packet_bytes {
                mtu.on_probe_arrived(size);
            }
        }
    }

    #[test]
    fn the_search_finds_the_largest_size_that_the_path_carries() {
        for carried in PACKETS {
            let mut mtu = mtu();
            search(&mut mtu, carried, 40);
            assert_eq!(mtu.payload_bytes(), carried - HEADERS_V4);
        }
        let mut mtu = mtu();
        search(&mut mtu, 1280, 40);
        assert_eq!(mtu.payload_bytes(), PAYLOAD_MIN);
    }

    fn packet(bytes: usize, lost: bool, sent_s: f64) -> ResolvedPacket {
        ResolvedPacket {
            number: 0,
            bytes,
            sent_s,
            lost,
            in_outage: false,
        }
    }

    #[test]
    fn large_packets_that_vanish_while_small_ones_arrive_show_a_smaller_path() {
        let mut mtu = mtu();
        search(&mut mtu, 1500, 1);
        let large = [packet(1500, true, 1.0); LARGE_LOST as usize];
        assert!(!mtu.on_resolved(&large), "an outage looks like that");
        assert!(!mtu.on_resolved(&[packet(1500, false, 1.0)]));
        assert!(!mtu.on_resolved(&[packet(80, false, 1.0); 20]));
        assert!(!mtu.on_resolved(&large));
        let small = [packet(80, false, 2.0); SMALL_ARRIVED as usize];
        assert!(!mtu.on_resolved(&small), "a full queue looks like that");
        assert!(mtu.on_resolved(&[packet(1500, true, 1.0 + LARGE_LOST_FOR_S)]));
    }
}
