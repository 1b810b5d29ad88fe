//! A cell of a plan: one combination of an emulated path and work. Each trial measures one compared
//! program ([`Side`](crate::side::Side)) in one cell.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Radio, Reordering, profile::Profile};

pub use crate::ftp::TrialDirection;

use units::calc::Transfer;

/// An emulated path, and the work of a trial over this path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The emulated path.
    pub path: PathSpec,
    /// Work of each trial.
    pub work: CellWork,
}

/// An emulated path. Both directions have the same values, except for `rate_back_bits_per_s`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Name of a profile with a shared radio medium. Rate and round-trip time then apply to
    /// 1500-byte packets on that medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// Rate of the bottleneck from B to A in bits per second, with Ethernet framing. Downloads use
    /// this direction.
    pub rate_bits_per_s: u64,
    /// Rate from A to B in bits per second. `None` means the same rate as from B to A.
    pub rate_back_bits_per_s: Option<u64>,
    /// Round-trip time in milliseconds without queueing delay.
    pub rtt_ms: f64,
    /// Fraction of packets lost at random in each direction, from 0 to 1.
    pub loss: f64,
    /// Fraction of packets with one flipped bit, from 0 to 1.
    pub corruption: f64,
    /// Fraction of packets, from 0 to 1, that skip the propagation delay and so overtake others.
    pub reordering: f64,
    /// Fraction of packets that arrive twice, from 0 to 1.
    pub duplication: f64,
}

/// Work of a trial, which consists of files, sessions or transactions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CellWork {
    /// Kind of the work.
    #[serde(default)]
    pub job: WorkKind,
    /// Protocol of the server from which movers fetch files.
    #[serde(default, skip_serializing_if = "FileProtocol::is_ftp")]
    pub protocol: FileProtocol,
    /// Direction of the payload.
    pub direction: TrialDirection,
    /// Bytes of each file, or of the reply to each transaction.
    pub size_bytes: u64,
    /// Number of files, sessions or transactions. One client moves its files one after the other.
    pub files: u32,
    /// Number of concurrent clients. The clients share the files.
    pub clients: u32,
    /// Maximum number of connections of a mover, or of files that it moves concurrently. `None` for
    /// programs that are not movers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Largest TCP window over the WAN. `None` means a window that fills the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Fixed buffer sizes of the server. With `None`, the embedded server runs, and its buffers
    /// grow as needed.
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
    /// Files that move as fast as possible.
    #[default]
    Files,
    /// Users who log in and run the script of 35 commands (`longhaul probe ftp`) with small files.
    Sessions,
    /// Users who send short requests (`longhaul probe transaction`).
    Transactions,
}

/// Protocol of the server of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileProtocol {
    /// FTP.
    #[default]
    Ftp,
    /// SFTP, with an account for SSH.
    Sftp,
}

/// Buffer sizes of the server. `plans/oodt.toml` repeats a study that varied these sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerBuffers {
    /// Size of each socket's send buffer and receive buffer.
    pub socket_bytes: u64,
    /// Bytes that the server reads from a file and sends with one call.
    pub block_bytes: u64,
}

/// A competing TCP connection that always has data to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompetingConnection {
    /// A connection with the kernel's CUBIC.
    Cubic,
    /// A connection with the kernel's BBR.
    Bbr,
}

/// Time from the beginning of a trial to its outage.
pub const OUTAGE_AFTER: Duration = Duration::from_secs(2);

impl PathSpec {
    /// Returns a lossless path over the radio medium of the profile `name`. Returns `None` if no
    /// such profile exists, or if it has no medium.
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

    /// Returns the radio medium that both directions share. Returns `None` for a path without a
    /// medium.
    pub fn radio(&self) -> Option<Radio> {
        self.medium
            .as_deref()
            .and_then(Profile::named)
            .and_then(|profile| profile.radio)
    }

    /// Returns the emulator's settings for the direction from A to B, then for the direction from B
    /// to A.
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

impl FileProtocol {
    #[allow(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde calls"
    )]
    fn is_ftp(&self) -> bool {
        *self == Self::Ftp
    }
}

impl CellWork {
    /// Returns the total payload of all files.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.size_bytes * u64::from(self.files))
    }

    /// Returns the length of the outage, or zero without an outage.
    pub fn outage(&self) -> Duration {
        Duration::from_millis(self.outage_ms.unwrap_or(0))
    }
}

impl Cell {
    /// Returns the time for which the competing flow sends before a trial begins. On a path without
    /// loss, the flow's congestion control finds the flow's rate in this time. Returns `None`
    /// without a competing flow.
    pub fn neighbour_head_start(&self) -> Option<Duration> {
        let rtt = Duration::from_secs_f64(self.path.rtt_ms / 1e3);
        self.work
            .beside
            .map(|_| NEIGHBOUR_HEAD_START.max(NEIGHBOUR_HEAD_START_ROUND_TRIPS * rtt))
    }

    /// Returns the cell as one transfer, for the formulas of [`units::calc`]. A packet with a
    /// flipped bit counts as lost.
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

/// Minimum time for which a competing flow sends before a trial. It applies to short paths.
const NEIGHBOUR_HEAD_START: Duration = Duration::from_secs(3);
/// Number of round trips during which a competing flow sends before a trial. In this time the
/// flow's congestion control finds its rate on a path without loss.
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
            1 => write!(f, "{size} {}{}", self.protocol, self.direction)?,
            files => write!(f, "{files} x {size} {}{}", self.protocol, self.direction)?,
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

/// Formats the protocol as a word that precedes the direction in a line about a transfer. For FTP,
/// the word is empty.
impl fmt::Display for FileProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ftp => "",
            Self::Sftp => "SFTP ",
        })
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

/// Returns a fraction in percent, rounded to six decimals. The fraction was parsed from text, and
/// the rounding restores the digits of that text.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}
