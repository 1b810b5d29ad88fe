//! Upload of a file with several WRITEs in flight at the same time.

use std::collections::VecDeque;

use bytes::BytesMut;
use sftp::packet::Request;
use tokio::time::Instant;

use super::{
    attributes,
    exchange::PendingAnswer,
    file_handle::FileHandle,
    replies::{Answer, Expected},
    window::{SentMark, Window},
};
use crate::server::{ServerError, Stat};

/// A file that is being written. Dropping the value closes the file.
#[derive(Debug)]
pub struct SftpWriter {
    file: FileHandle,
    on_the_way: VecDeque<RunningWrite>,
    on_the_way_bytes: u64,
    window: Window,
    /// Bytes that are not sent yet.
    gathered: BytesMut,
    /// Offset of the first byte that this value has written.
    first_offset: u64,
    /// Offset of the first byte in `gathered`.
    offset: u64,
    chunk_bytes: usize,
    modified_unix_s: Option<i64>,
}

/// WRITE whose answer was not processed yet.
#[derive(Debug)]
struct RunningWrite {
    length: u64,
    sent: SentMark,
    answer: PendingAnswer,
}

impl SftpWriter {
    pub(super) fn new(file: FileHandle, offset: u64, chunk_bytes: usize) -> Self {
        Self {
            file,
            on_the_way: VecDeque::new(),
            on_the_way_bytes: 0,
            window: Window::default(),
            gathered: BytesMut::new(),
            first_offset: offset,
            offset,
            chunk_bytes: chunk_bytes.max(1),
            modified_unix_s: None,
        }
    }

    /// Sends bytes, and waits only while too many bytes are unconfirmed.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses an earlier WRITE, or if it confirms no byte within the
    /// timeout.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        match self.write_all(bytes).await {
            Err(error) if error.is_refusal() => Err(self.discard(error).await),
            written => written,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rest.len().min(self.chunk_bytes - self.gathered.len());
            self.gathered.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
            self.take_arrived()?;
            if self.gathered.len() == self.chunk_bytes {
                self.send().await?;
            }
        }
        if self.on_the_way.is_empty() {
            // If no WRITE is outstanding, the bytes are sent at once, so a slow source does not
            // delay them.
            self.send().await?;
        }
        Ok(())
    }

    /// Sets the modification time that the file gets when it is complete.
    pub fn set_modified(&mut self, unix_s: i64) {
        self.modified_unix_s = Some(unix_s);
    }

    /// Waits until the server has confirmed all bytes, and closes the file. Returns the attributes
    /// of the file, or `None` if the server does not report them.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses a byte, or if the connection is lost.
    pub async fn finish(mut self) -> Result<Option<Stat>, ServerError> {
        match self.confirm_all().await {
            Err(error) if error.is_refusal() => return Err(self.discard(error).await),
            confirmed => confirmed?,
        }
        let exchange = self.file.exchange().clone();
        let times = self.modified_unix_s.and_then(attributes::of_modified);
        let fsetstat = match times {
            None => None,
            Some(attrs) => {
                let handle = self.file.bytes();
                let request = Request::FsetStat { handle, attrs };
                Some(exchange.send(&request, Expected::Status).await?)
            }
        };
        let request = Request::Fstat {
            handle: self.file.bytes(),
        };
        let fstat = exchange.send(&request, Expected::Attrs).await?;
        let close = self.file.close().await?;
        if let Some(fsetstat) = fsetstat {
            // The result is ignored, because the attributes show whether the time was set.
            exchange.answer(fsetstat).await?;
        }
        let stat = match exchange.answer(fstat).await? {
            Answer::Attrs(attrs) => Some(attributes::stat(&attrs)),
            _ => None,
        };
        match exchange.answer(close).await? {
            Answer::Done => Ok(stat),
            other => Err(other.into_error()),
        }
    }

    /// Sends the gathered bytes, and waits until the server has confirmed all bytes.
    async fn confirm_all(&mut self) -> Result<(), ServerError> {
        self.send().await?;
        while let Some(write) = self.on_the_way.pop_front() {
            self.confirm(write).await?;
        }
        Ok(())
    }

    /// Removes all bytes of this value from the file after the server has refused a WRITE, and
    /// returns `error`. The server may have accepted later WRITEs, so the file may have a hole. A
    /// later attempt would continue the file behind the hole.
    async fn discard(&mut self, error: ServerError) -> ServerError {
        while let Some(mut write) = self.on_the_way.pop_front() {
            if let Err(lost) = self.file.exchange().progress(&mut write.answer).await {
                return lost;
            }
        }
        let request = Request::FsetStat {
            handle: self.file.bytes(),
            attrs: attributes::of_size(self.first_offset),
        };
        let exchange = self.file.exchange();
        match exchange.request(&request, Expected::Status).await {
            Ok(Answer::Done) => error,
            Ok(other) => {
                let reason = other.into_error();
                tracing::warn!(%reason, "the incomplete file cannot be shortened; remove it");
                error
            }
            Err(lost) => lost,
        }
    }

    /// Sends the gathered bytes. Waits until the window has room.
    async fn send(&mut self) -> Result<(), ServerError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        while self.on_the_way_bytes >= self.window.bytes()
            && let Some(write) = self.on_the_way.pop_front()
        {
            self.confirm(write).await?;
        }
        let data = self.gathered.split().freeze();
        let length = data.len() as u64;
        let request = Request::Write {
            handle: self.file.bytes(),
            offset: self.offset,
            data: data.into(),
        };
        let answer = self
            .file
            .exchange()
            .send(&request, Expected::Status)
            .await?;
        self.offset += length;
        self.on_the_way_bytes += length;
        self.on_the_way.push_back(RunningWrite {
            length,
            sent: self.window.sent(Instant::now()),
            answer,
        });
        Ok(())
    }

    /// Processes the answers that have arrived.
    fn take_arrived(&mut self) -> Result<(), ServerError> {
        while let Some(first) = self.on_the_way.front_mut() {
            let Some((answer, arrived)) = first.answer.arrived() else {
                break;
            };
            if let Some(write) = self.on_the_way.pop_front() {
                self.confirmed(&write, answer, arrived)?;
            }
        }
        Ok(())
    }

    async fn confirm(&mut self, mut write: RunningWrite) -> Result<(), ServerError> {
        let (answer, arrived) = self.file.exchange().progress(&mut write.answer).await?;
        self.confirmed(&write, answer, arrived)
    }

    fn confirmed(
        &mut self,
        write: &RunningWrite,
        answer: Answer,
        arrived: Instant,
    ) -> Result<(), ServerError> {
        self.on_the_way_bytes -= write.length;
        let times = (arrived, Instant::now());
        self.window.answered(write.sent, write.length, times);
        match answer {
            Answer::Done => Ok(()),
            other => Err(other.into_error()),
        }
    }
}
