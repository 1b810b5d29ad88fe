//! Exit codes: 0 done, 1 the work failed, 2 wrong use or configuration, 3 moving files was interrupted.

use std::process::ExitCode;

/// The command makes no sense as it was given, or what it was told to follow is wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// The same error with exit code 2, told with all its sources.
pub(crate) fn wrong_use(error: impl Into<anyhow::Error>) -> anyhow::Error {
    misuse(chain(&error.into()))
}

/// An error with this text and exit code 2.
pub(crate) fn misuse(text: impl Into<String>) -> anyhow::Error {
    WrongUse(text.into()).into()
}

/// Wrong use unless a condition holds.
pub(crate) fn ensure(holds: bool, otherwise: &str) -> anyhow::Result<()> {
    if holds {
        Ok(())
    } else {
        Err(misuse(otherwise))
    }
}

/// Exit code of a command that moves files, and was interrupted.
pub(crate) const INTERRUPTED: u8 = 3;

/// Returns when the process is told to end: SIGTERM or SIGINT.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
    // Where signals cannot be had, they end the process.
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(terminate), signal(interrupt)) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Says on standard error what went wrong, and returns the exit code.
pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    eprintln!("longhaul: {}", chain(error));
    ExitCode::from(code(error))
}

/// An error and its causes in one line. A cause that the text before it ends with is not repeated.
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
    fn wrong_use_is_told_from_failed_work() {
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
