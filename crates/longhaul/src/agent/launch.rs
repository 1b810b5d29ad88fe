//! `longhaul launch FACTS MARK COMMAND...` replaces itself with a command (`exec`), at most once
//! for each mark file.
//!
//! If the mark file exists, another launcher has already started the command. This launcher then
//! ends without starting the command. The launcher also ends if the file FACTS no longer exists,
//! because the call is then over. The agent starts all commands through this launcher. The agent
//! can therefore be killed at any moment, and no command runs twice.

use std::{
    ffi::OsString,
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{self, ExitCode},
};

use mover::agent::mark_called;

/// Run a command unless an earlier call has created the mark file
///
/// The agent uses this command for itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File that exists until the call has ended
    facts: PathBuf,
    /// Mark file, which records that the command was called
    mark: PathBuf,
    /// Program and its arguments
    #[arg(
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match mark_called(&args.facts, &args.mark) {
        Ok(true) => {}
        Ok(false) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longhaul: {} cannot be made: {error}", args.mark.display());
            return ExitCode::from(NOT_STARTED);
        }
    }
    let program = &args.command[0];
    let error = process::Command::new(program)
        .args(&args.command[1..])
        .exec();
    // The command was not called, so another attempt is permitted.
    let _ = fs::remove_file(&args.mark);
    eprintln!("longhaul: {} cannot be started: {error}", program.display());
    ExitCode::from(NOT_STARTED)
}

/// Exit code if the command does not exist. Shells return the same code.
const NOT_STARTED: u8 = 127;
