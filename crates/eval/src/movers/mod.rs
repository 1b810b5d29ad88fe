//! How each side moves the files of a cell.

mod answers;
mod ftp;
mod programs;

use std::time::Duration;

use super::{
    cell::{Cell, Job},
    record::Answers,
    server,
    side::Side,
    stage::Stage,
};
use emulator::Site;

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    /// All bytes, with the right hash.
    pub(crate) is_complete: bool,
    /// Of jobs that are not about bytes.
    pub(crate) answers: Option<Answers>,
}

/// Why there is nothing to count.
#[derive(Debug)]
pub(crate) enum Unmoved {
    /// It cannot be tried here.
    NotTried(String),
    /// It went wrong.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Unmoved {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Sets the kernel up for a side, and says what keeps it from being tried here.
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
    server::missing(&cell.work).or(missing)
}

/// What goes before a trial and is not measured.
pub(crate) fn prepare(side: Side, stage: &Stage, cell: &Cell) -> Result<(), Unmoved> {
    match (side, cell.work.job) {
        (Side::Longhaul, Job::Files) => Ok(ftp::warm_up(stage, cell)?),
        _ => Ok(()),
    }
}

/// Moves the files of `cell`, `limit` long at most.
pub(crate) fn run(
    side: Side,
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<Moved, Unmoved> {
    match cell.work.job {
        Job::Files => {}
        Job::Sessions => return answers::sessions(side, stage, cell),
        Job::Transactions => return answers::transactions(side, stage, cell),
    }
    match side {
        Side::FtpCubic | Side::FtpBbr => Ok(ftp::plain(stage, cell, limit)?),
        Side::Longhaul => Ok(ftp::accelerated(stage, cell, limit)?),
        Side::LftpPget => programs::lftp_pget(stage, cell, limit),
        Side::Iperf3 => programs::iperf3(stage, cell, limit),
        Side::Uftp => programs::uftp(stage, cell, limit),
        Side::Tftp => programs::tftp(stage, cell, limit),
        Side::Quic => programs::quic(stage, cell, limit),
    }
}
