//! Input and output of a plan.

use ftp::listing::{ListingEntry, ModifiedTime};

use super::{
    piece::Piece,
    task::{Task, TaskId},
};
use crate::retry_action::RetryAction;

/// Event of a lane.
#[derive(Debug, Clone)]
pub enum LaneEvent {
    /// The lane has its connections.
    Opened {
        /// Maximum number of small files that the lane takes at a time. One if the server does not
        /// accept pipelined commands.
        depth: usize,
    },
    /// The lane could not be opened.
    Refused(TaskFailure),
    /// The lane still waits for an answer. The text names the expected answer.
    Waiting(String),
    /// The source has these entries in the directory that the task lists.
    Found(TaskId, Vec<ListingEntry>),
    /// A task of the lane is done.
    Done(TaskId, TaskResult),
    /// A task of the lane has failed. If the connection is lost as well, the lane's other tasks
    /// start again.
    Failed(TaskId, TaskFailure),
    /// The lane has lost its connections while it had no task. A task assigned since then has not
    /// begun.
    Lost,
}

/// Outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskResult {
    /// Outcome of [`Task::Probe`].
    Probed(RootKind),
    /// Outcome of [`Task::Make`], [`Task::Replace`] and [`Task::MakeParents`].
    Made,
    /// Outcome of [`Task::ListDestination`], [`Task::ListExtra`] and [`Task::ListAgain`].
    Listed(Vec<ListingEntry>),
    /// Outcome of [`Task::ListSource`].
    Ended {
        /// Lines of the listing that could not be parsed.
        not_understood: u64,
    },
    /// Outcome of [`Task::Move`].
    Moved {
        /// Size of the file.
        bytes: u64,
        /// Time of the source's last change, if the source has reported it.
        modified_unix_s: Option<i64>,
        /// Proof that the destination has the file.
        proof: ContentProof,
    },
    /// Outcome of [`Task::Move`] if the file has grown meanwhile. The destination has its
    /// beginning.
    Grown {
        /// Bytes that the destination has.
        bytes: u64,
        /// Time of the source's last change when the move began.
        modified_unix_s: Option<i64>,
        /// Proof that the destination has these bytes.
        proof: ContentProof,
    },
    /// Outcome of [`Task::Move`] if a program still writes the file.
    Unsettled,
    /// Outcome of [`Task::Move`] for a file to be moved in pieces: the pieces that are still
    /// missing.
    Split(Vec<Piece>),
    /// Outcome of [`Task::MovePiece`].
    Arrived,
    /// Outcome of [`Task::Help`] once the lane has no more work.
    HelperEnded,
    /// Outcome of [`Task::Compare`].
    Compared {
        /// Whether source and destination have the same content.
        is_equal: bool,
    },
    /// Outcome of [`Task::LookAgain`], [`Task::FindDirectory`] and [`Task::FindEntry`]: the
    /// entry
    /// that the destination has now.
    Looked(Option<ListingEntry>),
    /// Outcome of [`Task::Delete`], [`Task::RemoveDirectory`] and [`Task::RemoveSource`].
    Deleted,
    /// Outcome of [`Task::RemoveSource`] if the source has changed since it was taken, and stays.
    Kept,
}

/// Kind of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootKind {
    /// A file, with the destination's entry of the same name.
    File {
        /// Size of the file.
        size_bytes: Option<u64>,
        /// Time of the last change.
        modified: Option<ModifiedTime>,
        /// Entry of the destination.
        there: Option<ListingEntry>,
        /// The destination's directory into which the file goes, if it may be missing.
        above: Option<Vec<u8>>,
    },
    /// A directory.
    Directory {
        /// Whether the destination has the directory.
        is_there: bool,
    },
    /// The root does not exist.
    Missing,
}

/// Failure of a task or a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    /// Action that may cure the failure.
    pub retry_action: RetryAction,
    /// Description of the failure, for display.
    pub message: String,
    /// Bytes have moved since the task began. Such a task is retried without limit.
    pub has_moved: bool,
    /// The source differs from its listing, or does not support pieces. The file starts again with
    /// unknown size and time.
    pub is_anew: bool,
}

/// Next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannerAction {
    /// Open a lane: connect and log in.
    Open {
        /// Number of the lane.
        lane: usize,
    },
    /// Assign a task to a lane.
    Work {
        /// Number of the lane.
        lane: usize,
        /// Id of this attempt in the lane's events.
        id: TaskId,
        /// The task.
        task: Task,
    },
}

/// Proof that the destination has the source's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentProof {
    /// Nothing was compared.
    None,
    /// The sizes are equal.
    Size,
    /// The sizes are equal, and so are the link's hashes of the streams.
    Link,
    /// Hashes of both files are equal.
    Hash,
    /// The content was read back, and is equal.
    Content,
}
