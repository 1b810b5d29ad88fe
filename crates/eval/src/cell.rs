//! What a trial is about: a path, a piece of work, and who does it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Radio, Reordering, profile::Profile};

pub use crate::ftp::Direction;

use probe::calc::Transfer;

/// A path and a piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The path.
    pub path: PathSpec,
    /// The work.
    pub work: Work,
}

/// A path as plans name it; both directions alike, but for `rate_back`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// The profile whose medium it has; rate and round-trip time are then what the medium makes of packets
    /// of 1500 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
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
    /// What is done.
    #[serde(default)]
    pub job: Job,
    /// Seen from the client.
    pub direction: Direction,
    /// Bytes of each file, or of each answer.
    pub size_bytes: u64,
    /// Files, one after the other unless there are several clients; sessions or transactions of the other jobs.
    pub files: u32,
    /// Clients at once, which share the files.
    pub clients: u32,
    /// Largest TCP window over the WAN; `None`: enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// How the server's machine is set up; `None`: buffers that grow, and the embedded server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerBuffers>,
    /// What sends in the same direction all the while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Neighbour>,
    /// The path carries nothing for so long, from [`OUTAGE_AFTER`] on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage_ms: Option<u64>,
}

/// Kinds of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Files move, as fast as they can.
    #[default]
    Files,
    /// Users come and say the script of 35 commands (`longhaul probe ftp`), with small files.
    Sessions,
    /// Users come with a short request each (`longhaul probe transaction`).
    Transactions,
}

/// Buffers of the server's machine, as a study varied them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerBuffers {
    /// Of a socket, in either direction.
    pub socket_bytes: u64,
    /// What the server reads from a file and sends at once.
    pub block_bytes: u64,
}

/// Another user of the path: a TCP connection with endless data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// With the kernel's CUBIC.
    Cubic,
    /// With the kernel's BBR.
    Bbr,
}

/// How long after its beginning a trial is struck by an outage.
pub const OUTAGE_AFTER: Duration = Duration::from_secs(2);

impl PathSpec {
    /// A path with the medium of a profile, without any loss; `None` if no profile of this name has one.
    pub fn of_medium(name: &str) -> Option<Self> {
        let radio = Profile::named(name)?.radio?;
        let airtime_s = radio.airtime(FULL_PACKET_BYTES).as_secs_f64();
        let bits = (FULL_PACKET_BYTES + ETHERNET_BYTES) as f64 * 8.0;
        Some(Self {
            medium: Some(name.to_owned()),
            rate_bits_per_s: (bits / airtime_s) as u64,
            ..Self::default()
        })
    }

    /// The medium that both directions share.
    pub fn radio(&self) -> Option<Radio> {
        self.medium
            .as_deref()
            .and_then(Profile::named)
            .and_then(|profile| profile.radio)
    }

    /// Settings of the emulator: A to B, then B to A.
    pub fn configs(&self) -> [PathConfig; 2] {
        let rtt = Duration::from_secs_f64(self.rtt_ms / 1e3);
        let config = |bits_per_s: u64| {
            let rate = BitRate::bits_per_s(bits_per_s);
            PathConfig {
                // A medium has a rate and a queue of its own.
                rate: self.medium.is_none().then_some(rate),
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

    /// How long the path carries nothing.
    pub fn outage(&self) -> Duration {
        Duration::from_millis(self.outage_ms.unwrap_or(0))
    }
}

impl Cell {
    /// How long a neighbour sends before a trial begins: until it has found its rate, without loss.
    pub fn neighbour_head_start(&self) -> Option<Duration> {
        let rtt = Duration::from_secs_f64(self.path.rtt_ms / 1e3);
        self.work.beside.map(|_| NEIGHBOUR_HEAD_START.max(30 * rtt))
    }

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
            window: self.work.window_bytes.map(ByteCount::new),
        }
    }
}

/// Least time that a neighbour is ahead.
const NEIGHBOUR_HEAD_START: Duration = Duration::from_secs(3);

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.medium {
            Some(medium) => f.write_str(medium)?,
            None => write!(f, "{}", BitRate::bits_per_s(self.rate_bits_per_s))?,
        }
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
            count if self.job == Job::Sessions => {
                write!(f, "{count} FTP sessions with files of {size}")?;
            }
            count if self.job == Job::Transactions => {
                write!(f, "{count} transactions with answers of {size}")?;
            }
            1 => write!(f, "{size} {}", self.direction)?,
            files => write!(f, "{files} x {size} {}", self.direction)?,
        }
        if self.clients > 1 {
            write!(f, " by {} clients", self.clients)?;
        }
        if let Some(window) = self.window_bytes {
            write!(f, ", TCP window {}", ByteCount::new(window))?;
        }
        if let Some(ServerBuffers {
            socket_bytes,
            block_bytes,
        }) = self.server
        {
            let [socket, block] = [socket_bytes, block_bytes].map(ByteCount::new);
            write!(
                f,
                ", server with socket buffers of {socket} and blocks of {block}"
            )?;
        }
        if let Some(neighbour) = self.beside {
            write!(f, ", beside {neighbour}")?;
        }
        if let Some(outage) = self.outage_ms {
            write!(f, ", outage of {} s", outage as f64 / 1e3)?;
        }
        Ok(())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.path, self.work)
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "CUBIC",
            Self::Bbr => "BBR",
        })
    }
}

const FULL_PACKET_BYTES: usize = 1500;
const ETHERNET_BYTES: usize = 38;

/// In few digits: shares come from text.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}
