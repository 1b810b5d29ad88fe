//! Clippy's compiler. It builds a crate as rustc does, and checks the crate at the same time.
//! `.ci/run` builds the tests with it, because a separate check analyses every crate again.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::shell::{cargo, read_lines, root};

/// Arguments of cargo that check the crates of the production build.
pub(crate) const PRODUCTION: &[&str] = &["check", "-p", "longhaul", "--no-default-features"];
/// Arguments of cargo that check all targets of the workspace.
pub(crate) const WORKSPACE: &[&str] = &["check", "--workspace", "--all-features", "--all-targets"];
/// Arguments of cargo that build the tests, as `xtask test` does.
pub(crate) const TESTS: &[&str] = &[
    "test",
    "--workspace",
    "--all-features",
    "--no-run",
    "--lib",
    "--bins",
    "--tests",
];
/// Arguments of cargo that check the libraries, benches and examples. No step runs the benches and
/// examples, so a check suffices. The documentation needs the checked libraries, too.
pub(crate) const ALL_BUT_TESTS: &[&str] = &[
    "check",
    "--workspace",
    "--all-features",
    "--lib",
    "--examples",
    "--bench",
    "*",
];

/// Compiles crates with clippy's compiler, and prints its messages except for those in `printed`.
/// Cargo repeats the messages of earlier builds. Returns whether there is neither an error nor a
/// warning.
pub(crate) fn finds_nothing(arguments: &[&str], printed: &mut HashSet<String>) -> Result<bool> {
    let mut command = cargo(arguments);
    command
        .arg("--message-format=json")
        .env("RUSTC_WORKSPACE_WRAPPER", compiler()?);
    let mut is_good = true;
    let succeeded = read_lines(&mut command, |line| match diagnostic(line) {
        Some(text) => {
            is_good = false;
            if !printed.contains(&text) {
                println!("{text}");
                printed.insert(text);
            }
        }
        // Cargo's own messages are no JSON.
        None if !line.starts_with('{') => println!("{line}"),
        None => {}
    })?;
    Ok(is_good && succeeded)
}

/// Returns the path of clippy's compiler in the toolchain of this workspace.
pub(crate) fn compiler() -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    let output = rustc.args(["--print", "sysroot"]).current_dir(root());
    let output = output.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "rustc has failed");
    let sysroot = String::from_utf8(output.stdout)?;
    let driver = Path::new(sysroot.trim_end()).join("bin/clippy-driver");
    ensure!(
        driver.exists(),
        "{} is missing: install clippy with `rustup component add clippy`",
        driver.display()
    );
    Ok(driver)
}

/// Returns the text of an error or a warning in a line of cargo's JSON output.
fn diagnostic(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let diagnostic = &message["message"];
    let counts = matches!(diagnostic["level"].as_str(), Some("error" | "warning"));
    let text = diagnostic["rendered"].as_str();
    text.filter(|_| counts && message["reason"] == "compiler-message")
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_count() {
        let line = |reason: &str, level: &str| {
            let message = serde_json::json!({"level": level, "rendered": "text"});
            serde_json::json!({"reason": reason, "message": message}).to_string()
        };
        for level in ["error", "warning"] {
            let text = diagnostic(&line("compiler-message", level));
            assert_eq!(text.as_deref(), Some("text"), "{level}");
        }
        assert_eq!(diagnostic(&line("compiler-message", "note")), None);
        assert_eq!(diagnostic(&line("compiler-artifact", "warning")), None);
        assert_eq!(diagnostic("   Compiling link v0.1.0"), None);
    }
}
