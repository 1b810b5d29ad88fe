//! Splits a byte stream into lines, and limits the length of a line.
//!
//! The splitter receives bytes in parts of any size and returns lines without their terminator.
//! CRLF and a bare LF both end a line. NUL, 8-bit bytes and a bare CR are ordinary content. If a
//! line is longer than the limit, the splitter reports the line once, and discards its bytes up to
//! its newline. The end of a long line therefore never appears as another command.

/// One line, without its terminator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitLine {
    /// A line whose length is within the limit.
    Complete(Vec<u8>),
    /// A line longer than the limit has begun. The splitter discards all bytes of that line.
    TooLong,
}

/// Splits bytes that arrive in arbitrary parts into lines.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    /// Number of bytes at the start of `buffer` that contain no newline.
    searched: usize,
    max_bytes: usize,
    discarding: bool,
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `max_bytes` bytes without terminator.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            buffer: Vec::new(),
            searched: 0,
            max_bytes,
            discarding: false,
        }
    }

    /// Adds received bytes. Callers must call [`next_line`](Self::next_line) until it returns
    /// `None` before the next push. The buffer then holds at most one line and the bytes of one
    /// read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether the splitter has returned all lines. False while the splitter buffers or discards an
    /// incomplete line.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && !self.discarding
    }

    /// Returns the next line. Returns `None` if no complete line has arrived.
    pub fn next_line(&mut self) -> Option<SplitLine> {
        loop {
            let newline = self.buffer[self.searched..]
                .iter()
                .position(|&b| b == b'\n');
            let Some(at) = newline.map(|offset| self.searched + offset) else {
                return self.no_newline();
            };
            let mut line: Vec<u8> = self.buffer.drain(..=at).collect();
            self.searched = 0;
            if std::mem::take(&mut self.discarding) {
                continue;
            }
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Some(if line.len() > self.max_bytes {
                SplitLine::TooLong
            } else {
                SplitLine::Complete(line)
            });
        }
    }

    fn no_newline(&mut self) -> Option<SplitLine> {
        self.searched = self.buffer.len();
        // The additional byte is for the CR at the end of a line of maximum length.
        if self.discarding || self.buffer.len() > self.max_bytes + 1 {
            self.buffer.clear();
            self.searched = 0;
            if !std::mem::replace(&mut self.discarding, true) {
                return Some(SplitLine::TooLong);
            }
        }
        None
    }
}

/// Maximum length of a relayed command line, in bytes. For comparison, CPython's ftplib permits
/// 8192 bytes, and vsftpd permits 4096.
pub const COMMAND_MAX: usize = 16 * 1024;

/// Maximum length of a relayed reply line, in bytes. curl has the same limit. The number of lines
/// in a reply is not limited.
pub const REPLY_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(pieces: &[&[u8]], max: usize) -> Vec<SplitLine> {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(line) = splitter.next_line() {
                lines.push(line);
            }
        }
        lines
    }

    fn complete(text: &[u8]) -> SplitLine {
        SplitLine::Complete(text.to_vec())
    }

    #[test]
    fn crlf_and_bare_lf_end_a_line_and_a_bare_cr_does_not() {
        assert_eq!(
            split(&[b"NOOP\r\nRETR a\rDELE b\r\nPWD\nrest"], 100),
            [
                complete(b"NOOP"),
                complete(b"RETR a\rDELE b"),
                complete(b"PWD")
            ]
        );
    }

    #[test]
    fn nul_and_eight_bit_bytes_are_content() {
        assert_eq!(
            split(&[b"230 a\0b\xff\r\n"], 100),
            [complete(b"230 a\0b\xff")]
        );
    }

    #[test]
    fn the_remainder_of_an_over_long_line_is_never_a_command() {
        assert_eq!(
            split(&[b"XXXXXXXXXXXX", b"XXXX", b" DELE x", b"\r\nNOOP\r\n"], 8),
            [SplitLine::TooLong, complete(b"NOOP")]
        );
        assert_eq!(
            split(&[b"123456789\r\nNOOP\r\n"], 8),
            [SplitLine::TooLong, complete(b"NOOP")]
        );
        assert_eq!(split(&[b"12345678\r", b"\n"], 8), [complete(b"12345678")]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_where_reads_end(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..400),
            cut in 1usize..17,
        ) {
            let whole = split(&[&bytes], 20);
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(split(&pieces, 20), whole);
        }
    }
}
