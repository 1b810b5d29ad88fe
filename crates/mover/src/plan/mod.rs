//! The plan of a job: what is done next, by which lane, and what follows from a failure.
//!
//! Events go in with the time, actions come out. No socket, no disk, no clock: tests run it in virtual time. A *lane* is
//! a connection to each server that the job needs; it does one task after another, and lanes work side by side.

mod compare;
mod lanes;
mod task;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use ftp::{
    command::escape,
    listing::{Entry, Kind, Modified},
};

pub use self::task::{Directory, File, RelativePath, Task};
use self::{
    compare::{Decision, decide},
    lanes::{Lane, Lanes, backoff},
    tree::{Presence, Tree},
};
use crate::remedy::Remedy;

/// What a job is allowed, and what it keeps.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most lanes at a time.
    pub lanes_max: usize,
    /// How often a task is tried again.
    pub retries: u32,
    /// Keeps files of the destination that are newer.
    pub keeps_newer: bool,
    /// Makes directories in which there is nothing to move.
    pub makes_empty_directories: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes_max: 4,
            retries: 5,
            keeps_newer: false,
            makes_empty_directories: false,
        }
    }
}

/// What a lane has to tell.
#[derive(Debug, Clone)]
pub enum Event {
    /// The lane has its connections.
    Opened,
    /// It has not.
    Refused(Failure),
    /// The source has these entries in the directory that the lane lists.
    Found(Vec<Entry>),
    /// The lane's task is done.
    Done(Outcome),
    /// The lane's task has failed.
    Failed(Failure),
    /// The lane has lost its connections while it had no task. A task that was given to it since has not begun.
    Lost,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Task::Probe`].
    Probed(Probe),
    /// Of [`Task::Make`].
    Made,
    /// Of [`Task::ListDestination`].
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
    },
    /// Of [`Task::Move`]: the file was whole at the destination already.
    WasThere,
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
    /// The source is not what its listing said.
    pub is_changed: bool,
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
        /// What to do.
        task: Task,
    },
}

/// What was done with a file or a directory, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which of the job's roots.
    pub root: usize,
    /// What it is about.
    pub path: RelativePath,
    /// What was done.
    pub result: Result,
}

/// What was done with a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Result {
    /// It was moved: bytes of the file.
    Moved(u64),
    /// The destination had it.
    Same,
    /// It is left out on purpose.
    LeftOut(&'static str),
    /// It will be tried again.
    Retried(String),
    /// It could not be moved.
    Failed(String),
    /// No connection came about; another attempt follows.
    NoConnection(String),
}

/// Counts of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files found at the source.
    pub found: u64,
    /// Bytes of the files to be moved, as far as they are known.
    pub bytes_wanted: u64,
    /// Files to be moved.
    pub wanted: u64,
    /// Files moved.
    pub moved: u64,
    /// Files that the destination had.
    pub same: u64,
    /// Entries left out on purpose.
    pub left_out: u64,
    /// Files and directories that failed.
    pub failed: u64,
}

/// The plan of one job.
#[derive(Debug)]
pub struct Planner {
    options: Options,
    lanes: Lanes<Queued>,
    tree: Tree,
    /// Tasks that others wait for.
    urgent: VecDeque<Queued>,
    listings: VecDeque<Queued>,
    files: VecDeque<Queued>,
    /// Tasks that failed, by the time of their next attempt.
    delayed: BTreeMap<(Instant, u64), Queued>,
    delayed_count: u64,
    notes: VecDeque<Note>,
    tally: Tally,
    is_given_up: bool,
}

/// A task, and how often it has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Queued {
    task: Task,
    /// Since bytes moved last.
    failures: u32,
    /// In all.
    attempts: u32,
}

impl Planner {
    /// The plan of a job with `roots` roots, numbered from 0.
    pub fn new(roots: usize, options: Options) -> Self {
        let probes = (0..roots).map(|root| Queued::new(Task::Probe { root }));
        Self {
            lanes: Lanes::new(options.lanes_max),
            options,
            tree: Tree::default(),
            urgent: probes.collect(),
            listings: VecDeque::new(),
            files: VecDeque::new(),
            delayed: BTreeMap::new(),
            delayed_count: 0,
            notes: VecDeque::new(),
            tally: Tally::default(),
            is_given_up: false,
        }
    }

    /// Takes what a lane tells.
    pub fn handle(&mut self, lane: usize, event: Event, now: Instant) {
        match event {
            Event::Opened => self.lanes.opened(lane),
            Event::Refused(failure) => self.refused(lane, failure, now),
            Event::Found(entries) => self.found(lane, entries),
            Event::Done(outcome) => {
                if let Lane::Busy(queued) = self.lanes.set(lane, Lane::Idle) {
                    self.done(queued.task, outcome);
                }
            }
            Event::Failed(failure) => {
                let next = match failure.remedy {
                    Remedy::Retry | Remedy::GiveUpFile => Lane::Idle,
                    Remedy::Reconnect | Remedy::FewerConnections | Remedy::GiveUpServer => {
                        Lane::Closed
                    }
                };
                if let Lane::Busy(queued) = self.lanes.set(lane, next) {
                    self.failed(queued, failure, now);
                }
            }
            Event::Lost => {
                // A task that was on its way to the lane has not begun.
                if let Lane::Busy(queued) = self.lanes.set(lane, Lane::Closed) {
                    self.queue(queued);
                }
            }
        }
    }

    /// The next thing to do; `None` until an event comes, or the time that [`due`](Self::due) tells.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let queued = entry.remove();
            self.queue(queued);
        }
        if self.waiting() == 0 {
            return None;
        }
        if let Some(lane) = self.lanes.idle() {
            let queued = self.next_task()?;
            let task = queued.task.clone();
            self.lanes.set(lane, Lane::Busy(queued));
            return Some(Action::Work { lane, task });
        }
        let lane = self.lanes.to_open(self.waiting(), now)?;
        self.lanes.set(lane, Lane::Opening);
        Some(Action::Open { lane })
    }

    /// When [`poll`](Self::poll) has something to do without an event.
    pub fn due(&self) -> Option<Instant> {
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        let opening = self.lanes.due().filter(|_| self.waiting() > 0);
        delayed.into_iter().chain(opening).min()
    }

    /// Whether nothing is left to do.
    pub fn is_finished(&self) -> bool {
        // A lane that still connects is not needed any more.
        self.waiting() == 0 && self.delayed.is_empty() && self.lanes.busy().next().is_none()
    }

    /// The next record of what was done.
    pub fn next_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// What was done so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn waiting(&self) -> usize {
        self.urgent.len() + self.listings.len() + self.files.len()
    }

    /// Listings and files share the lanes: neither waits for all of the other.
    fn next_task(&mut self) -> Option<Queued> {
        if let Some(urgent) = self.urgent.pop_front() {
            return Some(urgent);
        }
        let listing = self.lanes.busy().filter(|it| it.is_listing()).count();
        let listings_max = (self.options.lanes_max / LANES_PER_LISTING).max(1);
        let lists =
            self.files.is_empty() || (listing < listings_max && self.files.len() < FILES_AHEAD);
        if lists && let Some(next) = self.listings.pop_front() {
            return Some(next);
        }
        self.files.pop_front().or_else(|| self.listings.pop_front())
    }

    fn queue(&mut self, queued: Queued) {
        match queued.task {
            Task::Probe { .. } | Task::Make(_) | Task::ListDestination(_) => {
                self.urgent.push_back(queued);
            }
            Task::ListSource(_) => self.listings.push_back(queued),
            Task::Move(_) => self.files.push_back(queued),
        }
    }

    fn refused(&mut self, lane: usize, failure: Failure, now: Instant) {
        let failures = self.lanes.refused(lane, now);
        self.notes.push_back(Note {
            root: 0,
            path: RelativePath::default(),
            result: Result::NoConnection(failure.message.clone()),
        });
        let others_are_up = self.lanes.idle().is_some() || self.lanes.busy().next().is_some();
        match failure.remedy {
            Remedy::FewerConnections => self.lanes.shrink(),
            Remedy::GiveUpServer if others_are_up => self.lanes.shrink(),
            _ if others_are_up => return,
            _ => {}
        }
        let is_hopeless = failure.remedy == Remedy::GiveUpServer || failures > self.options.retries;
        if is_hopeless && !others_are_up {
            self.give_up(&failure.message);
        }
    }

    /// Nothing more can be done: all that waits has failed.
    fn give_up(&mut self, message: &str) {
        self.is_given_up = true;
        let delayed = std::mem::take(&mut self.delayed).into_values();
        let waiting: Vec<Queued> = self
            .urgent
            .drain(..)
            .chain(self.listings.drain(..))
            .chain(self.files.drain(..))
            .chain(delayed)
            .collect();
        for queued in waiting {
            self.lose(queued.task, message);
        }
    }

    fn failed(&mut self, mut queued: Queued, failure: Failure, now: Instant) {
        queued.attempts += 1;
        queued.failures = if failure.has_moved {
            1
        } else {
            queued.failures + 1
        };
        if failure.is_changed
            && let Task::Move(file) = &mut queued.task
        {
            (file.size_bytes, file.modified) = (None, None);
        }
        let is_hopeless = failure.remedy == Remedy::GiveUpFile
            || failure.remedy == Remedy::GiveUpServer
            || queued.failures > self.options.retries
            || queued.attempts > self.options.retries.saturating_mul(ATTEMPTS_PER_RETRY)
            || self.is_given_up;
        if is_hopeless {
            return self.lose(queued.task, &failure.message);
        }
        let (root, path) = queued.task.place();
        let result = Result::Retried(failure.message);
        self.notes.push_back(Note { root, path, result });
        self.delayed_count += 1;
        let at = now + backoff(queued.failures);
        self.delayed.insert((at, self.delayed_count), queued);
    }

    /// A task cannot be done.
    fn lose(&mut self, task: Task, message: &str) {
        let (root, path) = task.place();
        if let Task::Make(directory) = &task {
            for file in self.tree.failed(directory) {
                self.note_failure(file.root, file.path, "its directory cannot be made");
            }
        }
        self.note_failure(root, path, message);
    }

    fn note_failure(&mut self, root: usize, path: RelativePath, message: &str) {
        self.tally.failed += 1;
        let result = Result::Failed(message.to_owned());
        self.notes.push_back(Note { root, path, result });
    }

    fn done(&mut self, task: Task, outcome: Outcome) {
        match (task, outcome) {
            (Task::Probe { root }, Outcome::Probed(probe)) => self.probed(root, probe),
            (Task::Make(directory), Outcome::Made) => {
                let freed = self.tree.made(&directory);
                let makes = freed
                    .to_make
                    .into_iter()
                    .map(|it| Queued::new(Task::Make(it)));
                self.urgent.extend(makes);
                let files = freed
                    .files
                    .into_iter()
                    .map(|it| Queued::new(Task::Move(it)));
                self.files.extend(files);
            }
            (Task::ListDestination(directory), Outcome::Listed(entries)) => {
                let node = self.tree.node(&directory);
                node.there = entries
                    .into_iter()
                    .map(|it| (it.name.clone(), it))
                    .collect();
                self.queue(Queued::new(Task::ListSource(directory)));
            }
            (Task::ListSource(directory), Outcome::Ended { not_understood }) => {
                let node = self.tree.node(&directory);
                node.there.clear();
                node.there.shrink_to_fit();
                node.seen.clear();
                node.seen.shrink_to_fit();
                if not_understood > 0 {
                    let message =
                        format!("{not_understood} lines of its listing are not understood");
                    self.note_failure(directory.root, directory.path, &message);
                }
            }
            (Task::Move(file), Outcome::Moved { bytes }) => {
                self.tally.moved += 1;
                self.note(&file, Result::Moved(bytes));
            }
            (Task::Move(file), Outcome::WasThere) => {
                self.tally.same += 1;
                self.note(&file, Result::Same);
            }
            (task, outcome) => unreachable!("{outcome:?} is no outcome of {task:?}"),
        }
    }

    fn note(&mut self, file: &File, result: Result) {
        self.notes.push_back(Note {
            root: file.root,
            path: file.path.clone(),
            result,
        });
    }

    fn probed(&mut self, root: usize, probe: Probe) {
        let path = RelativePath::default();
        match probe {
            Probe::Missing => self.note_failure(root, path, "there is no such file or directory"),
            Probe::File {
                size_bytes,
                modified,
                there,
            } => {
                let file = File {
                    root,
                    path,
                    size_bytes,
                    modified,
                };
                if let Some(file) = self.choose(file, there.as_ref()) {
                    self.files.push_back(Queued::new(Task::Move(file)));
                }
            }
            Probe::Directory { is_there } => self.enter(Directory { root, path }, is_there),
        }
    }

    fn enter(&mut self, directory: Directory, is_there: bool) {
        let presence = if is_there {
            Presence::There
        } else {
            Presence::Missing
        };
        self.tree.enter(&directory, presence);
        if is_there {
            self.queue(Queued::new(Task::ListDestination(directory)));
            return;
        }
        if self.options.makes_empty_directories {
            self.want(&directory);
        }
        self.queue(Queued::new(Task::ListSource(directory)));
    }

    fn want(&mut self, directory: &Directory) {
        let first = self.tree.want(directory);
        self.urgent
            .extend(first.map(|it| Queued::new(Task::Make(it))));
    }

    fn found(&mut self, lane: usize, entries: Vec<Entry>) {
        let Lane::Busy(Queued {
            task: Task::ListSource(directory),
            ..
        }) = self.lanes.get_mut(lane)
        else {
            return;
        };
        let directory = directory.clone();
        for entry in entries {
            if self.tree.node(&directory).seen.insert(entry.name.clone()) {
                self.found_one(&directory, entry);
            }
        }
    }

    fn found_one(&mut self, directory: &Directory, entry: Entry) {
        let path = directory.path.join(&entry.name);
        let root = directory.root;
        if !is_sendable(&entry.name) {
            let message = format!("the name {:?} has a line break", escape(&entry.name));
            return self.note_failure(root, path, &message);
        }
        let there = self.tree.node(directory).there.get(&entry.name).cloned();
        match entry.kind {
            Kind::File => {
                let file = File {
                    root,
                    path,
                    size_bytes: entry.size_bytes,
                    modified: entry.modified,
                };
                if let Some(file) = self.choose(file, there.as_ref()) {
                    self.move_below(directory, file);
                }
            }
            Kind::Directory => match there.map(|it| it.kind) {
                None => self.enter(Directory { root, path }, false),
                Some(Kind::Directory) => self.enter(Directory { root, path }, true),
                Some(_) => {
                    self.note_failure(root, path, "the destination has a file with this name");
                }
            },
            Kind::Symlink { .. } => self.leave_out(root, path, "a symbolic link"),
            Kind::Other => self.leave_out(root, path, "neither a file nor a directory"),
        }
    }

    /// The file, if it is to be moved.
    fn choose(&mut self, file: File, there: Option<&Entry>) -> Option<File> {
        self.tally.found += 1;
        match decide(&file, there, &self.options) {
            Decision::Move => {
                self.tally.wanted += 1;
                self.tally.bytes_wanted += file.size_bytes.unwrap_or(0);
                return Some(file);
            }
            Decision::Skip => {
                self.tally.same += 1;
                self.note(&file, Result::Same);
            }
            Decision::KeepNewer => {
                self.leave_out(file.root, file.path, "the destination's is newer");
            }
            Decision::Conflict => {
                let message = "the destination has a directory with this name";
                self.note_failure(file.root, file.path, message);
            }
        }
        None
    }

    fn move_below(&mut self, directory: &Directory, file: File) {
        self.want(directory);
        match self.tree.wait(directory, file) {
            Ok(()) => {}
            Err((file, Presence::There)) => self.files.push_back(Queued::new(Task::Move(file))),
            Err((file, _)) => {
                self.note_failure(file.root, file.path, "its directory cannot be made");
            }
        }
    }

    fn leave_out(&mut self, root: usize, path: RelativePath, why: &'static str) {
        self.tally.left_out += 1;
        let result = Result::LeftOut(why);
        self.notes.push_back(Note { root, path, result });
    }
}

impl Queued {
    fn new(task: Task) -> Self {
        Self {
            task,
            failures: 0,
            attempts: 0,
        }
    }

    fn is_listing(&self) -> bool {
        matches!(self.task, Task::ListSource(_))
    }
}

/// Whether FTP can carry a name.
fn is_sendable(name: &[u8]) -> bool {
    !name.iter().any(|it| matches!(it, b'\r' | b'\n'))
}

/// A task whose bytes move and never arrive is tried this often for each retry that it has.
const ATTEMPTS_PER_RETRY: u32 = 20;

/// One lane in so many lists while files wait.
const LANES_PER_LISTING: usize = 4;

/// With so many files waiting, no further directory is listed.
const FILES_AHEAD: usize = 10_000;
