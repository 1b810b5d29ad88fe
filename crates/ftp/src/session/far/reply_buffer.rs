//! Buffer for the lines of a reply that the gateway does not relay immediately.

use crate::command::escape;

#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    lines: Vec<Vec<u8>>,
    /// Whether the buffer lacks some lines of the reply.
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

    /// Returns the lines in reverse order. The last line contains the most information.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().rev().map(Vec::as_slice)
    }

    /// Returns the last line, for use in the text of another reply. The text is short and contains
    /// no control characters.
    pub(super) fn quoted(&self) -> String {
        self.last().map(escape).unwrap_or_default()
    }

    /// Returns each line, and a flag that is set for the last line.
    pub(super) fn into_lines(self) -> impl Iterator<Item = (Vec<u8>, bool)> {
        let count = self.lines.len();
        let lines = self.lines.into_iter().enumerate();
        lines.map(move |(i, line)| (line, i + 1 == count))
    }

    /// Returns all lines, joined by CRLF. Returns `None` if the reply is too long.
    pub(super) fn into_text(self) -> Option<Vec<u8>> {
        let text = self.lines.join(&b"\r\n"[..]);
        (!self.cut && text.len() <= TEXT_MAX_BYTES).then_some(text)
    }
}

/// Maximum number of lines that the buffer stores for one reply.
const HELD_LINES_MAX: usize = 64;

/// Maximum length of a reply that the near gateway may store and repeat to clients.
const TEXT_MAX_BYTES: usize = 16 * 1024;
