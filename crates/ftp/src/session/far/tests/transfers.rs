//! Tests of reports to the near gateway about transfers, and of the end of sessions whose client
//! has disconnected.

use super::*;
use crate::session::far::TooManyCommands;

fn said(far: &mut FarSession, event: FarDataEvent) -> Vec<String> {
    let handled: Result<(), TooManyCommands> = far.handle(FarInput::Data(TransferId(1), event));
    handled.expect("no limit is hit");
    drain(far)
}

#[test]
fn what_a_success_is_worth_goes_ahead_of_it() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert!(said(&mut far, FarDataEvent::Delivered).is_empty());
    let out = server(&mut far, "226 done");
    assert_eq!(out, ["upload 1 whole: true", "> 226 done"]);
    assert!(
        said(&mut far, FarDataEvent::Closed).is_empty(),
        "it is said once"
    );

    for lost in [
        &[FarDataEvent::Lost][..],
        &[FarDataEvent::Delivered, FarDataEvent::Lost],
    ] {
        let mut far = prepared();
        client(&mut far, 2, "STOR a");
        for event in lost {
            said(&mut far, *event);
        }
        let out = server(&mut far, "226 done");
        assert_eq!(out, ["upload 1 whole: false", "> 226 done"]);
        assert!(said(&mut far, FarDataEvent::Closed).is_empty());
    }

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
    assert_eq!(
        said(&mut far, FarDataEvent::Closed),
        ["upload 1 whole: false"]
    );

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert_eq!(server(&mut far, "552 full"), ["> 552 full", "unlisten 1"]);
    assert!(
        said(&mut far, FarDataEvent::Closed).is_empty(),
        "nobody asks"
    );
}

#[test]
fn an_upload_may_be_over_before_its_command() {
    let mut far = prepared();
    assert!(said(&mut far, FarDataEvent::Delivered).is_empty());
    client(&mut far, 2, "STOR a");
    let out = server(&mut far, "226 done");
    assert_eq!(out, ["upload 1 whole: true", "> 226 done"]);
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
    let mut far = FarSession::new(SessionOpening::RelayGreeting, STRICT);
    assert!(!far.waits_only_for_server());
    far.handle(FarInput::ClientGone).expect("no limit is hit");
    assert!(drain(&mut far).is_empty(), "the server may still greet");
    assert!(far.waits_only_for_server());
    far.handle(FarInput::ServerSilent).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["server closed", "close"]);

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    far.handle(FarInput::ClientGone).expect("no limit is hit");
    assert!(!far.waits_only_for_server(), "data is on its way");
    said(&mut far, FarDataEvent::Closed);
    assert!(far.waits_only_for_server());
}

#[test]
fn an_answer_to_abor_does_not_overtake_commands_that_a_lost_server_leaves_unanswered() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    client(&mut far, 3, "CWD a");
    client(&mut far, 4, "ABOR");
    assert!(server(&mut far, "502 what").is_empty());
    let out = closed_by_server(&mut far);
    assert_eq!(out, ["abort 1 false", "server closed", "close"]);
}
