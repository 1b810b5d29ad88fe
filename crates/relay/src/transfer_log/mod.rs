//! The transfer log. One thread receives the records of finished FTP transfers, and writes one line
//! for each record to a file.
//!
//! A finished transfer never waits for the disk. Records pass through a channel of limited size. If
//! the channel is full, or a write fails, the record is dropped and counted. On a reload, the
//! caller opens the new file, so that an error in its path is reported immediately.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the file and the clock of its warnings"
)]

mod file;
mod json;
mod record;
mod xferlog;

pub use record::{TransferDirection, TransferRecord, TransferType};

pub use record::path_text;

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

/// Path of the transfer log, and the format of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferLogSettings {
    /// Path of the log file.
    pub path: PathBuf,
    /// Format of the lines.
    pub format: TransferLogFormat,
}

/// Format of the lines in the transfer log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransferLogFormat {
    /// Each line is one JSON object.
    #[default]
    Json,
    /// Each line has the format of wu-ftpd, which vsftpd and ProFTPD also write. The log contains
    /// only downloads and uploads.
    Xferlog,
}

/// Error: the file of a transfer log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the transfer log {path} cannot be opened: {source}")]
pub struct TransferLogError {
    path: PathBuf,
    source: io::Error,
}

/// A transfer log that is open but not in use yet.
#[derive(Debug)]
pub struct PreparedTransferLog(Option<OpenLog>);

#[derive(Debug)]
struct OpenLog {
    file: LogFile,
    format: TransferLogFormat,
}

/// The transfer log of a running gateway.
#[derive(Debug)]
pub struct TransferLog {
    messages: mpsc::Sender<Message>,
    /// New log file, to which the thread switches before it writes the next line.
    next: Arc<Mutex<Option<PreparedTransferLog>>>,
    is_on: AtomicBool,
    dropped: Arc<DroppedLines>,
}

#[derive(Debug)]
enum Message {
    Line(Arc<TransferRecord>),
    /// A request for a signal. The thread sends the signal after it has written all earlier lines.
    Flush(oneshot::Sender<()>),
}

impl PreparedTransferLog {
    /// Opens the log file. If `settings` is `None`, the log has no file.
    ///
    /// # Errors
    /// [`TransferLogError`] if the file cannot be opened.
    pub fn open(settings: Option<&TransferLogSettings>) -> Result<Self, TransferLogError> {
        let open = |settings: &TransferLogSettings| {
            let file = LogFile::open(&settings.path).map_err(|source| TransferLogError {
                path: settings.path.clone(),
                source,
            })?;
            let format = settings.format;
            Ok(OpenLog { file, format })
        };
        settings.map(open).transpose().map(Self)
    }
}

impl TransferLog {
    /// Creates a log that writes nothing.
    pub fn disabled() -> Self {
        Self {
            messages: mpsc::channel(1).0,
            is_on: AtomicBool::new(false),
            next: Arc::default(),
            dropped: Arc::default(),
        }
    }

    /// Starts the thread that writes the log. The thread ends when the log is dropped.
    ///
    /// # Errors
    /// An error of the system if it cannot start a thread.
    pub fn start(opened: PreparedTransferLog) -> io::Result<Self> {
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

    /// Continues the log in another file, or in the same file after the caller has opened it again.
    pub fn continue_in(&self, opened: PreparedTransferLog) {
        self.is_on.store(opened.0.is_some(), Relaxed);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    }

    /// Queues a line for `record`. The function never waits: if the queue is full, the line is
    /// dropped.
    pub(crate) fn write(&self, record: Arc<TransferRecord>) {
        if self.is_on.load(Relaxed) && self.messages.try_send(Message::Line(record)).is_err() {
            self.dropped.count(&"the disk is slower than the transfers");
        }
    }

    /// Returns the number of lines dropped since the start.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.total.load(Relaxed)
    }

    /// Waits until the thread has written all queued records, for at most `time_max`.
    pub async fn flush(&self, time_max: Duration) {
        let (written, is_written) = oneshot::channel();
        let flush = async {
            if self.messages.send(Message::Flush(written)).await.is_ok() {
                let _ = is_written.await;
            }
        };
        if timeout(time_max, flush).await.is_err() {
            warn!("the transfer log is not complete: the disk is too slow");
        }
    }
}

/// Counter of dropped lines. The counter logs a warning at most once a minute.
#[derive(Debug, Default)]
struct DroppedLines {
    total: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl DroppedLines {
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

/// Main function of the thread that writes the log.
fn write_all(
    mut messages: mpsc::Receiver<Message>,
    next: &Mutex<Option<PreparedTransferLog>>,
    dropped: &DroppedLines,
) {
    let mut open: Option<OpenLog> = None;
    while let Some(message) = messages.blocking_recv() {
        if let Some(opened) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            open = opened.0;
        }
        match (message, &mut open) {
            (Message::Flush(written), _) => {
                // The caller may have stopped waiting because of its timeout.
                let _ = written.send(());
            }
            (Message::Line(record), Some(open)) => {
                let line = match open.format {
                    TransferLogFormat::Json => Some(json::line(&record)),
                    TransferLogFormat::Xferlog => xferlog::line(&record),
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

/// Maximum number of queued lines. A thousand transfers may end at the same moment. A line has at
/// most 6 KiB.
const LINES_MAX: usize = 4096;

/// Minimum interval between warnings about dropped lines.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
