//! Queue of reply lines from the server. The near gateway holds back a successful final reply of a
//! transfer, and all later lines, until the data have been delivered.

use std::collections::VecDeque;

use crate::session::{ReplyTag, TransferId};

#[derive(Debug, Default)]
pub(super) struct HeldReplies {
    lines: VecDeque<(ReplyTag, Vec<u8>)>,
    bytes: usize,
}

impl HeldReplies {
    pub(super) fn has_room(&self) -> bool {
        self.bytes < HELD_MAX_BYTES
    }

    pub(super) fn push(&mut self, tag: ReplyTag, line: &[u8]) {
        self.bytes += line.len() + HELD_ENTRY_BYTES;
        self.lines.push_back((tag, line.to_vec()));
    }

    /// Returns the tag of the first held reply line.
    pub(super) fn next(&self) -> Option<ReplyTag> {
        self.lines.front().map(|(tag, _)| *tag)
    }

    pub(super) fn pop(&mut self) -> Option<(ReplyTag, Vec<u8>)> {
        let (tag, line) = self.lines.pop_front()?;
        self.bytes -= line.len() + HELD_ENTRY_BYTES;
        Some((tag, line))
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    /// Whether a queued reply line belongs to this transfer.
    pub(super) fn reports_on(&self, transfer: TransferId) -> bool {
        let mut tags = self.lines.iter().map(|(tag, _)| tag);
        tags.any(|tag| tag.transfer == Some(transfer))
    }
}

/// Maximum size of held reply lines, in bytes. Further lines wait in the link stream.
const HELD_MAX_BYTES: usize = 1 << 20;

/// Memory that a held line uses in addition to its text.
const HELD_ENTRY_BYTES: usize = size_of::<(ReplyTag, Vec<u8>)>();
