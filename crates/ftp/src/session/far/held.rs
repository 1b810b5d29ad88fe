//! The lines of a reply that is not relayed as it comes.

#[derive(Debug, Default)]
pub(super) struct Held {
    lines: Vec<Vec<u8>>,
}

impl Held {
    pub(super) fn push(&mut self, line: &[u8]) {
        // The last line says most.
        if self.lines.len() >= HELD_LINES_MAX {
            self.lines.pop();
        }
        self.lines.push(line.to_vec());
    }

    pub(super) fn last(&self) -> Option<&[u8]> {
        self.lines.last().map(Vec::as_slice)
    }

    /// Each line, and whether it is the last.
    pub(super) fn into_lines(self) -> impl Iterator<Item = (Vec<u8>, bool)> {
        let count = self.lines.len();
        let lines = self.lines.into_iter().enumerate();
        lines.map(move |(i, line)| (line, i + 1 == count))
    }
}

/// Most lines kept of a greeting or of an answer to PASV.
const HELD_LINES_MAX: usize = 64;
