//! Bit rates and byte counts: the two quantities that travel between the crates of Longhaul.
//!
//! Text forms carry their unit (`"300 Mbit/s"`, `"64 KiB"`); decimal prefixes are powers of 1000,
//! binary ones (`Ki`, `Mi`, `Gi`) powers of 1024. Nothing else belongs here.

use std::{fmt, ops, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(u64);

/// A rate in bits per second. Wire overhead is in or out as the user of the value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

/// A text that is not a quantity with a known unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// `n` times 1024 bytes.
    pub const fn kibibytes(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` times 1024^2 bytes.
    pub const fn mebibytes(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` times 1024^3 bytes.
    pub const fn gibibytes(n: u64) -> Self {
        Self(n << 30)
    }

    /// `n` million bytes.
    pub const fn megabytes(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// The count in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl BitRate {
    /// `n` bits per second.
    pub const fn bits_per_s(n: u64) -> Self {
        Self(n)
    }

    /// `n` thousand bits per second.
    pub const fn kbit(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` million bits per second.
    pub const fn mbit(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` billion bits per second.
    pub const fn gbit(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The rate at which `bytes` bytes take `elapsed`; zero when no time has passed.
    pub fn from_transfer(bytes: ByteCount, elapsed: Duration) -> Self {
        if elapsed.is_zero() {
            return Self(0);
        }
        Self((bytes.0 as f64 * 8.0 / elapsed.as_secs_f64()) as u64)
    }

    /// The rate in bits per second.
    pub const fn as_bits_per_s(self) -> u64 {
        self.0
    }

    /// The rate in bytes per second.
    pub fn as_bytes_per_s(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// How long `bytes` bytes occupy a line of this rate; `Duration::MAX` at rate zero.
    pub fn time_to_send(self, bytes: ByteCount) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = u128::from(bytes.0) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How many bytes fit on a line of this rate in `time`, rounded down.
    pub fn bytes_in(self, time: Duration) -> ByteCount {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl ops::Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl ops::Sub for ByteCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl ops::AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{} {unit}", self.0 / size);
            }
        }
        for (unit, size) in [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)] {
            if self.0 as f64 >= size {
                return write!(f, "{} {unit}", short(self.0 as f64 / size));
            }
        }
        write!(f, "{} B", self.0)
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

impl FromStr for ByteCount {
    type Err = ParseUnitError;

    /// Reads `"64 KiB"`, `"1.5 GB"`, `"1000 B"` or a bare number of bytes.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let units: &[(&str, f64)] = &[
            ("", 1.0),
            ("B", 1.0),
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
        ];
        quantity(text, units, "a size such as \"64 KiB\" or \"1 GB\"").map(Self)
    }
}

impl FromStr for BitRate {
    type Err = ParseUnitError;

    /// Reads `"1 Gbit/s"`, `"2.5 Mbit/s"`, `"250 kbit/s"` or `"9600 bit/s"`.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let units: &[(&str, f64)] = &[
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
        ];
        quantity(text, units, "a rate such as \"300 Mbit/s\"").map(Self)
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for ByteCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// Splits `text` into a non-negative number and one of `units`, and multiplies them.
fn quantity(
    text: &str,
    units: &[(&str, f64)],
    expected: &'static str,
) -> Result<u64, ParseUnitError> {
    let error = || ParseUnitError {
        text: text.to_owned(),
        expected,
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.parse().map_err(|_| error())?;
    let scale = units
        .iter()
        .find(|(name, _)| *name == unit.trim())
        .ok_or_else(error)?
        .1;
    let value = number * scale;
    if value.is_finite() && value < u64::MAX as f64 {
        Ok(value.round() as u64)
    } else {
        Err(error())
    }
}

/// At most three significant decimals, without trailing zeros: `1`, `1.5`, `12.3`, `941`.
fn short(value: f64) -> String {
    let text = if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_read_back_what_they_print() {
        for text in [
            "1 Gbit/s",
            "300 Mbit/s",
            "2.5 Mbit/s",
            "250 kbit/s",
            "96 bit/s",
        ] {
            assert_eq!(
                text.parse::<BitRate>().map(|r| r.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in ["1 GiB", "64 KiB", "1.5 GB", "10 MB", "7 B"] {
            assert_eq!(
                text.parse::<ByteCount>().map(|r| r.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn a_wrong_unit_is_named_in_the_error() {
        let error = "300 MB/s"
            .parse::<BitRate>()
            .expect_err("bytes per second are not a rate here");
        assert_eq!(
            error.to_string(),
            "\"300 MB/s\" is not a rate such as \"300 Mbit/s\""
        );
        assert!("-1 B".parse::<ByteCount>().is_err());
        assert!("1e99 B".parse::<ByteCount>().is_err());
        assert!("99999999999 GiB".parse::<ByteCount>().is_err());
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
