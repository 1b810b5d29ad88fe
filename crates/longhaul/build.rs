//! Build script. Passes the commit of the build to the program, for `--version` and for records of
//! evaluations.

use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=10"]);
    // A build from an archive has no commit.
    let version = match commit {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    println!("cargo:rustc-env=LONGHAUL_VERSION={version}");
    // Each commit, and each change of branch, adds a line to Git's log. Each edit of a file makes
    // the version "dirty".
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    for path in log.as_deref().into_iter().chain(["..", "../../Cargo.lock"]) {
        println!("cargo:rerun-if-changed={path}");
    }
}
