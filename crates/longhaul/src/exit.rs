//! Exit codes of the program: 0 success, 1 failure, 2 wrong use or configuration, 3 interrupted
//! copy.

use std::{env, process::ExitCode};

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

/// Returns the next step for a user who lacks a permission: the present command, to be run as root.
pub(crate) fn as_root() -> String {
    let arguments: Vec<_> = env::args_os()
        .skip(1)
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    format!("run it as root: sudo longhaul {}", arguments.join(" "))
}

/// Exit code of a command that a signal interrupted while it moved files.
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
    use anyhow::Context as _;

    use super::*;

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
