//! Queue of tasks that wait for a free lane or for the time of their next attempt.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use super::{
    lanes::backoff,
    task::{File, Task},
};

/// A task, with the numbers of its failures and attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedTask {
    pub(super) task: Task,
    /// Number of failures since bytes were last moved.
    pub(super) failures: u32,
    /// Number of all failed attempts.
    pub(super) attempts: u32,
}

/// Queue of all tasks that no lane is working on.
#[derive(Debug, Default)]
pub(super) struct TaskQueue {
    /// Tasks that other tasks depend on. These tasks are assigned first.
    urgent: VecDeque<QueuedTask>,
    listings: VecDeque<QueuedTask>,
    files: VecDeque<QueuedTask>,
    /// Tasks to help with files that are moved in pieces. These tasks are assigned last.
    helpers: VecDeque<QueuedTask>,
    /// Failed tasks, sorted by the time of their next attempt.
    delayed: BTreeMap<(Instant, u64), QueuedTask>,
    delayed_count: u64,
}

impl TaskQueue {
    /// Adds a task to the tasks that wait for a free lane.
    pub(super) fn push(&mut self, queued: QueuedTask) {
        match queued.task {
            Task::Help(_) => self.helpers.push_back(queued),
            Task::Probe { .. }
            | Task::Make(_)
            | Task::Replace(_)
            | Task::MakeParents { .. }
            | Task::MovePiece(..)
            | Task::Join(_)
            | Task::ListDestination(_)
            | Task::FindDirectory(_)
            | Task::ListAgain(_) => {
                self.urgent.push_back(queued);
            }
            Task::ListSource(_) | Task::ListExtra(_) => self.listings.push_back(queued),
            Task::Move(_)
            | Task::Compare(_)
            | Task::LookAgain(..)
            | Task::FindEntry(..)
            | Task::Delete(_)
            | Task::RemoveDirectory(_)
            | Task::RemoveSource(..) => {
                self.files.push_back(queued);
            }
        }
    }

    /// Adds a failed task. The task waits for the time of its next attempt.
    pub(super) fn delay(&mut self, queued: QueuedTask, now: Instant) {
        self.delayed_count += 1;
        let at = now + backoff(queued.failures);
        self.delayed.insert((at, self.delayed_count), queued);
    }

    /// Makes delayed tasks available to lanes once the time of their next attempt has come.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let queued = entry.remove();
            self.push(queued);
        }
    }

    /// Returns the earliest time at which a delayed task is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.delayed.keys().next().map(|(at, _)| *at)
    }

    /// Returns the number of tasks that wait for a free lane.
    pub(super) fn waiting(&self) -> usize {
        self.urgent.len() + self.listings.len() + self.files.len() + self.helpers.len()
    }

    /// Returns the number of waiting tasks to help with a file.
    pub(super) fn helpers(&self, file: &File) -> usize {
        let helpers = self.helpers.iter();
        helpers.filter(|it| it.task.is_help_with(file)).count()
    }

    /// Drops waiting help tasks until at most `count` remain.
    pub(super) fn keep_helpers(&mut self, count: usize) {
        self.helpers.truncate(count);
    }

    /// Drops all waiting tasks to help with a file.
    pub(super) fn drop_helpers(&mut self, file: &File) {
        self.helpers.retain(|it| !it.task.is_help_with(file));
    }

    /// Returns the number of directories that are waiting to be listed.
    pub(super) fn directories(&self) -> usize {
        self.listings.len() + self.urgent.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.delayed.is_empty()
    }

    /// Removes and returns the next task.
    ///
    /// Listings and files share the lanes, so that neither kind of task blocks the other. `listing`
    /// is the number of lanes that are listing now, and `lanes_max` is the maximum number of lanes.
    /// `held` is the number of files that wait for their directories.
    pub(super) fn next(
        &mut self,
        listing: usize,
        lanes_max: usize,
        held: usize,
    ) -> Option<QueuedTask> {
        if let Some(urgent) = self.urgent.pop_front() {
            return Some(urgent);
        }
        let listings_max = (lanes_max / LANES_PER_LISTING).max(1);
        let ahead = self.files.len() + held;
        let lists = ahead < FILES_AHEAD && (self.files.is_empty() || listing < listings_max);
        if lists && let Some(next) = self.listings.pop_front() {
            return Some(next);
        }
        self.files.pop_front().or_else(|| self.helpers.pop_front())
    }

    /// Removes and returns all tasks.
    pub(super) fn take_all(&mut self) -> Vec<QueuedTask> {
        let delayed = std::mem::take(&mut self.delayed).into_values();
        let waiting = self.urgent.drain(..).chain(self.listings.drain(..));
        let waiting = waiting.chain(self.files.drain(..));
        waiting
            .chain(self.helpers.drain(..))
            .chain(delayed)
            .collect()
    }
}

impl QueuedTask {
    pub(super) fn new(task: Task) -> Self {
        Self {
            task,
            failures: 0,
            attempts: 0,
        }
    }

    pub(super) fn is_listing(&self) -> bool {
        matches!(self.task, Task::ListSource(_) | Task::ListExtra(_))
    }
}

/// Divisor for the limit on listings. While files are waiting, the limit is the number of all lanes
/// divided by this value, and at least 1.
const LANES_PER_LISTING: usize = 4;

/// Number of waiting files at which the listing of further directories stops.
pub(super) const FILES_AHEAD: usize = 10_000;
