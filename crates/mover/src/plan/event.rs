//! What goes into a plan, and what comes out.

use ftp::listing::{Entry, Modified};

use super::{
    piece::Piece,
    task::{Task, TaskId},
};
use crate::remedy::Remedy;

/// What a lane has to tell.
#[derive(Debug, Clone)]
pub enum Event {
    /// The lane has its connections.
    Opened {
        /// Most small files that it takes at a time: one where the server does not take commands ahead.
        depth: usize,
    },
    /// It has not.
    Refused(Failure),
    /// It still waits for an answer: what it waits for, for people.
    Waiting(String),
    /// The source has these entries in the directory that the task lists.
    Found(TaskId, Vec<Entry>),
    /// A task of the lane is done.
    Done(TaskId, Outcome),
    /// A task of the lane has failed. Where that costs the connection, the lane's other tasks begin anew.
    Failed(TaskId, Failure),
    /// The lane has lost its connections while it had no task. A task that was given to it since has not begun.
    Lost,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Task::Probe`].
    Probed(Probe),
    /// Of [`Task::Make`], [`Task::Replace`] and [`Task::MakeAbove`].
    Made,
    /// Of [`Task::ListDestination`], [`Task::ListSurplus`] and [`Task::ListAgain`].
    Listed(Vec<Entry>),
    /// Of [`Task::ListSource`]; some lines may not have been understood.
    Ended {
        /// How many.
        not_understood: u64,
    },
    /// Of [`Task::Move`].
    Moved {
        /// Bytes of the file.
        bytes: u64,
        /// Time of the source's last change, if the source has told it.
        modified_unix_s: Option<i64>,
        /// How it is known that the destination has it.
        proof: Proof,
    },
    /// Of [`Task::Move`]: the file has grown meanwhile, and the destination has its beginning.
    Grown {
        /// Bytes that the destination has.
        bytes: u64,
        /// Time of the source's last change when the move began.
        modified_unix_s: Option<i64>,
        /// How it is known that the destination has them.
        proof: Proof,
    },
    /// Of [`Task::Move`]: a program still writes the file.
    Unsettled,
    /// Of [`Task::Move`]: the pieces in which the file is to be moved, without those that are there.
    Split(Vec<Piece>),
    /// Of [`Task::MovePiece`].
    Arrived,
    /// Of [`Task::Help`]: the lane has nothing more to fetch.
    HelperEnded,
    /// Of [`Task::Compare`].
    Compared {
        /// Whether source and destination have the same content.
        is_equal: bool,
    },
    /// Of [`Task::LookAgain`]: the file that the destination has now. Of [`Task::LookForDirectory`] and
    /// [`Task::LookForTwin`]: what it has.
    Looked(Option<Entry>),
    /// Of [`Task::Delete`], [`Task::RemoveDirectory`] and [`Task::RemoveSource`].
    Deleted,
    /// Of [`Task::RemoveSource`]: the source has changed since it was taken, and stays.
    Kept,
}

/// What a root is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A file, and what the destination has under its name.
    File {
        /// Bytes.
        size_bytes: Option<u64>,
        /// Time of its last change.
        modified: Option<Modified>,
        /// What the destination has.
        there: Option<Entry>,
        /// The destination's directory in which the file goes, if it may be missing.
        above: Option<Vec<u8>>,
    },
    /// A directory.
    Directory {
        /// Whether the destination has it.
        is_there: bool,
    },
    /// Nothing.
    Missing,
}

/// Why a task or a lane failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What may help.
    pub remedy: Remedy,
    /// What went wrong, for people.
    pub message: String,
    /// Bytes had moved since the task began: it is worth another attempt however often it has been tried.
    pub has_moved: bool,
    /// The source is not what its listing said, or gives no pieces: the file begins anew, as one that nothing is known of.
    pub is_anew: bool,
}

/// What the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a lane: connect and log in.
    Open {
        /// Which.
        lane: usize,
    },
    /// Give a task to a lane.
    Work {
        /// Which.
        lane: usize,
        /// Names this attempt of the task in the lane's events.
        id: TaskId,
        /// What to do.
        task: Task,
    },
}

/// How it is known that the destination has what the source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Nothing was compared.
    None,
    /// The size.
    Size,
    /// The size, and the hash that the link makes of each stream.
    Link,
    /// Hashes of both files.
    Hash,
    /// The content, read back.
    Content,
}
