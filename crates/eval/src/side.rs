//! The compared programs of an evaluation: plain FTP, Longhaul, and other programs that move files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use units::{ByteCount, calc::Transfer};

use super::cell::{Cell, FileProtocol};

/// A compared program. Plans and records use the variant's name in kebab case, as in `ftp-cubic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// FTP directly over TCP with the kernel's CUBIC.
    FtpCubic,
    /// FTP directly over TCP with the kernel's BBR.
    FtpBbr,
    /// FTP through a pair of gateways.
    Longhaul,
    /// `lftp pget -n 8` over CUBIC. The program moves one file in eight concurrent parts, and
    /// supports only downloads.
    LftpPget,
    /// `iperf3` over one CUBIC connection, without files.
    Iperf3,
    /// UFTP, a paced UDP protocol, with its rate set to the rate of the path.
    Uftp,
    /// TFTP with blocks of 1428 bytes and a window of 64 blocks.
    Tftp,
    /// One stream of a QUIC library with the library's default congestion controller.
    Quic,
    /// `longhaul copy`, with direct connections to the server.
    MoverDirect,
    /// `longhaul copy --gateway`, through a pair of gateways.
    MoverGateway,
    /// `longhaul copy --peer`, with an embedded near gateway.
    MoverPeer,
    /// `lftp pget` for one file, and `lftp mirror` for several files.
    Lftp,
    /// `rclone copy`.
    Rclone,
    /// `aria2c`, with the names of the files as arguments.
    Aria2,
    /// `wget`, which uses one connection.
    Wget,
    /// `curl`, with the names of the files as arguments.
    Curl,
    /// `sftp` of OpenSSH, which uses one connection.
    Sftp,
    /// `sftp` of OpenSSH through a pair of gateways.
    SftpGateway,
    /// `rsync` over `ssh`, which uses one connection.
    Rsync,
    /// `rsync` over `ssh` through a pair of gateways.
    RsyncGateway,
    /// `lftp` through a pair of gateways.
    LftpGateway,
    /// `rclone copy` through a pair of gateways.
    RcloneGateway,
}

impl Side {
    /// Returns the name in tables and plots.
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
            Self::Sftp => "sftp",
            Self::SftpGateway => "sftp, gateways",
            Self::Rsync => "rsync",
            Self::RsyncGateway => "rsync, gateways",
            Self::LftpGateway => "lftp, gateways",
            Self::RcloneGateway => "rclone, gateways",
        }
    }

    /// Returns whether this is a mover: a program that fetches all files of a cell in one run.
    pub const fn is_mover(self) -> bool {
        self.fetches_by(FileProtocol::Ftp) || self.fetches_by(FileProtocol::Sftp)
    }

    /// Returns whether this is a mover that fetches from a server of `protocol`.
    pub const fn fetches_by(self, protocol: FileProtocol) -> bool {
        match self {
            Self::MoverDirect
            | Self::MoverGateway
            | Self::MoverPeer
            | Self::Lftp
            | Self::Rclone => true,
            Self::Aria2 | Self::Wget | Self::Curl => matches!(protocol, FileProtocol::Ftp),
            Self::Sftp
            | Self::SftpGateway
            | Self::Rsync
            | Self::RsyncGateway
            | Self::LftpGateway
            | Self::RcloneGateway => matches!(protocol, FileProtocol::Sftp),
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

    /// Returns whether this is a variant of Longhaul: one of its programs, or another program
    /// behind a pair of gateways.
    pub const fn is_ours(self) -> bool {
        self.uses_gateways() || matches!(self, Self::MoverDirect | Self::MoverPeer)
    }

    /// Returns whether the data passes through both gateways of the cell.
    pub const fn uses_gateways(self) -> bool {
        matches!(
            self,
            Self::Longhaul
                | Self::MoverGateway
                | Self::SftpGateway
                | Self::RsyncGateway
                | Self::LftpGateway
                | Self::RcloneGateway
        )
    }

    /// Returns the expected time of a trial in `cell`. The progress display uses this estimate.
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
            Self::Sftp | Self::Rsync => {
                let window = Some(SSH_WINDOW);
                Transfer { window, ..transfer }.plain().time
            }
            Self::FtpBbr
            | Self::Longhaul
            | Self::Uftp
            | Self::MoverGateway
            | Self::MoverPeer
            | Self::SftpGateway
            | Self::RsyncGateway
            | Self::LftpGateway
            | Self::RcloneGateway => transfer.ideal_time() * 3 / 2,
            Self::Tftp => {
                let windows =
                    cell.work.bytes().bytes() / (TFTP_WINDOW_BLOCKS * TFTP_BLOCK_BYTES) + 1;
                Duration::from_secs_f64(windows as f64 * cell.path.rtt_ms / 1e3)
            }
        }
    }
}

/// Bytes that an OpenSSH client permits in flight on one channel.
const SSH_WINDOW: ByteCount = ByteCount::mebibytes(2);
/// Payload of a TFTP block: 1500 bytes minus the headers of TFTP (4), UDP (8) and IP (at most 60),
/// as in RFC 2348.
pub(crate) const TFTP_BLOCK_BYTES: u64 = 1428;
/// Number of blocks that a TFTP transfer has in flight (RFC 7440).
pub(crate) const TFTP_WINDOW_BLOCKS: u64 = 64;
