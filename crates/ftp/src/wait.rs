//! `SITE LONGHAUL WAIT`: the client reports its timeout for the reply to an upload. The timeout
//! starts after the last byte of the upload.
//!
//! The far gateway limits the bytes in flight to a slow server, so that the server's reply arrives
//! within the client's timeout. If the client's timeout is longer, the far gateway permits more
//! bytes in flight until it has measured the server's rate.
//!
//! ```text
//! SITE LONGHAUL WAIT seconds
//! 200 LONGHAUL WAIT
//! ```

use std::time::Duration;

use crate::{command::Command, site};

/// Error: the arguments of `SITE LONGHAUL WAIT` are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected SITE LONGHAUL WAIT, then a number of seconds from 1 to {MAX_S}")]
pub struct WaitRequestError;

/// Returns the client's timeout for the reply to an upload. Returns `None` if the command is not
/// `SITE LONGHAUL WAIT`.
///
/// # Errors
/// [`WaitRequestError`] if the arguments of the command are malformed.
pub fn from_command(command: &Command<'_>) -> Option<Result<Duration, WaitRequestError>> {
    let words = site::words_after(NAME, command)?;
    Some(read(words).ok_or(WaitRequestError))
}

/// Returns the argument of the `SITE` command that sends this timeout. The timeout is rounded down
/// to seconds, and limited to the range from 1 s to 24 h.
pub fn argument(wait: Duration) -> String {
    format!("{NAME} {}", wait.as_secs().clamp(1, MAX_S))
}

/// Returns the far gateway's reply to the command.
pub(crate) fn answer() -> String {
    format!("200 {NAME}")
}

fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Duration> {
    let seconds = u64::try_from(site::number(words.next()?, 10)?).ok()?;
    let is_possible = (1..=MAX_S).contains(&seconds) && words.next().is_none();
    is_possible.then(|| Duration::from_secs(seconds))
}

const NAME: &str = "LONGHAUL WAIT";

const MAX_S: u64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wait(line: &str) -> Option<Result<Duration, WaitRequestError>> {
        from_command(&Command::parse(line.as_bytes()))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 1..=MAX_S) {
            let wait_for = Duration::from_secs(seconds);
            prop_assert_eq!(wait(&format!("SITE {}", argument(wait_for))), Some(Ok(wait_for)));
        }

        #[test]
        fn no_text_breaks_it(rest in "[ -~]{0,40}") {
            let _ = wait(&format!("SITE LONGHAUL WAIT {rest}"));
        }
    }

    #[test]
    fn times_that_no_client_waits_are_refused() {
        for rest in [
            "",
            " 0",
            " -1",
            " 86401",
            " 1 2",
            " x",
            " 99999999999999999999999",
        ] {
            assert_eq!(
                wait(&format!("SITE LONGHAUL WAIT{rest}")),
                Some(Err(WaitRequestError)),
                "{rest:?}"
            );
        }
        assert_eq!(
            wait("site longhaul wait 60"),
            Some(Ok(Duration::from_secs(60)))
        );
        assert_eq!(argument(Duration::from_millis(20)), "LONGHAUL WAIT 1");
    }

    #[test]
    fn other_commands_are_for_the_server() {
        for line in [
            "SITE WAIT 60",
            "SITE LONGHAUL",
            "WAIT LONGHAUL 60",
            "SITE LONGHAUL WAITS 60",
        ] {
            assert_eq!(wait(line), None, "{line}");
        }
    }
}
