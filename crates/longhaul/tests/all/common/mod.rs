//! Helpers that run the program in temporary folders.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each test file uses a part; tests run programs"
)]

pub(crate) mod pool;
pub(crate) mod side;
pub(crate) mod ssh_server;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

pub(crate) fn longhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    // The program neither reads the user's accounts nor leaves journals in the home folder.
    command
        .env("HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("XDG_STATE_HOME");
    command.args(arguments).output().expect("the program")
}

/// Runs the program. Asserts its exit code, and that `words` appears on standard error. Returns the
/// standard output.
#[track_caller]
pub(crate) fn assert_ends(arguments: &[&str], code: i32, words: &str) -> String {
    let output = longhaul(arguments);
    let [said, printed] =
        [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {said}");
    printed
}

/// Copies an executable file, and sets its permissions. A separate process writes the copy. If this
/// process wrote the copy, a child process of another test could hold the file open. The kernel
/// would then refuse to run the file.
pub(crate) fn install(from: &str, to: &str, mode: u32) {
    let mode = format!("--mode={mode:o}");
    let status = Command::new("install").args([&mode, from, to]).status();
    assert!(status.expect("coreutils").success(), "{from} to {to}");
}

/// Copies the program to `to`.
pub(crate) fn install_longhaul(to: &str) {
    install(env!("CARGO_BIN_EXE_longhaul"), to, 0o755);
}

/// Writes an executable script. See [`install`].
pub(crate) fn install_script(to: &str, text: &str, mode: u32) {
    let source = format!("{to}.source");
    fs::write(&source, text).expect("room");
    install(&source, to, mode);
}

/// A temporary folder that is deleted when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("longhaul-commands-{test}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
