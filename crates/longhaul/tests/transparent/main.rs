//! Tests of transparent listeners with a real kernel: a router in network namespaces, `nft`, and
//! unmodified clients.
//!
//! The tests run in real time, with generous time limits for slow machines.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways, in real time"
)]

mod ftp;
mod machine;
mod world;

use std::{
    io::{Read, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use emulator::privilege;
use ftp::DataMode;
use libtest_mimic::{Arguments, Trial};
use machine::errors;
use nix::sys::signal::Signal;
use world::{CONTENT, FAR, MARK, NEAR, SERVER, TABLE, World};

/// Runs the tests. If namespaces or programs are missing, prints the reason and counts the tests as
/// skipped.
fn main() -> ExitCode {
    let missing = ["nft", "ip"].into_iter().find(|p| !world::has(p));
    let obstacle = match (privilege::acquire(), missing) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(_), Some(program)) => Some(format!("the program {program} is missing")),
        (Ok(_), None) => None,
    };
    if let Some(obstacle) = &obstacle {
        eprintln!("skipped: {obstacle}");
    }
    let mut arguments = Arguments::from_args();
    // The tests measure time on a machine with few processors.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let trials = vec![
        trial(
            "an_unmodified_client_is_accelerated_whatever_its_data_connections",
            an_unmodified_client_is_accelerated,
        ),
        trial(
            "others_than_the_clients_pass_directly",
            others_than_the_clients_pass,
        ),
        trial(
            "with_the_far_gateway_killed_clients_pass_within_a_second",
            clients_pass_within_a_second,
        ),
        trial(
            "with_the_far_machine_silent_clients_pass_within_a_second",
            clients_of_a_silent_peer_pass,
        ),
        trial(
            "a_connection_that_began_by_passing_is_never_taken_over",
            what_passes_is_never_taken_over,
        ),
        trial(
            "a_killed_gateway_is_in_nobodys_way_and_leaves_nothing_after_its_next_start",
            a_killed_gateway_leaves_nothing,
        ),
        trial(
            "a_gateway_that_hangs_intercepts_nothing_three_seconds_later",
            a_gateway_that_hangs_lets_clients_pass,
        ),
        trial(
            "a_firewall_that_is_loaded_again_does_not_end_interception",
            a_flushed_table_comes_back,
        ),
        trial(
            "policy_routing_that_somebody_removes_comes_back",
            removed_routing_comes_back,
        ),
        trial(
            "without_the_right_or_the_program_the_gateway_says_so",
            what_is_missing_is_said,
        ),
    ];
    let trials = trials.into_iter();
    let trials = trials.map(|trial| trial.with_ignored_flag(obstacle.is_some()));
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(format!("real_time::namespaces::{name}"), move || {
        test();
        Ok(())
    })
}

fn an_unmodified_client_is_accelerated() {
    let world = World::up();
    let mut count = 0;
    for (family, modes) in [
        (
            0,
            vec![
                DataMode::Pasv,
                DataMode::Epsv,
                DataMode::Port,
                DataMode::Eprt,
            ],
        ),
        (1, vec![DataMode::Epsv, DataMode::Eprt]),
    ] {
        let (mut client, accelerated) = world.connect(family).expect("a connection");
        assert!(accelerated, "{}", SERVER[family]);
        for mode in modes {
            world.client.enter(|| {
                let mut received = Vec::new();
                client
                    .transfer(mode, "RETR x", |mut data| {
                        data.read_to_end(&mut received).map(drop)
                    })
                    .unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                assert!(received == CONTENT, "{mode:?}");
                client
                    .transfer(mode, "STOR y", |mut data| data.write_all(&CONTENT[1..]))
                    .unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                let size = client.ask("SIZE y", "213").expect("a size");
                assert_eq!(size, format!("213 {}", CONTENT.len() - 1), "{mode:?}");
            });
            count += 2;
        }
    }
    let status = world.status(NEAR).expect("a status");
    assert_eq!(status["transfers_completed_total"], count, "{status}");
    // The link carries fewer bytes, since the content is compressed.
    let bytes = count / 2 * (2 * CONTENT.len() as u64 - 1);
    assert_eq!(status["optimiser"]["bytes"], bytes, "{status}");
}

fn others_than_the_clients_pass() {
    let world = World::up();
    world.client.ip("address add 10.99.7.7/32 dev lo");
    world.router.ip("route add 10.99.7.7 via 10.99.0.2");
    world
        .client
        .ip("route add 10.99.2.0/24 via 10.99.0.1 src 10.99.7.7");
    let greeting = world.client.enter(|| {
        let client = ftp::Client::connect(([10, 99, 2, 5], 21).into());
        client.expect("a connection").greeting
    });
    assert_eq!(greeting, "220 client 10.99.7.7");
    let own = world.router.enter(|| {
        let client = ftp::Client::connect(([10, 99, 2, 5], 21).into());
        client.expect("a connection").greeting
    });
    assert_eq!(own, "220 client 10.99.1.1", "the router itself");
}

/// Calls `disturb`, and then opens connections for two seconds. Each connection must succeed within
/// a second, and must go directly to the server.
fn all_pass_after(world: &mut World, what: &str, disturb: impl FnOnce(&mut World)) {
    let mut slowest = Duration::ZERO;
    disturb(world);
    let since = Instant::now();
    let mut count = 0;
    while since.elapsed() < Duration::from_secs(2) {
        for family in 0..2 {
            let begun = Instant::now();
            let (mut client, accelerated) = world
                .connect(family)
                .unwrap_or_else(|error| panic!("{:?} after: {error}", since.elapsed()));
            assert!(!accelerated, "nobody is there to accelerate it");
            slowest = slowest.max(begun.elapsed());
            count += 1;
            world.client.enter(|| {
                let mut received = Vec::new();
                client
                    .transfer(DataMode::Epsv, "RETR x", |mut data| {
                        data.read_to_end(&mut received).map(drop)
                    })
                    .expect("a direct transfer");
                assert_eq!(received.len(), CONTENT.len());
            });
        }
    }
    println!("{what}: {count} connections pass, the slowest after {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

fn clients_pass_within_a_second() {
    let mut world = World::up();
    all_pass_after(&mut world, "far gateway killed", |world| {
        world.stop(FAR, Signal::SIGKILL);
    });
    world.start(FAR);
    let begun = Instant::now();
    world.wait_for_interception();
    println!("intercepted again {:?} after the return", begun.elapsed());
}

fn clients_of_a_silent_peer_pass() {
    let mut world = World::up();
    all_pass_after(&mut world, "far gateway unreachable", |world| {
        // The site goes silent, without ICMP, as at a power cut.
        world.site.shell(
            "nft 'add table inet t; add chain inet t in { type filter hook prerouting priority -300; }; \
             add chain inet t out { type filter hook output priority -300; }; \
             add rule inet t in udp dport 4810 drop; add rule inet t out udp dport 4810 drop'",
        );
    });
    world.site.shell("nft delete table inet t");
    world.wait_for_interception();
}

fn what_passes_is_never_taken_over() {
    let mut world = World::new();
    world.start(NEAR);
    let (mut client, accelerated) = world.connect(0).expect("a connection");
    assert!(!accelerated);
    world.start(FAR);
    world.wait_for_interception();
    world.client.enter(|| {
        client.ask("SIZE x", "213").expect("it still stands");
        let mut received = Vec::new();
        client
            .transfer(DataMode::Pasv, "RETR x", |mut data| {
                data.read_to_end(&mut received).map(drop)
            })
            .expect("a direct transfer");
    });
}

fn a_killed_gateway_leaves_nothing() {
    let mut world = World::up();
    assert_eq!(world.installed(), [1, 2]);
    world.stop(NEAR, Signal::SIGKILL);
    let begun = Instant::now();
    let (_, accelerated) = world.connect(0).expect("a connection");
    println!("near gateway killed: direct after {:?}", begun.elapsed());
    assert!(!accelerated && begun.elapsed() < Duration::from_secs(1));
    assert_eq!(world.installed(), [1, 2], "left behind");

    world.start(NEAR);
    assert_eq!(world.installed(), [1, 2], "not twice");
    world.wait_for_interception();
    let remove = world.gateway(NEAR).arg("--remove-interception").output();
    let refused = remove.expect("run");
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("stop it"), "{}", errors(&refused));
    world.stop(NEAR, Signal::SIGTERM);
    assert_eq!(world.installed(), [0, 0]);

    world.start(NEAR);
    world.stop(NEAR, Signal::SIGKILL);
    let remove = world.gateway(NEAR).arg("remove-interception").output();
    let removed = remove.expect("run");
    assert_eq!(removed.status.code(), Some(0), "{}", errors(&removed));
    assert_eq!(world.installed(), [0, 0]);
    let output = world
        .router
        .shell("ip route show table all; ip -6 route show table all");
    assert!(!output.contains("table 1279"), "{output}");
}

fn a_gateway_that_hangs_lets_clients_pass() {
    let world = World::up();
    let (mut under_way, _) = world.connect(0).expect("a connection");
    world.signal(NEAR, Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(3_500));
    let (_, accelerated) = world.connect(0).expect("a connection");
    assert!(!accelerated);
    world.signal(NEAR, Signal::SIGCONT);
    world.wait_for_interception();
    let size = world.client.enter(|| under_way.ask("SIZE x", "213"));
    assert!(size.is_ok(), "what was intercepted goes on: {size:?}");
}

fn a_flushed_table_comes_back() {
    let world = World::up();
    world
        .router
        .shell(&format!("nft list table inet {TABLE} && nft flush ruleset"));
    assert_eq!(world.installed()[0], 0, "it is gone");
    world.wait("its return", || world.installed() == [1, 2]);
    world.wait_for_interception();
}

fn removed_routing_comes_back() {
    let world = World::up();
    let number: u32 = u32::from_str_radix(&MARK[2..], 16).expect("the mark is a number");
    for removed in [
        // systemd-networkd removes foreign rules like this.
        "ip rule del priority 481; ip -6 rule del priority 481".to_owned(),
        "ip rule del priority 481".to_owned(),
        format!("ip route flush table {number}"),
        format!("ip -6 route flush table {number}"),
    ] {
        world.router.shell(&removed);
        world.wait("its return", || {
            let routes = world.router.shell(&format!(
                "ip route show table {number}; ip -6 route show table {number}"
            ));
            world.installed() == [1, 2] && routes.matches("default dev lo").count() == 2
        });
        world.wait_for_interception();
        for family in 0..2 {
            let (_, accelerated) = world.connect(family).expect("a connection");
            assert!(accelerated, "{removed}");
        }
    }
}

fn what_is_missing_is_said() {
    let world = World::new();
    let without = |what: &[&str]| {
        let mut command = world.router.command("setpriv");
        let gateway = world.gateway(NEAR);
        // The gateway's arguments follow the words that enter the namespace.
        let words: Vec<_> = gateway.get_args().skip(2).collect();
        command
            .args(what)
            .args(["--inh-caps=-all", "--"])
            .args(words);
        command.output().expect("util-linux")
    };
    let output = without(&["--bounding-set=-net_admin,-net_raw"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("needs CAP_NET_ADMIN"),
        "{}",
        errors(&output)
    );
    let output = without(&["--bounding-set=-net_admin"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("needs CAP_NET_ADMIN"),
        "{}",
        errors(&output)
    );
    let mut hidden = world.router.command("unshare");
    hidden.args(["--mount", "sh", "-c"]);
    hidden.arg("mount --bind /dev/null $(command -v nft) && exec \"$@\"");
    let gateway = world.gateway(NEAR);
    let output = hidden.arg("sh").args(gateway.get_args().skip(2)).output();
    let output = output.expect("util-linux");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("install the package nftables"),
        "{}",
        errors(&output)
    );
    assert_eq!(world.installed(), [0, 0]);
}
