//! Tests with servers that open no data port.

use super::*;

/// Passes three replies to the session: two refusals of a data port, and the server's agreement to
/// connect.
fn refused(far: &mut FarSession, id: u32, transfer: u32, codes: [&str; 2]) {
    assert_eq!(pasv(far, id, transfer), ["< PASV"]);
    assert_eq!(server(far, codes[0]), ["< EPSV"]);
    assert_eq!(server(far, codes[1]), [format!("listen {transfer}")]);
    agree(far, id);
}

fn agree(far: &mut FarSession, id: u32) {
    let at = Some("10.0.0.9:1025".parse().expect("an address"));
    far.handle(FarInput::Listening(at))
        .expect("no limit is hit");
    assert_eq!(drain(far), ["< PORT 10,0,0,9,4,1"]);
    assert_eq!(server(far, "200 ok"), [format!("ready {id}")]);
}

fn list(far: &mut FarSession, id: u32, reply: &str) -> Vec<String> {
    client(far, id, "LIST");
    server(far, "150 go");
    server(far, reply)
}

fn known() -> FarSession {
    with(FarSetup {
        known: ServerTraits {
            lacks_passive: true,
            ..ServerTraits::default()
        },
        ..STRICT
    })
}

#[test]
fn a_server_without_pasv_and_epsv_connects_and_is_known_for_it_after_a_transfer() {
    let mut far = session();
    refused(&mut far, 1, 1, ["500 what", "502 no"]);
    let out = list(&mut far, 2, "226 done");
    assert_eq!(out, ["learned no passive: true", "> 226 done"]);
    assert_eq!(pasv(&mut far, 3, 2), ["listen 2"], "it is not asked again");
    agree(&mut far, 3);
    assert_eq!(list(&mut far, 4, "226 done"), ["> 226 done"]);
}

#[test]
fn a_refusal_that_may_be_about_one_user_teaches_nothing() {
    for codes in [["550 no", "502 no"], ["502 no", "501 no"], ["504 no"; 2]] {
        let mut far = session();
        refused(&mut far, 1, 1, codes);
        assert_eq!(list(&mut far, 2, "226 done"), ["> 226 done"]);
        assert_eq!(pasv(&mut far, 3, 2), ["< PASV"], "it is asked again");
    }
    for code in ["530 log in", "532 account", "421 bye", "425 none left"] {
        let mut far = session();
        pasv(&mut far, 1, 1);
        assert_eq!(server(&mut far, code), [format!("> {code}")]);
    }
}

#[test]
fn a_failed_transfer_teaches_nothing() {
    let mut far = session();
    refused(&mut far, 1, 1, ["502 no"; 2]);
    assert_eq!(list(&mut far, 2, "451 broken"), ["> 451 broken"]);
    let mut far = session();
    refused(&mut far, 1, 1, ["502 no"; 2]);
    assert_eq!(list(&mut far, 2, "425 none"), ["> 425 none"]);
    assert_eq!(pasv(&mut far, 3, 2), ["< PASV"], "it is asked again");
}

#[test]
fn a_server_known_to_lack_pasv_is_asked_again_when_its_connection_does_not_come() {
    let mut far = known();
    assert_eq!(pasv(&mut far, 1, 1), ["listen 1"]);
    agree(&mut far, 1);
    client(&mut far, 2, "LIST");
    let refused = FarInput::Data(TransferId(1), FarDataEvent::Refused);
    far.handle(refused).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["learned no passive: false"]);
    assert_eq!(server(&mut far, "425 none"), ["> 425 none", "unlisten 1"]);
    assert_eq!(pasv(&mut far, 3, 2), ["< PASV"]);

    let mut far = known();
    pasv(&mut far, 1, 1);
    agree(&mut far, 1);
    let out = list(&mut far, 2, "425 none");
    assert_eq!(out, ["learned no passive: false", "> 425 none"]);
}

#[test]
fn a_server_known_to_lack_pasv_is_asked_again_when_it_refuses_to_connect() {
    let mut far = known();
    pasv(&mut far, 1, 1);
    let at = Some("10.0.0.9:1025".parse().expect("an address"));
    far.handle(FarInput::Listening(at))
        .expect("no limit is hit");
    drain(&mut far);
    server(&mut far, "500 no");
    let out = server(&mut far, "500 no");
    assert_eq!(out, ["unlisten 1", "learned no passive: false", "> 500 no"]);
    assert_eq!(pasv(&mut far, 3, 2), ["< PASV"]);
}

#[test]
fn a_refused_transfer_leaves_what_is_known_of_the_server() {
    let mut far = known();
    pasv(&mut far, 1, 1);
    agree(&mut far, 1);
    client(&mut far, 2, "RETR a");
    assert_eq!(server(&mut far, "550 none"), ["> 550 none", "unlisten 1"]);
    let refused = FarInput::Data(TransferId(1), FarDataEvent::Refused);
    far.handle(refused).expect("no limit is hit");
    assert!(drain(&mut far).is_empty());
    assert_eq!(pasv(&mut far, 3, 2), ["listen 2"]);
}
