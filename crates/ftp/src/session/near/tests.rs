mod fast;
mod half_closed;
mod tls;
mod transfers;

use std::net::Ipv4Addr;

use super::*;
use crate::session::data::near::NearDataEvent;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const STRICT: NearSetup = NearSetup {
    server_source: ServerSource::Fixed,
    mode: SessionMode::Strict,
    tls: ClientTlsMode::Off,
    local: LOCAL,
    client: LOCAL,
};

const FAST: NearSetup = NearSetup {
    mode: SessionMode::Fast,
    ..STRICT
};

/// Creates a session whose client has received the greeting.
fn greeted(setup: NearSetup) -> NearSession {
    let mut near = NearSession::new(setup);
    assert_eq!(reply(&mut near, 0, 0, "220 ready"), ["> 220 ready"]);
    near
}

fn fixed() -> NearSession {
    greeted(STRICT)
}

fn named() -> NearSession {
    NearSession::new(NearSetup {
        server_source: ServerSource::Logon,
        ..STRICT
    })
}

fn private(is_private: bool) -> &'static str {
    if is_private { " private" } else { "" }
}

/// Returns all outputs of the session as short texts. `>` marks lines for the client, `<` marks
/// lines for the server.
fn drain(near: &mut NearSession) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(output) = near.poll() {
        out.push(match output {
            NearOutput::ToClient(line) => {
                format!("> {}", String::from_utf8_lossy(&line).trim_end())
            }
            NearOutput::Connect { logon, .. } => {
                format!(
                    "connect {} {}",
                    String::from_utf8_lossy(&logon.user),
                    logon.server.host
                )
            }
            NearOutput::Send(MessageToFar::Request(ServerRequest::Command { line, .. })) => {
                format!("< {}", String::from_utf8_lossy(&line))
            }
            NearOutput::Send(MessageToFar::Request(ServerRequest::Data { .. })) => {
                "data without a stream".to_owned()
            }
            NearOutput::Send(MessageToFar::Abandon(transfer)) => {
                let kill = format!("{} Kill", transfer.0);
                assert_eq!(out.last(), Some(&kill), "both halves give it up");
                continue;
            }
            NearOutput::OpenData { transfer, .. } => format!("data {}", transfer.0),
            NearOutput::BeginTls => "tls".to_owned(),
            NearOutput::Listen {
                transfer,
                is_private,
            } => format!("listen {}{}", transfer.0, private(is_private)),
            NearOutput::Dial {
                transfer,
                at,
                is_private,
            } => format!("dial {} {at}{}", transfer.0, private(is_private)),
            NearOutput::Order(transfer, order) => format!("{} {order:?}", transfer.0),
            NearOutput::Transferred(_) => continue,
            NearOutput::LoginFailed => "login failed".to_owned(),
            NearOutput::LeaveServer => "leave".to_owned(),
            NearOutput::Close => "close".to_owned(),
        });
    }
    out
}

fn client(near: &mut NearSession, line: &str) -> Vec<String> {
    near.handle(NearInput::ClientLine(line.as_bytes()));
    drain(near)
}

fn reply(near: &mut NearSession, command: u32, transfer: u32, line: &str) -> Vec<String> {
    let code: u16 = line[..3].parse().expect("a code");
    let tag = ReplyTag {
        command: (command != 0).then_some(CommandId(command)),
        transfer: (transfer != 0).then_some(TransferId(transfer)),
        stage: if code < 200 {
            ReplyStage::Preliminary
        } else {
            ReplyStage::Final
        },
        code,
        last: line.as_bytes()[3] == b' ',
        prefetches: false,
    };
    relayed(near, tag, line.as_bytes());
    drain(near)
}

fn relayed(near: &mut NearSession, tag: ReplyTag, line: &[u8]) {
    let line = line.to_vec();
    near.handle(NearInput::Received(MessageToNear::Reply { tag, line }));
}

fn data_ready(near: &mut NearSession, command: u32) {
    let ready = MessageToNear::DataReady(CommandId(command));
    near.handle(NearInput::Received(ready));
}

fn data(near: &mut NearSession, event: NearDataEvent) -> Vec<String> {
    near.handle(NearInput::Data(TransferId(1), event));
    drain(near)
}

/// Creates a session after `PASV` (command 1). The listening socket of data connection 1 is open,
/// and the client has its port.
fn prepared() -> NearSession {
    let mut near = fixed();
    assert_eq!(client(&mut near, "PASV"), ["data 1"]);
    data_ready(&mut near, 1);
    assert_eq!(drain(&mut near), ["listen 1"]);
    assert_eq!(
        listening(&mut near, 1),
        [
            "> 227 Entering Passive Mode (127,0,0,1,4,1).",
            "1 Announced"
        ]
    );
    near
}

fn listening(near: &mut NearSession, transfer: u32) -> Vec<String> {
    let transfer = TransferId(transfer);
    let at = SocketAddr::new(LOCAL, 1025);
    near.handle(NearInput::Listening { transfer, at });
    drain(near)
}

/// Creates a session during a download (command 2) over data connection 1. The `150` reply has been
/// relayed.
fn downloading() -> NearSession {
    let mut near = prepared();
    assert_eq!(
        client(&mut near, "RETR a"),
        ["1 Start(Some(Download))", "< RETR a"]
    );
    assert_eq!(reply(&mut near, 2, 1, "150 go"), ["> 150 go", "1 Release"]);
    near
}

#[test]
fn the_final_reply_waits_for_the_data() {
    let mut near = downloading();
    assert_eq!(
        reply(&mut near, 2, 1, "226 done"),
        ["1 Finish { succeeded: true }"]
    );
    assert!(
        reply(&mut near, 3, 0, "200 later").is_empty(),
        "it keeps its place"
    );
    assert_eq!(
        data(&mut near, NearDataEvent::Delivered),
        ["> 226 done", "> 200 later"]
    );
}

#[test]
fn data_may_be_delivered_before_the_final_reply() {
    let mut near = downloading();
    assert!(data(&mut near, NearDataEvent::Delivered).is_empty());
    assert_eq!(reply(&mut near, 2, 1, "226 done")[1], "> 226 done");
}

#[test]
fn a_broken_transfer_never_looks_complete() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226-well");
    reply(&mut near, 2, 1, "226 done");
    let out = data(
        &mut near,
        NearDataEvent::Failed("the client is gone".to_owned()),
    );
    assert_eq!(
        out,
        ["> 426 gateway: data connection failed: the client is gone"]
    );

    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    let out = data(&mut near, NearDataEvent::NotConnected("refused".to_owned()));
    assert_eq!(out, ["> 425 gateway: no data connection: refused"]);
}

#[test]
fn a_refusal_is_relayed_at_once() {
    let mut near = downloading();
    let out = reply(&mut near, 2, 1, "426 broken");
    assert_eq!(out, ["1 Finish { succeeded: false }", "> 426 broken"]);
}

#[test]
fn a_lost_link_resets_data_connections_before_it_is_reported() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    near.handle(NearInput::LinkLost("peer b restarted"));
    let out = drain(&mut near);
    assert_eq!(out[0], "1 Kill");
    assert!(out[1].starts_with("> 426 gateway"), "{out:?}");
    assert!(out[2].starts_with("> 421 gateway"), "{out:?}");
    assert_eq!(out.last().map(String::as_str), Some("close"));
    assert!(!out.iter().any(|line| line.contains("226")));
}

#[test]
fn a_client_that_leaves_mid_upload_aborts_it() {
    let mut near = prepared();
    client(&mut near, "STOR a");
    near.handle(NearInput::ClientClosed);
    assert_eq!(drain(&mut near), ["1 ClientGone", "leave", "close"]);
}

#[test]
fn a_client_that_leaves_after_its_last_byte_gets_it_delivered() {
    let mut near = prepared();
    client(&mut near, "STOR a");
    data(&mut near, NearDataEvent::ClientEnded);
    near.handle(NearInput::ClientClosed);
    assert_eq!(drain(&mut near), ["leave", "close"]);
}

#[test]
fn the_greeting_comes_before_all_answers() {
    let mut near = NearSession::new(STRICT);
    assert!(client(&mut near, "AUTH TLS").is_empty());
    assert_eq!(
        reply(&mut near, 0, 0, "120 in a moment"),
        ["> 120 in a moment"]
    );
    assert_eq!(
        reply(&mut near, 0, 0, "220 ready"),
        ["> 220 ready", "> 502 gateway: TLS is not offered here"]
    );
    // The first reply reports that no server was reached. It is not a server's greeting.
    let mut near = NearSession::new(STRICT);
    assert_eq!(client(&mut near, "NOOP"), ["< NOOP"]);
    near.handle(NearInput::NotReached {
        code: 421,
        text: "no server",
    });
    let out = drain(&mut near);
    assert_eq!(out[0], "> 421 gateway: no server");
    assert!(out[1].starts_with("> 530 gateway"), "{out:?}");
}

#[test]
fn own_replies_keep_the_order_of_commands() {
    let mut near = fixed();
    assert_eq!(client(&mut near, "PWD"), ["< PWD"]);
    near.handle(NearInput::ClientLineTooLong);
    assert!(drain(&mut near).is_empty());
    assert_eq!(
        reply(&mut near, 1, 0, "257 /"),
        ["> 257 /", "> 500 Command line too long"]
    );
}

#[test]
fn a_new_pasv_gives_up_the_last_one() {
    let mut near = prepared();
    assert_eq!(client(&mut near, "PASV"), ["1 Kill", "data 2"]);
}

#[test]
fn a_data_connection_that_expired_is_given_up_on_both_sides() {
    let mut near = prepared();
    assert_eq!(data(&mut near, NearDataEvent::Expired), ["1 Kill"]);
    // If a transfer uses the data connection, the server's reply ends the transfer.
    let mut near = downloading();
    assert!(data(&mut near, NearDataEvent::Expired).is_empty());
}

#[test]
fn the_server_sees_abor_before_the_end_of_an_unused_data_connection() {
    let mut near = prepared();
    assert_eq!(client(&mut near, "ABOR"), ["< ABOR"]);
    assert_eq!(client(&mut near, "LIST"), ["< LIST"], "it has none");
    assert_eq!(reply(&mut near, 2, 0, "225 ok"), ["1 Kill", "> 225 ok"]);
    assert_eq!(reply(&mut near, 3, 0, "425 none"), ["> 425 none"]);
    assert!(near.is_idle());

    let mut near = prepared();
    client(&mut near, "ABOR");
    near.handle(NearInput::Received(MessageToNear::ServerClosed));
    assert_eq!(drain(&mut near)[0], "1 Kill");
}

#[test]
fn a_refused_pasv_leaves_no_data_connection() {
    let mut near = fixed();
    client(&mut near, "PASV");
    assert_eq!(reply(&mut near, 1, 0, "530 no"), ["> 530 no", "1 Kill"]);
}

#[test]
fn pasv_over_ipv6_and_foreign_families_are_refused() {
    let v6 = "::1".parse().expect("an address");
    let mut near = greeted(NearSetup {
        local: v6,
        client: v6,
        ..STRICT
    });
    assert!(client(&mut near, "PASV")[0].starts_with("> 425"));
    assert!(client(&mut near, "EPSV 1")[0].starts_with("> 522"));
    assert_eq!(client(&mut near, "EPSV 2"), ["data 1"]);
    assert!(client(&mut fixed(), "EPSV 2")[0].starts_with("> 522"));
}

#[test]
fn the_client_names_its_server() {
    let mut near = named();
    assert!(drain(&mut near)[0].starts_with("> 220"));
    assert!(client(&mut near, "FEAT")[0].starts_with("> 530"));
    assert!(client(&mut near, "AUTH TLS")[0].starts_with("> 502"));
    assert!(client(&mut near, "USER fw")[0].starts_with("> 331"));
    assert!(client(&mut near, "PASS fw")[0].starts_with("> 230"));
    assert_eq!(
        client(&mut near, "USER joe@10.0.0.1"),
        ["connect joe 10.0.0.1"]
    );
    near.handle(NearInput::Received(MessageToNear::Refused {
        code: 530,
        text: "10.0.0.1:21 is not allowed".to_owned(),
    }));
    assert_eq!(
        drain(&mut near),
        ["> 530 gateway: 10.0.0.1:21 is not allowed"]
    );
    assert_eq!(
        client(&mut near, "USER joe@10.0.0.2"),
        ["connect joe 10.0.0.2"]
    );
    assert_eq!(reply(&mut near, 2, 0, "331 password"), ["> 331 password"]);
    assert_eq!(client(&mut near, "PASS x"), ["< PASS x"]);
}

#[test]
fn the_server_may_be_named_before_the_account() {
    for line in ["OPEN 10.0.0.1", "SITE 10.0.0.1:21", "HOST 10.0.0.1"] {
        let mut near = named();
        drain(&mut near);
        client(&mut near, "USER fw");
        client(&mut near, "PASS fw");
        assert_eq!(
            client(&mut near, line),
            ["> 220 gateway: continue with USER"]
        );
        let out = client(&mut near, "USER joe@home");
        assert_eq!(out, ["connect joe@home 10.0.0.1"]);
        reply(&mut near, 1, 0, "331 password");
        assert_eq!(client(&mut near, "SITE HELP"), ["< SITE HELP"]);
    }
    assert!(client(&mut named(), "OPEN")[1].starts_with("> 501"));
}

#[test]
fn a_server_that_was_named_stays_so_for_another_try() {
    let mut near = named();
    drain(&mut near);
    client(&mut near, "OPEN 10.0.0.1");
    for id in 1..3 {
        let out = client(&mut near, "USER joe@corp.com");
        assert_eq!(
            out.last().map(String::as_str),
            Some("connect joe@corp.com 10.0.0.1")
        );
        assert_eq!(reply(&mut near, id, 0, "530 no")[0], "> 530 no");
    }
}

#[test]
fn a_login_may_end_with_acct_or_with_the_greeting() {
    let mut near = fixed();
    client(&mut near, "ACCT x");
    reply(&mut near, 1, 0, "230 in");
    assert!(near.is_logged_in());
    let mut near = fixed();
    reply(&mut near, 0, 0, "230 welcome");
    assert!(near.is_logged_in());
    let mut near = fixed();
    client(&mut near, "USER joe");
    assert_eq!(reply(&mut near, 1, 0, "421 full"), ["> 421 full"]);
}

#[test]
fn a_second_logon_answers_what_the_first_server_did_not() {
    let mut near = named();
    drain(&mut near);
    client(&mut near, "USER a@10.0.0.1");
    client(&mut near, "NOOP");
    let out = client(&mut near, "USER b@10.0.0.2");
    assert!(out[0].starts_with("> 503 gateway"), "{out:?}");
    assert!(out[1].starts_with("> 503 gateway"), "{out:?}");
    assert_eq!(out[2..], ["connect b 10.0.0.2"]);
    assert_eq!(reply(&mut near, 3, 0, "331 password"), ["> 331 password"]);
    assert!(client(&mut near, "USER bad@")[0].starts_with("> 501"));
}

#[test]
fn replies_held_for_a_client_that_does_not_read_are_bounded() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    let line = format!("200 {}", "x".repeat(1000));
    let mut count = 0;
    while near.wants_far() {
        assert!(reply(&mut near, 0, 0, &line).is_empty());
        count += 1;
        assert!(count < 1100, "nothing bounds them");
    }
    assert_eq!(
        data(&mut near, NearDataEvent::Delivered).len(),
        count + 1,
        "none is lost"
    );
    assert!(near.wants_far());
}

#[test]
fn a_preliminary_reply_holds_no_answer_back() {
    let mut near = fixed();
    client(&mut near, "XYZZY");
    assert_eq!(reply(&mut near, 1, 0, "100 so far"), ["> 100 so far"]);
    assert!(client(&mut near, "AUTH TLS")[0].starts_with("> 502"));
}

#[test]
fn a_server_that_closes_behind_its_last_word_says_it_all() {
    let mut near = fixed();
    client(&mut near, "PASS x");
    reply(&mut near, 1, 0, "530 too often");
    near.handle(NearInput::Received(MessageToNear::ServerClosed));
    assert_eq!(drain(&mut near), ["leave", "close"]);
}

#[test]
fn quit_before_the_logon_closes() {
    let mut near = named();
    drain(&mut near);
    assert_eq!(
        client(&mut near, "QUIT"),
        ["> 221 Goodbye", "leave", "close"]
    );
}

#[test]
fn a_close_by_the_server_differs_from_goodbye() {
    let mut near = fixed();
    client(&mut near, "QUIT");
    reply(&mut near, 1, 0, "221 bye");
    near.handle(NearInput::Received(MessageToNear::ServerClosed));
    assert_eq!(drain(&mut near), ["leave", "close"]);

    let mut near = downloading();
    near.handle(NearInput::Received(MessageToNear::ServerClosed));
    let out = drain(&mut near);
    assert_eq!(out[0], "1 Kill");
    assert!(out[1].starts_with("> 421 gateway"), "{out:?}");
}

#[test]
fn a_server_that_closes_behind_its_226_does_not_cut_the_data_short() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    near.handle(NearInput::Received(MessageToNear::ServerClosed));
    assert!(drain(&mut near).is_empty());
    assert_eq!(data(&mut near, NearDataEvent::Delivered)[0], "> 226 done");
}

#[test]
fn the_gateway_connects_where_the_client_listens() {
    for line in [
        "PORT 127,0,0,1,4,1",
        "EPRT |1|127.0.0.1|1025|",
        "LPRT 4,4,127,0,0,1,2,4,1",
    ] {
        let mut near = fixed();
        assert_eq!(client(&mut near, line), ["data 1"]);
        data_ready(&mut near, 1);
        assert_eq!(
            drain(&mut near),
            ["dial 1 127.0.0.1:1025", "> 200 gateway: data port accepted"]
        );
        assert_eq!(client(&mut near, "LIST")[1], "< LIST");
    }
}

#[test]
fn data_connections_go_to_the_client_alone() {
    for (line, code) in [
        ("PORT 127,0,0,2,4,1", "501"),
        ("PORT 127,0,0,1,0,21", "501"),
        ("PORT 127,0,0,1,4", "501"),
        ("EPRT |2|::1|1025|", "522"),
        ("EPRT |7|x|1025|", "522"),
        ("LPRT 9,4,127,0,0,1,2,4,1", "521"),
        ("SPOR 127,0,0,1,4,1", "502"),
        ("PASV x", "501"),
    ] {
        let out = client(&mut fixed(), line);
        assert_eq!(out.len(), 1, "{out:?}");
        assert!(out[0].starts_with(&format!("> {code} gateway")), "{out:?}");
    }
}

#[test]
fn after_epsv_all_nothing_else_will_do() {
    let mut near = fixed();
    assert_eq!(
        client(&mut near, "EPSV ALL"),
        ["> 200 gateway: EPSV ALL accepted"]
    );
    for line in [
        "PASV",
        "LPSV",
        "PORT 127,0,0,1,4,1",
        "EPRT |1|127.0.0.1|1025|",
    ] {
        assert!(
            client(&mut near, line)[0].starts_with("> 501 gateway"),
            "{line}"
        );
    }
    assert_eq!(client(&mut near, "EPSV"), ["data 1"]);
}

#[test]
fn features_of_the_servers_control_connection_are_not_the_clients() {
    let mut near = fixed();
    client(&mut near, "FEAT");
    let lines = ["211-Features", " AUTH TLS", " MDTM"];
    let tag = |last| ReplyTag {
        command: Some(CommandId(1)),
        transfer: None,
        stage: ReplyStage::Final,
        code: 211,
        last,
        prefetches: false,
    };
    for line in lines {
        let (tag, line) = (tag(false), line.as_bytes());
        relayed(&mut near, tag, line);
    }
    relayed(&mut near, tag(true), b"211 End");
    assert_eq!(drain(&mut near), ["> 211-Features", ">  MDTM", "> 211 End"]);
}

#[test]
fn refused_passwords_are_reported_and_other_refusals_are_not() {
    let mut near = fixed();
    client(&mut near, "CWD x");
    assert_eq!(reply(&mut near, 1, 0, "530 no"), ["> 530 no"]);
    client(&mut near, "PASS x");
    assert!(!near.is_idle());
    assert_eq!(
        reply(&mut near, 2, 0, "530 no"),
        ["> 530 no", "login failed"]
    );
    assert!(near.is_idle() && !near.is_logged_in());
    client(&mut near, "PASS y");
    reply(&mut near, 3, 0, "230 in");
    assert!(near.is_logged_in());
    near.handle(NearInput::LimitReached("too many failed logins"));
    assert_eq!(drain(&mut near)[0], "> 421 gateway: too many failed logins");
}

#[test]
fn a_verb_that_servers_may_read_otherwise_goes_nowhere() {
    for mut near in [fixed(), named()] {
        drain(&mut near);
        near.handle(NearInput::ClientLine(b"PO\xff\xfbxRT 127,0,0,1,4,1"));
        assert_eq!(
            drain(&mut near),
            ["> 500 gateway: a command has letters only"]
        );
    }
}
