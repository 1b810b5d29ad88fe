//! `--on-file`: calls of a user's command, one for each moved file.

use std::{collections::VecDeque, ffi::OsString, io, process::Stdio, sync::Arc, time::Duration};

use mover::{
    command::{CALLS_AT_ONCE, FileFacts, kill},
    job::Job,
    location::Location,
    names::last_name,
    plan::{FileEvent, FileOutcome, FileVersion},
};
use tokio::{io::AsyncWriteExt as _, process::Command, task::JoinSet, time::timeout};

use crate::exit;

/// A program and its arguments, which are run without a shell.
#[derive(Debug, Clone)]
pub(super) struct CommandWords(Vec<OsString>);

/// Calls of the command for the files of a job. A limited number of calls run in parallel with the
/// transfers. Transfers never wait for calls.
pub(super) struct Calls {
    words: Arc<CommandWords>,
    job: Arc<Job>,
    waiting: VecDeque<MovedFile>,
    running: JoinSet<Call>,
}

/// Outcome of a call.
pub(super) struct Call {
    /// Path of the file, as the user has written it.
    pub(super) path: String,
    /// Reason why the command failed or was not called. `None` after success.
    pub(super) failure: Option<String>,
}

impl CommandWords {
    /// Splits a command line into words by the rules of a shell.
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
    pub(super) fn new(words: CommandWords, job: Arc<Job>) -> Self {
        Self {
            words: Arc::new(words),
            job,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
        }
    }

    /// Queues a call if the event reports a moved file. `shown` is the path for messages to the
    /// user.
    pub(super) fn add(&mut self, note: &FileEvent, shown: String) {
        let FileOutcome::Moved(version, _) = note.result else {
            return;
        };
        let source = self.job.source(note.root, &note.path);
        let path = match note.path.names() {
            [] => last_name(&source.path()),
            _ => note.path.to_bytes(),
        };
        self.waiting.push_back(MovedFile {
            shown,
            path,
            source: text(source),
            destination: text(self.job.destination(note.root, &note.path)),
            version,
        });
        self.start();
    }

    fn start(&mut self) {
        while self.running.len() < CALLS_AT_ONCE
            && let Some(file) = self.waiting.pop_front()
        {
            let words = self.words.clone();
            self.running.spawn(async move {
                let called = call(&words, &file).await;
                Call {
                    path: file.shown,
                    failure: called.unwrap_or_else(|error| Some(error.to_string())),
                }
            });
        }
    }

    /// Returns the outcome of a finished call. Returns `None` if no call has finished.
    pub(super) fn ended(&mut self) -> Option<Call> {
        let call = self.running.try_join_next()?;
        self.start();
        Some(call.expect("a call does not panic"))
    }

    /// Waits until a call finishes. Returns `None` if no call is running.
    pub(super) async fn next(&mut self) -> Option<Call> {
        let call = self.running.join_next().await?;
        self.start();
        Some(call.expect("a call does not panic"))
    }

    /// Removes all queued calls and returns them as failures.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Call> {
        self.waiting.drain(..).map(|file| Call {
            path: file.shown,
            failure: Some("not called: interrupted".to_owned()),
        })
    }
}

/// Returns a location as text. A relative path becomes absolute.
fn text(location: Location) -> Vec<u8> {
    match location {
        Location::Local(path) => std::path::absolute(&path)
            .unwrap_or(path)
            .into_os_string()
            .into_encoded_bytes(),
        Location::Remote(remote) => remote.to_string().into_bytes(),
    }
}

/// A moved file whose call has not started.
struct MovedFile {
    shown: String,
    path: Vec<u8>,
    source: Vec<u8>,
    destination: Vec<u8>,
    version: FileVersion,
}

/// Runs the command for one file. Returns the reason if the command fails.
async fn call(words: &CommandWords, file: &MovedFile) -> io::Result<Option<String>> {
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
    let json = facts.json();
    let end = async {
        // A command may end without reading the facts. The write then fails.
        let _ = input.write_all(&json).await;
        drop(input);
        child.wait().await
    };
    let Ok(ended) = timeout(TIMEOUT, end).await else {
        kill(&child);
        child.wait().await?;
        return Ok(Some(format!("killed after {} s", TIMEOUT.as_secs())));
    };
    let ended = ended?;
    Ok((!ended.success()).then(|| ended.to_string()))
}

/// Time after which the process kills a command. The agent uses the same time.
const TIMEOUT: Duration = Duration::from_secs(3600);
