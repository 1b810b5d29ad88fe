//! Task of a UDP test.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::BitRate;

use crate::datagram::HEADER_BYTES;

/// Direction of the stream, as seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdpDirection {
    /// From the client to the peer.
    Up,
    /// From the peer to the client.
    Down,
}

/// Task of a UDP test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpTask {
    /// Direction of the datagrams.
    pub direction: UdpDirection,
    /// Number of datagrams.
    pub packets: u64,
    /// Length of the UDP payload of each datagram in bytes, including the probe's header.
    pub payload_bytes: u16,
    /// Rate of the UDP payload in bits per second.
    pub rate_bits_per_s: u64,
}

impl UdpTask {
    /// Creates a stream of datagrams that lasts for `time` at `rate`.
    pub fn new(direction: UdpDirection, rate: BitRate, payload_bytes: u16, time: Duration) -> Self {
        let bits = f64::from(payload_bytes) * 8.0;
        let packets = rate.as_bits_per_s() as f64 * time.as_secs_f64() / bits;
        Self {
            direction,
            packets: packets.ceil().max(1.0) as u64,
            payload_bytes,
            rate_bits_per_s: rate.as_bits_per_s(),
        }
    }

    /// Checks that all fields are within their limits. The error names the field that exceeds its
    /// limits.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let payload = usize::from(self.payload_bytes);
        if !(1..=PACKETS_MAX).contains(&self.packets) {
            return Err("time, rate and size: from 1 to 67108864 datagrams");
        }
        if !(HEADER_BYTES..=PAYLOAD_MAX_BYTES).contains(&payload) {
            return Err("size: from 32 to 65507 bytes");
        }
        if !(1..=RATE_MAX_BITS_PER_S).contains(&self.rate_bits_per_s) {
            return Err("rate: from 1 bit/s to 100 Gbit/s");
        }
        let is_short = self.time() <= TIME_MAX;
        is_short.then_some(()).ok_or("time: 24 h at most")
    }

    /// Returns the time that sending takes at the task's rate.
    pub fn time(&self) -> Duration {
        let bits = self.packets as f64 * f64::from(self.payload_bytes) * 8.0;
        Duration::try_from_secs_f64(bits / self.rate_bits_per_s as f64).unwrap_or(Duration::MAX)
    }
}

/// Maximum number of datagrams. For this number, the receiver's bitmap needs 8 MiB.
const PACKETS_MAX: u64 = 1 << 26;
/// Maximum UDP payload over IPv4 in bytes: 65,535 bytes minus the headers of IP (20 bytes) and UDP
/// (8 bytes).
const PAYLOAD_MAX_BYTES: usize = 65_535 - 20 - 8;
const RATE_MAX_BITS_PER_S: u64 = 100_000_000_000;
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
