//! What a file costs in round trips, at a gateway: the commands that are sent without a wait for an answer.

mod common;

use common::{
    World, content,
    scripted::{Manners, Scripted},
    write,
};

const LARGE: usize = 3_000_000;

fn gateway() -> Scripted {
    Scripted::start(Manners {
        is_gateway: true,
        ..Manners::default()
    })
}

fn batches(server: &Scripted) -> Vec<String> {
    let state = server.state();
    let batches = state.batches.iter().map(|it| it.join(" "));
    // Nobody waits for the answer to a goodbye.
    batches
        .filter(|it| !it.is_empty() && it != "QUIT")
        .collect()
}

/// A gateway answers `EPSV` by itself, in no time.
#[test]
fn an_upload_takes_four_round_trips() {
    let (world, server) = (World::new(), gateway());
    let large = content(LARGE);
    write(&world.here("large"), &large);
    let mut dial = server.dial();
    dial.user = "anonymous".to_owned();
    let copied = world.run(world.upload_by(dial, &world.here("large"), "large"));
    assert_eq!(copied.failures(), [""; 0]);
    assert_eq!(server.content("large"), Some(large));
    let expected = [
        "USER PASS FEAT TYPE OPTS STAT PWD",
        "SIZE MDTM CWD CWD",
        "EPSV",
        "STOR SIZE MDTM",
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
        "PASS FEAT TYPE OPTS STAT PWD",
        "SIZE MDTM CWD CWD",
        "EPSV",
        "RETR SIZE MDTM",
    ];
    assert_eq!(batches(&server), expected);
}

/// In the clear, a server that insists on TLS refuses the name, and nobody must read the password then.
#[test]
fn a_password_in_the_clear_is_not_sent_before_the_server_asks_for_it() {
    let world = World::new();
    let server = Scripted::start(Manners {
        is_gateway: true,
        refuses: [("USER", "530 not without TLS")].into(),
        ..Manners::default()
    });
    write(&world.here("large"), b"content");
    let copied = world.run(world.upload_by(server.dial(), &world.here("large"), "large"));
    assert!(!copied.failures().is_empty());
    assert!(!server.state().verbs.contains(&"PASS".to_owned()));
}
