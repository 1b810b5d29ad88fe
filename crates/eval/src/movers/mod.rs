//! Functions that move the files of a cell with each of the compared programs ([`Side`]).

mod answers;
mod arrived;
mod command_lines;
mod fetch;
mod ftp;
mod process;
mod programs;

use std::time::Duration;

use super::{
    cell::{Cell, FileProtocol, WorkKind},
    record::UserExperience,
    server, sftp_server,
    side::Side,
    stage::Stage,
};
use emulator::Site;

/// The outcome of one trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TrialResult {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    /// Whether all bytes arrived with the correct hash.
    pub(crate) is_complete: bool,
    /// Waiting times, in cells that measure waiting times instead of goodput.
    pub(crate) answers: Option<UserExperience>,
}

impl TrialResult {
    /// Creates the outcome of a trial in which all files of the cell arrived.
    fn complete(cell: &Cell, time: Duration) -> Self {
        Self {
            bytes: cell.work.bytes().bytes(),
            time,
            is_complete: true,
            ..Self::default()
        }
    }

    /// Creates the outcome of a trial that reached its time limit after `bytes` bytes.
    fn cut_off(bytes: u64, time: Duration) -> Self {
        Self {
            bytes,
            time,
            is_complete: false,
            ..Self::default()
        }
    }
}

/// Reason why a trial has no results.
#[derive(Debug)]
pub(crate) enum TrialFailure {
    /// The compared program cannot run in this cell or on this machine.
    NotTried(String),
    /// The compared program ran and failed.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for TrialFailure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Prepares the kernel for the compared program `side`. If the program cannot run in this cell,
/// returns the reason.
pub(crate) fn missing(side: Side, stage: &mut Stage, cell: &Cell) -> Option<String> {
    let congestion_control = match side {
        Side::FtpBbr => "bbr",
        _ => "cubic",
    };
    let missing = Site::BOTH.into_iter().find_map(|site| {
        let set = stage.wan.set_congestion_control(site, congestion_control);
        let why = |error| format!("this kernel does not have {congestion_control}: {error}");
        set.err().map(why)
    });
    let server = match cell.work.protocol {
        FileProtocol::Ftp => server::missing(&cell.work),
        FileProtocol::Sftp => sftp_server::missing(),
    };
    server.or(missing)
}

/// Runs the warm-up of the link, for programs that use both gateways. The warm-up is not part of
/// the measurement.
pub(crate) fn prepare(side: Side, stage: &Stage, cell: &Cell) -> Result<(), TrialFailure> {
    match (side, cell.work.job) {
        (side, WorkKind::Files) if side.uses_gateways() => Ok(ftp::warm_up(stage, cell)?),
        _ => Ok(()),
    }
}

/// Moves the files of `cell`. Aborts when the time exceeds `limit`.
pub(crate) fn run(
    side: Side,
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    match cell.work.job {
        WorkKind::Files => {}
        WorkKind::Sessions => return answers::sessions(side, stage, cell),
        WorkKind::Transactions => return answers::transactions(side, stage, cell),
    }
    match side {
        Side::FtpCubic | Side::FtpBbr => Ok(ftp::plain(stage, cell, limit)?),
        Side::Longhaul => Ok(ftp::accelerated(stage, cell, limit)?),
        Side::LftpPget => programs::lftp_pget(stage, cell, limit),
        Side::Iperf3 => programs::iperf3(stage, cell, limit),
        Side::Uftp => programs::uftp(stage, cell, limit),
        Side::Tftp => programs::tftp(stage, cell, limit),
        Side::Quic => programs::quic(stage, cell, limit),
        Side::MoverDirect
        | Side::MoverGateway
        | Side::MoverPeer
        | Side::Lftp
        | Side::Rclone
        | Side::Aria2
        | Side::Wget
        | Side::Curl
        | Side::Sftp
        | Side::SftpGateway
        | Side::Rsync
        | Side::RsyncGateway
        | Side::LftpGateway
        | Side::RcloneGateway => fetch::fetch(side, stage, cell, limit),
    }
}
