//! Small files of a lane. Several files are in progress at the same time. This module moves files
//! between this machine and an FTP server, and the module `sftp` moves files of SFTP servers.

mod sftp;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::{Arc, atomic::Ordering},
};

use ftp::{
    listing::{ModifiedTime, TimePrecision},
    reply::ReplyCode,
};
use nix::sys::resource::{Resource, getrlimit};
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
};

use super::{
    backend::Backend,
    blocking::on_disk,
    failure::TaskError,
    job_context::JobContext,
    whole_file::{ReadOutcome, name, read, write},
};
use crate::{
    job::{CopyVerification, RESUME_LEAST},
    names::{local, shown},
    part_name::{part_path, random_digits},
    plan::{self, ContentProof, LaneEvent, Task, TaskId, TaskResult},
    server::{
        CompletedFile, DownloadedContent, Pipeline, PortOwner, ServerError, Session, SmallUpload,
    },
};

pub(super) use self::sftp::SftpFiles;

/// Tasks of a lane that have not begun.
pub(super) struct Backlog {
    tasks: VecDeque<(TaskId, Task)>,
    /// Tasks whose files must be moved one by one. Such a move may succeed, or may fail with a more
    /// precise error.
    alone: HashSet<TaskId>,
    arriving: mpsc::UnboundedReceiver<(TaskId, Task)>,
    is_closed: bool,
}

/// The small files that a lane is moving at the same time.
pub(super) struct SmallFiles<'a> {
    pub(super) shared: &'a Arc<JobContext>,
    pub(super) tell: &'a (dyn Fn(LaneEvent) + Sync),
    is_upload: bool,
    pipeline: Pipeline<'a>,
    /// Files in progress, by task number.
    files: HashMap<u64, plan::File>,
    /// Downloaded files that are being written to the disk.
    writing: JoinSet<(TaskId, Result<TaskResult, TaskError>)>,
    /// Whether no further small files begin. Files that have begun are still moved.
    is_ending: bool,
}

impl Backlog {
    pub(super) fn new(arriving: mpsc::UnboundedReceiver<(TaskId, Task)>) -> Self {
        Self {
            tasks: VecDeque::new(),
            alone: HashSet::new(),
            arriving,
            is_closed: false,
        }
    }

    /// Returns the next task, or `None` once there are no more tasks. This method is cancel safe.
    pub(super) async fn next(&mut self) -> Option<(TaskId, Task)> {
        if self.tasks.is_empty() {
            self.arrive().await;
        }
        self.tasks.pop_front()
    }

    async fn arrive(&mut self) {
        match self.arriving.recv().await {
            Some(task) => self.tasks.push_back(task),
            None => self.is_closed = true,
        }
    }

    pub(super) fn put_back(&mut self, id: TaskId, task: Task) {
        self.tasks.push_front((id, task));
    }
}

impl<'a> SmallFiles<'a> {
    /// Starts to move the small files of a lane. The task `task` must move a small file, and the
    /// server must accept several files at the same time. Otherwise returns `None`.
    pub(super) fn new(
        shared: &'a Arc<JobContext>,
        ends: (&'a mut Backend, &'a mut Backend),
        tell: &'a (dyn Fn(LaneEvent) + Sync),
        (id, task): (TaskId, &Task),
        backlog: &Backlog,
    ) -> Option<Self> {
        let (is_upload, session) = match ends {
            (Backend::Local(_), Backend::Remote(session)) => (true, session),
            (Backend::Remote(session), Backend::Local(_)) => (false, session),
            _ => return None,
        };
        if !session.takes_ahead() || !is_small(shared, task) || backlog.alone.contains(&id) {
            return None;
        }
        let session: &mut Session = session;
        let port_owner = session.port_owner(!shared.is_out_of_reach.load(Ordering::Relaxed));
        Some(Self {
            shared,
            tell,
            is_upload,
            pipeline: Pipeline::new(session, port_owner, ports_max(shared.job.plan.lanes_max))
                .behind(shared.job.fence.clone()),
            files: HashMap::new(),
            writing: JoinSet::new(),
            is_ending: false,
        })
    }

    /// Moves small files until no small file is waiting.
    ///
    /// # Errors
    /// The task in progress, and the reason why the session is unusable.
    pub(super) async fn run(mut self, backlog: &mut Backlog) -> Result<(), (TaskId, TaskError)> {
        loop {
            self.begin(backlog).await?;
            if self.pipeline.is_empty() && self.writing.is_empty() {
                return Ok(());
            }
            tokio::select! {
                () = backlog.arrive(), if !backlog.is_closed => {}
                ended = self.pipeline.next() => match ended {
                    Ok(Some((id, result))) => self.ended(TaskId(id), result, backlog),
                    Ok(None) => {}
                    Err((id, error)) => return Err((TaskId(id), error.into())),
                },
                Some(written) = self.writing.join_next() => {
                    let (id, result) = written.expect("disk work does not panic");
                    self.report(id, result);
                }
            }
        }
    }

    /// Begins to move waiting small files until a limit is reached.
    async fn begin(&mut self, backlog: &mut Backlog) -> Result<(), (TaskId, TaskError)> {
        while !self.is_ending && self.writing.len() < WRITING_MAX {
            let Some((id, Task::Move(file))) = backlog.tasks.front() else {
                break;
            };
            let (id, mut file) = (*id, file.clone());
            let size_bytes = file.size_bytes.unwrap_or(u64::MAX);
            let is_next = is_small(self.shared, &backlog.tasks[0].1)
                && !backlog.alone.contains(&id)
                && self.pipeline.has_room(size_bytes);
            if !is_next {
                break;
            }
            backlog.tasks.pop_front();
            match self.begin_one(id, &mut file).await {
                Ok(()) => drop(self.files.insert(id.0, file)),
                // The file has changed since its listing, as a log does.
                Err(TaskError::Changed) => {
                    backlog.alone.insert(id);
                    backlog.put_back(id, Task::Move(file));
                }
                Err(error) if error.keeps_connection() => self.report(id, Err(error)),
                Err(error) => return Err((id, error)),
            }
        }
        Ok(())
    }

    /// Begins a file. If the source is this machine, `file` receives the size and time of the
    /// version that was read.
    async fn begin_one(&mut self, id: TaskId, file: &mut plan::File) -> Result<(), TaskError> {
        let job = &self.shared.job;
        let source = job.source_path(file.root, &file.path);
        if !self.is_upload {
            let size_bytes = file.size_bytes.expect("a small file has a size");
            return Ok(self.pipeline.retrieve(id.0, &source, size_bytes).await?);
        }
        let destination = job.destination_path(file.root, &file.path);
        let part = job.moving.partial(&source, &destination);
        let (content, modified_unix_s) = read_here(self.shared, file).await?;
        let upload = SmallUpload {
            part,
            destination,
            content,
            modified_unix_s: Some(modified_unix_s),
        };
        Ok(self.pipeline.store(id.0, upload).await?)
    }

    fn ended(
        &mut self,
        id: TaskId,
        result: Result<CompletedFile, ServerError>,
        backlog: &mut Backlog,
    ) {
        let file = self.files.remove(&id.0).expect("it is under way");
        match result {
            Ok(CompletedFile::Stored { .. }) => self.report(id, Ok(moved(&file, self.shared))),
            Ok(CompletedFile::Retrieved(content)) => match self.check(&file, &content) {
                Ok(()) => self.write(id, &file, content.bytes),
                Err(error) => self.report(id, Err(error)),
            },
            Err(error) => {
                if self.pipeline.port_owner() == PortOwner::Ours && is_out_of_reach(&error) {
                    self.shared.is_out_of_reach.store(true, Ordering::Relaxed);
                    self.is_ending = true;
                }
                backlog.alone.insert(id);
                backlog.put_back(id, Task::Move(file));
            }
        }
    }

    /// Checks that the downloaded content has the size and the time of the source file.
    fn check(&self, file: &plan::File, content: &DownloadedContent) -> Result<(), TaskError> {
        if self.shared.job.moving.verify == CopyVerification::None {
            return Ok(());
        }
        let size_bytes = content.bytes.len() as u64;
        let is_whole = file.size_bytes == Some(size_bytes)
            && content.size_bytes.is_none_or(|it| it == size_bytes);
        let before = file.modified.map(|it| it.unix_s);
        let is_same = match (before, content.modified_unix_s) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        match is_whole && is_same {
            true => Ok(()),
            false => Err(TaskError::Changed),
        }
    }

    fn write(&mut self, id: TaskId, file: &plan::File, bytes: Vec<u8>) {
        let (shared, outcome) = (self.shared.clone(), moved(file, self.shared));
        let file = file.clone();
        self.writing.spawn(async move {
            let written = write_here(&shared, &file, bytes).await;
            (id, written.map(|()| outcome))
        });
    }

    fn report(&self, id: TaskId, result: Result<TaskResult, TaskError>) {
        (self.tell)(match result {
            Ok(outcome) => LaneEvent::Done(id, outcome),
            Err(TaskError::Busy) => LaneEvent::Done(id, TaskResult::Unsettled),
            Err(error) => LaneEvent::Failed(id, error.failure(0)),
        });
    }
}

/// Reads a small file of this machine. Returns the content and the modification time. `file`
/// receives the size and time of the version that was read.
async fn read_here(
    shared: &JobContext,
    file: &mut plan::File,
) -> Result<(Vec<u8>, i64), TaskError> {
    let source = shared.job.source_path(file.root, &file.path);
    let what = format!("reading {}", shown(&local(&source)));
    let files = shared.source_files.clone();
    let bytes_max = RESUME_LEAST.bytes();
    let read = spawn_blocking(move || read(&files, &source, bytes_max)).await;
    let read = read.expect("disk work does not panic");
    let (content, unix_s) = match read.map_err(TaskError::disk(what))? {
        ReadOutcome::Whole(content, stamp) => (content, stamp.modified_unix_s),
        ReadOutcome::Changed => return Err(TaskError::Changed),
        ReadOutcome::Busy => return Err(TaskError::Busy),
    };
    shared.progress.moved(content.len()).await;
    file.size_bytes = Some(content.len() as u64);
    file.modified = Some(ModifiedTime {
        unix_s,
        precision: TimePrecision::Second,
    });
    Ok((content, unix_s))
}

/// Writes a small file on this machine. When the function returns, the name of the file survives a
/// power cut.
async fn write_here(
    shared: &JobContext,
    file: &plan::File,
    bytes: Vec<u8>,
) -> Result<(), TaskError> {
    let job = &shared.job;
    let source = job.source_path(file.root, &file.path);
    let destination = job.destination_path(file.root, &file.path);
    // The part has its usual name, because a small file has no journal record that could contain
    // another name.
    let part = job.moving.partial(&source, &destination);
    let other = match &job.moving.partial_suffix {
        Some(suffix) => part_path(&destination, random_digits(), suffix),
        None => destination.clone(),
    };
    let modified_unix_s = file.modified.map(|it| it.unix_s);
    let what = format!("writing {}", shown(&local(&destination)));
    let size_bytes = bytes.len();
    let (files, path) = (shared.destination_files.clone(), destination.clone());
    let write = move || match write(&files, (&part, &path), &bytes, modified_unix_s) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            write(&files, (&other, &path), &bytes, modified_unix_s)
        }
        written => written,
    };
    let part = on_disk(write, what.clone()).await;
    shared.progress.moved(size_bytes).await;
    let part = part?;
    shared.pass_fence().await?;
    let path = destination.clone();
    on_disk(move || name(part, &path), what.clone()).await?;
    let named = shared.destination_files.named(&destination).await;
    named.map_err(TaskError::disk(what))
}

/// Returns the result of the task for a file that was moved.
fn moved(file: &plan::File, shared: &JobContext) -> TaskResult {
    TaskResult::Moved {
        bytes: file.size_bytes.unwrap_or_default(),
        modified_unix_s: file.modified.map(|it| it.unix_s),
        proof: match shared.job.moving.verify {
            CopyVerification::None => ContentProof::None,
            _ => shared.proof_by_size(),
        },
    }
}

/// Returns whether a file can be moved together with other files. The file must be small, its time
/// must be known to the second, and its copy must not be read back.
fn is_small(shared: &JobContext, task: &Task) -> bool {
    let Task::Move(file) = task else {
        return false;
    };
    let is_precise = file
        .modified
        .is_some_and(|it| it.precision == TimePrecision::Second);
    task.is_quick()
        && is_precise
        && matches!(
            shared.job.moving.verify,
            CopyVerification::None | CopyVerification::Size
        )
}

/// Returns the maximum number of listening ports that a lane may have open. The maximum leaves file
/// descriptors for disks, servers and other jobs. It also leaves other clients a part of the
/// gateway's limit on transfers.
fn ports_max(lanes_max: usize) -> usize {
    // If the limit cannot be read, the usual limit of operating systems is assumed.
    let (open_max, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let share = (open_max / 4).min(PORTS_OF_LANES_MAX) / lanes_max as u64;
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// Maximum number of ports of all lanes together. This number is sufficient for 2,500 files per
/// second at a round-trip time of 200 ms. A gateway permits about 1,000 transfers for all its
/// clients together.
const PORTS_OF_LANES_MAX: u64 = 512;

/// Returns whether an error means that a gateway could not connect to this machine.
fn is_out_of_reach(error: &ServerError) -> bool {
    match error {
        ServerError::Unreached => true,
        ServerError::Refused { reply, .. } => reply.code() == NO_DATA_CONNECTION,
        _ => false,
    }
}

const NO_DATA_CONNECTION: ReplyCode = ReplyCode(425);

/// Maximum number of files that are being written to the disk at the same time.
const WRITING_MAX: usize = 64;
