use super::*;

fn begun(far: &mut FarSession) -> Vec<String> {
    far.handle(FarInput::TlsBegun).expect("no limit is hit");
    drain(far)
}

fn explicit() -> FarSession {
    FarSession::new(
        SessionOpening::RelayGreeting,
        FarSetup {
            tls: ServerTlsMode::Explicit,
            ..STRICT
        },
    )
}

#[test]
fn tls_is_settled_before_the_clients_first_command() {
    let mut far = explicit();
    assert!(client(&mut far, 1, "USER joe").is_empty());
    assert_eq!(server(&mut far, "220 ready"), ["> 220 ready", "< AUTH TLS"]);
    assert_eq!(server(&mut far, "234 go"), ["tls"]);
    assert_eq!(begun(&mut far), ["< PBSZ 0"]);
    assert_eq!(server(&mut far, "200 ok"), ["< PROT P"]);
    assert_eq!(server(&mut far, "200 ok"), ["< USER joe"]);
}

#[test]
fn a_server_without_tls_gets_no_account() {
    let mut far = explicit();
    server(&mut far, "220 ready");
    assert_eq!(
        server(&mut far, "502 what"),
        ["refuse the server offers no TLS: 502 what", "close"]
    );
    let mut far = explicit();
    server(&mut far, "220 ready");
    server(&mut far, "234 go");
    begun(&mut far);
    server(&mut far, "200 ok");
    let out = server(&mut far, "536 no");
    assert!(
        out[0].starts_with("refuse the server offers no TLS for data"),
        "{out:?}"
    );
}

#[test]
fn implicit_tls_has_begun_and_the_account_waits_for_its_protection() {
    let opening = SessionOpening::ConsumeGreeting {
        id: CommandId(1),
        line: b"USER joe".to_vec(),
    };
    let setup = FarSetup {
        tls: ServerTlsMode::Implicit,
        ..STRICT
    };
    let mut far = FarSession::new(opening, setup);
    assert_eq!(server(&mut far, "220 ready"), ["< PBSZ 0"]);
    assert_eq!(server(&mut far, "500 what"), ["< PROT P"]);
    assert_eq!(server(&mut far, "500 what"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["> 331 password"]);
}

#[test]
fn a_refused_transfer_leaves_no_data_connection_that_waits_for_tls() {
    let mut far = explicit();
    server(&mut far, "220 ready");
    server(&mut far, "234 go");
    begun(&mut far);
    server(&mut far, "200 ok");
    server(&mut far, "200 ok");
    for (id, reply) in [(1, "550 none"), (3, "226 nothing to send")] {
        pasv(&mut far, id, id);
        server(&mut far, "227 ok (1,2,3,4,4,1)");
        client(&mut far, id + 1, "RETR none");
        let unlisten = format!("unlisten {id}");
        assert_eq!(server(&mut far, reply), [format!("> {reply}"), unlisten]);
    }
}

#[test]
fn a_server_that_refuses_the_session_is_left_with_the_client() {
    let mut far = explicit();
    client(&mut far, 1, "USER joe");
    assert_eq!(server(&mut far, "421 full"), ["> 421 full"]);
    far.handle(FarInput::ClientGone).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["server closed", "close"]);
}

#[test]
fn data_connections_wait_for_their_transfer() {
    let mut far = explicit();
    server(&mut far, "220 ready");
    server(&mut far, "234 go");
    begun(&mut far);
    server(&mut far, "200 ok");
    server(&mut far, "200 ok");
    pasv(&mut far, 1, 1);
    server(&mut far, "227 ok (1,2,3,4,4,1)");
    client(&mut far, 2, "LIST");
    assert_eq!(server(&mut far, "150 go"), ["> 150 go", "begin 1"]);
}

#[test]
fn protection_is_settled_again_when_the_server_may_have_forgotten_it() {
    for line in ["REIN", "USER other"] {
        let mut far = explicit();
        server(&mut far, "220 ready");
        server(&mut far, "234 go");
        begun(&mut far);
        server(&mut far, "200 ok");
        server(&mut far, "200 ok");
        client(&mut far, 1, "USER joe");
        assert_eq!(
            server(&mut far, "230 in"),
            ["> 230 in"],
            "the first account"
        );
        client(&mut far, 2, line);
        assert_eq!(server(&mut far, "331 go on"), ["> 331 go on"]);
        let out = client(&mut far, 3, "PASS x");
        assert_eq!(out, ["< PASS x"], "nothing comes between USER and PASS");
        server(&mut far, "230 again");
        assert_eq!(pasv(&mut far, 4, 1), ["< PBSZ 0"], "{line}");
        assert_eq!(server(&mut far, "200 ok"), ["< PROT P"]);
        assert_eq!(server(&mut far, "200 ok"), ["< PASV"]);
    }
}

#[test]
fn a_server_that_takes_prot_from_users_only_is_asked_again_before_data() {
    for refusal in ["530 log in", "503 bad sequence", "500 what"] {
        let mut far = explicit();
        server(&mut far, "220 ready");
        server(&mut far, "234 go");
        begun(&mut far);
        client(&mut far, 1, "USER joe");
        assert_eq!(server(&mut far, refusal), ["< PROT P"]);
        assert_eq!(server(&mut far, refusal), ["< USER joe"]);
        server(&mut far, "230 in");
        assert_eq!(pasv(&mut far, 2, 1), ["< PBSZ 0"]);
        assert_eq!(server(&mut far, "200 ok"), ["< PROT P"]);
        let out = server(&mut far, refusal);
        assert!(
            out[0].starts_with("refuse the server offers no TLS"),
            "{out:?}"
        );
    }
}

#[test]
fn refused_tls_is_asked_for_again_while_the_session_logs_in_again() {
    let mut far = FarSession::new(
        SessionOpening::RelayGreeting,
        FarSetup {
            tls: ServerTlsMode::Explicit,
            mode: SessionMode::Fast,
            ..STRICT
        },
    );
    let secure = |far: &mut FarSession| {
        server(far, "234 go");
        begun(far);
        server(far, "200 ok");
        server(far, "200 ok")
    };
    client(&mut far, 1, "USER joe");
    server(&mut far, "220 ready");
    secure(&mut far);
    assert_eq!(server(&mut far, "230 in"), ["> 230 in", "< SYST"]);
    assert!(client(&mut far, 2, "NOOP").is_empty());
    silence(&mut far);
    for refusal in [Some("421 too many"), Some("530 busy"), None] {
        far.handle(FarInput::Reconnected).expect("no limit is hit");
        assert_eq!(server(&mut far, "220 ready"), ["< AUTH TLS"]);
        let out = match refusal {
            Some(line) => server(&mut far, line),
            None => closed_by_server(&mut far),
        };
        assert_eq!(out, ["leave"], "{refusal:?}");
        assert_eq!(silence(&mut far).1, ["reconnect"]);
    }
    far.handle(FarInput::Reconnected).expect("no limit is hit");
    server(&mut far, "220 ready");
    assert_eq!(secure(&mut far), ["< USER joe"]);
    assert_eq!(server(&mut far, "230 in"), ["< NOOP"]);
}

#[test]
fn questions_are_asked_before_protection_is_settled_again() {
    let mut far = FarSession::new(
        SessionOpening::RelayGreeting,
        FarSetup {
            tls: ServerTlsMode::Explicit,
            mode: SessionMode::Fast,
            ..STRICT
        },
    );
    client(&mut far, 1, "USER joe");
    server(&mut far, "220 ready");
    server(&mut far, "234 go");
    begun(&mut far);
    server(&mut far, "530 log in");
    assert_eq!(server(&mut far, "530 log in"), ["< USER joe"]);
    server(&mut far, "230 in");
    assert!(pasv(&mut far, 2, 1).is_empty());
    // SYST is refused twice, and the answer to FEAT follows.
    server(&mut far, "500 what");
    assert_eq!(
        server(&mut far, "500 what"),
        ["Features None false", "< PWD"]
    );
    let out = server(&mut far, "211 none");
    assert_eq!(out[2..], ["leave", "reconnect"]);
}
