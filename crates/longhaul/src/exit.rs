//! Exit codes of the program: 0 success, 1 failure, 2 wrong use or configuration, 3 interrupted
//! copy.

use std::{
    env,
    ffi::{OsStr, OsString},
    process::ExitCode,
};

/// An error with exit code 2. The command line is invalid, or it names an invalid file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// Converts an error to an error with exit code 2. The text contains all causes of the error.
pub(crate) fn wrong_use(error: impl Into<anyhow::Error>) -> anyhow::Error {
    misuse(chain(&error.into()))
}

/// Creates an error with exit code 2 and this text.
pub(crate) fn misuse(text: impl Into<String>) -> anyhow::Error {
    WrongUse(text.into()).into()
}

/// Returns an error with exit code 2 and the text `otherwise` if the condition is false.
pub(crate) fn ensure(holds: bool, otherwise: &str) -> anyhow::Result<()> {
    if holds {
        Ok(())
    } else {
        Err(misuse(otherwise))
    }
}

/// Returns the next step for a user who lacks a permission: a command line that runs the present
/// command as root. The command is quoted for a shell.
pub(crate) fn as_root() -> String {
    as_root_with(env::args_os().skip(1))
}

fn as_root_with(arguments: impl Iterator<Item = OsString>) -> String {
    let quoted: Option<Vec<_>> = arguments.map(|it| quote(&it)).collect();
    match quoted {
        Some(arguments) => format!("run it as root: sudo longhaul {}", arguments.join(" ")),
        None => "run it as root".to_owned(),
    }
}

/// Quotes an argument for a shell. Returns `None` if a message cannot contain the argument, because
/// the argument is not UTF-8 or contains control characters.
pub(crate) fn quote(argument: &OsStr) -> Option<String> {
    let text = argument.to_str()?;
    let is_plain = !text.contains(char::is_control);
    let quoted = shlex::try_quote(text).ok().filter(|_| is_plain)?;
    Some(quoted.into_owned())
}

/// Exit code of a command that a signal interrupted while the command moved files.
pub(crate) const INTERRUPTED: u8 = 3;

/// Waits until the process receives SIGTERM or SIGINT.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
    // If signals cannot be received, they end the process by default.
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(terminate), signal(interrupt)) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Prints an error to standard error. Returns the exit code for this error.
pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    eprintln!("longhaul: {}", chain(error));
    ExitCode::from(code(error))
}

/// Returns an error and its causes in one line. If a text already ends with its cause, the cause is
/// not repeated.
fn chain(error: &anyhow::Error) -> String {
    mover::run::chain(error.as_ref())
}

fn code(error: &anyhow::Error) -> u8 {
    if error.is::<WrongUse>() { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_command_for_root_is_quoted_for_a_shell() {
        let command = |words: &[&str]| as_root_with(words.iter().map(OsString::from));
        assert_eq!(
            command(&["peer", "ls", "--config", "/my files/a;$(b).toml"]),
            "run it as root: sudo longhaul peer ls --config '/my files/a;$(b).toml'"
        );
        assert_eq!(
            command(&["reload", "it's"]),
            "run it as root: sudo longhaul reload \"it's\""
        );
        for word in ["a\nb", "\u{1b}[2J"] {
            assert_eq!(command(&["reload", word]), "run it as root");
        }
        let bytes = OsStr::from_bytes(b"caf\xe9").to_owned();
        assert_eq!(as_root_with([bytes].into_iter()), "run it as root");
    }

    #[test]
    fn a_cause_that_was_named_is_not_repeated() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let text = refused.to_string();
        let error = anyhow::Error::from(refused).context(format!("IO error: {text}"));
        let error = error.context("cannot connect");
        assert_eq!(chain(&error), format!("cannot connect: IO error: {text}"));
    }

    #[test]
    fn wrong_use_differs_from_failed_work() {
        let failed = anyhow::anyhow!("no room").context("writing records");
        assert_eq!(code(&failed), 1);
        let wrong = wrong_use(failed);
        assert_eq!(
            (code(&wrong), wrong.to_string().as_str()),
            (2, "writing records: no room")
        );
        let explained = Err::<(), _>(wrong).context("the plan").expect_err("wrong");
        assert_eq!(code(&explained), 2, "also with a context");
    }
}
