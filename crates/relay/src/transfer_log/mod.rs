//! The transfer log: records of finished FTP transfers go in, and one task writes a line for each to
//! a file.
//!
//! Whoever finishes a transfer never waits for the disk: records go through a bounded channel, and one
//! that does not fit, or that cannot be written, is counted as dropped. A file that replaces another is
//! opened by whoever asks for it, so that a mistake in its path is told at once.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the file and the clock of its warnings"
)]

mod file;
mod json;
mod record;
mod xferlog;

pub use record::{TransferDirection, TransferRecord, TransferType};

pub(crate) use record::path_text;

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::warn;

use self::file::LogFile;

/// Where the log is, and what its lines look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub path: PathBuf,
    pub format: Format,
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object.
    #[default]
    Json,
    /// That of wu-ftpd, which vsftpd and ProFTPD write, too: downloads and uploads only.
    Xferlog,
}

/// The file of a transfer log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the transfer log {path} cannot be opened: {source}")]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

/// A log that is open and not in use yet.
#[derive(Debug)]
pub struct Opened(Option<Open>);

#[derive(Debug)]
struct Open {
    file: LogFile,
    format: Format,
}

/// The log of a running gateway.
#[derive(Debug)]
pub struct TransferLog {
    messages: mpsc::Sender<Message>,
    /// What the task takes before it writes the next line.
    next: Arc<Mutex<Option<Opened>>>,
    is_on: AtomicBool,
    dropped: Arc<Dropped>,
}

#[derive(Debug)]
enum Message {
    Line(Arc<TransferRecord>),
    /// Everything before this has been written.
    Flush(oneshot::Sender<()>),
}

impl Opened {
    /// Opens the file; without settings there is no log.
    ///
    /// # Errors
    /// [`OpenError`] names the file.
    pub fn open(settings: Option<&Settings>) -> Result<Self, OpenError> {
        let open = |settings: &Settings| {
            let file = LogFile::open(&settings.path).map_err(|source| OpenError {
                path: settings.path.clone(),
                source,
            })?;
            let format = settings.format;
            Ok(Open { file, format })
        };
        settings.map(open).transpose().map(Self)
    }
}

impl TransferLog {
    /// A log without a file.
    pub fn off() -> Self {
        Self {
            messages: mpsc::channel(1).0,
            is_on: AtomicBool::new(false),
            next: Arc::default(),
            dropped: Arc::default(),
        }
    }

    /// Starts the task. It ends when the log is dropped.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn start(opened: Opened) -> io::Result<Self> {
        let (messages, received) = mpsc::channel(LINES_MAX);
        let log = Self {
            messages,
            is_on: AtomicBool::new(opened.0.is_some()),
            next: Arc::new(Mutex::new(Some(opened))),
            dropped: Arc::default(),
        };
        let (next, dropped) = (log.next.clone(), log.dropped.clone());
        thread::Builder::new()
            .name("transfer-log".to_owned())
            .spawn(move || write_all(received, &next, &dropped))?;
        Ok(log)
    }

    /// Goes on in another file, or in the same one opened again.
    pub fn go_on_in(&self, opened: Opened) {
        self.is_on.store(opened.0.is_some(), Relaxed);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    }

    /// Has a line written for `record`. Never waits.
    pub(crate) fn write(&self, record: Arc<TransferRecord>) {
        if self.is_on.load(Relaxed) && self.messages.try_send(Message::Line(record)).is_err() {
            self.dropped.count(&"the disk is slower than the transfers");
        }
    }

    /// Lines that could not be written since the start.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.total.load(Relaxed)
    }

    /// Waits until what was logged is written, for at most `patience`.
    pub async fn flush(&self, patience: Duration) {
        let (written, is_written) = oneshot::channel();
        let flush = async {
            if self.messages.send(Message::Flush(written)).await.is_ok() {
                let _ = is_written.await;
            }
        };
        if timeout(patience, flush).await.is_err() {
            warn!("the transfer log is not complete: the disk is too slow");
        }
    }
}

/// Counts dropped lines, and warns of them now and then.
#[derive(Debug, Default)]
struct Dropped {
    total: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl Dropped {
    fn count(&self, why: &dyn fmt::Display) {
        let dropped = self.total.fetch_add(1, Relaxed) + 1;
        let now = Instant::now();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| now - at >= WARNING_INTERVAL) {
            *warned = Some(now);
            warn!(dropped, %why, "the transfer log lacks lines");
        }
    }
}

/// The task that writes.
fn write_all(
    mut messages: mpsc::Receiver<Message>,
    next: &Mutex<Option<Opened>>,
    dropped: &Dropped,
) {
    let mut open: Option<Open> = None;
    while let Some(message) = messages.blocking_recv() {
        if let Some(opened) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            open = opened.0;
        }
        match (message, &mut open) {
            (Message::Flush(written), _) => {
                // Whoever waited may have given up.
                let _ = written.send(());
            }
            (Message::Line(record), Some(open)) => {
                let line = match open.format {
                    Format::Json => Some(json::line(&record)),
                    Format::Xferlog => xferlog::line(&record),
                };
                if let Some(line) = line
                    && let Err(error) = open.file.write_line(&line)
                {
                    dropped.count(&error);
                }
            }
            (Message::Line(_), None) => {}
        }
    }
}

/// Lines that wait for the disk. A thousand transfers may end at once; each line is 6 KiB at most.
const LINES_MAX: usize = 4096;

/// A full disk is warned of so often.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
