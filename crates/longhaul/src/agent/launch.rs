//! `longhaul launch MARK COMMAND...`: becomes a command, unless another process has become it for the same mark. The agent calls
//! commands by this, so that it can be killed at any moment and none is called twice.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{self, ExitCode},
};

/// Become a command, once for a mark
///
/// The agent uses this command for itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file that stands for the call
    mark: PathBuf,
    /// The program, and its arguments
    #[arg(
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    // Of two processes one makes the file.
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.mark)
        .and_then(|it| it.sync_all());
    match made {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("longhaul: {} cannot be made: {error}", args.mark.display());
            return ExitCode::from(NOT_STARTED);
        }
    }
    let program = &args.command[0];
    let error = process::Command::new(program)
        .args(&args.command[1..])
        .exec();
    // It was not called: another attempt may do better.
    let _ = fs::remove_file(&args.mark);
    eprintln!("longhaul: {} cannot be started: {error}", program.display());
    ExitCode::from(NOT_STARTED)
}

/// As a shell's for a command that it does not find.
const NOT_STARTED: u8 = 127;
