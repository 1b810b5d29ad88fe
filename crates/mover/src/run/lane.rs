//! A lane: one connection to each server of a job. A lane carries out one task after another.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ftp::listing::{EntryKind, ListingEntry};
use tokio::sync::mpsc;

use super::{
    backend::Backend,
    failure::{TaskError, reconnection_message, with_hint},
    job_context::JobContext,
    listing::list,
    moving::Mover,
    naming::{FILES_SYNCED_MAX, PendingNames},
    small::{Backlog, SftpFiles, SmallFiles},
};
use crate::{
    job::JobSite,
    names::{join, parent},
    plan::{Directory, File, LaneEvent, Links, RootKind, Task, TaskFailure, TaskId, TaskResult},
    server::ServerError,
};

/// A lane: one connection to each server of a job.
pub(super) struct Lane {
    number: usize,
    pub(super) shared: Arc<JobContext>,
    pub(super) source: Backend,
    pub(super) destination: Backend,
    /// Attributes from this lane's last query of a root, if the root is a file.
    found: Option<SourceRoot>,
    events: mpsc::UnboundedSender<(usize, LaneEvent)>,
}

/// Attributes of a root that is a file, as the source has reported them.
struct SourceRoot {
    root: usize,
    at: Instant,
    entry: ListingEntry,
}

/// Connects to the servers, and carries out the tasks from `tasks`. Returns when `tasks` ends or
/// when a connection is lost.
pub(super) async fn run(
    number: usize,
    shared: Arc<JobContext>,
    mut tasks: mpsc::UnboundedReceiver<(TaskId, Task)>,
    events: mpsc::UnboundedSender<(usize, LaneEvent)>,
) {
    // If the plan has ended, there is no receiver, and the event is dropped.
    let tell = |event| drop(events.send((number, event)));
    let job = &shared.job;
    let session_pool = job.session_pool.as_deref();
    let ends = async {
        Ok((
            Backend::open(&job.source, &shared.source_files, session_pool).await?,
            Backend::open(&job.destination, &shared.destination_files, session_pool).await?,
        ))
    };
    let mut ends = std::pin::pin!(ends);
    let mut opening = std::pin::pin!(async {
        tokio::select! {
            opened = &mut ends => opened,
            () = tokio::time::sleep(SLOW_AFTER) => {
                tell(LaneEvent::Waiting(awaited(&job.source, &job.destination, false)));
                ends.await
            }
        }
    });
    // A lane gets its first task after it has reported that it is open. If the channel of tasks
    // ends before the lane is open, the job has ended.
    let opened = tokio::select! {
        opened = &mut opening => Some(opened),
        _ = tasks.recv() => None,
    };
    let Some(opened) = opened else {
        return;
    };
    let (source, destination) = match opened {
        Ok(ends) => ends,
        Err(error) => return tell(LaneEvent::Refused(refusal(&shared, &error))),
    };
    let mut lane = Lane {
        number,
        shared: shared.clone(),
        source,
        destination,
        found: None,
        events: events.clone(),
    };
    shared.has_logged_in.store(true, Ordering::Relaxed);
    tell(LaneEvent::Opened {
        depth: lane.depth(),
    });
    let mut backlog = Backlog::new(tasks);
    let mut naming = PendingNames::new(number, &shared, events.clone());
    loop {
        let task = tokio::select! {
            task = backlog.next() => task,
            () = lane.until_lost() => {
                naming.end().await;
                lane.hang_up().await;
                return tell(LaneEvent::Lost);
            }
        };
        let Some((id, task)) = task else {
            break;
        };
        let task = match lane.move_small(&tell, (id, task), &mut backlog).await {
            SmallMove::Other(task) => task,
            SmallMove::Ended(Ok(())) => continue,
            SmallMove::Ended(Err((id, error))) => {
                naming.end().await;
                lane.hang_up().await;
                return tell(LaneEvent::Failed(id, error.failure(0)));
            }
        };
        let mut moved_bytes = 0;
        let is_probe = matches!(task, Task::Probe { .. });
        let named = naming.path(&task);
        let performed = {
            let mut performed = std::pin::pin!(lane.perform(id, task, &mut moved_bytes));
            tokio::select! {
                performed = &mut performed => performed,
                () = tokio::time::sleep(SLOW_AFTER), if is_probe => {
                    tell(LaneEvent::Waiting(awaited(&job.source, &job.destination, true)));
                    performed.await
                }
            }
        };
        match performed {
            Ok(outcome) => naming.done(id, outcome, named).await,
            Err(error) => {
                let failure = error.failure(moved_bytes);
                let goes_on = failure.retry_action.keeps_connection();
                if !goes_on {
                    naming.end().await;
                    lane.hang_up().await;
                }
                tell(LaneEvent::Failed(id, failure));
                if !goes_on {
                    return;
                }
            }
        }
        if let Err(error) = lane.mend().await {
            naming.end().await;
            lane.hang_up().await;
            return tell(LaneEvent::Refused(refusal(&shared, &error)));
        }
    }
    naming.end().await;
    lane.source.close(session_pool).await;
    lane.destination.close(session_pool).await;
}

fn refusal(shared: &JobContext, error: &ServerError) -> TaskFailure {
    TaskFailure {
        retry_action: error.retry_action(),
        message: match shared.has_logged_in.load(Ordering::Relaxed) {
            true => reconnection_message(error),
            false => with_hint(error),
        },
        has_moved: false,
        is_anew: false,
    }
}

/// Returns a text about a lane that is waiting for replies. The text names the servers, and
/// possible reasons for the delay. `is_in` is true if a session is already open.
fn awaited(source: &JobSite, destination: &JobSite, is_in: bool) -> String {
    let servers: Vec<String> = [source, destination]
        .into_iter()
        .filter_map(JobSite::describe)
        .collect();
    let what = if is_in { "answered" } else { "let us in" };
    let question = match source.is_behind_gateway() || destination.is_behind_gateway() {
        true => "are the server and the gateways up?",
        false => "is it up, and does every firewall let this port through?",
    };
    format!(
        "{} has not {what} for {} s ({question}); still waiting",
        servers.join(" or "),
        SLOW_AFTER.as_secs()
    )
}

/// Result of the attempt to move several small files at a time.
enum SmallMove {
    /// The task is not the move of a small file, or the file must be moved alone.
    Other(Task),
    /// No small file is waiting, or a session is unusable.
    Ended(Result<(), (TaskId, TaskError)>),
}

impl SourceRoot {
    /// Returns whether these attributes belong to `file` and are recent enough to be used.
    fn is(&self, file: &File) -> bool {
        let is_root = self.root == file.root && file.path.names().is_empty();
        is_root && self.at.elapsed() < FOUND_MAX
    }
}

impl Lane {
    /// Returns the largest useful number of small files in progress at the same time.
    fn depth(&self) -> usize {
        match (&self.source, &self.destination) {
            (Backend::Remote(_), Backend::Remote(_) | Backend::Sftp(_))
            | (Backend::Sftp(_), Backend::Remote(_)) => 1,
            // The next file begins while the name of the last one is synced.
            (Backend::Local(_), Backend::Local(_)) => FILES_SYNCED_MAX,
            (source, Backend::Local(_)) => source.depth().max(FILES_SYNCED_MAX),
            (source, destination) => source.depth().min(destination.depth()),
        }
    }

    /// Moves small files, if `task` is the move of a small file. The backlog contains the files
    /// that follow.
    async fn move_small(
        &mut self,
        tell: &(dyn Fn(LaneEvent) + Sync),
        (id, task): (TaskId, Task),
        backlog: &mut Backlog,
    ) -> SmallMove {
        let ends = (&self.source, &self.destination);
        if let Some(files) = SftpFiles::new(&self.shared, ends, tell, (id, &task), backlog) {
            backlog.put_back(id, task);
            return SmallMove::Ended(files.run(backlog).await);
        }
        let ends = (&mut self.source, &mut self.destination);
        match SmallFiles::new(&self.shared, ends, tell, (id, &task), backlog) {
            Some(files) => {
                backlog.put_back(id, task);
                SmallMove::Ended(files.run(backlog).await)
            }
            None => SmallMove::Other(task),
        }
    }

    /// Reconnects to each server on which a transfer was aborted.
    async fn mend(&mut self) -> Result<(), ServerError> {
        let shared = &self.shared;
        let job = &shared.job;
        if !self.source.is_usable() {
            let files = &shared.source_files;
            self.source.reopen(&job.source, files).await?;
        }
        if !self.destination.is_usable() {
            let files = &shared.destination_files;
            self.destination.reopen(&job.destination, files).await?;
        }
        Ok(())
    }

    /// Closes the connections before another lane opens new connections.
    async fn hang_up(&mut self) {
        tokio::join!(self.source.hang_up(), self.destination.hang_up());
    }

    /// Waits until a server closes a connection of an idle lane.
    async fn until_lost(&mut self) {
        tokio::select! {
            () = self.source.until_lost() => {}
            () = self.destination.until_lost() => {}
        }
    }

    async fn perform(
        &mut self,
        id: TaskId,
        task: Task,
        moved_bytes: &mut u64,
    ) -> Result<TaskResult, TaskError> {
        let shared = self.shared.clone();
        match task {
            Task::Probe { root } => self.probe(root).await.map(TaskResult::Probed),
            Task::Make(directory) => {
                let path = shared.job.destination_directory(&directory);
                let with_parents = directory.path.names().is_empty();
                self.destination.make_directory(&path, with_parents).await?;
                Ok(TaskResult::Made)
            }
            Task::ListDestination(directory)
            | Task::ListExtra(directory)
            | Task::ListAgain(directory) => self.list_destination(&directory).await,
            Task::FindDirectory(directory) => {
                let path = shared.job.destination_directory(&directory);
                Ok(TaskResult::Looked(self.destination.look(&path).await?))
            }
            Task::FindEntry(directory, entry) => {
                let path = shared.job.destination_directory(&directory);
                let there = self.destination.look(&join(&path, &entry.name)).await?;
                Ok(TaskResult::Looked(there))
            }
            Task::ListSource(directory) => self.list_source(id, &directory).await,
            Task::Move(File {
                link: Some(target),
                root,
                path,
                ..
            }) => shared.make_link(root, &path, &target).await,
            Task::Move(file) => {
                let found = self.found.take().filter(|it| it.is(&file));
                let mut mover = self.mover(&shared, moved_bytes);
                mover.found = found.map(|it| it.entry);
                match mover.split(&file).await? {
                    Some(pieces) => Ok(TaskResult::Split(pieces)),
                    None => match mover.run(&file).await {
                        Err(TaskError::Busy) => Ok(TaskResult::Unsettled),
                        moved => moved,
                    },
                }
            }
            Task::MovePiece(file, piece) => {
                let mut mover = self.mover(&shared, moved_bytes);
                mover.move_piece(&file, piece).await
            }
            Task::Help(file) => self.mover(&shared, moved_bytes).help(&file).await,
            Task::Join(file) => self.mover(&shared, moved_bytes).join(&file).await,
            Task::MakeParents { path, .. } => {
                self.destination.make_directory(&path, true).await?;
                Ok(TaskResult::Made)
            }
            Task::Replace(directory) => {
                shared.pass_fence().await?;
                self.replace(&directory).await
            }
            Task::Compare(file) => self.compare(&file).await,
            Task::Delete(place) => {
                shared.pass_fence().await?;
                self.delete(&place).await
            }
            Task::RemoveDirectory(directory) => {
                shared.pass_fence().await?;
                self.remove_directory(&directory).await
            }
            Task::LookAgain(file, _) => {
                let path = shared.job.destination_path(file.root, &file.path);
                let there = self.destination.look_for_file(&path).await?;
                Ok(TaskResult::Looked(there))
            }
            Task::RemoveSource(file, version) => self.remove_source(&file, &version).await,
        }
    }

    fn mover<'a>(&'a mut self, shared: &'a JobContext, moved_bytes: &'a mut u64) -> Mover<'a> {
        Mover {
            shared,
            source: &mut self.source,
            destination: &mut self.destination,
            moved_bytes,
            has_begun: false,
            found: None,
        }
    }

    async fn probe(&mut self, number: usize) -> Result<RootKind, TaskError> {
        let shared = self.shared.clone();
        let root = &shared.job.roots[number];
        if !shared.job.plan.is_dry_run {
            // If the root is a file, the lane reads it soon.
            self.source.prepare_read()?;
        }
        let Some(found) = self.source.look(&root.source).await? else {
            return Ok(RootKind::Missing);
        };
        let target = &root.destination;
        let is_directory = |it: &Option<ListingEntry>| {
            it.as_ref()
                .is_some_and(|it| it.kind == EntryKind::Directory)
        };
        if found.kind == EntryKind::Directory {
            let there = self.destination.look(target.directory()).await?;
            let is_there = is_directory(&there);
            return Ok(RootKind::Directory { is_there });
        }
        if found.kind == EntryKind::Other {
            return Err(TaskError::NoFile);
        }
        let mut path = target.file();
        let above = parent(&path).filter(|_| !target.is_in_found_directory());
        let paths: Vec<&[u8]> = above.into_iter().chain([&path[..]]).collect();
        let mut seen = self.destination.look_at(&paths).await?;
        let mut there = seen.pop().expect("it was looked for");
        let may_be_missing = seen.pop().is_some_and(|it| !is_directory(&it));
        let mut above = above.filter(|_| may_be_missing).map(<[u8]>::to_vec);
        if target.needs_look() {
            target.found(is_directory(&there));
            if is_directory(&there) {
                path = target.file();
                there = self.destination.look(&path).await?;
                above = None;
            }
        }
        let (size_bytes, modified) = (found.size_bytes, found.modified);
        self.found = Some(SourceRoot {
            root: number,
            at: Instant::now(),
            entry: found,
        });
        Ok(RootKind::File {
            size_bytes,
            modified,
            above: above.filter(|_| there.is_none()),
            there,
        })
    }

    async fn list_source(
        &mut self,
        id: TaskId,
        directory: &Directory,
    ) -> Result<TaskResult, TaskError> {
        let path = self.shared.job.source_path(directory.root, &directory.path);
        let (events, number) = (self.events.clone(), self.number);
        let tell = |entries| drop(events.send((number, LaneEvent::Found(id, entries))));
        let follows_links = self.shared.job.plan.links == Links::Follow;
        let not_understood = list(&mut self.source, &path, follows_links, tell).await?;
        Ok(TaskResult::Ended { not_understood })
    }
}

/// Time after which a slow connection attempt or log-in is reported.
const SLOW_AFTER: Duration = Duration::from_secs(4);

/// Time for which a lane uses queried attributes without another query.
const FOUND_MAX: Duration = Duration::from_secs(5);
