//! `SITE LONGHAUL WAIT`: how long a client waits for the reply to an upload once it has sent the last byte.
//!
//! The far gateway bounds what is on its way to a slow server, so that nobody waits in vain. A client that waits longer
//! than others may have more on its way before it is known how fast the server is.
//!
//! ```text
//! SITE LONGHAUL WAIT seconds
//! 200 LONGHAUL WAIT
//! ```

use std::time::Duration;

use crate::{command::Command, site};

/// A text is no such command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected SITE LONGHAUL WAIT, then a number of seconds from 1 to {MAX_S}")]
pub struct NoWait;

/// How long the client waits for the reply to an upload; `None` for a command that is for the server.
///
/// # Errors
/// [`NoWait`] if it begins as such a command and does not go on as one.
pub fn of(command: &Command<'_>) -> Option<Result<Duration, NoWait>> {
    let words = site::words_behind(NAME, command)?;
    Some(read(words).ok_or(NoWait))
}

/// The argument of `SITE`. Parts of a second do not count.
pub fn argument(wait: Duration) -> String {
    format!("{NAME} {}", wait.as_secs().clamp(1, MAX_S))
}

/// The answer.
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

    fn wait(line: &str) -> Option<Result<Duration, NoWait>> {
        of(&Command::parse(line.as_bytes()))
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
                Some(Err(NoWait)),
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
