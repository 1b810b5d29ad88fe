//! Small files that a lane moves from or to SFTP servers. The files share the sessions of the lane,
//! and each file waits only for its own answers.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Backlog, is_small, moved, read_here, write_here};
use crate::{
    job::{CopyVerification, RESUME_LEAST},
    plan::{self, LaneEvent, Task, TaskId, TaskResult},
    run::{
        backend::{Backend, FILES_OVER_SFTP_MAX},
        failure::TaskError,
        job_context::JobContext,
    },
    server::ServerError,
    sftp::SftpSession,
};

/// The small files that a lane is moving over SFTP at the same time.
pub(in crate::run) struct SftpFiles<'a> {
    shared: &'a Arc<JobContext>,
    tell: &'a (dyn Fn(LaneEvent) + Sync),
    ends: FileEnds,
    moving: JoinSet<MovedFile>,
    /// Total size of the files in progress.
    moving_bytes: u64,
}

/// Source and destination of small files. `None` stands for this machine.
#[derive(Clone)]
struct FileEnds {
    source: Option<SftpSession>,
    destination: Option<SftpSession>,
}

/// A file whose move has ended.
struct MovedFile {
    id: TaskId,
    file: plan::File,
    /// Size of the file when its move began.
    size_bytes: u64,
    result: Result<(), TaskError>,
}

impl<'a> SftpFiles<'a> {
    /// Starts to move the small files of a lane. The task `task` must move a small file from or to
    /// an SFTP server. For any other task, returns `None`.
    pub(in crate::run) fn new(
        shared: &'a Arc<JobContext>,
        (source, destination): (&Backend, &Backend),
        tell: &'a (dyn Fn(LaneEvent) + Sync),
        (id, task): (TaskId, &Task),
        backlog: &Backlog,
    ) -> Option<Self> {
        let session = |backend: &Backend| match backend {
            Backend::Local(_) => Some(None),
            Backend::Sftp(session) => Some(Some(session.clone())),
            Backend::Remote(_) | Backend::Web(_) => None,
        };
        let ends = FileEnds {
            source: session(source)?,
            destination: session(destination)?,
        };
        let is_remote = ends.source.is_some() || ends.destination.is_some();
        let is_ours = is_remote && is_small(shared, task) && !backlog.alone.contains(&id);
        is_ours.then(|| Self {
            shared,
            tell,
            ends,
            moving: JoinSet::new(),
            moving_bytes: 0,
        })
    }

    /// Moves small files until no small file is waiting.
    ///
    /// # Errors
    /// The task in progress, and the reason why a session is unusable.
    pub(in crate::run) async fn run(
        mut self,
        backlog: &mut Backlog,
    ) -> Result<(), (TaskId, TaskError)> {
        loop {
            self.begin(backlog);
            tokio::select! {
                () = backlog.arrive(), if !backlog.is_closed => {}
                ended = self.moving.join_next() => match ended {
                    Some(ended) => self.ended(ended.expect("a move does not panic"), backlog)?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Begins to move waiting small files until a limit is reached.
    fn begin(&mut self, backlog: &mut Backlog) {
        while self.moving.len() < FILES_OVER_SFTP_MAX {
            let Some((id, Task::Move(file))) = backlog.tasks.front() else {
                break;
            };
            let (id, file) = (*id, file.clone());
            let size_bytes = file.size_bytes.unwrap_or(u64::MAX);
            let has_room = self.moving.is_empty()
                || self.moving_bytes.saturating_add(size_bytes) <= MOVING_BYTES_MAX;
            let is_next = is_small(self.shared, &backlog.tasks[0].1)
                && !backlog.alone.contains(&id)
                && has_room;
            if !is_next {
                break;
            }
            backlog.tasks.pop_front();
            self.moving_bytes += size_bytes;
            let (shared, ends) = (self.shared.clone(), self.ends.clone());
            self.moving.spawn(async move {
                let mut file = file;
                let result = ends.copy(&shared, &mut file).await;
                MovedFile {
                    id,
                    file,
                    size_bytes,
                    result,
                }
            });
        }
    }

    fn ended(
        &mut self,
        ended: MovedFile,
        backlog: &mut Backlog,
    ) -> Result<(), (TaskId, TaskError)> {
        let MovedFile {
            id,
            file,
            size_bytes,
            result,
        } = ended;
        self.moving_bytes -= size_bytes;
        (self.tell)(match result {
            Ok(()) => LaneEvent::Done(id, moved(&file, self.shared)),
            Err(TaskError::Busy) => LaneEvent::Done(id, TaskResult::Unsettled),
            // The file is moved alone later, because such a move can retry with another name of the
            // part, or fails with a more precise error. The source may have changed since its
            // listing.
            Err(error) if error.is_changed() || error.is_refusal() => {
                backlog.alone.insert(id);
                backlog.put_back(id, Task::Move(file));
                return Ok(());
            }
            Err(error) if error.keeps_connection() => LaneEvent::Failed(id, error.failure(0)),
            Err(error) => return Err((id, error)),
        });
        Ok(())
    }
}

impl FileEnds {
    /// Copies a file. If the source is this machine, `file` receives the size and time of the
    /// version that was read.
    async fn copy(&self, shared: &JobContext, file: &mut plan::File) -> Result<(), TaskError> {
        let content = match &self.source {
            None => read_here(shared, file).await?.0,
            Some(session) => read_there(shared, session, file).await?,
        };
        match &self.destination {
            None => write_here(shared, file, content).await,
            Some(session) => {
                if self.source.is_some() {
                    shared.progress.moved(content.len()).await;
                }
                write_there(shared, session, file, &content).await
            }
        }
    }
}

/// Reads a small file of a server, and checks that it has the size and time of its listing.
async fn read_there(
    shared: &JobContext,
    session: &SftpSession,
    file: &plan::File,
) -> Result<Vec<u8>, TaskError> {
    let path = shared.job.source_path(file.root, &file.path);
    let size_bytes = file.size_bytes.unwrap_or_default();
    let size = usize::try_from(size_bytes.min(RESUME_LEAST.bytes())).unwrap_or(usize::MAX);
    let mut reader = session.read(&path, 0).await?;
    // The buffer has room for one more byte, which would show that the file has grown.
    let mut content = vec![0; size + 1];
    let mut length = 0;
    while length < content.len() {
        match reader.read(&mut content[length..]).await? {
            0 => break,
            count => length += count,
        }
    }
    content.truncate(length);
    match length > size {
        true => reader.abandon().await,
        false => drop(reader.finish().await?),
    }
    if shared.job.moving.verify == CopyVerification::None {
        return Ok(content);
    }
    if length as u64 != size_bytes {
        return Err(TaskError::Changed);
    }
    // The file may have changed while it was read.
    let now = session.stat(&path).await?;
    let is_same = match (file.modified, now.modified) {
        (Some(before), Some(now)) => before.unix_s == now.unix_s,
        _ => true,
    };
    match is_same && now.size_bytes == file.size_bytes {
        true => Ok(content),
        false => Err(TaskError::Changed),
    }
}

/// Writes a small file at a server under the name of its part, and renames it.
async fn write_there(
    shared: &JobContext,
    session: &SftpSession,
    file: &plan::File,
    content: &[u8],
) -> Result<(), TaskError> {
    let job = &shared.job;
    let source = job.source_path(file.root, &file.path);
    let destination = job.destination_path(file.root, &file.path);
    let part = job.moving.partial(&source, &destination);
    let mut writer = session.write(&part, 0, false).await?;
    if let Some(modified) = file.modified {
        writer.set_modified(modified.unix_s);
    }
    writer.write(content).await?;
    let got = writer.finish().await?.and_then(|it| it.size_bytes);
    let expected = content.len() as u64;
    if job.moving.verify != CopyVerification::None && got.is_some_and(|it| it != expected) {
        return Err(ServerError::Short { got, expected }.into());
    }
    if part != destination {
        shared.pass_fence().await?;
        session.name(&part, &destination, None).await?;
    }
    Ok(())
}

/// Maximum total size of the files in progress of one lane, in bytes.
const MOVING_BYTES_MAX: u64 = 16 << 20;
