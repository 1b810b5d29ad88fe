//! `cargo xtask lint`: what a reviewer should not have to say.

use anyhow::Result;

use crate::{
    Failure, architecture,
    shell::{cargo, root, succeeds, tool},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out cargo-deny, which takes minutes to install the first time
    #[arg(long)]
    no_deny: bool,
}

const DENY_VERSION: &str = "0.20.2";

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, command: &mut std::process::Command| -> Result<()> {
        if !succeeds(command)? {
            failed.push(name);
        }
        Ok(())
    };
    check("format", &mut cargo(["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
    if root().join("fuzz/Cargo.toml").exists() {
        check("format of fuzz", &mut cargo(fuzz))?;
    }
    check(
        "clippy",
        &mut cargo([
            "clippy",
            "--workspace",
            "--all-features",
            "--all-targets",
            "--",
            "-Dwarnings",
        ]),
    )?;
    let production = [
        "clippy",
        "-p",
        "longhaul",
        "--no-default-features",
        "--",
        "-Dwarnings",
    ];
    check("clippy of the production build", &mut cargo(production))?;
    let mut documentation = cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
    check(
        "documentation",
        documentation.env("RUSTDOCFLAGS", "-Dwarnings"),
    )?;
    if !arguments.no_deny {
        let deny = tool("cargo-deny", DENY_VERSION)?;
        let command = |arguments: &[&str]| {
            let mut command = std::process::Command::new(&deny);
            command.args(arguments).current_dir(root());
            command
        };
        let policy = ["check", "licenses", "bans", "sources"];
        check("licences, bans, sources", &mut command(&policy))?;
        // The advisories live in a repository that not every machine can fetch.
        if succeeds(&mut command(&["fetch", "db"]))? {
            check("advisories", &mut command(&["check", "advisories"]))?;
        } else {
            println!("advisories: not checked, their database cannot be fetched from here");
        }
    }
    let laboratory = laboratory_in_production()?;
    if !laboratory.is_empty() {
        println!("the production build contains {}", laboratory.join(", "));
        failed.push("dependencies of the production build");
    }
    for complaint in architecture::complaints(root())? {
        println!("{complaint}");
        if !failed.contains(&"architecture") {
            failed.push("architecture");
        }
    }
    if failed.is_empty() {
        println!("lint: nothing found");
        return Ok(Ok(()));
    }
    println!("lint: {} found something", failed.join(", "));
    Ok(Err(Failure::Failed))
}

/// The crates of the laboratory that the production build would contain.
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
    anyhow::ensure!(output.status.success(), "cargo tree failed");
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_in = |name: &&str| {
        tree.lines()
            .any(|line| line.split(' ').next() == Some(*name))
    };
    anyhow::ensure!(is_in(&"gateway"), "cargo tree names no gateway");
    Ok(LABORATORY.into_iter().filter(is_in).collect())
}

/// An FTP server, a plotter, a writer of captures, an FTP client, and the crates that need them.
const LABORATORY: [&str; 6] = [
    "libunftp",
    "plotters",
    "pcap-file",
    "suppaftp",
    "emulator",
    "eval",
];
