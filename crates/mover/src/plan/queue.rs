//! Tasks that wait: for a lane, or for the time of another attempt.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use super::{
    lanes::backoff,
    task::{File, Task},
};

/// A task, and how often it has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) task: Task,
    /// Since bytes moved last.
    pub(super) failures: u32,
    /// In all.
    pub(super) attempts: u32,
}

/// All tasks that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Tasks that others wait for.
    urgent: VecDeque<Queued>,
    listings: VecDeque<Queued>,
    files: VecDeque<Queued>,
    /// Help with files that come in pieces. Lanes do other work first.
    helpers: VecDeque<Queued>,
    /// Tasks that failed, by the time of their next attempt.
    delayed: BTreeMap<(Instant, u64), Queued>,
    delayed_count: u64,
}

impl Queue {
    /// A task waits for a lane.
    pub(super) fn push(&mut self, queued: Queued) {
        match queued.task {
            Task::Help(_) => self.helpers.push_back(queued),
            Task::Probe { .. }
            | Task::Make(_)
            | Task::Replace(_)
            | Task::MakeAbove { .. }
            | Task::MovePiece(..)
            | Task::Join(_)
            | Task::ListDestination(_)
            | Task::LookForDirectory(_)
            | Task::ListAgain(_) => {
                self.urgent.push_back(queued);
            }
            Task::ListSource(_) | Task::ListSurplus(_) => self.listings.push_back(queued),
            Task::Move(_)
            | Task::Compare(_)
            | Task::LookAgain(..)
            | Task::LookForTwin(..)
            | Task::Delete(_)
            | Task::RemoveDirectory(_)
            | Task::RemoveSource(..) => {
                self.files.push_back(queued);
            }
        }
    }

    /// A task that has failed waits for another attempt.
    pub(super) fn delay(&mut self, queued: Queued, now: Instant) {
        self.delayed_count += 1;
        let at = now + backoff(queued.failures);
        self.delayed.insert((at, self.delayed_count), queued);
    }

    /// Tasks whose time has come wait for a lane.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let queued = entry.remove();
            self.push(queued);
        }
    }

    /// When the next attempt is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.delayed.keys().next().map(|(at, _)| *at)
    }

    /// Tasks that wait for a lane.
    pub(super) fn waiting(&self) -> usize {
        self.urgent.len() + self.listings.len() + self.files.len() + self.helpers.len()
    }

    /// Tasks of help with a file that wait.
    pub(super) fn helpers(&self, file: &File) -> usize {
        let helpers = self.helpers.iter();
        helpers.filter(|it| it.task.is_help_with(file)).count()
    }

    /// Drops help until `count` tasks of it are left.
    pub(super) fn keep_helpers(&mut self, count: usize) {
        self.helpers.truncate(count);
    }

    /// Drops the help with a file.
    pub(super) fn drop_helpers(&mut self, file: &File) {
        self.helpers.retain(|it| !it.task.is_help_with(file));
    }

    /// Directories that wait to be listed.
    pub(super) fn directories(&self) -> usize {
        self.listings.len() + self.urgent.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.delayed.is_empty()
    }

    /// The next task. Listings and files share the lanes: neither waits for all of the other. `listing` lanes list now, of
    /// `lanes_max`; `held` files wait elsewhere.
    pub(super) fn next(&mut self, listing: usize, lanes_max: usize, held: usize) -> Option<Queued> {
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

    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> Vec<Queued> {
        let delayed = std::mem::take(&mut self.delayed).into_values();
        let waiting = self.urgent.drain(..).chain(self.listings.drain(..));
        let waiting = waiting.chain(self.files.drain(..));
        waiting
            .chain(self.helpers.drain(..))
            .chain(delayed)
            .collect()
    }
}

impl Queued {
    pub(super) fn new(task: Task) -> Self {
        Self {
            task,
            failures: 0,
            attempts: 0,
        }
    }

    pub(super) fn is_listing(&self) -> bool {
        matches!(self.task, Task::ListSource(_) | Task::ListSurplus(_))
    }
}

/// One lane in so many lists while files wait.
const LANES_PER_LISTING: usize = 4;

/// With so many files waiting, no further directory is listed.
pub(super) const FILES_AHEAD: usize = 10_000;
