//! What the near half hears of transfers, and how a session ends that nobody needs any more.

use super::*;
use crate::session::far::TooManyCommands;

fn said(far: &mut FarSession, event: Event) -> Vec<String> {
    let handled: Result<(), TooManyCommands> = far.handle(Input::Data(TransferId(1), event));
    handled.expect("no limit is hit");
    drain(far)
}

#[test]
fn what_became_of_an_upload_goes_ahead_of_the_servers_word() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert_eq!(said(&mut far, Event::Delivered), ["upload 1 whole: true"]);
    assert!(said(&mut far, Event::Closed).is_empty(), "it is said once");

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert_eq!(said(&mut far, Event::Lost), ["upload 1 whole: false"]);
    assert!(said(&mut far, Event::Closed).is_empty());
}

#[test]
fn an_upload_that_was_over_before_its_command_is_reported_with_it() {
    let mut far = prepared();
    assert!(said(&mut far, Event::Delivered).is_empty());
    assert_eq!(
        client(&mut far, 2, "STOR a"),
        ["Upload 1", "upload 1 whole: true", "< STOR a"]
    );
}

#[test]
fn stat_with_a_path_waits_for_the_transfer() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    server(&mut far, "150 go");
    assert_eq!(client(&mut far, 3, "STAT"), ["< STAT"]);
    assert_eq!(server(&mut far, "211 busy"), ["> 211 busy"]);
    assert!(
        client(&mut far, 4, "STAT missing").is_empty(),
        "its 450 or 550 could be the transfer's"
    );
    assert_eq!(
        server(&mut far, "226 done"),
        ["> 226 done", "< STAT missing"]
    );
    assert_eq!(server(&mut far, "550 none"), ["> 550 none"]);
}

#[test]
fn a_session_whose_client_is_gone_does_not_wait_for_a_silent_server_for_ever() {
    let mut far = FarSession::new(Opening::RelayGreeting, STRICT);
    assert!(!far.waits_only_for_server());
    far.handle(Input::ClientGone).expect("no limit is hit");
    assert!(drain(&mut far).is_empty(), "the server may still greet");
    assert!(far.waits_only_for_server());
    far.handle(Input::ServerSilent).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["close"]);

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    far.handle(Input::ClientGone).expect("no limit is hit");
    assert!(!far.waits_only_for_server(), "data is on its way");
    said(&mut far, Event::Closed);
    assert!(far.waits_only_for_server());
}
