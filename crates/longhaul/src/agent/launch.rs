//! `longhaul launch FACTS MARK COMMAND...`: becomes a command, unless another process has become it for the same mark, or the
//! call is over. The agent calls commands by this, so that it can be killed at any moment and none is called twice.

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

/// Become a command, once for a mark
///
/// The agent uses this command for itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file that is there until the call is over
    facts: PathBuf,
    /// The file that says that the command was called
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
    // Of two processes one makes the link, and none does after the call.
    match fs::hard_link(&args.facts, &args.mark) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("longhaul: {} cannot be made: {error}", args.mark.display());
            return ExitCode::from(NOT_STARTED);
        }
    }
    // After a power cut the mark must be there, as what the command does may be.
    if let Err(error) = sync_mark(&args.mark) {
        let _ = fs::remove_file(&args.mark);
        eprintln!(
            "longhaul: {} cannot be synced: {error}",
            args.mark.display()
        );
        return ExitCode::from(NOT_STARTED);
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

/// Has the mark outlive a power cut: its content, and its name in the folder.
fn sync_mark(mark: &Path) -> io::Result<()> {
    fs::File::open(mark)?.sync_all()?;
    let folder = mark.parent().filter(|it| !it.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    // The folder of the marks may be as new as the mark. Those above it may be another user's.
    for above in mark.ancestors().skip(2).take(FOLDERS_ABOVE) {
        let _ = fs::File::open(above).and_then(|it| it.sync_all());
    }
    Ok(())
}

/// Folders of the agent's state above that of the marks, and the one that these are in.
const FOLDERS_ABOVE: usize = 2;

/// As a shell's for a command that it does not find.
const NOT_STARTED: u8 = 127;
