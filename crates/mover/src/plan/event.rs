//! Input and output of a plan: events of lanes, and actions for the caller.

use ftp::listing::{ListingEntry, ModifiedTime};

use super::{
    piece::Piece,
    task::{Task, TaskId},
};
use crate::retry_action::RetryAction;

/// Event that a lane reports to the plan.
#[derive(Debug, Clone)]
pub enum LaneEvent {
    /// The lane has established its connections.
    Opened {
        /// Maximum number of small files that the lane moves at the same time. The value is 1 if
        /// the server does not accept pipelined commands.
        depth: usize,
    },
    /// The lane could not be opened.
    Refused(TaskFailure),
    /// The lane is still waiting for an answer while it connects. The text names that answer.
    Waiting(String),
    /// Some of the entries that a listing task has found in a source directory. One listing may
    /// cause several events.
    Found(TaskId, Vec<ListingEntry>),
    /// A task of the lane has been completed.
    Done(TaskId, TaskResult),
    /// A task of the lane has failed. If the lane has also lost its connection, all its other tasks
    /// are assigned again.
    Failed(TaskId, TaskFailure),
    /// The lane has lost its connections while it had no task. If a task has been assigned
    /// meanwhile, the lane has not begun that task.
    Lost,
}

/// Result of a completed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskResult {
    /// Result of [`Task::Probe`].
    Probed(RootKind),
    /// Result of [`Task::Make`], [`Task::Replace`] and [`Task::MakeParents`].
    Made,
    /// Result of [`Task::ListDestination`], [`Task::ListExtra`] and [`Task::ListAgain`].
    Listed(Vec<ListingEntry>),
    /// Result of [`Task::ListSource`]. The entries were reported earlier.
    Ended {
        /// Number of lines in the listing that could not be parsed.
        not_understood: u64,
    },
    /// Result of [`Task::Move`] and [`Task::Join`]: the file is complete at the destination.
    Moved {
        /// Size of the file in bytes.
        bytes: u64,
        /// Modification time at the source, in seconds since 1970, if the source has reported it.
        modified_unix_s: Option<i64>,
        /// Evidence that the destination has the file's content.
        proof: ContentProof,
    },
    /// Result of [`Task::Move`] and [`Task::Join`] if the source file has grown during the
    /// transfer. The destination has the first bytes of the file.
    Grown {
        /// Number of bytes that the destination has.
        bytes: u64,
        /// Modification time at the source when the transfer began, in seconds since 1970.
        modified_unix_s: Option<i64>,
        /// Evidence that the destination has these bytes.
        proof: ContentProof,
    },
    /// Result of [`Task::Move`] if a program is still writing the file.
    Unsettled,
    /// Result of [`Task::Move`] for a file that is moved in pieces: the pieces that are still
    /// missing.
    Split(Vec<Piece>),
    /// Result of [`Task::MovePiece`]: the piece has arrived.
    Arrived,
    /// Result of [`Task::Help`] when the lane has no more pieces to move.
    HelperEnded,
    /// Result of [`Task::Compare`].
    Compared {
        /// Whether the source and the destination have the same content.
        is_equal: bool,
    },
    /// Result of [`Task::LookAgain`], [`Task::FindDirectory`] and [`Task::FindEntry`]: the entry
    /// that the destination has now.
    Looked(Option<ListingEntry>),
    /// Result of [`Task::Delete`], [`Task::RemoveDirectory`] and [`Task::RemoveSource`].
    Deleted,
    /// Result of [`Task::RemoveSource`] if the source file is kept, because it has changed since it
    /// was copied.
    Kept,
}

/// Kind of a root (a file or directory that the user named as a source).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootKind {
    /// The root is a file. The fields also describe the destination's entry of the same name.
    File {
        /// Size of the source file in bytes, if known.
        size_bytes: Option<u64>,
        /// Modification time of the source file, if known.
        modified: Option<ModifiedTime>,
        /// Entry of the same name at the destination, if any.
        there: Option<ListingEntry>,
        /// Destination directory into which the file is copied, if that directory may be missing.
        above: Option<Vec<u8>>,
    },
    /// The root is a directory.
    Directory {
        /// Whether the directory exists at the destination.
        is_there: bool,
    },
    /// The root does not exist.
    Missing,
}

/// Failure of a task or a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    /// Action that may remedy the failure.
    pub retry_action: RetryAction,
    /// Description of the failure, for display.
    pub message: String,
    /// Whether the attempt has moved enough bytes to count as progress. After progress, this
    /// failure counts as the first failure of the task.
    pub has_moved: bool,
    /// Whether the source differs from its listing or does not support pieces. If so, the file's
    /// transfer starts again, and the listed modification time is ignored.
    pub is_anew: bool,
}

/// Action that the plan requests from its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannerAction {
    /// Open a lane: connect to the servers and log in.
    Open {
        /// Index of the lane.
        lane: usize,
    },
    /// Assign a task to a lane.
    Work {
        /// Index of the lane.
        lane: usize,
        /// Identifier of this attempt. The lane's events for the task carry the same identifier.
        id: TaskId,
        /// The task.
        task: Task,
    },
}

/// Evidence that the destination has the source's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentProof {
    /// No comparison was made.
    None,
    /// The sizes are equal.
    Size,
    /// The sizes are equal. In addition, the link reports that the hashes of the transferred bytes
    /// are equal.
    Link,
    /// The hashes of the source file and of the destination's file are equal.
    Hash,
    /// The content was read back from the destination and equals the source.
    Content,
}
