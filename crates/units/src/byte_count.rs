//! A number of bytes.

use std::{fmt, ops, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::{self, ParseUnitError, short};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(u64);

impl ByteCount {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a number of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Creates a number of `n` times 1024 bytes.
    pub const fn kibibytes(n: u64) -> Self {
        Self(n << 10)
    }

    /// Creates a number of `n` times 1024^2 bytes.
    pub const fn mebibytes(n: u64) -> Self {
        Self(n << 20)
    }

    /// Creates a number of `n` times 1024^3 bytes.
    pub const fn gibibytes(n: u64) -> Self {
        Self(n << 30)
    }

    /// Creates a number of `n` million bytes.
    pub const fn megabytes(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns a value that formats a measured amount with decimal units (powers of 1000).
    ///
    /// `Display` of [`ByteCount`] formats a configured size, possibly with binary units: 65,536
    /// bytes are `64 KiB`. Next to measured amounts such as `66 MB`, binary units would confuse
    /// readers.
    pub const fn measured(self) -> Measured {
        Measured(self)
    }
}

/// A measured amount of bytes, formatted with decimal units.
#[derive(Debug, Clone, Copy)]
pub struct Measured(ByteCount);

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.0;
        for (unit, size) in [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)] {
            if bytes as f64 >= size {
                return f.pad(&format!("{} {unit}", short(bytes as f64 / size)));
            }
        }
        f.pad(&format!("{bytes} B"))
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
            let is_short = self.0 / size < SHORT_MAX;
            if self.0 >= size && is_short && self.0.is_multiple_of(size) {
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

/// If a size has at least this many binary units, it is formatted in decimal units and rounded.
///
/// A larger number of binary units is hard to read: 10 GB are 9765625 KiB.
const SHORT_MAX: u64 = 10_000;

impl FromStr for ByteCount {
    type Err = ParseUnitError;

    /// Parses `"64 KiB"`, `"1.5 GB"`, `"1000 B"`, or a number of bytes without a unit.
    ///
    /// A prefix without `B` is a power of 1024, as in iperf3, `dd` and `truncate`: `"64K"` is 64
    /// KiB. Such a prefix may be in lower case, as in iperf3. A size above zero that rounds to zero
    /// bytes is an error.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const EXPECTED: &str = "a size such as \"64 KiB\" or \"1 GB\"";
        let scale = |unit: &str| {
            let scale: u64 = match unit {
                "" | "B" => 1,
                "kB" | "KB" => 1_000,
                "MB" => 1_000_000,
                "GB" => 1_000_000_000,
                "TB" => 1_000_000_000_000,
                "KiB" | "K" | "k" => 1 << 10,
                "MiB" | "M" | "m" => 1 << 20,
                "GiB" | "G" | "g" => 1 << 30,
                "TiB" | "T" | "t" => 1 << 40,
                _ => return None,
            };
            Some(scale as f64)
        };
        text::quantity(text, scale)
            .and_then(text::whole)
            .map(Self)
            .ok_or_else(|| ParseUnitError::new(text, EXPECTED))
    }
}

impl<'de> Deserialize<'de> for ByteCount {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_amounts_are_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (65_536, "65.5 kB"),
            (1 << 20, "1.05 MB"),
            (20_000_000, "20 MB"),
            (10_000_000_000, "10 GB"),
            (1 << 40, "1.1 TB"),
        ] {
            assert_eq!(ByteCount::new(bytes).measured().to_string(), text);
        }
    }

    #[test]
    fn sizes_read_back_what_they_print() {
        for text in ["1 GiB", "64 KiB", "1.5 GB", "10 MB", "10 GB", "7 B"] {
            let size = text.parse::<ByteCount>();
            assert_eq!(size.map(|size| size.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("100MB", 100_000_000),
            ("64K", 65_536),
            ("1M", 1_048_576),
            ("1m", 1_048_576),
            ("2g", 2 << 30),
            ("1t", 1 << 40),
            ("0.0 B", 0),
            (" 1.5 GB ", 1_500_000_000),
            ("1000", 1_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount::new(bytes)), "{text}");
        }
        for text in [
            "",
            "-1 B",
            "0.4 B",
            "0.0001k",
            "1e99 B",
            "99999999999 GiB",
            "5 Mbit",
            "MB",
        ] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }
}
