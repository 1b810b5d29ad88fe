//! The lines of a reply that is not relayed at once.

use crate::command::escape;

#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    lines: Vec<Vec<u8>>,
    /// Whether lines were omitted.
    cut: bool,
}

impl ReplyBuffer {
    pub(super) fn push(&mut self, line: &[u8]) {
        // The last line contains the most information.
        if self.lines.len() >= HELD_LINES_MAX {
            self.lines.pop();
            self.cut = true;
        }
        self.lines.push(line.to_vec());
    }

    fn last(&self) -> Option<&[u8]> {
        self.lines.last().map(Vec::as_slice)
    }

    /// Returns the lines, the last one first, since it contains the most information.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().rev().map(Vec::as_slice)
    }

    /// Returns the last line for the text of another reply: short, and without control characters.
    pub(super) fn quoted(&self) -> String {
        self.last().map(escape).unwrap_or_default()
    }

    /// Returns each line, and whether it is the last.
    pub(super) fn into_lines(self) -> impl Iterator<Item = (Vec<u8>, bool)> {
        let count = self.lines.len();
        let lines = self.lines.into_iter().enumerate();
        lines.map(move |(i, line)| (line, i + 1 == count))
    }

    /// Returns all lines with CRLF between them. `None` if they are too long.
    pub(super) fn into_text(self) -> Option<Vec<u8>> {
        let text = self.lines.join(&b"\r\n"[..]);
        (!self.cut && text.len() <= TEXT_MAX_BYTES).then_some(text)
    }
}

/// Maximum number of stored lines of a greeting, of a reply to PASV, or of a reply to a prefetched
/// command.
const HELD_LINES_MAX: usize = 64;

/// Longest answer that may be repeated to clients.
const TEXT_MAX_BYTES: usize = 16 * 1024;
