//! Who does the work: plain FTP, Longhaul, and other movers found on the machine.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::cell::Cell;

/// A way to move files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Plain FTP over the kernel's CUBIC.
    FtpCubic,
    /// Plain FTP over the kernel's BBR.
    FtpBbr,
    /// FTP through a pair of gateways.
    Longhaul,
    /// `lftp pget -n 8`: one file in eight parts at once, over CUBIC; downloads only.
    LftpPget,
    /// `iperf3`: no files, one TCP connection over CUBIC.
    Iperf3,
    /// UFTP, a paced UDP protocol, told what the path carries of its packets.
    Uftp,
    /// TFTP with blocks of 1428 bytes and a window of 64.
    Tftp,
    /// A stream of a QUIC library with its default controller.
    Quic,
}

/// A text that names no side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no side is called {0:?}, expected one of: {names}", names = names())]
pub struct UnknownSide(String);

impl Side {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::FtpCubic,
        Self::FtpBbr,
        Self::Longhaul,
        Self::LftpPget,
        Self::Iperf3,
        Self::Uftp,
        Self::Tftp,
        Self::Quic,
    ];

    /// Its name in plans and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FtpCubic => "ftp-cubic",
            Self::FtpBbr => "ftp-bbr",
            Self::Longhaul => "longhaul",
            Self::LftpPget => "lftp-pget",
            Self::Iperf3 => "iperf3",
            Self::Uftp => "uftp",
            Self::Tftp => "tftp",
            Self::Quic => "quic",
        }
    }

    /// Its name in tables and plots.
    pub const fn title(self) -> &'static str {
        match self {
            Self::FtpCubic => "FTP, CUBIC",
            Self::FtpBbr => "FTP, BBR",
            Self::Longhaul => "Longhaul",
            Self::LftpPget => "lftp pget, 8 parts",
            Self::Iperf3 => "iperf3, CUBIC",
            Self::Uftp => "UFTP",
            Self::Tftp => "TFTP",
            Self::Quic => "QUIC",
        }
    }

    /// About how long it will take; no more than a guess for progress.
    pub fn estimate(self, cell: &Cell) -> Duration {
        let transfer = cell.transfer();
        match self {
            Self::FtpCubic | Self::LftpPget | Self::Iperf3 | Self::Quic => transfer.plain().time,
            Self::FtpBbr | Self::Longhaul | Self::Uftp => transfer.ideal_time() * 3 / 2,
            Self::Tftp => {
                let windows = cell.work.bytes().bytes() / TFTP_WINDOW_BYTES + 1;
                Duration::from_secs_f64(windows as f64 * cell.path.rtt_ms / 1e3)
            }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Side {
    type Err = UnknownSide;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|side| side.name() == text);
        named.ok_or_else(|| UnknownSide(text.to_owned()))
    }
}

fn names() -> String {
    Side::ALL.map(Side::name).join(", ")
}

/// Bytes in flight of a TFTP transfer.
const TFTP_WINDOW_BYTES: u64 = 64 * 1428;
