//! `SITE LONGHAUL SPOOL`: one upload's bytes for several servers behind the same far gateway.
//!
//! The command precedes the data connection of an upload. The far gateway answers it: the command
//! never reaches a server. The server of that upload gets the bytes of a spool.
//!
//! The bytes of the data connection itself go into the spool, and through it to all servers whose
//! uploads name the spool. One of these data connections therefore has to carry the bytes, and the
//! others end at once.
//!
//! ```text
//! SITE LONGHAUL SPOOL id size offset readers
//! 200 LONGHAUL SPOOL have instance
//! ```
//!
//! A data connection that carries bytes starts with the number of the first one: eight bytes, the
//! most significant first. The numbers count from the start of the file.

use std::fmt;

use crate::{
    command::Command,
    site::{self, number},
};

/// A spool from which an upload takes its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolRequest {
    /// Identifier of the spool. The client draws it at random, so that other clients cannot guess
    /// it.
    pub id: u128,
    /// Size of the file.
    pub size_bytes: u64,
    /// Offset in the file at which this upload starts.
    pub offset_bytes: u64,
    /// Number of uploads that take the file. The spool is removed once this number of uploads has
    /// all bytes.
    pub readers: u32,
}

/// Error: a text is no request, or no answer to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected SITE LONGHAUL SPOOL, then 32 hexadecimal digits, a size, an offset within it, and a number of uploads"
)]
pub struct SpoolRequestError;

impl SpoolRequest {
    /// Parses a command. `None` for a command to the server.
    ///
    /// # Errors
    /// [`SpoolRequestError`] if the start of a request is followed by other text.
    pub fn from_command(command: &Command<'_>) -> Option<Result<Self, SpoolRequestError>> {
        let words = site::words_after(NAME, command)?;
        Some(Self::read(words).ok_or(SpoolRequestError))
    }

    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let id = words.next().filter(|it| it.len() == ID_DIGITS)?;
        let request = Self {
            id: number(id, 16)?,
            size_bytes: number(words.next()?, 10)?.try_into().ok()?,
            offset_bytes: number(words.next()?, 10)?.try_into().ok()?,
            readers: number(words.next()?, 10)?.try_into().ok()?,
        };
        let is_possible = request.offset_bytes <= request.size_bytes
            && request.readers > 0
            && i64::try_from(request.size_bytes).is_ok();
        (words.next().is_none() && is_possible).then_some(request)
    }

    /// Returns the argument of `SITE`.
    pub fn argument(&self) -> String {
        let Self {
            id,
            size_bytes,
            offset_bytes,
            readers,
        } = self;
        format!("{NAME} {id:032x} {size_bytes} {offset_bytes} {readers}")
    }
}

/// The answer: identity of the spool, and its bytes from the start of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolAnswer {
    /// The number of the first byte that it has not received.
    pub have_bytes: u64,
    /// Distinguishes the spool from another one of the same name, at another gateway or at another
    /// time.
    pub instance: u64,
}

impl SpoolAnswer {
    /// Parses the line of a reply. `None` for the reply of a server that interprets the command
    /// differently.
    pub fn from_line(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let have = text.strip_prefix("200 ")?.strip_prefix(NAME)?;
        let (have, instance) = have.strip_prefix(' ')?.split_once(' ')?;
        Some(Self {
            have_bytes: number(have, 10)?.try_into().ok()?,
            instance: number(instance, 16)?.try_into().ok()?,
        })
    }
}

impl fmt::Display for SpoolAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            have_bytes,
            instance,
        } = self;
        write!(f, "200 {NAME} {have_bytes} {instance:016x}")
    }
}

const NAME: &str = "LONGHAUL SPOOL";

const ID_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Option<Result<SpoolRequest, SpoolRequestError>> {
        SpoolRequest::from_command(&Command::parse(line.as_bytes()))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            id in any::<u128>(),
            size_bytes in 0..=i64::MAX as u64,
            share in 0.0..=1.0,
            readers in 1..=u32::MAX,
        ) {
            let offset_bytes = (size_bytes as f64 * share) as u64;
            let request = SpoolRequest { id, size_bytes, offset_bytes: offset_bytes.min(size_bytes), readers };
            prop_assert_eq!(read(&format!("SITE {}", request.argument())), Some(Ok(request)));
            let answer = SpoolAnswer { have_bytes: size_bytes, instance: id as u64 };
            prop_assert_eq!(SpoolAnswer::from_line(answer.to_string().as_bytes()), Some(answer));
        }

        #[test]
        fn any_line_can_be_read(line in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = SpoolRequest::from_command(&Command::parse(&line));
            let _ = SpoolAnswer::from_line(&line);
        }
    }

    #[test]
    fn a_server_keeps_its_own_commands() {
        for line in [
            "SITE CHMOD 600 x",
            "SITE LONGHAUL",
            "SITE LONGHAUL HELP",
            "STOR LONGHAUL SPOOL",
            "SITE",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(SpoolAnswer::from_line(b"200 SITE command okay"), None);
        assert_eq!(SpoolAnswer::from_line(b"250 LONGHAUL SPOOL 1 1"), None);
    }

    #[test]
    fn a_wrong_request_is_no_command_for_a_server() {
        let id = "00112233445566778899aabbccddeeff";
        let right = format!("site longhaul spool {id} 10 10 1");
        assert!(read(&right).is_some_and(|it| it.is_ok()), "{right}");
        for rest in [
            String::new(),
            "1 10 0 1".to_owned(),
            format!("{id} 10 11 1"),
            format!("{id} 10 0 0"),
            format!("{id} 10 0"),
            format!("{id} 10 0 1 1"),
            format!("{id} +10 0 1"),
            format!("{id} 9223372036854775808 0 1"),
            format!("{id} 10 0 4294967296"),
        ] {
            let line = format!("SITE LONGHAUL SPOOL {rest}");
            assert_eq!(read(&line), Some(Err(SpoolRequestError)), "{line}");
        }
    }
}
