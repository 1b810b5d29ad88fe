//! `cargo xtask siege`: runs the random trials of the tests for minutes, with other seeds.

use anyhow::Result;

use crate::{
    Failure,
    shell::{cargo, succeeds},
};

/// Attacks by a hostile local user or peer. For each attack, a test proves that the attack fails.
/// Each entry contains a description, the package, the module (or `--lib`), and the name of the
/// test.
const ATTEMPTS: [(&str, [&str; 3]); 18] = [
    (
        "user: give orders at the admin address",
        [
            "longhaul-gatewayd",
            "reload",
            "only_programs_of_our_user_may_reload",
        ],
    ),
    (
        "user: give orders at the admin socket",
        ["longhaul-pages", "--lib", "strangers_give_no_orders"],
    ),
    (
        "user: be taken for the gateway at the admin address",
        [
            "longhaul",
            "hostile_local",
            "a_process_that_listens_at_the_gateways_address_gets_no_requests",
        ],
    ),
    (
        "user: keep others from the admin interface",
        [
            "longhaul-gatewayd",
            "admin",
            "a_flood_of_connections_keeps_nobody_out",
        ],
    ),
    (
        "user: read names, or change something without the token",
        [
            "longhaul-gatewayd",
            "dashboard",
            "names_take_the_token_and_changes_too",
        ],
    ),
    (
        "user: come by a proxy as a program on this machine",
        [
            "longhaul-gatewayd",
            "dashboard",
            "a_client_behind_a_proxy_is_no_program_on_this_machine",
        ],
    ),
    (
        "user: hold the register's lock",
        [
            "longhaul-gatewayd",
            "--lib",
            "a_lock_on_the_folder_holds_nobody_up",
        ],
    ),
    (
        "user: read queries of URLs in the agent's status",
        ["longhaul-mover", "--lib", "queries_of_urls_are_not_shown"],
    ),
    (
        "user: use the near gateway of a mover",
        ["longhaul", "near_process", "never_listens"],
    ),
    (
        "user: guess passwords unseen, or silence the audit trail",
        [
            "longhaul",
            "audit",
            "failed_log_ins_are_logged_and_no_filter",
        ],
    ),
    (
        "peer: get sessions of other peers' servers",
        ["longhaul-gatewayd", "--lib", "stands_in_for_no_other"],
    ),
    (
        "peer: come back by a used invite",
        [
            "longhaul-gatewayd",
            "enrolment",
            "a_removed_peer_does_not_come_back",
        ],
    ),
    (
        "peer: use a burned invite",
        [
            "longhaul-gatewayd",
            "--lib",
            "a_used_invite_is_good_only_while",
        ],
    ),
    (
        "peer: lift limits by enrolling again",
        [
            "longhaul-gatewayd",
            "enrolment",
            "an_enrolment_that_is_repeated",
        ],
    ),
    (
        "peer: go on after its removal",
        [
            "longhaul-gatewayd",
            "reload",
            "a_removed_peer_is_disconnected_at_once",
        ],
    ),
    (
        "peer: go on with a key that was taken away",
        ["longhaul-gatewayd", "reload", "a_key_that_is_taken_away"],
    ),
    (
        "peer: go on in a process that an upgrade has left",
        [
            "longhaul",
            "upgrade",
            "a_removed_peer_ends_in_all_earlier_processes",
        ],
    ),
    (
        "peer: go on in a process whose successor has died",
        [
            "longhaul",
            "upgrade",
            "a_removed_peer_ends_in_processes_whose_successor",
        ],
    ),
];

/// Runs the tests of all attacks, and prints a table.
fn local() -> Result<Result<(), Failure>> {
    let mut results = Vec::new();
    for (attempt, [package, target, name]) in ATTEMPTS {
        let mut command = cargo(["test", "--all-features", "-p", package]);
        let module = match target {
            "--lib" => {
                command.arg("--lib");
                ""
            }
            module => {
                command.args(["--test", "all"]);
                module
            }
        };
        let output = command.args(["--", name]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // A filter that matches no test would also succeed.
        let is_run = text
            .lines()
            .filter_map(|line| line.strip_prefix("test "))
            .any(|test| test.starts_with(module) && test.contains(name));
        let is_refused = output.status.success() && is_run;
        if !is_refused {
            println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        println!("{attempt}: {}", outcome(is_refused));
        results.push((attempt, name, is_refused));
    }
    println!("\n| attempt | test | result |\n|---|---|---|");
    for (attempt, name, is_refused) in &results {
        println!("| {attempt} | `{name}` | {} |", outcome(*is_refused));
    }
    Ok(match results.iter().all(|(.., is_refused)| *is_refused) {
        true => Ok(()),
        false => Err(Failure::Failed),
    })
}

fn outcome(is_refused: bool) -> &'static str {
    match is_refused {
        true => "refused",
        false => "FAILED",
    }
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Siege,
}

#[derive(clap::Subcommand)]
enum Siege {
    /// Run FTP sessions with clients, servers and links that stall, half-close, reset and reorder
    Ftp {
        /// Number of sessions
        #[arg(long, default_value_t = 10_000_000)]
        cases: u64,
        /// Seed of the first session; each next session uses the next number
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run two link cores with an adversary that drops, changes, copies and forges datagrams
    /// between them
    Link,
    /// Connect a hostile peer, which sends false data, withholds data or floods, to an endpoint
    /// with honest peers
    Peer {
        /// Number of trials
        #[arg(long, default_value_t = 510)]
        cases: u64,
        /// Seed of the first trial; each next trial uses the next number
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Stall up to 2000 readers of a link during a transfer and a dialogue with active readers
    Stalled,
    /// Disconnect, suspend and kill workers of a fleet at random during a shared job, and then
    /// check each file
    Fleet {
        /// Number of jobs
        #[arg(long, default_value_t = 20)]
        cases: u64,
        /// Seed of the first job; each next job uses the next number
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run the tests of actions that a gateway must refuse to a hostile local user or a hostile
    /// peer
    Local,
    /// End FTP transfers in nine different ways, and compare the counts of client, transfer log and
    /// metrics
    TransferLog {
        /// Number of transfers for each of the nine ways
        #[arg(long, default_value_t = 1_112)]
        rounds: u64,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    let mut command = match &arguments.what {
        Siege::Local => return local(),
        Siege::Ftp { cases, seed } => {
            let mut command =
                cargo("test --release -p longhaul-ftp --test world -- --nocapture".split(' '));
            command
                .env("SIEGE_CASES", cases.to_string())
                .env("SIEGE_SEED", seed.to_string());
            command
        }
        Siege::Link => {
            let line = "test --release -p longhaul-link --features sim --test all adversary:: -- --ignored --nocapture";
            cargo(line.split(' '))
        }
        Siege::Stalled => {
            let line = "test --release -p longhaul-link --features sim --test all stalled:: -- --ignored --nocapture";
            cargo(line.split(' '))
        }
        Siege::Peer { cases, seed } => {
            let line =
                "test --release -p longhaul-link --features sim --test siege_peer -- --nocapture";
            let mut command = cargo(line.split(' '));
            command
                .env("SIEGE_CASES", cases.to_string())
                .env("SIEGE_SEED", seed.to_string())
                .env("SIEGE_SECONDS", "6")
                .env("SIEGE_MBIT", "80");
            command
        }
        Siege::Fleet { cases, seed } => {
            let line = "test -p longhaul --all-features --test all fleet_faults:: -- --nocapture";
            let mut command = cargo(line.split(' '));
            command
                .env("SIEGE_CASES", cases.to_string())
                .env("SIEGE_SEED", seed.to_string());
            command
        }
        Siege::TransferLog { rounds } => {
            let line = "test -p longhaul-gatewayd --test all client_log -- --nocapture";
            let mut command = cargo(line.split(' '));
            command.env("SIEGE_ROUNDS", rounds.to_string());
            command
        }
    };
    Ok(match succeeds(&mut command)? {
        true => Ok(()),
        false => Err(Failure::Failed),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::ATTEMPTS;
    use crate::shell::root;

    #[test]
    fn each_attack_names_a_test_of_its_package() {
        for (attack, [package, _, test]) in ATTEMPTS {
            let folder = package.strip_prefix("longhaul-").unwrap_or(package);
            let mut text = String::new();
            append_sources(&root().join("crates").join(folder), &mut text);
            let is_its_function = |line: &str| line.contains("fn ") && line.contains(test);
            assert!(text.lines().any(is_its_function), "{attack}: {test}");
        }
    }

    fn append_sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                append_sources(&path, text);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text.push_str(&fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
}
