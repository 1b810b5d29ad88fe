//! A cell of a plan: one combination of path and work. Each trial measures one side in one cell.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Radio, Reordering, profile::Profile};

pub use crate::ftp::TrialDirection;

use units::calc::Transfer;

/// Path with the work of a trial on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The emulated path.
    pub path: PathSpec,
    /// Work of each trial.
    pub work: CellWork,
}

/// An emulated path. Both directions are alike, except for `rate_back_bits_per_s`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Name of a profile with a shared radio medium. Rate and round-trip time then apply to
    /// 1500-byte packets on that medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// Rate of the bottleneck from B to A, the direction of downloads, in bits per second with
    /// Ethernet framing.
    pub rate_bits_per_s: u64,
    /// Rate from A to B, if it differs.
    pub rate_back_bits_per_s: Option<u64>,
    /// Round-trip time of an empty path in milliseconds.
    pub rtt_ms: f64,
    /// Share of packets lost at random in each direction, from 0 to 1.
    pub loss: f64,
    /// Share of packets with one flipped bit.
    pub corruption: f64,
    /// Share of packets that skip the propagation delay and so overtake others.
    pub reordering: f64,
    /// Share of packets that arrive twice.
    pub duplication: f64,
}

/// Work of a trial: files, sessions or transactions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CellWork {
    /// Kind of the work.
    #[serde(default)]
    pub job: WorkKind,
    /// Direction of the payload.
    pub direction: TrialDirection,
    /// Bytes of each file, or of each answer of a transaction.
    pub size_bytes: u64,
    /// Number of files, sessions or transactions. Files move one after the other, unless there are
    /// several clients.
    pub files: u32,
    /// Concurrent clients, which share the files.
    pub clients: u32,
    /// Maximum number of connections, or files at a time, of a mover. `None` for other sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Largest TCP window over the WAN; `None` means a window that fills the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Fixed buffers at the server; `None` means growing buffers and the embedded server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerBuffers>,
    /// A competing flow in the same direction during the whole trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<CompetingConnection>,
    /// Length of an outage that begins [`OUTAGE_AFTER`] into the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage_ms: Option<u64>,
}

/// Kind of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// Files move as fast as possible.
    #[default]
    Files,
    /// Users log in and run the script of 35 commands (`longhaul probe ftp`) with small files.
    Sessions,
    /// Users send short requests (`longhaul probe transaction`).
    Transactions,
}

/// Buffers at the server, as the study of `plans/oodt.toml` varied them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerBuffers {
    /// Send and receive buffer of each socket.
    pub socket_bytes: u64,
    /// Bytes that the server reads from a file and sends with one call.
    pub block_bytes: u64,
}

/// A competing TCP connection with endless data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompetingConnection {
    /// The kernel's CUBIC.
    Cubic,
    /// The kernel's BBR.
    Bbr,
}

/// Time from the beginning of a trial to its outage.
pub const OUTAGE_AFTER: Duration = Duration::from_secs(2);

impl PathSpec {
    /// A lossless path over the medium of a profile; `None` if no profile of this name has a
    /// medium.
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

    /// The medium that both directions share, if there is one.
    pub fn radio(&self) -> Option<Radio> {
        self.medium
            .as_deref()
            .and_then(Profile::named)
            .and_then(|profile| profile.radio)
    }

    /// Settings of the emulator: from A to B, then from B to A.
    pub fn configs(&self) -> [PathConfig; 2] {
        let rtt = Duration::from_secs_f64(self.rtt_ms / 1e3);
        let config = |bits_per_s: u64| {
            let rate = BitRate::bits_per_s(bits_per_s);
            PathConfig {
                // A medium brings its own rate and queue.
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

impl CellWork {
    /// Returns the payload of all files.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.size_bytes * u64::from(self.files))
    }

    /// Returns the length of the outage, zero without one.
    pub fn outage(&self) -> Duration {
        Duration::from_millis(self.outage_ms.unwrap_or(0))
    }
}

impl Cell {
    /// Time that a neighbour sends before a trial begins. Its congestion control has then found its
    /// rate on a path without loss. `None` without a neighbour.
    pub fn neighbour_head_start(&self) -> Option<Duration> {
        let rtt = Duration::from_secs_f64(self.path.rtt_ms / 1e3);
        self.work
            .beside
            .map(|_| NEIGHBOUR_HEAD_START.max(NEIGHBOUR_HEAD_START_ROUND_TRIPS * rtt))
    }

    /// The cell as one transfer, for the formulas of [`units::calc`]. A packet with a flipped bit
    /// counts as lost.
    pub fn transfer(&self) -> Transfer {
        let path = &self.path;
        let rate = match self.work.direction {
            TrialDirection::Down => path.rate_bits_per_s,
            TrialDirection::Up => path.rate_back_bits_per_s.unwrap_or(path.rate_bits_per_s),
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

/// Shortest head start of a neighbour, for short paths.
const NEIGHBOUR_HEAD_START: Duration = Duration::from_secs(3);
/// Head start of a neighbour in round trips: enough for its congestion control to find its rate
/// on a path without loss.
const NEIGHBOUR_HEAD_START_ROUND_TRIPS: u32 = 30;

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

impl fmt::Display for CellWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = ByteCount::new(self.size_bytes);
        match self.files {
            count if self.job == WorkKind::Sessions => {
                write!(f, "{count} FTP sessions with files of {size}")?;
            }
            count if self.job == WorkKind::Transactions => {
                write!(f, "{count} transactions with answers of {size}")?;
            }
            1 => write!(f, "{size} {}", self.direction)?,
            files => write!(f, "{files} x {size} {}", self.direction)?,
        }
        if self.clients > 1 {
            write!(f, " by {} clients", self.clients)?;
        }
        match self.threads {
            None => {}
            Some(1) => f.write_str(" by 1 thread")?,
            Some(threads) => write!(f, " by {threads} threads")?,
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

impl fmt::Display for CompetingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "CUBIC",
            Self::Bbr => "BBR",
        })
    }
}

const FULL_PACKET_BYTES: usize = 1500;
const ETHERNET_BYTES: usize = 38;

/// A share in percent, rounded to six decimals: shares come from text and keep its digits.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}
