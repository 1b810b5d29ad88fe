//! Two trees in memory, and a plan that works on them. Tasks end in random order. Connections are
//! lost before or after tasks have taken effect.

use super::*;
use crate::plan::task::RootedPath;

/// Entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeEntry {
    Directory,
    /// A file with its size, modification time and content.
    File(u64, i64, u8),
    Link,
}

/// Entries of a tree by path. The root has the empty path.
pub(super) type Tree = BTreeMap<String, TreeEntry>;

/// A source tree, a destination tree, and a plan.
pub(super) struct Trees {
    planner: Planner,
    pub(super) source: Tree,
    pub(super) destination: Tree,
    random: Pcg64Mcg,
    /// Probability that a connection is lost.
    pub(super) loss: f64,
    /// Paths at which the server refuses every task.
    pub(super) refused: BTreeSet<String>,
    /// Source directories whose listing contains lines that cannot be parsed.
    pub(super) strange: BTreeSet<String>,
    /// Changes that take effect as soon as the destination has listed the path. The new entry
    /// replaces the old entry. `None` removes the entry.
    pub(super) meanwhile: BTreeMap<String, Option<TreeEntry>>,
    /// Function that returns the path under which the destination stores a file.
    pub(super) stored: fn(&Tree, &str) -> String,
    /// Whether the answer to a query about a file contains only the size.
    pub(super) looks_without_time: bool,
    pub(super) looks: u64,
    /// Number of listings of the destination.
    pub(super) listings: u64,
    open: BTreeSet<usize>,
    pub(super) lost: u64,
    pub(super) deleted: Vec<String>,
    pub(super) moved: u64,
    pub(super) notes: Vec<FileEvent>,
}

/// Creates a tree from these paths. A path that ends in a slash is a directory. A path that begins
/// with `@` is a symbolic link.
pub(super) fn tree(paths: &[&str]) -> Tree {
    let mut tree = Tree::from([(String::new(), TreeEntry::Directory)]);
    for path in paths {
        let (path, thing) = match (path.strip_suffix('/'), path.strip_prefix('@')) {
            (Some(path), _) => (path, TreeEntry::Directory),
            (_, Some(path)) => (path, TreeEntry::Link),
            _ => (*path, TreeEntry::File(path.len() as u64, 1_000, 0)),
        };
        let slashes = path.match_indices('/');
        for (at, _) in slashes {
            tree.insert(path[..at].to_owned(), TreeEntry::Directory);
        }
        tree.insert(path.to_owned(), thing);
    }
    tree
}

impl Trees {
    pub(super) fn new(source: &[&str], destination: &[&str], options: PlanOptions) -> Self {
        Self::of(tree(source), tree(destination), options, 1)
    }

    pub(super) fn of(source: Tree, destination: Tree, options: PlanOptions, seed: u64) -> Self {
        Self {
            planner: Planner::new(1, options),
            source,
            destination,
            random: Pcg64Mcg::seed_from_u64(seed),
            loss: 0.0,
            refused: BTreeSet::new(),
            strange: BTreeSet::new(),
            meanwhile: BTreeMap::new(),
            stored: |_, path| path.to_owned(),
            looks_without_time: false,
            looks: 0,
            listings: 0,
            open: BTreeSet::new(),
            lost: 0,
            deleted: Vec::new(),
            moved: 0,
            notes: Vec::new(),
        }
    }

    /// Runs the job until it ends.
    pub(super) fn run(&mut self) -> JobCounts {
        let mut now = Instant::now();
        let mut pending = Vec::new();
        for _ in 0..100_000 {
            pending.extend(std::iter::from_fn(|| self.planner.poll(now)));
            self.notes
                .extend(std::iter::from_fn(|| self.planner.next_file_event()));
            if self.planner.is_finished() {
                return self.planner.tally();
            }
            if pending.is_empty() {
                now = self.planner.due().expect("something is to come").max(now);
                continue;
            }
            let next = pending.swap_remove(self.random.random_range(..pending.len()));
            match next {
                PlannerAction::Open { lane } => {
                    self.open.insert(lane);
                    self.planner
                        .handle(lane, LaneEvent::Opened { depth: 2 }, now);
                }
                PlannerAction::Work { lane, id, task } => {
                    // The lane was lost before this action.
                    if !self.open.contains(&lane) {
                        continue;
                    }
                    let event = self.work(lane, id, task, now);
                    let is_lost = matches!(&event, LaneEvent::Failed(_, it) if it.retry_action == RetryAction::Reconnect);
                    if is_lost {
                        self.lost += 1;
                        self.open.remove(&lane);
                        // The other tasks of the lane never begin.
                        pending.retain(
                            |it| !matches!(it, PlannerAction::Work { lane: other, .. } if *other == lane),
                        );
                    }
                    self.planner.handle(lane, event, now);
                }
            }
        }
        panic!("the plan does not end");
    }

    fn work(&mut self, lane: usize, id: TaskId, task: Task, now: Instant) -> LaneEvent {
        let (_, path) = task.place();
        let path = String::from_utf8(path.to_bytes()).expect("text");
        if self.refused.contains(&path) && !matches!(task, Task::Probe { .. }) {
            return LaneEvent::Failed(id, failure(RetryAction::GiveUpFile));
        }
        if self.random.random_bool(self.loss) {
            return LaneEvent::Failed(id, failure(RetryAction::Reconnect));
        }
        let done = self.effect(lane, id, task, &path, now);
        // A server's last action may succeed although its reply is lost.
        match done {
            Ok(_) if self.random.random_bool(self.loss) => {
                LaneEvent::Failed(id, failure(RetryAction::Reconnect))
            }
            Ok(outcome) => LaneEvent::Done(id, outcome),
            Err(retry_action) => LaneEvent::Failed(id, failure(retry_action)),
        }
    }

    fn effect(
        &mut self,
        lane: usize,
        id: TaskId,
        task: Task,
        path: &str,
        now: Instant,
    ) -> Result<TaskResult, RetryAction> {
        let stored = (self.stored)(&self.destination, path);
        let source = path;
        let is_of_source = matches!(task, Task::ListSource(_));
        let path = if is_of_source { path } else { stored.as_str() };
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        Ok(match task {
            Task::Probe { .. } => TaskResult::Probed(RootKind::Directory {
                is_there: self.destination.contains_key(""),
            }),
            Task::ListSource(_) => {
                let entries = children_of(&self.source, path);
                let half = entries.len() / 2;
                for entries in [&entries[..half], &entries[half..]] {
                    let event = LaneEvent::Found(id, entries.to_vec());
                    self.planner.handle(lane, event, now);
                }
                let not_understood = u64::from(self.strange.contains(path));
                TaskResult::Ended { not_understood }
            }
            Task::ListDestination(_) | Task::ListExtra(_) | Task::ListAgain(_) => {
                self.listings += 1;
                let entries = children_of(&self.destination, path);
                let is_in = |it: &str| it.rsplit_once('/').map_or("", |(above, _)| above) == path;
                for (path, thing) in self.meanwhile.extract_if(.., |it, _| is_in(it)) {
                    match thing {
                        Some(thing) => self.destination.insert(path, thing),
                        None => self.destination.remove(&path),
                    };
                }
                TaskResult::Listed(entries)
            }
            Task::Make(_) | Task::Replace(_) => {
                let is_replacement = matches!(task, Task::Replace(_));
                assert!(
                    path.is_empty() || self.is_directory(parent),
                    "{parent} is first"
                );
                let there = self
                    .destination
                    .insert(path.to_owned(), TreeEntry::Directory);
                let may_be_there = is_replacement || self.loss > 0.0;
                assert!(there.is_none() || may_be_there, "{path} is new");
                TaskResult::Made
            }
            Task::Move(_) if is_moved_in_pieces(self.source[source]) => {
                let piece = |begin| Piece {
                    begin,
                    end: begin + 1,
                };
                TaskResult::Split(vec![piece(0), piece(1)])
            }
            Task::MovePiece(..) => TaskResult::Arrived,
            Task::Help(_) => TaskResult::HelperEnded,
            Task::Move(_) | Task::Join(_) => {
                assert!(
                    self.deleted.is_empty() || self.was_directory(path),
                    "{path}: deletions come last"
                );
                assert!(self.is_directory(parent), "{parent} is there");
                assert!(!self.is_directory(path), "{path} is free");
                self.destination
                    .insert(path.to_owned(), self.source[source]);
                self.moved += 1;
                TaskResult::Moved {
                    bytes: 1,
                    modified_unix_s: None,
                    proof: ContentProof::Size,
                }
            }
            Task::Compare(_) => TaskResult::Compared {
                is_equal: self.source[source] == self.destination[path],
            },
            Task::Delete(RootedPath { .. }) => {
                assert!(!self.is_directory(path), "{path} is no directory");
                self.destination.remove(path);
                self.deleted.push(path.to_owned());
                TaskResult::Deleted
            }
            Task::RemoveDirectory(_) => {
                if !children_of(&self.destination, path).is_empty() {
                    return Err(RetryAction::GiveUpFile);
                }
                self.destination.remove(path);
                self.deleted.push(path.to_owned());
                TaskResult::Deleted
            }
            Task::LookAgain(..) | Task::FindEntry(..) | Task::FindDirectory(_) => {
                self.looks += 1;
                let entries = children_of(&self.destination, parent);
                let name = path.rsplit('/').next().expect("a name").as_bytes();
                let mut entry = entries.into_iter().find(|it| it.name == name);
                if self.looks_without_time {
                    entry.iter_mut().for_each(|it| it.modified = None);
                }
                TaskResult::Looked(entry)
            }
            Task::RemoveSource(..) => {
                // An earlier removal may have succeeded although its reply was lost.
                if let Some(thing) = self.source.remove(source) {
                    let there = self.destination.get(path);
                    assert_eq!(there, Some(&thing), "{path} is there first");
                }
                TaskResult::Deleted
            }
            Task::MakeParents { .. } => unreachable!("the root is a directory"),
        })
    }

    fn is_directory(&self, path: &str) -> bool {
        self.destination.get(path) == Some(&TreeEntry::Directory)
    }

    fn was_directory(&self, path: &str) -> bool {
        self.deleted.iter().any(|it| it == path)
    }

    /// Returns the path and the reason of each failure.
    pub(super) fn failures(&self) -> Vec<String> {
        let failures = self.notes.iter().filter_map(|note| match &note.result {
            FileOutcome::Failed(reason) => Some(format!("{}: {reason}", note.path)),
            _ => None,
        });
        failures.collect()
    }

    /// Returns the paths of all file events whose result satisfies `is_it`, in order.
    pub(super) fn paths_of(&self, is_it: impl Fn(&FileOutcome) -> bool) -> Vec<String> {
        let notes = self.notes.iter().filter(|it| is_it(&it.result));
        notes.map(|it| it.path.to_string()).collect()
    }
}

fn children_of(tree: &Tree, path: &str) -> Vec<ListingEntry> {
    let below = |it: &String| -> Option<String> {
        let rest = match path {
            "" => it.as_str(),
            path => it.strip_prefix(path)?.strip_prefix('/')?,
        };
        (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
    };
    let entries = tree.iter().filter_map(|(path, thing)| {
        let name = below(path)?.into_bytes();
        Some(match thing {
            TreeEntry::Directory => entry(&name, EntryKind::Directory, None, 0),
            TreeEntry::File(size, time, _) => entry(&name, EntryKind::File, Some(*size), *time),
            TreeEntry::Link => entry(&name, EntryKind::Symlink { target: None }, None, 0),
        })
    });
    entries.collect()
}

/// Returns whether the test moves this file in pieces. A file is moved in pieces if its size is a
/// multiple of three.
fn is_moved_in_pieces(thing: TreeEntry) -> bool {
    matches!(thing, TreeEntry::File(size, ..) if size % 3 == 0)
}
