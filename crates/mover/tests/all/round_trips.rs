//! Tests that count the round trips of a file at a gateway. A round trip is a batch of commands
//! that are sent without waiting for a reply.
#![allow(clippy::disallowed_methods, reason = "waits until a server has gone")]

use std::{sync::Arc, thread, time::Duration};

use fake_ftp::{Behaviour, FakeServer};
use mover::server::{Password, SessionPool};

use crate::common::{FakeServerExt as _, World, content, write};

const LARGE: usize = 3_000_000;

fn gateway() -> FakeServer {
    FakeServer::start(Behaviour {
        is_gateway: true,
        ..Behaviour::default()
    })
}

fn batches(server: &FakeServer) -> Vec<String> {
    let state = server.state();
    let batches = state.batches.iter().map(|it| it.join(" "));
    // The reply to `QUIT` is not awaited.
    batches
        .filter(|it| !it.is_empty() && it != "QUIT")
        .collect()
}

/// The gateway itself replies to `EPSV`, without asking the server.
#[test]
fn an_upload_takes_four_round_trips() {
    let (world, server) = (World::new(), gateway());
    let large = content(LARGE);
    write(&world.here("large"), &large);
    let mut dial = server.dial();
    dial.user = "anonymous".to_owned();
    dial.password = Some(Password::guest());
    let copied = world.run(world.upload_by(dial, &world.here("large"), "large"));
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(server.content("large"), Some(large));
    let expected = [
        "USER PASS FEAT TYPE SITE STAT PWD",
        "SIZE MDTM CWD CWD",
        "EPSV",
        "DELE SIZE MDTM STOR SIZE MDTM",
        "MFMT RNFR RNTO",
    ];
    assert_eq!(batches(&server), expected);
}

#[test]
fn a_download_takes_four_round_trips() {
    let (world, server) = (World::new(), gateway());
    server.put("large", &content(LARGE));
    let copied = world.run(world.download_by(server.dial(), "large", &world.here("large")));
    assert_eq!(copied.failures(), [""; 0]);
    let expected = [
        "USER",
        "PASS FEAT TYPE SITE STAT PWD",
        "SIZE MDTM CWD CWD",
        "EPSV",
        "RETR SIZE MDTM",
    ];
    assert_eq!(batches(&server), expected);
}

/// The mover requests the data port together with the file's attributes. After the transfer, the
/// mover queries the attributes again.
#[test]
fn a_download_without_a_gateway_takes_five_round_trips() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        records_batches: true,
        ..Behaviour::default()
    });
    server.put("large", &content(LARGE));
    let copied = world.run(world.download_by(server.dial(), "large", &world.here("large")));
    assert_eq!(copied.failures(), [""; 0]);
    let expected = [
        "USER",
        "PASS",
        "FEAT TYPE PWD",
        "EPSV SIZE MDTM CWD CWD",
        "RETR SIZE MDTM",
    ];
    assert_eq!(batches(&server), expected);
}

/// A server that requires TLS refuses the user name on an unencrypted connection. In that case the
/// mover must not send the password.
#[test]
fn a_password_in_the_clear_is_not_sent_before_the_server_asks_for_it() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        is_gateway: true,
        replies: [("USER", "530 not without TLS")].into(),
        ..Behaviour::default()
    });
    write(&world.here("large"), b"content");
    let copied = world.run(world.upload_by(server.dial(), &world.here("large"), "large"));
    assert!(!copied.failures().is_empty());
    assert!(!server.state().verbs.contains(&"PASS".to_owned()));
}

/// At a gateway, the reply to a log-in and the end of the connection may arrive together.
#[test]
fn a_wrong_password_is_sent_to_the_server_once() {
    for reply in ["530 wrong", "530 wrong\r\n421 gateway: the server closed"] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            is_gateway: true,
            refuses_password: Some(reply),
            ..Behaviour::default()
        });
        write(&world.here("a"), b"a");
        let copied = world.run(world.upload_by(server.dial(), &world.here("a"), "a"));
        let failures = copied.failures();
        assert!(failures[0].contains("530 wrong"), "{failures:?}");
        let state = server.state();
        let told = state.verbs.iter().filter(|it| *it == "PASS").count();
        assert_eq!(told, 1, "{reply:?}");
    }
}

#[test]
fn a_guest_admitted_without_a_password_is_logged_in() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        is_gateway: true,
        replies: [("USER", "230 in"), ("PASS", "503 you are in")].into(),
        ..Behaviour::default()
    });
    write(&world.here("a"), b"a");
    let mut dial = server.dial();
    dial.password = Some(Password::guest());
    let copied = world.run(world.upload_by(dial, &world.here("a"), "a"));
    assert_eq!(copied.failures(), [""; 0]);
}

/// In this test, a reply arrives too late, so the lane's connection becomes unusable.
#[test]
fn a_lane_that_fails_makes_room_for_its_successor() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        port_delay: Duration::from_secs(1),
        connections_max: Some(1),
        close_delay: Duration::from_millis(50),
        ..Behaviour::default()
    });
    for name in ["a", "b", "c"] {
        write(&world.here("tree").join(name), &content(LARGE / 2));
    }
    let mut dial = server.dial();
    dial.reply_timeout = Duration::from_millis(300);
    let mut job = world.upload_by(dial, &world.here("tree"), "tree");
    job.plan.lanes_max = 1;
    job.plan.retries = 0;
    let copied = world.run(job);
    let failures = copied.failures();
    assert!(failures.len() > 1, "{failures:?}");
    for failure in failures {
        assert!(failure.contains("did not answer"), "{failure}");
    }
    assert!(server.state().connections > 1, "a lane has failed");
}

/// In this test, the idle session of another account occupies the only connection that the server
/// permits.
#[test]
fn a_kept_session_of_another_account_makes_room() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        connections_max: Some(1),
        ..Behaviour::default()
    });
    let session_pool = Arc::new(SessionPool::default());
    write(&world.here("a"), b"a");
    for user in ["me", "you", "me"] {
        let mut dial = server.dial();
        dial.user = user.to_owned();
        let mut job = world.upload_by(dial, &world.here("a"), "a");
        job.session_pool = Some(session_pool.clone());
        job.plan.lanes_max = 1;
        job.plan.retries = 0;
        assert_eq!(world.run(job).failures(), [""; 0], "{user}");
    }
    assert_eq!(server.state().open, 1);
}

/// The second job uses the session of the first job. If the server has closed that session, the job
/// opens a new one.
#[test]
fn a_kept_session_is_used_again() {
    for (leaves, connections) in [(false, 1), (true, 2)] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            ends_after_rename: leaves,
            ..Behaviour::default()
        });
        let session_pool = Arc::new(SessionPool::default());
        for name in ["a", "b"] {
            write(&world.here(name), name.as_bytes());
            let mut job = world.upload_by(server.dial(), &world.here(name), name);
            job.session_pool = Some(session_pool.clone());
            assert_eq!(world.run(job).failures(), [""; 0]);
            assert_eq!(server.content(name), Some(name.as_bytes().to_vec()));
            // This waits until the server has ended the session.
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(server.state().connections, connections, "leaves: {leaves}");
    }
}
