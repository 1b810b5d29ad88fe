//! The sides of a comparison: plain FTP, Longhaul, and other movers of files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cell::Cell;

/// A mover of files. Plans and records use the variant's name in kebab case, as in `ftp-cubic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// FTP over the kernel's CUBIC.
    FtpCubic,
    /// FTP over the kernel's BBR.
    FtpBbr,
    /// FTP through a pair of gateways.
    Longhaul,
    /// `lftp pget -n 8` over CUBIC: one file in eight concurrent parts. Downloads only.
    LftpPget,
    /// `iperf3` over one CUBIC connection, without files.
    Iperf3,
    /// UFTP, a paced UDP protocol, set to the rate of the path.
    Uftp,
    /// TFTP with blocks of 1428 bytes and a window of 64 blocks.
    Tftp,
    /// One stream of a QUIC library with the library's default controller.
    Quic,
    /// `longhaul copy`, directly from the server.
    MoverDirect,
    /// `longhaul copy --gateway`: through a pair of gateways.
    MoverGateway,
    /// `longhaul copy --peer`: the mover is the near gateway of a pair.
    MoverPeer,
    /// `lftp pget` of one file, `lftp mirror` of several.
    Lftp,
    /// `rclone copy`.
    Rclone,
    /// `aria2c`, with the names of the files as arguments.
    Aria2,
    /// `wget`, which has one connection.
    Wget,
    /// `curl`, with the names of the files as arguments.
    Curl,
}

impl Side {
    /// Name in tables and plots.
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
            Self::MoverDirect => "longhaul copy, directly",
            Self::MoverGateway => "longhaul copy --gateway",
            Self::MoverPeer => "longhaul copy --peer",
            Self::Lftp => "lftp",
            Self::Rclone => "rclone",
            Self::Aria2 => "aria2",
            Self::Wget => "wget",
            Self::Curl => "curl",
        }
    }

    /// Whether the side is a program that fetches all files of a cell in one run.
    pub const fn is_mover(self) -> bool {
        match self {
            Self::MoverDirect
            | Self::MoverGateway
            | Self::MoverPeer
            | Self::Lftp
            | Self::Rclone
            | Self::Aria2
            | Self::Wget
            | Self::Curl => true,
            Self::FtpCubic
            | Self::FtpBbr
            | Self::Longhaul
            | Self::LftpPget
            | Self::Iperf3
            | Self::Uftp
            | Self::Tftp
            | Self::Quic => false,
        }
    }

    /// Whether the side is a part of Longhaul.
    pub const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Longhaul | Self::MoverDirect | Self::MoverGateway | Self::MoverPeer
        )
    }

    /// Whether both gateways of the cell carry the side's data.
    pub const fn uses_gateways(self) -> bool {
        matches!(self, Self::Longhaul | Self::MoverGateway)
    }

    /// Expected time of a cell's trial: a guess for the progress display.
    pub fn estimate(self, cell: &Cell) -> Duration {
        let transfer = cell.transfer();
        match self {
            Self::FtpCubic
            | Self::LftpPget
            | Self::Iperf3
            | Self::Quic
            | Self::MoverDirect
            | Self::Lftp
            | Self::Rclone
            | Self::Aria2
            | Self::Wget
            | Self::Curl => transfer.plain().time,
            Self::FtpBbr | Self::Longhaul | Self::Uftp | Self::MoverGateway | Self::MoverPeer => {
                transfer.ideal_time() * 3 / 2
            }
            Self::Tftp => {
                let windows =
                    cell.work.bytes().bytes() / (TFTP_WINDOW_BLOCKS * TFTP_BLOCK_BYTES) + 1;
                Duration::from_secs_f64(windows as f64 * cell.path.rtt_ms / 1e3)
            }
        }
    }
}

/// Payload of a TFTP block: 1500 less the headers of TFTP (4), UDP (8) and IP (60 at most), as in
/// RFC 2348.
pub(crate) const TFTP_BLOCK_BYTES: u64 = 1428;
/// Blocks in flight of a TFTP transfer (RFC 7440).
pub(crate) const TFTP_WINDOW_BLOCKS: u64 = 64;
