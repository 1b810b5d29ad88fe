use super::*;

fn logged_in() -> FarSession {
    let mut far = with(FarSetup {
        mode: SessionMode::Fast,
        ..STRICT
    });
    client(&mut far, 1, "USER joe");
    server(&mut far, "331 password");
    client(&mut far, 2, "PASS x");
    far
}

/// Creates a session without commands in flight.
fn settled() -> FarSession {
    let mut far = logged_in();
    for line in ["230 in", "215 UNIX", "500 what", "257 \"/\""] {
        server(&mut far, line);
    }
    far
}

fn command_output(far: &mut FarSession, id: u32, line: &str) -> Vec<String> {
    command(far, id, line.as_bytes(), true).expect("no limit is hit");
    drain(far)
}

#[test]
fn after_the_login_the_server_is_asked_what_clients_ask() {
    let mut far = logged_in();
    assert_eq!(server(&mut far, "230 in"), ["> 230 in", "< SYST"]);
    assert!(client(&mut far, 3, "OPTS UTF8 ON").is_empty());
    assert_eq!(
        server(&mut far, "215 UNIX"),
        ["System Some(\"215 UNIX\") false", "< FEAT"]
    );
    server(&mut far, "211-Features");
    server(&mut far, " MDTM");
    let features = "Features Some(\"211-Features\\r\\n MDTM\\r\\n211 End\") false";
    assert_eq!(server(&mut far, "211 End"), [features, "< PWD"]);
    assert_eq!(
        server(&mut far, "550 none"),
        ["Directory None true", "< OPTS UTF8 ON"]
    );
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok", "< PWD"]);
}

#[test]
fn each_new_directory_is_asked_for_its_name() {
    let mut far = settled();
    client(&mut far, 3, "CWD a");
    assert_eq!(server(&mut far, "250 ok"), ["> 250 ok", "< PWD"]);
    assert_eq!(
        server(&mut far, "257 \"/a\""),
        ["Directory Some(\"257 \\\"/a\\\"\") true"]
    );
    client(&mut far, 4, "CWD b");
    assert_eq!(server(&mut far, "550 no"), ["> 550 no"]);
}

#[test]
fn a_refused_data_port_is_reported_at_the_transfer() {
    let mut far = settled();
    assert_eq!(data(&mut far, 3, 1, true), ["< PASV"]);
    assert!(server(&mut far, "421-no").is_empty());
    assert_eq!(server(&mut far, "421 more"), ["taken"]);
    let out = client(&mut far, 4, "LIST");
    let text = "> 425 gateway: the server offers no data port: 421 more";
    assert_eq!(out, [text]);
}

#[test]
fn abor_closes_a_data_connection_that_was_promised() {
    let mut far = settled();
    assert_eq!(data(&mut far, 3, 1, true), ["< PASV"]);
    assert!(client(&mut far, 4, "ABOR").is_empty());
    let out = server(&mut far, "227 ok (1,2,3,4,4,1)");
    assert_eq!(out, ["connect 1 1025", "taken", "< ABOR"]);
    assert_eq!(server(&mut far, "225 ok"), ["> 225 ok", "abort 1 false"]);
    assert_eq!(client(&mut far, 5, "LIST"), ["< LIST"]);
}

#[test]
fn with_the_wrong_type_nothing_is_transferred() {
    let mut far = settled();
    assert_eq!(command_output(&mut far, 3, "TYPE I"), ["< TYPE I"]);
    data(&mut far, 4, 1, true);
    assert_eq!(server(&mut far, "504 no"), ["taken", "< PASV"]);
    let out = server(&mut far, "227 ok (1,2,3,4,4,1)");
    assert_eq!(out, ["connect 1 1025", "taken"]);
    let out = client(&mut far, 5, "RETR a");
    assert_eq!(out[0], "abort 1 false");
    assert!(out[1].starts_with("> 451 gateway"), "{out:?}");
    assert!(client(&mut far, 6, "SIZE a")[0].starts_with("> 451 gateway"));
    client(&mut far, 7, "TYPE E");
    assert_eq!(server(&mut far, "504 no"), ["> 504 no"]);
    assert!(client(&mut far, 6, "SIZE a")[0].starts_with("> 451 gateway"));
    command_output(&mut far, 7, "TYPE A");
    assert_eq!(server(&mut far, "200 ok"), ["taken"]);
    assert_eq!(client(&mut far, 8, "SIZE a"), ["< SIZE a"]);
}

#[test]
fn a_servers_farewell_is_no_answer_to_a_question() {
    let mut far = settled();
    client(&mut far, 3, "CWD a");
    server(&mut far, "250 ok");
    assert_eq!(server(&mut far, "421 bye")[0], "> 421 bye");
}

#[test]
fn an_answer_that_ends_with_another_code_holds_nobody_up() {
    let mut far = logged_in();
    server(&mut far, "230 in");
    server(&mut far, "215-UNIX");
    server(&mut far, "200 done");
    assert_eq!(silence(&mut far).1[0], "System None true");
}
