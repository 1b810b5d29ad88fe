//! The client's end of a control connection: commands go out, several at a time where the caller wants that, and each
//! reply finds the command that it answers.
//!
//! Bytes go in and out; sockets, TLS and time belong to the caller. Names are bytes: what a server lists can be asked
//! for again, whatever its character set is.

mod features;
mod reply;

use std::collections::VecDeque;

use crate::{
    line::{Line, LineSplitter, REPLY_MAX},
    reply::{Class, Place, ReplyTracker},
};

pub use self::{features::Features, reply::Reply};

/// One control connection.
#[derive(Debug)]
pub struct Client {
    lines: LineSplitter,
    replies: ReplyTracker,
    /// Lines of the reply that has not ended yet.
    open: Vec<Vec<u8>>,
    open_bytes: usize,
    /// Commands without a final reply, in the order in which they were sent.
    waiting: VecDeque<Ticket>,
    next: u64,
}

/// Names a command until its final reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// What the server says before any command.
    pub const GREETING: Self = Self(0);
}

/// A reply, and what it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The command; `None` where none waits for a reply, as when a server says `421` and leaves.
    pub ticket: Option<Ticket>,
    /// The reply. Another one follows for the same command if it is preliminary.
    pub reply: Reply,
}

/// A command cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsendableError {
    /// The rest of the name would be another command.
    #[error("the name has a line break")]
    LineBreak,
    /// No file system has such names, and some servers end the name there.
    #[error("the name has a zero byte")]
    Nul,
}

/// The server does not speak FTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A line or a reply is longer than any that a server has reason to send.
    #[error("a reply of the server is too long")]
    TooLong,
    /// A line without a reply code where a reply begins.
    #[error("the server does not speak FTP")]
    NoCode,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            lines: LineSplitter::new(REPLY_MAX),
            replies: ReplyTracker::default(),
            open: Vec::new(),
            open_bytes: 0,
            waiting: VecDeque::from([Ticket::GREETING]),
            next: 1,
        }
    }
}

impl Client {
    /// Appends a command to `out`, the bytes for the server. An empty argument is left out.
    ///
    /// # Errors
    /// [`UnsendableError`] if `argument` cannot be part of a command; nothing was appended.
    pub fn command(
        &mut self,
        verb: &str,
        argument: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Ticket, UnsendableError> {
        if argument.contains(&b'\n') || argument.contains(&b'\r') {
            return Err(UnsendableError::LineBreak);
        }
        if argument.contains(&0) {
            return Err(UnsendableError::Nul);
        }
        out.extend_from_slice(verb.as_bytes());
        if !argument.is_empty() {
            out.push(b' ');
            out.extend_from_slice(argument);
        }
        out.extend_from_slice(b"\r\n");
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back(ticket);
        Ok(ticket)
    }

    /// Adds bytes of the server's. Callers drain [`next_answer`](Self::next_answer) before they add more, which bounds
    /// what is kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next reply; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`ReplyError`] if what the server sends cannot be a reply. The connection is of no more use then.
    pub fn next_answer(&mut self) -> Result<Option<Answer>, ReplyError> {
        while let Some(line) = self.lines.next_line() {
            let Line::Complete(line) = line else {
                return Err(ReplyError::TooLong);
            };
            let Place { code, last, .. } = self.replies.place(&line);
            let Some(code) = code else {
                // Some servers send blank lines between replies.
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Err(ReplyError::NoCode);
            };
            self.open_bytes += line.len() + LINE_COST_BYTES;
            if self.open_bytes > REPLY_BYTES_MAX {
                return Err(ReplyError::TooLong);
            }
            self.open.push(line);
            if !last {
                continue;
            }
            self.open_bytes = 0;
            let reply = Reply::new(code, std::mem::take(&mut self.open));
            let ticket = if code.class() == Class::Preliminary {
                self.waiting.front().copied()
            } else {
                self.waiting.pop_front()
            };
            return Ok(Some(Answer { ticket, reply }));
        }
        Ok(None)
    }

    /// Whether every command has its final reply, and nothing has come beyond.
    pub fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty() && self.lines.is_empty()
    }

    /// How many commands, the greeting among them, have no final reply yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Longest reply, in bytes: `STAT` of a directory is one.
const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a line takes beside its bytes.
const LINE_COST_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(client: &mut Client, bytes: &[u8]) -> Vec<(Option<u64>, u16)> {
        client.receive(bytes);
        let mut answers = Vec::new();
        while let Some(answer) = client.next_answer().expect("these are replies") {
            answers.push((answer.ticket.map(|it| it.0), answer.reply.code().0));
        }
        answers
    }

    #[test]
    fn each_reply_finds_its_command_among_several() {
        let mut client = Client::default();
        let mut out = Vec::new();
        client.command("EPSV", b"", &mut out).expect("sent");
        client.command("RETR", b"a b", &mut out).expect("sent");
        client.command("SIZE", b"a b", &mut out).expect("sent");
        assert_eq!(out, b"EPSV\r\nRETR a b\r\nSIZE a b\r\n");
        let replies = b"220-hello\r\n331 inside\r\n220 there\r\n229 (|||1|)\r\n150 here\r\n226 done\r\n213 5\r\n";
        assert_eq!(
            answers(&mut client, replies),
            [
                (Some(0), 220),
                (Some(1), 229),
                (Some(2), 150),
                (Some(2), 226),
                (Some(3), 213)
            ]
        );
        assert_eq!(client.waiting(), 0);
        assert_eq!(answers(&mut client, b"421 bye\r\n"), [(None, 421)]);
    }

    #[test]
    fn no_name_becomes_two_commands() {
        let mut client = Client::default();
        let mut out = Vec::new();
        for name in [&b"a\r\nDELE b"[..], b"a\nDELE b", b"a\rb"] {
            let refused = client.command("RETR", name, &mut out);
            assert_eq!(refused, Err(UnsendableError::LineBreak));
        }
        let refused = client.command("RETR", b"a\0b", &mut out);
        assert_eq!(refused, Err(UnsendableError::Nul));
        assert!(out.is_empty());
        assert_eq!(client.waiting(), 1, "the greeting alone");
    }

    #[test]
    fn blank_lines_between_replies_are_skipped() {
        let mut client = Client::default();
        let mut out = Vec::new();
        client.command("TYPE", b"I", &mut out).expect("sent");
        let replies = b"\r\n220 there\r\n\r\n \r\n200 ok\r\n\r\n";
        assert_eq!(
            answers(&mut client, replies),
            [(Some(0), 220), (Some(1), 200)]
        );
        assert!(client.is_at_rest());
    }

    #[test]
    fn what_is_no_reply_ends_the_connection() {
        let mut client = Client::default();
        client.receive(b"SSH-2.0-OpenSSH_9.2\r\n");
        assert_eq!(client.next_answer(), Err(ReplyError::NoCode));
        let mut client = Client::default();
        let mut line = b"220-".to_vec();
        line.resize(60_000, b'x');
        line.extend_from_slice(b"\r\n");
        let refused = (0..100).find_map(|_| {
            client.receive(&line);
            client.next_answer().err()
        });
        assert_eq!(refused, Some(ReplyError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_replies_or_an_error(
            pieces in proptest::collection::vec("[0-9 \r\n-]{0,12}", 0..40),
        ) {
            let mut client = Client::default();
            for piece in &pieces {
                client.receive(piece.as_bytes());
                while let Ok(Some(answer)) = client.next_answer() {
                    prop_assert!(!answer.reply.lines().is_empty());
                }
            }
        }
    }
}
