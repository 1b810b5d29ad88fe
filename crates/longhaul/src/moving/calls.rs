//! `--on-file`: a command that is called for each file that has been moved.

use std::{ffi::OsString, io, process::Stdio, sync::Arc, time::Duration};

use mover::{
    command::{CALLS_AT_ONCE, FileFacts, kill},
    job::Job,
    location::Location,
    names::printable,
    plan::{Note, Result as Became, Version},
};
use tokio::{
    io::AsyncWriteExt as _, process::Command, sync::Semaphore, task::JoinSet, time::timeout,
};

use crate::exit;

/// A command without a shell: the program and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Words(Vec<OsString>);

/// The calls for the files of a job. Some run beside transfers, and hold none up.
pub(super) struct Calls {
    words: Arc<Words>,
    job: Arc<Job>,
    room: Arc<Semaphore>,
    running: JoinSet<Call>,
}

/// What became of a call.
pub(super) struct Call {
    /// The file, below the source.
    pub(super) path: String,
    /// Why the command has failed.
    pub(super) failure: Option<String>,
}

impl Words {
    /// Reads a command as a shell splits one into words.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let words = shlex::split(text).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| {
            exit::misuse(format!(
                "--on-file: {text:?} is no command: a quote is open, or it is empty"
            ))
        })?;
        Ok(Self(words.into_iter().map(OsString::from).collect()))
    }
}

impl Calls {
    pub(super) fn new(words: Words, job: Arc<Job>) -> Self {
        Self {
            words: Arc::new(words),
            job,
            room: Arc::new(Semaphore::new(CALLS_AT_ONCE)),
            running: JoinSet::new(),
        }
    }

    /// Calls the command, if the note is that of a moved file.
    pub(super) fn hear(&mut self, note: &Note) {
        let Became::Moved(version) = note.result else {
            return;
        };
        let text = |location: Location| match location {
            Location::Local(path) => path.into_os_string().into_encoded_bytes(),
            Location::Remote(remote) => remote.to_string().into_bytes(),
        };
        let file = Moved {
            path: note.path.to_bytes(),
            source: text(self.job.source(note.root, &note.path)),
            destination: text(self.job.destination(note.root, &note.path)),
            version,
        };
        let (words, room) = (self.words.clone(), self.room.clone());
        self.running.spawn(async move {
            let _turn = room.acquire().await.expect("nobody closes it");
            let called = call(&words, &file).await;
            Call {
                path: printable(&file.path),
                failure: called.unwrap_or_else(|error| Some(error.to_string())),
            }
        });
    }

    /// The next call that has ended; `None` once all have.
    pub(super) async fn next(&mut self) -> Option<Call> {
        let call = self.running.join_next().await?;
        Some(call.expect("a call does not panic"))
    }
}

/// A file that was moved.
struct Moved {
    path: Vec<u8>,
    source: Vec<u8>,
    destination: Vec<u8>,
    version: Version,
}

/// Calls the command for a file. Returns why it has failed, if it has.
async fn call(words: &Words, file: &Moved) -> io::Result<Option<String>> {
    let facts = FileFacts {
        job: None,
        path: &file.path,
        source: &file.source,
        destination: &file.destination,
        size_bytes: file.version.size_bytes,
        modified_unix_s: file.version.modified.map(|it| it.unix_s),
    };
    let mut command = Command::new(&words.0[0]);
    command.args(&words.0[1..]).stdin(Stdio::piped());
    facts.tell(&mut command);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().expect("it is piped");
    // The facts fit the pipe. A command that does not read them is none the worse.
    let _ = input.write_all(&facts.json()).await;
    drop(input);
    let Ok(ended) = timeout(PATIENCE, child.wait()).await else {
        kill(&child);
        child.wait().await?;
        return Ok(Some(format!("killed after {} s", PATIENCE.as_secs())));
    };
    let ended = ended?;
    Ok((!ended.success()).then(|| ended.to_string()))
}

/// A command that takes longer is killed, as the agent's.
const PATIENCE: Duration = Duration::from_secs(3600);
