//! Who does the work: plain FTP, Longhaul, and other movers found on the machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cell::Cell;

/// A way to move files; its name in plans and records is that of the variant, `ftp-cubic`.
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

impl Side {
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

/// Bytes in flight of a TFTP transfer.
const TFTP_WINDOW_BYTES: u64 = 64 * 1428;
