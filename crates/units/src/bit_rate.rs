//! A rate in bits per second.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    ByteCount,
    text::{self, ParseUnitError, short},
};

/// A rate in bits per second. The code that uses a value must state whether the rate includes the
/// overhead on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// Creates a rate of `n` bits per second.
    pub const fn bits_per_s(n: u64) -> Self {
        Self(n)
    }

    /// Creates a rate of `n` thousand bits per second.
    pub const fn kbit(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// Creates a rate of `n` million bits per second.
    pub const fn mbit(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// Creates a rate of `n` billion bits per second.
    pub const fn gbit(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// Returns the rate at which a transfer of `bytes` takes the time `elapsed`. Returns zero if
    /// `elapsed` is zero.
    pub fn from_transfer(bytes: ByteCount, elapsed: Duration) -> Self {
        if elapsed.is_zero() {
            return Self(0);
        }
        Self((bytes.bytes() as f64 * 8.0 / elapsed.as_secs_f64()) as u64)
    }

    /// Returns the rate in bits per second.
    pub const fn as_bits_per_s(self) -> u64 {
        self.0
    }

    /// Returns the rate in bytes per second.
    pub fn as_bytes_per_s(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// Returns the time needed to send `bytes` at this rate. Returns `Duration::MAX` for a rate of
    /// zero.
    pub fn time_to_send(self, bytes: ByteCount) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = u128::from(bytes.bytes()) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the number of bytes that can be sent in `time` at this rate, rounded down.
    pub fn bytes_in(self, time: Duration) -> ByteCount {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)] {
            if self.0 as f64 >= size {
                return write!(f, "{} {unit}", short(self.0 as f64 / size));
            }
        }
        write!(f, "{} bit/s", self.0)
    }
}

impl FromStr for BitRate {
    type Err = ParseUnitError;

    /// Parses `"1 Gbit/s"`, `"100mbit"`, `"100M"`, `"2.5 Mbps"` or `"9600 bit/s"`. Prefixes are
    /// powers of 1000.
    ///
    /// A number without a unit is an error, since it could mean bits, kilobits or megabits. A rate
    /// in bytes per second is also an error.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const EXPECTED: &str = "a rate such as \"300 Mbit/s\" or \"300M\"";
        text::quantity(text, scale)
            .and_then(text::whole)
            .map(Self)
            .ok_or_else(|| ParseUnitError::new(text, EXPECTED))
    }
}

/// Returns the bits per second of a unit. The unit is a prefix, a word for bits per second, or a
/// prefix with such a word.
fn scale(unit: &str) -> Option<f64> {
    let (scale, word) = match unit.chars().next()? {
        'k' | 'K' => (1e3, &unit[1..]),
        'm' | 'M' => (1e6, &unit[1..]),
        'g' | 'G' => (1e9, &unit[1..]),
        't' | 'T' => (1e12, &unit[1..]),
        _ => (1.0, unit),
    };
    let has_prefix = word.len() < unit.len();
    // A capital B alone means a byte.
    let is_bits = matches!(word, "b" | "b/s" | "bps")
        || ["bit", "bits", "bit/s", "bits/s"].contains(&word.to_ascii_lowercase().as_str());
    (is_bits || word.is_empty() && has_prefix).then_some(scale)
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_what_they_print() {
        for text in [
            "1 Gbit/s",
            "300 Mbit/s",
            "2.5 Mbit/s",
            "250 kbit/s",
            "96 bit/s",
        ] {
            let rate = text.parse::<BitRate>();
            assert_eq!(rate.map(|rate| rate.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn rates_read_as_people_write_them() {
        for text in [
            "100 Mbit/s",
            "100Mbit/s",
            "100mbit",
            "100M",
            "100m",
            "100Mb",
            "100 Mbps",
            "0.1G",
            "100000 kbit",
            "100000000bit/s",
        ] {
            assert_eq!(text.parse(), Ok(BitRate::mbit(100)), "{text}");
        }
        for text in [
            "",
            "100",
            "300 MB/s",
            "100MBps",
            "100 MB",
            "M",
            "-1M",
            "1e9 Tbit/s",
        ] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_unit_is_named_in_the_error() {
        let error = "300 MB/s"
            .parse::<BitRate>()
            .expect_err("bytes per second are not a rate here");
        assert_eq!(
            error.to_string(),
            "\"300 MB/s\" is not a rate such as \"300 Mbit/s\" or \"300M\""
        );
    }

    #[test]
    fn a_packet_of_1250_bytes_takes_ten_microseconds_at_a_gigabit() {
        let rate = BitRate::gbit(1);
        assert_eq!(
            rate.time_to_send(ByteCount::new(1250)),
            Duration::from_micros(10)
        );
        assert_eq!(
            rate.bytes_in(Duration::from_micros(10)),
            ByteCount::new(1250)
        );
        assert_eq!(
            BitRate::bits_per_s(0).time_to_send(ByteCount::new(1)),
            Duration::MAX
        );
    }
}
