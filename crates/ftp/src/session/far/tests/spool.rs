//! Tests of requests for a spool. The far gateway itself replies to these requests, in the order of
//! the client's commands.

use super::*;

const REQUEST: &str = "SITE LONGHAUL SPOOL 00112233445566778899aabbccddeeff 100 7 2";

fn spooled(far: &mut FarSession, text: &str) -> Vec<String> {
    far.handle(FarInput::Spooled(text))
        .expect("no limit is hit");
    drain(far)
}

/// Creates a session whose user has logged in.
fn logged_in() -> FarSession {
    let mut far = session();
    client(&mut far, 90, "USER joe");
    server(&mut far, "331 password");
    client(&mut far, 91, "PASS x");
    server(&mut far, "230 in");
    far
}

#[test]
fn a_session_without_login_has_no_spool() {
    let mut far = session();
    let said = client(&mut far, 1, REQUEST);
    assert_eq!(said, ["> 530 gateway: log in first"]);
    let mut far = logged_in();
    client(&mut far, 92, "USER jim");
    server(&mut far, "331 password");
    let said = client(&mut far, 1, REQUEST);
    assert_eq!(said, ["> 530 gateway: log in first"]);
}

#[test]
fn a_request_for_a_spool_is_answered_by_the_gateway() {
    let mut far = logged_in();
    assert_eq!(client(&mut far, 1, REQUEST), ["spool from 7"]);
    let waits = client(&mut far, 2, "STOR x");
    assert!(
        waits.is_empty(),
        "what follows waits for the answer: {waits:?}"
    );
    assert_eq!(
        spooled(&mut far, "200 LONGHAUL SPOOL 0 1"),
        ["> 200 LONGHAUL SPOOL 0 1", "< STOR x"]
    );
}

#[test]
fn a_request_waits_for_the_answers_to_earlier_commands() {
    let mut far = logged_in();
    assert_eq!(client(&mut far, 1, "CWD x"), ["< CWD x"]);
    assert!(client(&mut far, 2, REQUEST).is_empty());
    assert_eq!(server(&mut far, "250 ok"), ["> 250 ok", "spool from 7"]);
}

#[test]
fn a_wrong_request_goes_to_no_server() {
    let mut far = logged_in();
    let said = client(&mut far, 1, "SITE LONGHAUL SPOOL 1 2 3");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("> 501 gateway: expected SITE LONGHAUL SPOOL"),
        "{said:?}"
    );
    assert_eq!(client(&mut far, 2, "SITE HELP"), ["< SITE HELP"]);
}
