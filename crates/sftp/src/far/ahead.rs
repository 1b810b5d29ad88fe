//! Read-ahead of one handle at the far half.

use std::collections::VecDeque;

use crate::Rope;

/// Read-ahead of a handle.
#[derive(Debug)]
pub(super) enum ReadAhead {
    File(FileReadAhead),
    Folder(FolderReadAhead),
}

/// READs that the far half sends for a file before the client requests the bytes. The server may
/// answer them in any order.
#[derive(Debug)]
pub(super) struct FileReadAhead {
    /// Number of the read-ahead.
    pub(super) run: u32,
    /// READs in the order of their offsets. Their answers have not been passed on yet.
    reads: VecDeque<AheadRead>,
    /// Number of the first READ in `reads`.
    first: u64,
    /// Offset of the next READ.
    next_offset: u64,
    /// Offset at which the credit ends.
    credit_end: u64,
    /// Maximum number of READs in `reads`. Full answers increase it.
    reads_max: usize,
    /// Whether some READ has reached the end of the file, or has failed.
    has_end: bool,
}

/// A READ of the read-ahead.
#[derive(Debug)]
struct AheadRead {
    offset: u64,
    length: u32,
    answer: Option<ReadAnswer>,
}

/// Answer of the server to a READ.
#[derive(Debug)]
pub(super) enum ReadAnswer {
    Data(Rope),
    /// STATUS packet: the end of the file, or a failure.
    End(Rope),
}

/// Next step of a read-ahead.
#[derive(Debug)]
pub(super) enum AheadStep {
    /// These bytes are next.
    Data(Rope),
    /// The server must read these bytes again, because its answer was short.
    Read(ReadOrder),
    /// The read-ahead ends with this STATUS packet.
    End(Rope),
}

/// READ for the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadOrder {
    /// Number of the READ within the read-ahead.
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl FileReadAhead {
    pub(super) fn new(run: u32, offset: u64, credit_bytes: u64) -> Self {
        Self {
            run,
            reads: VecDeque::new(),
            first: 0,
            next_offset: offset,
            credit_end: offset.saturating_add(credit_bytes),
            reads_max: READS_FIRST,
            has_end: false,
        }
    }

    pub(super) fn add_credit(&mut self, credit_bytes: u64) {
        self.credit_end = self.credit_end.saturating_add(credit_bytes);
    }

    /// Returns the next READ of at most `length_max` bytes, if the credit permits one.
    pub(super) fn next_read(&mut self, length_max: u32) -> Option<ReadOrder> {
        let credit_bytes = self.credit_end - self.next_offset;
        if credit_bytes == 0 || self.has_end || self.reads.len() >= self.reads_max {
            return None;
        }
        let order = ReadOrder {
            number: self.first + self.reads.len() as u64,
            offset: self.next_offset,
            length: u64::from(length_max).min(credit_bytes) as u32,
        };
        self.next_offset += u64::from(order.length);
        self.reads.push_back(AheadRead {
            offset: order.offset,
            length: order.length,
            answer: None,
        });
        Some(order)
    }

    /// Stores the answer to a READ. Returns whether the answer is valid.
    pub(super) fn answered(&mut self, number: u64, answer: ReadAnswer) -> bool {
        let at = number.checked_sub(self.first).map(|at| at as usize);
        let Some(read) = at.and_then(|at| self.reads.get_mut(at)) else {
            return true;
        };
        match &answer {
            ReadAnswer::Data(data) if data.len() > read.length as usize => return false,
            ReadAnswer::Data(data) if data.len() == read.length as usize => {
                self.reads_max = (self.reads_max + 1).min(READS_MAX);
            }
            ReadAnswer::Data(_) => {}
            ReadAnswer::End(_) => self.has_end = true,
        }
        read.answer = Some(answer);
        true
    }

    /// Returns the next step after an answer. After [`AheadStep::End`], no step follows.
    pub(super) fn next_step(&mut self) -> Option<AheadStep> {
        let read = self.reads.front_mut()?;
        match read.answer.take()? {
            ReadAnswer::End(packet) => Some(AheadStep::End(packet)),
            ReadAnswer::Data(data) if data.len() == read.length as usize => {
                self.reads.pop_front();
                self.first += 1;
                Some(AheadStep::Data(data))
            }
            ReadAnswer::Data(data) if data.is_empty() => Some(AheadStep::Read(ReadOrder {
                number: self.first,
                offset: read.offset,
                length: read.length,
            })),
            ReadAnswer::Data(data) => {
                #[cfg(fuzz_canary)]
                assert!(read.offset == 0, "canary: behind a short answer");
                read.offset += data.len() as u64;
                read.length -= data.len() as u32;
                // The step after this one requests the remaining bytes.
                read.answer = Some(ReadAnswer::Data(Rope::new()));
                Some(AheadStep::Data(data))
            }
        }
    }
}

/// READDIRs that the far half sends for a folder before the client requests the entries.
#[derive(Debug)]
pub(super) struct FolderReadAhead {
    /// Number of the read-ahead.
    pub(super) run: u32,
    /// Number of bytes that may still be read. The number can become negative, because the last
    /// answer may exceed it.
    credit_bytes: i64,
    is_outstanding: bool,
}

impl FolderReadAhead {
    pub(super) fn new(run: u32, credit_bytes: u64) -> Self {
        let mut folder = Self {
            run,
            credit_bytes: 0,
            is_outstanding: false,
        };
        folder.add_credit(credit_bytes);
        folder
    }

    pub(super) fn add_credit(&mut self, credit_bytes: u64) {
        let credit_bytes = i64::try_from(credit_bytes).unwrap_or(i64::MAX);
        self.credit_bytes = self.credit_bytes.saturating_add(credit_bytes);
    }

    /// Returns whether the next READDIR is due. If so, the caller sends it.
    pub(super) fn takes_turn(&mut self) -> bool {
        let is_due = self.credit_bytes > 0 && !self.is_outstanding;
        self.is_outstanding |= is_due;
        is_due
    }

    /// Accounts for an answer.
    pub(super) fn answered(&mut self, bytes: usize) {
        self.is_outstanding = false;
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes as i64);
    }
}

/// Number of READs after the start. A small file needs few.
const READS_FIRST: usize = 4;

/// Maximum number of outstanding READs of a handle. OpenSSH's client has the same maximum.
const READS_MAX: usize = 64;
