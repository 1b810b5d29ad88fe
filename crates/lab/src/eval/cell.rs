//! What a trial is about: a path, a piece of work, and who does it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Reordering};

pub use crate::ftp::Direction;

use crate::calc::Transfer;

/// A path and a piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The path.
    pub path: PathSpec,
    /// The work.
    pub work: Work,
}

/// A path as plans name it; both directions alike, but for `rate_back`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Rate of the bottleneck from B to A, where downloads go, Ethernet framing included; bits per second.
    pub rate_bits_per_s: u64,
    /// Of the other direction, where it differs.
    pub rate_back_bits_per_s: Option<u64>,
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Share of packets lost at random, each way.
    pub loss: f64,
    /// Share of packets with one bit flipped.
    pub corruption: f64,
    /// Share of packets that skip the delay.
    pub reordering: f64,
    /// Share of packets that arrive twice.
    pub duplication: f64,
}

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Seen from the client.
    pub direction: Direction,
    /// Bytes of each file.
    pub size_bytes: u64,
    /// Files, one after the other unless there are several clients.
    pub files: u32,
    /// Clients at once, which share the files.
    pub clients: u32,
}

impl PathSpec {
    /// Settings of the emulator: A to B, then B to A.
    pub fn configs(&self) -> [PathConfig; 2] {
        let rtt = Duration::from_secs_f64(self.rtt_ms / 1e3);
        let config = |bits_per_s: u64| {
            let rate = BitRate::bits_per_s(bits_per_s);
            PathConfig {
                rate: Some(rate),
                queue: PathConfig::default_queue(rate, rtt),
                delay: rtt / 2,
                loss: self.loss,
                corruption: self.corruption,
                duplication: self.duplication,
                reordering: Reordering {
                    probability: self.reordering,
                    ..Reordering::default()
                },
                ..PathConfig::default()
            }
        };
        [
            config(self.rate_back_bits_per_s.unwrap_or(self.rate_bits_per_s)),
            config(self.rate_bits_per_s),
        ]
    }
}

impl Work {
    /// Bytes of all files together.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.size_bytes * u64::from(self.files))
    }
}

impl Cell {
    /// The cell as one transfer, for formulas. Packets with a flipped bit are lost to everybody.
    pub fn transfer(&self) -> Transfer {
        let path = &self.path;
        let rate = match self.work.direction {
            Direction::Down => path.rate_bits_per_s,
            Direction::Up => path.rate_back_bits_per_s.unwrap_or(path.rate_bits_per_s),
        };
        Transfer {
            size: self.work.bytes(),
            rate: BitRate::bits_per_s(rate),
            rtt: Duration::from_secs_f64(path.rtt_ms / 1e3),
            loss: 1.0 - (1.0 - path.loss) * (1.0 - path.corruption),
            window: None,
        }
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", BitRate::bits_per_s(self.rate_bits_per_s))?;
        if let Some(back) = self.rate_back_bits_per_s {
            write!(f, " down, {} up", BitRate::bits_per_s(back))?;
        }
        write!(f, ", {} ms, loss {}%", self.rtt_ms, percent(self.loss))?;
        for (what, share) in [
            ("corruption", self.corruption),
            ("reordering", self.reordering),
            ("duplication", self.duplication),
        ] {
            if share > 0.0 {
                write!(f, ", {what} {}%", percent(share))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = ByteCount::new(self.size_bytes);
        match self.files {
            1 => write!(f, "{size} {}", self.direction)?,
            files => write!(f, "{files} x {size} {}", self.direction)?,
        }
        match self.clients {
            1 => Ok(()),
            clients => write!(f, " by {clients} clients"),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.path, self.work)
    }
}

/// In few digits: shares come from text.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}
