//! `cargo xtask lint`: runs every check that needs no human reviewer.

use std::{collections::HashSet, env, path::Path, thread};

use anyhow::{Result, ensure};

use crate::{
    Failure, architecture, book, changelog, clippy, manifests, prose,
    shell::{Build, cargo, root, succeeds, tool},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Skip cargo-deny, whose first installation takes several minutes
    #[arg(long)]
    no_deny: bool,
    /// Read clippy's warnings from a build of the tests with clippy's compiler, as in `.ci/run`
    #[arg(long)]
    built_by_clippy: bool,
}

const DENY_VERSION: &str = "0.20.2";

/// Name of an example. Any example of the workspace would do.
const EXAMPLE: &str = "speed";

/// Checks of files, which need no build. Each returns sentences about faults.
const FILE_CHECKS: [(&str, Complaints); 5] = [
    ("architecture", architecture::complaints),
    ("documents", book::complaints),
    ("prose", prose::complaints),
    ("manifests", manifests::complaints),
    ("changelog", changelog::complaints),
];

type Complaints = fn(&Path) -> Result<Vec<String>>;

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    // The checks of files run beside the builds.
    let of_files =
        thread::spawn(|| FILE_CHECKS.map(|(name, complaints)| (name, complaints(root()))));
    let mut failed = Vec::new();
    let mut note = |name: &'static str, is_good: bool| {
        if !is_good && !failed.contains(&name) {
            failed.push(name);
        }
    };
    note("format", succeeds(&mut cargo(["fmt", "--all", "--check"]))?);
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
    // No test builds `fuzz`, which has a lock file of its own.
    let lock = ["tree", "--locked", "--quiet", "--depth=0"];
    let lock = [&lock[..], &["--manifest-path", "fuzz/Cargo.toml"]].concat();
    if root().join("fuzz/Cargo.toml").exists() {
        note("format of fuzz", succeeds(&mut cargo(fuzz))?);
        note("lock file of fuzz", succeeds(&mut cargo(lock))?);
    }
    let workspace = match arguments.built_by_clippy {
        true => vec![clippy::TESTS, clippy::ALL_BUT_TESTS],
        false => vec![clippy::WORKSPACE],
    };
    let mut printed = HashSet::new();
    for crates in workspace {
        note("clippy", clippy::finds_nothing(crates, &mut printed)?);
    }
    let is_good = clippy::finds_nothing(clippy::PRODUCTION, &mut printed)?;
    note("clippy of the production build", is_good);
    let mut documentation = cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
    // With an example, cargo selects the features of the dev-dependencies, too. It can then use the
    // libraries that clippy has checked.
    documentation.args(["--lib", "--bin", "xtask", "--example", EXAMPLE]);
    documentation.env("RUSTC_WORKSPACE_WRAPPER", clippy::compiler()?);
    documentation.env("RUSTDOCFLAGS", "-Dwarnings");
    note("documentation", succeeds(&mut documentation)?);
    if !arguments.no_deny {
        let deny = tool("cargo-deny", DENY_VERSION, Build::Quick)?;
        let command = |arguments: &[&str]| {
            let mut command = std::process::Command::new(&deny);
            command.args(arguments).current_dir(root());
            command
        };
        let policy = ["check", "licenses", "bans", "sources"];
        note("licences, bans, sources", succeeds(&mut command(&policy))?);
        // The advisories are in a repository that some machines cannot fetch.
        let is_fetched = succeeds(&mut command(&["fetch", "db"]))?;
        if is_fetched {
            note(
                "advisories",
                succeeds(&mut command(&["check", "advisories"]))?,
            );
        } else if let Some(forge) = forge(|name| env::var_os(name).is_some()) {
            println!(
                "advisories: NOT CHECKED: their database cannot be fetched, which {forge} must be able to do"
            );
            note("advisories", false);
        } else {
            println!(
                "advisories: NOT CHECKED: their database cannot be fetched from here; the CI of a forge checks them"
            );
        }
    }
    let laboratory = laboratory_in_production()?;
    if !laboratory.is_empty() {
        println!("the production build contains {}", laboratory.join(", "));
        note("dependencies of the production build", false);
    }
    for (name, complaints) in of_files.join().expect("the checks return") {
        for complaint in complaints? {
            println!("{complaint}");
            note(name, false);
        }
    }
    if failed.is_empty() {
        println!("lint: nothing found");
        return Ok(Ok(()));
    }
    println!("lint: {} found something", failed.join(", "));
    Ok(Err(Failure::Failed))
}

/// Returns the environment variable that identifies the CI of a forge. Returns `None` outside CI.
fn forge(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    FORGES.into_iter().find(|name| is_set(name))
}

/// Environment variables of GitHub, GitLab, Forgejo, Gitea and similar forges.
const FORGES: [&str; 5] = [
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "FORGEJO_ACTIONS",
    "FORGEJO",
    "GITEA_ACTIONS",
];

/// Returns the crates of the laboratory that the production build wrongly contains.
fn laboratory_in_production() -> Result<Vec<&'static str>> {
    let tree = [
        "tree",
        "-p",
        "longhaul",
        "--no-default-features",
        "--edges=normal",
        "--prefix=none",
    ];
    let output = cargo(tree).output()?;
    ensure!(output.status.success(), "cargo tree failed");
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_in = |name: &&str| {
        tree.lines()
            .any(|line| line.split(' ').next() == Some(*name))
    };
    ensure!(is_in(&"longhaul-gatewayd"), "cargo tree names no gateway");
    Ok(LABORATORY.into_iter().filter(is_in).collect())
}

/// Crates that only the laboratory needs: an FTP server, a plotter, a writer of captures, an FTP
/// client, and crates that depend on them.
const LABORATORY: [&str; 6] = [
    "libunftp",
    "plotters",
    "pcap-file",
    "suppaftp",
    "longhaul-emulator",
    "longhaul-eval",
];

#[cfg(test)]
mod tests {
    use super::forge;

    #[test]
    fn the_ci_of_a_forge_is_known_by_its_variable() {
        assert_eq!(forge(|_| false), None);
        for name in ["GITHUB_ACTIONS", "GITLAB_CI", "FORGEJO"] {
            assert_eq!(forge(|it| it == name), Some(name));
        }
    }
}
