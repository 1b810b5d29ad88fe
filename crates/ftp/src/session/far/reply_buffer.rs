//! The lines of a reply that is not relayed as it comes.

use crate::command::escape;

#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    lines: Vec<Vec<u8>>,
    /// Lines were left out.
    cut: bool,
}

impl ReplyBuffer {
    pub(super) fn push(&mut self, line: &[u8]) {
        // The last line says most.
        if self.lines.len() >= HELD_LINES_MAX {
            self.lines.pop();
            self.cut = true;
        }
        self.lines.push(line.to_vec());
    }

    fn last(&self) -> Option<&[u8]> {
        self.lines.last().map(Vec::as_slice)
    }

    /// The lines, the last one first: it says most.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().rev().map(Vec::as_slice)
    }

    /// The last line for the text of another reply: short, and without control characters.
    pub(super) fn quoted(&self) -> String {
        self.last().map(escape).unwrap_or_default()
    }

    /// Each line, and whether it is the last.
    pub(super) fn into_lines(self) -> impl Iterator<Item = (Vec<u8>, bool)> {
        let count = self.lines.len();
        let lines = self.lines.into_iter().enumerate();
        lines.map(move |(i, line)| (line, i + 1 == count))
    }

    /// All lines with CRLF between them, unless they are too much.
    pub(super) fn into_text(self) -> Option<Vec<u8>> {
        let text = self.lines.join(&b"\r\n"[..]);
        (!self.cut && text.len() <= TEXT_MAX_BYTES).then_some(text)
    }
}

/// Most lines kept of a greeting, of an answer to PASV or of one that was asked ahead.
const HELD_LINES_MAX: usize = 64;

/// Longest answer that is repeated to clients.
const TEXT_MAX_BYTES: usize = 16 * 1024;
