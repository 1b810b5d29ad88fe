//! Functions that run programs in the workspace. Each command line is printed before it runs.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

/// Returns the root folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate is a folder of the workspace")
}

/// Returns cargo's target folder.
pub(crate) fn target_folder() -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(folder)
}

/// Returns a command that runs the same `cargo` as this process, in the root of the workspace.
pub(crate) fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// Formats the command line as a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = String::from("$");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            line += &format!(" {}='{}'", name.display(), value.display());
        }
    }
    line += &format!(" {}", program.file_name().unwrap_or_default().display());
    for argument in command.get_args() {
        line += &format!(" {}", argument.display());
    }
    line
}

/// Runs a command, and returns whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    eprintln!("{}", line(command));
    let status = command.status().with_context(|| line(command))?;
    Ok(status.success())
}

/// Runs a command whose output is not shown.
///
/// # Errors
/// If the command fails. The error contains the text of its error stream.
pub(crate) fn require(command: &mut Command) -> Result<()> {
    eprintln!("{}", line(command));
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| line(command))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = match text.trim() {
        "" => output.status.to_string(),
        text => text.to_owned(),
    };
    let program = command.get_program().display();
    anyhow::ensure!(output.status.success(), "{program}: {reason}");
    Ok(())
}

/// Event of a running command.
enum CommandEvent {
    Line(io::Result<String>),
    /// All processes with the output have closed it.
    OutputClosed,
    Ended(io::Result<ExitStatus>),
    /// The time limit for the output after the end has passed.
    OutputLate,
}

/// Runs a command, and passes each line of its output to `each`. Lines of both streams keep their
/// order. Returns whether the command succeeded.
///
/// A process that the command leaves behind may keep the output open. The function then returns
/// [`OUTPUT_LATE`] after the end of the command.
#[expect(clippy::disallowed_methods, reason = "the processes run in real time")]
pub(crate) fn read_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    eprintln!("{}", line(command));
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| line(command))?;
    // The command holds two copies of the pipe's writing end. They are closed here, because they
    // would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (output, events) = mpsc::channel();
    let end = output.clone();
    thread::spawn(move || {
        for bytes in BufReader::new(reader).split(b'\n') {
            let line = bytes.map(|it| String::from_utf8_lossy(&it).trim_end().to_owned());
            if output.send(CommandEvent::Line(line)).is_err() {
                return;
            }
        }
        let _ = output.send(CommandEvent::OutputClosed);
    });
    thread::spawn(move || {
        let _ = end.send(CommandEvent::Ended(child.wait()));
        thread::sleep(OUTPUT_LATE);
        let _ = end.send(CommandEvent::OutputLate);
    });
    let (mut status, mut is_closed) = (None, false);
    while status.is_none() || !is_closed {
        match events.recv()? {
            CommandEvent::Line(line) => each(&line?),
            CommandEvent::OutputClosed => is_closed = true,
            CommandEvent::Ended(ended) => status = Some(ended?),
            CommandEvent::OutputLate => {
                eprintln!("a process outlives {}", line(command));
                is_closed = true;
            }
        }
    }
    Ok(status.is_some_and(|status| status.success()))
}

/// Time limit for the output after the end of a command.
const OUTPUT_LATE: Duration = Duration::from_secs(2);

/// Build mode of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// Build with optimisation.
    Optimised,
    /// Build without optimisation, for a tool that takes longer to build than to run.
    Quick,
}

/// Returns the path of a tool that is published as a crate. Installs the tool if it is missing.
pub(crate) fn tool(name: &str, version: &str, build: Build) -> Result<PathBuf> {
    let folder = tools_folder().join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo(["install", "--locked", "--version", version, "--root"]);
        install.arg(&folder).arg(name).env_remove("RUSTFLAGS");
        if build == Build::Quick {
            install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
        }
        anyhow::ensure!(
            succeeds(&mut install)?,
            "{name} {version} could not be installed"
        );
    }
    Ok(program)
}
/// Returns the folder of installed tools. All clones of a user share the folder, because a tool
/// takes minutes to build. If the user has no cache folder, the folder of tools is in the target
/// folder.
fn tools_folder() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    let shared = cache.map(|cache| cache.join("longhaul-tools"));
    shared
        .filter(|folder| fs::create_dir_all(folder).is_ok())
        .unwrap_or_else(|| target_folder().join("tools"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes a file below a folder, and creates the folders between them.
    pub(crate) fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("room");
    }

    /// Regression test: a failed test left its `ssh-agent` behind, and the run of all tests never
    /// ended.
    #[test]
    fn the_output_of_a_process_that_is_left_behind_is_not_awaited() {
        for left in ["sleep 30", "while sleep 0.1; do echo late; done"] {
            let mut command = Command::new("sh");
            let script = format!("({left}) & echo first; echo last >&2; exit 3");
            command.args(["-c", &script]);
            let mut lines = Vec::new();
            let succeeded = read_lines(&mut command, |line| lines.push(line.to_owned()));
            assert!(!succeeded.expect("the command runs"));
            lines.retain(|line| line != "late");
            assert_eq!(lines, ["first", "last"]);
        }
    }
}
