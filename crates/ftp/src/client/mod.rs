//! The client's half of a control connection. The caller may send several commands before the first
//! reply arrives. The module matches each reply with its command.
//!
//! The module handles bytes only. The caller owns sockets, TLS and timers. File names are bytes in
//! any character set. The caller can therefore request every listed file.

mod features;
mod reply;

use std::collections::VecDeque;

use crate::{
    line::{LineSplitter, REPLY_MAX, SplitLine},
    reply::{LinePosition, ReplyClass, ReplyTracker},
};

pub use self::{features::Features, reply::Reply};

/// State of one control connection: lines that have arrived, and commands without a final reply.
#[derive(Debug)]
pub struct FtpClient {
    lines: LineSplitter,
    replies: ReplyTracker,
    /// Lines of the reply that has not arrived completely.
    open: Vec<Vec<u8>>,
    open_bytes: usize,
    /// Commands without a final reply, in the order in which they were sent.
    waiting: VecDeque<CommandTicket>,
    next: u64,
}

/// Identifies a command until its final reply has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandTicket(u64);

impl CommandTicket {
    /// Identifies the server's greeting, which precedes all commands.
    pub const GREETING: Self = Self(0);
}

/// A reply, and the ticket of the command that it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedReply {
    /// Ticket of the command. `None` if no command waits for a reply, for example if a server sends
    /// `421` before it disconnects.
    pub ticket: Option<CommandTicket>,
    /// The reply. If the reply is preliminary, another reply to the same command follows.
    pub reply: Reply,
}

/// Error: a command cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnsendableError {
    /// The name contains a line break. The server would read the text after the line break as
    /// another command.
    #[error("the name has a line break")]
    LineBreak,
    /// The name contains a zero byte. No file system has such names, and some servers cut the name
    /// at the zero byte.
    #[error("the name has a zero byte")]
    Nul,
}

/// Error: the server does not use FTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A line or a reply is longer than any legitimate one.
    #[error("a reply of the server is too long")]
    TooLong,
    /// The first line of a reply has no reply code.
    #[error("the server does not speak FTP")]
    NoCode,
}

impl Default for FtpClient {
    fn default() -> Self {
        Self {
            lines: LineSplitter::new(REPLY_MAX),
            replies: ReplyTracker::default(),
            open: Vec::new(),
            open_bytes: 0,
            waiting: VecDeque::from([CommandTicket::GREETING]),
            next: 1,
        }
    }
}

impl FtpClient {
    /// Appends a command to `out`, the bytes for the server. If `argument` is empty, the command
    /// consists only of the verb.
    ///
    /// # Errors
    /// [`UnsendableError`] if `argument` cannot be part of a command. `out` is then unchanged.
    pub fn command(
        &mut self,
        verb: &str,
        argument: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<CommandTicket, UnsendableError> {
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
        let ticket = CommandTicket(self.next);
        self.next += 1;
        self.waiting.push_back(ticket);
        Ok(ticket)
    }

    /// Adds bytes from the server. Callers must call [`next_reply`](Self::next_reply) until it
    /// returns `None` before they add more bytes. This rule limits the memory of the buffer.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Returns the next reply. Returns `None` if no complete reply has arrived.
    ///
    /// # Errors
    /// [`ReplyError`] if the server's bytes cannot be a reply. The connection is then unusable.
    pub fn next_reply(&mut self) -> Result<Option<MatchedReply>, ReplyError> {
        while let Some(line) = self.lines.next_line() {
            let SplitLine::Complete(line) = line else {
                return Err(ReplyError::TooLong);
            };
            let LinePosition { code, last, .. } = self.replies.locate(&line);
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
            let ticket = if code.class() == ReplyClass::Preliminary {
                self.waiting.front().copied()
            } else {
                self.waiting.pop_front()
            };
            return Ok(Some(MatchedReply { ticket, reply }));
        }
        Ok(None)
    }

    /// Whether every command has received its final reply, and no further bytes have arrived.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty() && self.lines.is_empty()
    }

    /// Returns the number of commands without a final reply. Until the server's greeting arrives,
    /// the greeting counts as one command.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Maximum size of a reply, in bytes. The limit is high because a `STAT` reply may contain a long
/// listing.
const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Memory that a stored line uses in addition to its bytes.
const LINE_COST_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(client: &mut FtpClient, bytes: &[u8]) -> Vec<(Option<u64>, u16)> {
        client.receive(bytes);
        let mut answers = Vec::new();
        while let Some(answer) = client.next_reply().expect("these are replies") {
            answers.push((answer.ticket.map(|it| it.0), answer.reply.code().0));
        }
        answers
    }

    #[test]
    fn each_reply_finds_its_command_among_several() {
        let mut client = FtpClient::default();
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
        let mut client = FtpClient::default();
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
        let mut client = FtpClient::default();
        let mut out = Vec::new();
        client.command("TYPE", b"I", &mut out).expect("sent");
        let replies = b"\r\n220 there\r\n\r\n \r\n200 ok\r\n\r\n";
        assert_eq!(
            answers(&mut client, replies),
            [(Some(0), 220), (Some(1), 200)]
        );
        assert!(client.is_idle());
    }

    #[test]
    fn what_is_no_reply_ends_the_connection() {
        let mut client = FtpClient::default();
        client.receive(b"SSH-2.0-OpenSSH_9.2\r\n");
        assert_eq!(client.next_reply(), Err(ReplyError::NoCode));
        let mut client = FtpClient::default();
        let mut line = b"220-".to_vec();
        line.resize(60_000, b'x');
        line.extend_from_slice(b"\r\n");
        let refused = (0..100).find_map(|_| {
            client.receive(&line);
            client.next_reply().err()
        });
        assert_eq!(refused, Some(ReplyError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_replies_or_an_error(
            pieces in proptest::collection::vec("[0-9 \r\n-]{0,12}", 0..40),
        ) {
            let mut client = FtpClient::default();
            for piece in &pieces {
                client.receive(piece.as_bytes());
                while let Ok(Some(answer)) = client.next_reply() {
                    prop_assert!(!answer.reply.lines().is_empty());
                }
            }
        }
    }
}
