//! `SITE LONGHAUL SPOOL`: one upload for several servers behind the same far gateway.
//!
//! The client sends the command before it requests the data connection of an upload. The far
//! gateway itself replies, and no server receives the command. The server of that upload receives
//! its bytes from a spool, a file at the far gateway.
//!
//! The bytes of the client's data connection go into the spool. The far gateway copies them from
//! the spool to all servers whose uploads name this spool. The client therefore sends the bytes on
//! only one of these data connections. The client closes the other data connections without sending
//! bytes.
//!
//! ```text
//! SITE LONGHAUL SPOOL id size offset readers
//! 200 LONGHAUL SPOOL have instance
//! ```
//!
//! A data connection that carries bytes starts with a header of eight bytes in big-endian order.
//! The header is the offset in the file at which the following bytes begin.

use std::fmt;

use crate::{
    command::Command,
    site::{self, number},
};

/// Request for a spool that supplies the bytes of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolRequest {
    /// Identifier of the spool. The client chooses a random identifier that other clients cannot
    /// guess.
    pub id: u128,
    /// Size of the file, in bytes.
    pub size_bytes: u64,
    /// Offset at which this upload starts in the file, in bytes.
    pub offset_bytes: u64,
    /// Number of uploads that read the file from the spool. When this number of uploads is
    /// complete, the far gateway removes the spool.
    pub readers: u32,
}

/// Error: a text is neither a valid spool request nor a valid reply to a spool request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected SITE LONGHAUL SPOOL, then 32 hexadecimal digits, a size, an offset within it, and a number of uploads"
)]
pub struct SpoolRequestError;

impl SpoolRequest {
    /// Parses a command. Returns `None` if the command is not a spool request.
    ///
    /// # Errors
    /// [`SpoolRequestError`] if the command is a spool request with malformed arguments.
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

    /// Returns the argument of the `SITE` command that sends this request.
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

/// The far gateway's reply to a spool request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolAnswer {
    /// Number of bytes that the spool has received, counted from the start of the file.
    pub have_bytes: u64,
    /// Number that distinguishes this spool from other spools with the same identifier, at another
    /// gateway or at another time.
    pub instance: u64,
}

impl SpoolAnswer {
    /// Parses a line of a reply. Returns `None` if the line is a reply of a server that interprets
    /// the command differently.
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
