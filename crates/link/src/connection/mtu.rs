//! How large a datagram the path carries.
//!
//! A connection starts with what every path carries and sends padded probes of the full size
//! (RFC 8899). A probe that arrives raises the size for good; probes that do not are lost for
//! nothing but themselves: neither congestion control nor loss detection counts them.

use std::{net::IpAddr, time::Duration};

use crate::time::Time;

/// The size of datagrams, and the search for a larger one.
#[derive(Debug)]
pub(crate) struct Mtu {
    payload_bytes: usize,
    full_bytes: usize,
    probes_sent: u32,
    next_probe: Time,
}

/// UDP payload that any path must carry: IPv6's minimum of 1280 less its headers.
const PAYLOAD_MIN: usize = 1280 - 40 - 8;
/// UDP payload of a 1500-byte packet over IPv4 and IPv6.
const PAYLOAD_FULL_V4: usize = 1500 - 20 - 8;
const PAYLOAD_FULL_V6: usize = 1500 - 40 - 8;
/// Probes sent one round trip apart before the search pauses. Ten, so that half of all packets
/// being lost hides a carried size only once in a thousand searches.
const PROBES_QUICK: u32 = 10;
/// Pause between searches.
const PROBE_PAUSE: Duration = Duration::from_secs(60);

impl Mtu {
    pub(crate) fn new(peer: IpAddr) -> Self {
        let full_bytes = match peer {
            IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => PAYLOAD_FULL_V6,
            _ => PAYLOAD_FULL_V4,
        };
        Self {
            payload_bytes: PAYLOAD_MIN,
            full_bytes,
            probes_sent: 0,
            next_probe: Time::default(),
        }
    }

    /// Bytes that a datagram may have.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// When the next probe is due.
    pub(crate) fn probe_due(&self) -> Option<Time> {
        (self.payload_bytes < self.full_bytes).then_some(self.next_probe)
    }

    /// The size of the probe to send now.
    pub(crate) fn take_probe(&mut self, now: Time, rtt: Duration) -> usize {
        self.probes_sent += 1;
        let pause = if self.probes_sent.is_multiple_of(PROBES_QUICK) {
            PROBE_PAUSE
        } else {
            rtt
        };
        self.next_probe = now + pause;
        self.full_bytes
    }

    pub(crate) fn on_probe_arrived(&mut self) {
        self.payload_bytes = self.full_bytes;
    }
}
