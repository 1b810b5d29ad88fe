//! Clippy's compiler. It builds a crate as rustc does, and checks the crate at the same time.
//! `.ci/run` builds the tests with it, because a separate check analyses every crate again.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::shell::{cargo, read_lines, root};

/// Compiles the workspace with clippy's compiler, and prints its messages. Cargo repeats the
/// messages of earlier builds. Returns whether there is neither an error nor a warning.
pub(crate) fn finds_nothing() -> Result<bool> {
    // A check of the benches and examples suffices, because no step runs them. The documentation
    // needs the checked libraries, too.
    let tests = ["test", "--no-run", "--lib", "--bins", "--tests"];
    let rest = ["check", "--lib", "--examples", "--bench", "*"];
    let mut is_good = true;
    for targets in [tests, rest] {
        let mut command = cargo(targets);
        command
            .args(["--workspace", "--all-features", "--message-format=json"])
            .env("RUSTC_WORKSPACE_WRAPPER", driver()?);
        let succeeded = read_lines(&mut command, |line| match diagnostic(line) {
            Some(text) => {
                is_good = false;
                println!("{text}");
            }
            // Cargo's own messages are no JSON.
            None if !line.starts_with('{') => println!("{line}"),
            None => {}
        })?;
        is_good &= succeeded;
    }
    Ok(is_good)
}

/// Returns the path of clippy's compiler in the toolchain of this workspace.
fn driver() -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    let output = rustc.args(["--print", "sysroot"]).current_dir(root());
    let output = output.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "rustc has failed");
    let sysroot = String::from_utf8(output.stdout)?;
    Ok(Path::new(sysroot.trim_end()).join("bin/clippy-driver"))
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
