//! Plan of a job. The plan decides the next task, assigns it to a lane, and handles failures.
//!
//! Callers pass in events with their times, and receive actions. The plan uses no socket, disk or
//! clock, so tests can run it in virtual time.
//!
//! A *lane* is a set of connections: one to each server that the job uses. Lanes work in parallel.
//! A lane carries out one task after another. If the server accepts pipelined commands, a lane may
//! move several small files at the same time.

mod compare;
mod event;
mod extra_files;
mod file_event;
mod lanes;
mod limits;
mod listing_events;
mod memory;
mod name_matching;
mod options;
mod parent_dirs;
mod piece;
mod pieces;
mod queue;
mod shift;
mod task;
#[cfg(test)]
mod tests;
mod tree;
mod version;

use std::{collections::VecDeque, time::Instant};

pub use self::{
    event::{ContentProof, LaneEvent, PlannerAction, RootKind, TaskFailure, TaskResult},
    file_event::{DryRunStep, FileEvent, FileOutcome, JobCounts},
    limits::{
        DEPTH_MAX, DIRECTORIES_WAITING_MAX, ENTRIES_THERE_MAX, NAME_BYTES_MAX, NAMES_BYTES_MAX,
        PATH_BYTES_MAX, RESUME_LEAST,
    },
    memory::{FileStanding, RunMemory, StateStoreError, TakenFile},
    options::{Deletion, DeletionMax, DeletionMaxError, JobPurpose, Links, PlanOptions},
    piece::Piece,
    task::{Directory, File, RelativePath, RootedPath, Task, TaskId},
    version::FileVersion,
};
use self::{
    extra_files::ExtraFiles,
    lanes::Lanes,
    limits::PlanLimits,
    name_matching::DoubtfulEntries,
    parent_dirs::ParentDirs,
    pieces::{MissingPiecesTable, NextStep},
    queue::{QueuedTask, TaskQueue},
    tree::DirectoryTree,
};
use crate::retry_action::RetryAction;

/// Plan of one job.
#[derive(Debug)]
pub struct Planner {
    options: PlanOptions,
    lanes: Lanes<Assignment>,
    given_count: u64,
    tree: DirectoryTree,
    parent_dirs: ParentDirs,
    extra_files: ExtraFiles,
    doubts: DoubtfulEntries,
    pieces: MissingPiecesTable,
    queue: TaskQueue,
    limits: PlanLimits,
    notes: VecDeque<FileEvent>,
    tally: JobCounts,
    is_given_up: bool,
    /// Whether the job has already reported that the destination returns no listings.
    is_unknown_told: bool,
    /// The last reported shift of modification times, in seconds. `None` before the first report.
    shift_s: Option<i64>,
    /// The last reported reason for a refused connection.
    last_refusal: Option<String>,
    /// Whether the job has already reported that a lane is waiting for a connection.
    has_told_wait: bool,
}

/// A task assigned to a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Assignment {
    id: TaskId,
    queued: QueuedTask,
}

impl Planner {
    /// Creates the plan of a job. `roots` is the number of roots (sources that the user named).
    pub fn new(roots: usize, options: PlanOptions) -> Self {
        let mut queue = TaskQueue::default();
        for root in 0..roots {
            queue.push(QueuedTask::new(Task::Probe { root }));
        }
        Self {
            lanes: Lanes::new(options.lanes_max),
            given_count: 0,
            options,
            tree: DirectoryTree::default(),
            parent_dirs: ParentDirs::default(),
            extra_files: ExtraFiles::default(),
            doubts: DoubtfulEntries::default(),
            pieces: MissingPiecesTable::default(),
            queue,
            limits: PlanLimits::default(),
            notes: VecDeque::new(),
            tally: JobCounts::default(),
            is_given_up: false,
            is_unknown_told: false,
            shift_s: None,
            last_refusal: None,
            has_told_wait: false,
        }
    }

    /// Creates the plan of a job whose files were listed earlier. The plan lists no directories and
    /// does not compare files with the destination.
    pub fn of_files(files: Vec<File>, options: PlanOptions) -> Self {
        let mut planner = Self::new(0, options);
        for file in files {
            planner.known(file);
        }
        planner
    }

    /// Processes an event of a lane.
    pub fn handle(&mut self, lane: usize, event: LaneEvent, now: Instant) {
        match event {
            LaneEvent::Opened { depth } => self.lanes.opened(lane, depth),
            LaneEvent::Refused(failure) => {
                // A lane that aborted a transfer connects again. While the lane connects, it may
                // receive tasks.
                self.take_back(lane);
                self.refused(lane, failure, now);
            }
            LaneEvent::Waiting(what) => self.wait_for(what),
            LaneEvent::Found(id, entries) => self.found(lane, id, entries, now),
            LaneEvent::Done(id, outcome) => {
                self.lanes.proved();
                if let Some(given) = self.lanes.take(lane, |it| it.id == id) {
                    self.done(given.queued.task, outcome, now);
                }
            }
            LaneEvent::Failed(id, failure) => {
                let given = self.lanes.take(lane, |it| it.id == id);
                if failure.has_moved {
                    self.lanes.proved();
                }
                if !failure.retry_action.keeps_connection() {
                    self.take_back(lane);
                }
                let is_full = failure.retry_action == RetryAction::FewerTransfers;
                if is_full {
                    self.lanes.shrink(now);
                }
                match given {
                    // A failed help task is not repeated, because the lanes that have the pieces
                    // can move all bytes without help.
                    Some(given) if matches!(given.queued.task, Task::Help(_)) => {}
                    // Other lanes are open, and one of them receives the task later.
                    Some(given) if is_full && self.lanes.is_any_open() => {
                        self.queue.push(given.queued);
                    }
                    Some(given) => self.failed(given.queued, failure, now),
                    None => {}
                }
            }
            LaneEvent::Lost => {
                self.take_back(lane);
                self.refused(lane, lost(), now);
            }
        }
        self.advance();
    }

    /// Returns true if no task is queued or in progress.
    fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.lanes.busy().next().is_none()
    }

    /// Puts the tasks of a lane back into the queue, because the lane has lost its connections.
    /// Tasks to help another lane are dropped.
    fn take_back(&mut self, lane: usize) {
        for given in self.lanes.close(lane) {
            if !matches!(given.queued.task, Task::Help(_)) {
                self.queue.push(given.queued);
            }
        }
    }

    /// Requests the help of up to `count` further lanes for a file that is moved in pieces.
    pub fn help(&mut self, file: &File, count: usize) {
        if !self.pieces.is_any_to_come(file) || self.is_given_up {
            return;
        }
        let helping = self
            .lanes
            .busy()
            .filter(|it| it.queued.task.is_help_with(file));
        let helpers = helping.count() + self.queue.helpers(file);
        let most = (self.options.lanes_max - 1).saturating_sub(helpers);
        for _ in 0..count.min(most) {
            self.queue.push(QueuedTask::new(Task::Help(file.clone())));
        }
    }

    /// Returns the next action. If the result is `None`, no action is due until the next event or
    /// until the time that [`due`](Self::due) returns.
    pub fn poll(&mut self, now: Instant) -> Option<PlannerAction> {
        self.queue.wake(now);
        self.advance();
        if self.queue.waiting() == 0 {
            return None;
        }
        if let Some(lane) = self.lanes.idle() {
            return self.give(lane);
        }
        if let Some(opening) = self.open(self.queue.waiting(), now) {
            return Some(opening);
        }
        let lane = self.lanes.with_room(|it| it.queued.task.is_quick())?;
        self.give(lane)
    }

    /// Opens a lane for `wanting` waiting tasks, if another lane may be opened.
    fn open(&mut self, wanting: usize, now: Instant) -> Option<PlannerAction> {
        let lane = self.lanes.next_to_open(wanting, now)?;
        self.lanes.opening(lane);
        Some(PlannerAction::Open { lane })
    }

    /// Assigns the next queued task to a lane.
    fn give(&mut self, lane: usize) -> Option<PlannerAction> {
        let listing = self.lanes.busy().filter(|it| it.queued.is_listing());
        let (listing, lanes_max) = (listing.count(), self.options.lanes_max);
        let held = self.tree.held();
        let queued = self.queue.next(listing, lanes_max, held)?;
        self.given_count += 1;
        let id = TaskId(self.given_count);
        let task = queued.task.clone();
        self.lanes.give(lane, Assignment { id, queued });
        Some(PlannerAction::Work { lane, id, task })
    }

    /// Returns the earliest time at which [`poll`](Self::poll) may return an action without a new
    /// event.
    pub fn due(&self) -> Option<Instant> {
        let delayed = self.queue.due();
        let is_waiting = self.queue.waiting() > 0;
        let opening = self.lanes.due().filter(|_| is_waiting);
        delayed.into_iter().chain(opening).min()
    }

    /// Returns whether all work is done.
    pub fn is_finished(&self) -> bool {
        // A lane that still connects is no longer required.
        self.is_at_rest() && self.extra_files.is_done()
    }

    /// Returns the next record of a result, and removes it from the queue.
    pub fn next_file_event(&mut self) -> Option<FileEvent> {
        self.notes.pop_front()
    }

    /// Returns the present values of the job's counters.
    pub fn tally(&self) -> JobCounts {
        self.tally
    }

    /// Reports that a lane is waiting for its connections. Only the first lane reports this,
    /// because all lanes wait for the same answer.
    fn wait_for(&mut self, what: String) {
        if !std::mem::replace(&mut self.has_told_wait, true) {
            self.notes.push_back(FileEvent {
                root: 0,
                path: RelativePath::default(),
                result: FileOutcome::Waiting(what),
            });
        }
    }

    fn refused(&mut self, lane: usize, failure: TaskFailure, now: Instant) {
        let failures = self.lanes.refused(lane, now);
        // Only lanes that are already connecting may still help. No further lane is opened for help
        // until the next request.
        self.queue.keep_helpers(self.lanes.connecting());
        // A lane that still connects may succeed.
        let others_may_do = self.lanes.is_any_open() || self.lanes.is_any_opening();
        // If a log-in has succeeded before, the credentials are right, and the server is probably
        // full.
        let is_for_good = match failure.retry_action {
            RetryAction::GiveUpServer => true,
            RetryAction::LogInAgain => !self.lanes.has_opened(),
            _ => false,
        };
        let is_last = is_for_good || failures > self.options.retries;
        let is_told = self.last_refusal.as_ref() == Some(&failure.message);
        if !is_told && (others_may_do || !is_last) {
            self.last_refusal = Some(failure.message.clone());
            self.notes.push_back(FileEvent {
                root: 0,
                path: RelativePath::default(),
                result: FileOutcome::NoConnection(failure.message.clone()),
            });
        }
        match failure.retry_action {
            RetryAction::FewerConnections => self.lanes.shrink(now),
            RetryAction::LogInAgain | RetryAction::GiveUpServer if others_may_do => {
                self.lanes.shrink(now)
            }
            _ if others_may_do => return,
            _ => {}
        }
        if is_last && !others_may_do {
            self.give_up(&failure.message);
        }
    }

    /// Ends the job. All queued tasks fail.
    fn give_up(&mut self, message: &str) {
        self.is_given_up = true;
        for queued in self.queue.take_all() {
            self.lose(queued.task, message);
        }
    }

    fn failed(&mut self, mut queued: QueuedTask, failure: TaskFailure, now: Instant) {
        queued.attempts += 1;
        queued.failures = if failure.has_moved {
            1
        } else {
            queued.failures + 1
        };
        if let Task::MovePiece(file, _) = &queued.task
            && (failure.is_anew || self.pieces.is_spoiled(file))
        {
            let file = file.clone();
            let fate = self.pieces.spoiled(&file);
            return self.pieces_ended(file, fate, &failure.message, now);
        }
        if failure.is_anew
            && let Task::Move(file) | Task::Join(file) = &mut queued.task
        {
            // The listed size is kept. It limits the transfer if the source no longer states a
            // size.
            file.modified = None;
            let file = file.clone();
            if let Task::Join(_) = queued.task {
                queued.failures = self.pieces.begin_anew(&file);
            }
            // The file starts again from its beginning.
            queued.task = Task::Move(file);
        }
        let is_hopeless = failure.retry_action == RetryAction::GiveUpFile
            || matches!(
                failure.retry_action,
                RetryAction::LogInAgain | RetryAction::GiveUpServer
            )
            || queued.failures > self.options.retries
            || queued.attempts > self.options.retries.saturating_mul(ATTEMPTS_PER_RETRY)
            || self.is_given_up;
        if is_hopeless {
            let is_refused = failure.retry_action == RetryAction::GiveUpFile;
            return match queued.task {
                Task::ListDestination(directory) if is_refused => {
                    self.unknown(directory, failure.message);
                }
                task => self.lose(task, &failure.message),
            };
        }
        let (root, path) = queued.task.place();
        let result = FileOutcome::Retried(failure.message);
        self.notes.push_back(FileEvent { root, path, result });
        self.queue.delay(queued, now);
    }

    /// Records that a task has failed permanently.
    fn lose(&mut self, task: Task, message: &str) {
        let (root, path) = task.place();
        match &task {
            Task::Make(directory) | Task::Replace(directory) => {
                for file in self.tree.failed(directory) {
                    self.note_failure(file.root, file.path, DIRECTORY_FAILED);
                }
            }
            Task::MakeParents { path, .. } => {
                let reason = format!("{DIRECTORY_FAILED}: {message}");
                for file in self.parent_dirs.mark_failed(path, &reason) {
                    self.note_failure(file.root, file.path, &reason);
                }
                return;
            }
            Task::MovePiece(file, _) => {
                let (is_first, fate) = self.pieces.lost(file);
                if fate.is_some() {
                    self.queue.drop_helpers(file);
                }
                // Usually the first failed piece of a file reports the failure. If the file's
                // pieces are unusable, its last piece reports the failure.
                if !is_first && fate != Some(NextStep::Anew) {
                    return;
                }
            }
            Task::Help(_) => return,
            Task::Move(file) => self.pieces.forget(file),
            // The held files of the interrupted listing are compared and moved as usual.
            Task::ListSource(directory) => {
                let held = self.tree.node(directory).shifts.end();
                self.choose_held(directory, held);
            }
            Task::ListAgain(directory) => return self.not_listed_again(directory, message),
            Task::Delete(place) => self.extra_files.keep_above(place.root, &place.path),
            Task::RemoveDirectory(directory) => return self.not_removed(directory, message),
            _ => {}
        }
        self.note_failure(root, path, message);
    }

    fn note_failure(&mut self, root: usize, path: RelativePath, message: &str) {
        self.tally.failed += 1;
        let result = FileOutcome::Failed(message.to_owned());
        self.notes.push_back(FileEvent { root, path, result });
    }

    fn done(&mut self, task: Task, outcome: TaskResult, now: Instant) {
        match (task, outcome) {
            (Task::Probe { root }, TaskResult::Probed(probe)) => self.probed(root, probe, now),
            (Task::MakeParents { path, .. }, TaskResult::Made) => {
                for file in self.parent_dirs.mark_made(&path) {
                    self.queue.push(QueuedTask::new(Task::Move(file)));
                }
            }
            (Task::Make(directory) | Task::Replace(directory), TaskResult::Made) => {
                let freed = self.tree.made(&directory);
                for directory in freed.to_make {
                    self.make(directory);
                }
                for file in freed.files {
                    self.queue.push(QueuedTask::new(Task::Move(file)));
                }
            }
            (Task::ListDestination(directory), TaskResult::Listed(entries)) => {
                self.there(directory, entries);
            }
            (Task::ListExtra(directory), TaskResult::Listed(entries)) => {
                self.surplus_listed(&directory, entries);
            }
            (Task::ListSource(directory), TaskResult::Ended { not_understood }) => {
                self.end_shifts(&directory);
                self.ended(&directory, not_understood);
            }
            (Task::Compare(file), TaskResult::Compared { is_equal }) => {
                self.compared(file, is_equal)
            }
            (Task::Delete(place), TaskResult::Deleted) => self.deleted(place.root, place.path),
            (Task::RemoveDirectory(directory), TaskResult::Deleted) => self.removed(directory),
            (
                Task::Move(file) | Task::Join(file),
                outcome @ (TaskResult::Moved {
                    bytes,
                    modified_unix_s,
                    proof,
                }
                | TaskResult::Grown {
                    bytes,
                    modified_unix_s,
                    proof,
                }),
            ) => {
                if let TaskResult::Grown { .. } = outcome {
                    let message = format!(
                        "the file grows: copied are the {bytes} bytes that it had (--growing follow copies until it rests)"
                    );
                    self.note(&file, FileOutcome::Warning(message));
                }
                self.pieces.forget(&file);
                let version = file.version().seen(bytes, modified_unix_s);
                self.moved(file, version, proof);
            }
            (Task::Move(file), TaskResult::Unsettled) => {
                self.tally.unsettled += 1;
                self.note(&file, FileOutcome::LeftOut("it is open for writing"));
            }
            (Task::Move(file), TaskResult::Split(pieces)) => self.split(&file, pieces),
            (Task::MovePiece(file, _), TaskResult::Arrived) => {
                let fate = self.pieces.arrived(&file);
                self.pieces_ended(file, fate, "the source was changed while it was read", now);
            }
            (Task::Help(_), TaskResult::HelperEnded) => {}
            (Task::LookAgain(file, listed), TaskResult::Looked(now)) => {
                self.looked_again(file, &listed, now);
            }
            (Task::ListAgain(directory), TaskResult::Listed(entries)) => {
                self.listed_again(&directory, entries, now);
            }
            (Task::FindDirectory(directory), TaskResult::Looked(there)) => {
                self.found_directory(directory, there);
            }
            (Task::FindEntry(directory, entry), TaskResult::Looked(there)) => {
                self.looked_for_twin(&directory, entry, there, now);
            }
            (Task::RemoveSource(file, _), TaskResult::Deleted) => {
                self.tally.removed += 1;
                self.note(&file, FileOutcome::Removed);
            }
            (Task::RemoveSource(..), TaskResult::Kept) => {}
            (task, outcome) => unreachable!("{outcome:?} is no outcome of {task:?}"),
        }
    }

    /// Splits a file into its missing pieces. If no piece is missing, the file is completed.
    fn split(&mut self, file: &File, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return self.queue.push(QueuedTask::new(Task::Join(file.clone())));
        }
        self.pieces.split(file, pieces.len());
        for piece in pieces {
            let task = Task::MovePiece(file.clone(), piece);
            self.queue.push(QueuedTask::new(task));
        }
    }

    /// Processes the end of a piece. If `fate` is not `None`, the piece was the last piece of the
    /// file.
    fn pieces_ended(&mut self, file: File, fate: Option<NextStep>, message: &str, now: Instant) {
        if fate.is_some() {
            self.queue.drop_helpers(&file);
        }
        match fate {
            Some(NextStep::Whole) => self.queue.push(QueuedTask::new(Task::Join(file))),
            Some(NextStep::Anew) => {
                let failures = self.pieces.begin_anew(&file);
                if failures > self.options.retries || self.is_given_up {
                    return self.lose(Task::Move(file), message);
                }
                let (root, path) = (file.root, file.path.clone());
                let result = FileOutcome::Retried(message.to_owned());
                self.notes.push_back(FileEvent { root, path, result });
                let file = File {
                    modified: None,
                    ..file
                };
                let anew = QueuedTask {
                    failures,
                    ..QueuedTask::new(Task::Move(file))
                };
                self.queue.delay(anew, now);
            }
            Some(NextStep::Lost) | None => {}
        }
    }

    fn note(&mut self, file: &File, result: FileOutcome) {
        self.notes.push_back(FileEvent {
            root: file.root,
            path: file.path.clone(),
            result,
        });
    }
}

/// Returns the failure for a lane that lost its connections while it had no task. Such a loss
/// counts as a refusal by the server.
fn lost() -> TaskFailure {
    TaskFailure {
        retry_action: RetryAction::Reconnect,
        message: "the server ended the connection".to_owned(),
        has_moved: false,
        is_anew: false,
    }
}

/// Reason for the failure of a file whose directory at the destination cannot be made. A cause may
/// follow. Without a cause, the failure of the directory is reported separately.
pub const DIRECTORY_FAILED: &str = "its directory cannot be made";

/// Maximum number of attempts per permitted retry. The limit applies to a task that moves bytes at
/// each attempt but never completes.
const ATTEMPTS_PER_RETRY: u32 = 20;
