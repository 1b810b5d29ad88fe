//! Download of a file with several READs in flight at the same time.

use std::collections::VecDeque;

use bytes::Buf as _;
use sftp::{Rope, packet::Request};
use tokio::time::Instant;

use super::{
    attributes,
    exchange::PendingAnswer,
    file_handle::FileHandle,
    replies::{Answer, Expected},
    window::{SentMark, Window},
};
use crate::server::{ServerError, Stat, TransferResult};

/// A file that is being read. Dropping the value closes the file.
#[derive(Debug)]
pub struct SftpReader {
    file: FileHandle,
    /// FSTAT whose answer has not arrived.
    fstat: Option<PendingAnswer>,
    /// Attributes of the file when it was opened.
    stat: Stat,
    /// READs in the order of their offsets.
    on_the_way: VecDeque<RunningRead>,
    on_the_way_bytes: u64,
    window: Window,
    /// Offset of the first byte after the last READ.
    next_offset: u64,
    /// Offset at which the caller stops reading.
    end: Option<u64>,
    chunk_bytes: u32,
    /// Bytes that have arrived and that the caller has not read.
    arrived: Rope,
    is_at_end: bool,
}

/// READ whose answer was not processed yet.
#[derive(Debug)]
struct RunningRead {
    offset: u64,
    length: u32,
    sent: SentMark,
    answer: PendingAnswer,
}

impl SftpReader {
    /// Starts to read an open file at `offset`, and up to `end`.
    pub(super) async fn start(
        file: FileHandle,
        (offset, end): (u64, Option<u64>),
        chunk_bytes: u32,
    ) -> Result<Self, ServerError> {
        let request = Request::Fstat {
            handle: file.bytes(),
        };
        let fstat = file.exchange().send(&request, Expected::Attrs).await?;
        let mut reader = Self {
            file,
            fstat: Some(fstat),
            stat: Stat::default(),
            on_the_way: VecDeque::new(),
            on_the_way_bytes: 0,
            window: Window::default(),
            next_offset: offset,
            end,
            chunk_bytes: chunk_bytes.max(1),
            arrived: Rope::new(),
            is_at_end: false,
        };
        reader.fill().await?;
        Ok(reader)
    }

    /// Reads bytes, and returns their number. Returns 0 at the end of the file or of the range.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if no byte arrives within the timeout.
    pub async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ServerError> {
        while self.arrived.is_empty() {
            if self.is_at_end || bytes.is_empty() {
                return Ok(0);
            }
            self.fill().await?;
            self.take_next().await?;
        }
        let mut count = 0;
        while count < bytes.len()
            && let Some(mut piece) = self.arrived.pop()
        {
            let taken = piece.len().min(bytes.len() - count);
            piece.copy_to_slice(&mut bytes[count..count + taken]);
            count += taken;
            if !piece.is_empty() {
                let mut rest = Rope::from(piece);
                rest.append(std::mem::take(&mut self.arrived));
                self.arrived = rest;
            }
        }
        Ok(count)
    }

    /// Ends the read before the end of the file. The session stays usable.
    pub async fn abandon(self) {
        // Dropping the value closes the file. The answers to outstanding READs are ignored.
    }

    /// Ends the read after the last byte. The result has the attributes that the file had when it
    /// was opened.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn finish(mut self) -> Result<TransferResult, ServerError> {
        self.take_stat(true).await?;
        Ok(TransferResult {
            is_sure: true,
            stat: self.stat.size_bytes.is_some().then_some(self.stat),
        })
    }

    /// Sends READs until the window is full.
    async fn fill(&mut self) -> Result<(), ServerError> {
        self.take_stat(false).await?;
        while !self.is_at_end && self.on_the_way_bytes < self.window_bytes() {
            let left = self.limit().saturating_sub(self.next_offset);
            let Ok(length @ 1..) = u32::try_from(left.min(self.chunk_bytes.into())) else {
                break;
            };
            let read = self.request(self.next_offset, length).await?;
            self.next_offset += u64::from(length);
            self.on_the_way.push_back(read);
        }
        Ok(())
    }

    /// Returns the number of bytes that may be in flight.
    fn window_bytes(&self) -> u64 {
        match self.fstat {
            // The size is not known yet, and the file may be small.
            Some(_) => u64::from(self.chunk_bytes) * FIRST_READS,
            None => self.window.bytes(),
        }
    }

    /// Returns the offset at which the last READ may end.
    fn limit(&self) -> u64 {
        let end = self.end.unwrap_or(MAX_OFFSET);
        // Files of pseudo file systems have a size of zero.
        match self.stat.size_bytes {
            Some(size @ 1..) => end.min(size),
            _ => end,
        }
    }

    async fn request(&mut self, offset: u64, length: u32) -> Result<RunningRead, ServerError> {
        let request = Request::Read {
            handle: self.file.bytes(),
            offset,
            length,
        };
        let expected = Expected::Data(length);
        let answer = self.file.exchange().send(&request, expected).await?;
        self.on_the_way_bytes += u64::from(length);
        Ok(RunningRead {
            offset,
            length,
            sent: self.window.sent(Instant::now()),
            answer,
        })
    }

    /// Processes the answer to FSTAT if the answer has arrived. If `waits` is true, waits for the
    /// answer.
    async fn take_stat(&mut self, waits: bool) -> Result<(), ServerError> {
        let Some(mut pending) = self.fstat.take() else {
            return Ok(());
        };
        let answer = match pending.arrived() {
            Some((answer, _)) => answer,
            None if waits => self.file.exchange().answer(pending).await?,
            None => {
                self.fstat = Some(pending);
                return Ok(());
            }
        };
        // A refusal contains no attributes.
        if let Answer::Attrs(attrs) = answer {
            self.stat = attributes::stat(&attrs);
        }
        Ok(())
    }

    /// Waits for the answer to the next READ.
    async fn take_next(&mut self) -> Result<(), ServerError> {
        let Some(mut read) = self.on_the_way.pop_front() else {
            self.is_at_end = true;
            return Ok(());
        };
        let (answer, arrived) = self.file.exchange().progress(&mut read.answer).await?;
        self.on_the_way_bytes -= u64::from(read.length);
        match answer {
            Answer::Data(data) if !data.is_empty() => {
                // The answer has at most the requested length.
                let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let times = (arrived, Instant::now());
                self.window.answered(read.sent, count.into(), times);
                // The size shows whether the file ends here.
                self.take_stat(false).await?;
                self.arrived = data;
                let (offset, rest) = (read.offset + u64::from(count), read.length - count);
                if rest > 0 && offset < self.limit() {
                    // Servers may return fewer bytes than requested. Later READs are smaller, so
                    // that they need no second request.
                    self.chunk_bytes = self.chunk_bytes.min(count.max(CHUNK_MIN_BYTES));
                    let read = self.request(offset, rest).await?;
                    self.on_the_way.push_front(read);
                }
            }
            Answer::Data(_) => self.is_at_end = true,
            Answer::Refused(refusal) if refusal.is_end() => self.is_at_end = true,
            other => return Err(other.into_error()),
        }
        if self.is_at_end {
            self.on_the_way.clear();
        }
        Ok(())
    }
}

/// Number of READs before the size of the file is known.
const FIRST_READS: u64 = 4;

/// Minimum number of bytes in a READ.
const CHUNK_MIN_BYTES: u32 = 4 * 1024;

/// Largest offset of a file.
const MAX_OFFSET: u64 = i64::MAX as u64;
