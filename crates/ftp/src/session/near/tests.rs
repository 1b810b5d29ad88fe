use super::*;
use crate::session::CommandId;

fn fixed() -> NearSession {
    NearSession::new(FrontDoor::Fixed, IpAddr::from([127, 0, 0, 1]))
}

/// Everything polled, in short: `>` to the client, `<` to the server.
fn drain(near: &mut NearSession) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(output) = near.poll() {
        out.push(match output {
            Output::ToClient(line) => format!("> {}", String::from_utf8_lossy(&line).trim_end()),
            Output::Connect { logon, .. } => {
                format!(
                    "connect {} {}",
                    String::from_utf8_lossy(&logon.user),
                    logon.host
                )
            }
            Output::Command { line, .. } => format!("< {}", String::from_utf8_lossy(&line)),
            Output::Passive { transfer, .. } => format!("passive {}", transfer.0),
            Output::Listen(transfer) => format!("listen {}", transfer.0),
            Output::Order(transfer, order) => format!("{} {order:?}", transfer.0),
            Output::LeaveServer => "leave".to_owned(),
            Output::Close => "close".to_owned(),
        });
    }
    out
}

fn client(near: &mut NearSession, line: &str) -> Vec<String> {
    near.handle(Input::ClientLine(line.as_bytes()));
    drain(near)
}

fn reply(near: &mut NearSession, command: u32, transfer: u32, line: &str) -> Vec<String> {
    let code: u16 = line[..3].parse().expect("a code");
    let tag = Tag {
        command: (command != 0).then_some(CommandId(command)),
        transfer: (transfer != 0).then_some(TransferId(transfer)),
        stage: if code < 200 {
            Stage::Preliminary
        } else {
            Stage::Final
        },
        code,
        last: line.as_bytes()[3] == b' ',
    };
    near.handle(Input::FarReply {
        tag,
        line: line.as_bytes(),
    });
    drain(near)
}

fn data(near: &mut NearSession, event: DataEvent<'_>) -> Vec<String> {
    near.handle(Input::Data(TransferId(1), event));
    drain(near)
}

/// Command 1 was PASV, and transfer 1 is ready.
fn prepared() -> NearSession {
    let mut near = fixed();
    assert_eq!(client(&mut near, "PASV"), ["passive 1"]);
    near.handle(Input::PassiveReady {
        id: CommandId(1),
        transfer: TransferId(1),
    });
    assert_eq!(drain(&mut near), ["listen 1"]);
    let at = SocketAddr::from(([127, 0, 0, 1], 1025));
    near.handle(Input::Listening {
        transfer: TransferId(1),
        at,
    });
    assert_eq!(
        drain(&mut near),
        ["> 227 Entering Passive Mode (127,0,0,1,4,1)."]
    );
    near
}

/// Command 2 is the download of transfer 1, announced by 150.
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
        ["1 Finish { failed: false }"]
    );
    assert!(
        reply(&mut near, 3, 0, "200 later").is_empty(),
        "it keeps its place"
    );
    assert_eq!(
        data(&mut near, DataEvent::Delivered),
        ["> 226 done", "> 200 later"]
    );
}

#[test]
fn data_may_be_delivered_before_the_final_reply() {
    let mut near = downloading();
    assert!(data(&mut near, DataEvent::Delivered).is_empty());
    assert_eq!(reply(&mut near, 2, 1, "226 done")[1], "> 226 done");
}

#[test]
fn a_broken_transfer_never_looks_complete() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226-well");
    reply(&mut near, 2, 1, "226 done");
    let out = data(&mut near, DataEvent::Failed("the client is gone"));
    assert_eq!(
        out,
        ["> 426 gateway: data connection failed: the client is gone"]
    );
}

#[test]
fn a_refusal_is_relayed_at_once() {
    let mut near = downloading();
    let out = reply(&mut near, 2, 1, "426 broken");
    assert_eq!(out, ["1 Finish { failed: true }", "> 426 broken"]);
}

#[test]
fn a_lost_link_resets_the_data_before_it_is_told() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    near.handle(Input::LinkLost("peer b restarted"));
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
    near.handle(Input::ClientClosed);
    assert_eq!(drain(&mut near), ["1 ClientGone", "leave", "close"]);
}

#[test]
fn a_client_that_leaves_after_its_last_byte_gets_it_delivered() {
    let mut near = prepared();
    client(&mut near, "STOR a");
    data(&mut near, DataEvent::ClientEnded);
    near.handle(Input::ClientClosed);
    assert_eq!(drain(&mut near), ["leave", "close"]);
}

#[test]
fn own_replies_keep_the_order_of_commands() {
    let mut near = fixed();
    assert_eq!(client(&mut near, "PWD"), ["< PWD"]);
    near.handle(Input::ClientLineTooLong);
    assert!(drain(&mut near).is_empty());
    assert_eq!(
        reply(&mut near, 1, 0, "257 /"),
        ["> 257 /", "> 500 Command line too long"]
    );
}

#[test]
fn a_new_pasv_gives_up_the_last_one() {
    let mut near = prepared();
    assert_eq!(client(&mut near, "PASV"), ["1 Kill", "passive 2"]);
}

#[test]
fn a_refused_pasv_leaves_no_data_connection() {
    let mut near = fixed();
    client(&mut near, "PASV");
    assert_eq!(reply(&mut near, 1, 0, "530 no"), ["> 530 no", "1 Kill"]);
}

#[test]
fn pasv_over_ipv6_and_foreign_families_are_refused() {
    let mut near = NearSession::new(FrontDoor::Fixed, "::1".parse().expect("an address"));
    assert!(client(&mut near, "PASV")[0].starts_with("> 425"));
    assert!(client(&mut near, "EPSV 1")[0].starts_with("> 522"));
    assert_eq!(client(&mut near, "EPSV 2"), ["passive 1"]);
    assert!(client(&mut fixed(), "EPSV 2")[0].starts_with("> 522"));
}

#[test]
fn the_client_names_its_server() {
    let mut near = NearSession::new(FrontDoor::Logon, IpAddr::from([127, 0, 0, 1]));
    assert!(drain(&mut near)[0].starts_with("> 220"));
    assert!(client(&mut near, "FEAT")[0].starts_with("> 530"));
    assert!(client(&mut near, "AUTH TLS")[0].starts_with("> 502"));
    assert!(client(&mut near, "USER fw")[0].starts_with("> 331"));
    assert!(client(&mut near, "PASS fw")[0].starts_with("> 230"));
    assert_eq!(
        client(&mut near, "USER joe@10.0.0.1"),
        ["connect joe 10.0.0.1"]
    );
    near.handle(Input::Refused {
        code: 530,
        text: "10.0.0.1:21 is not allowed",
    });
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
fn a_second_logon_answers_what_the_first_server_did_not() {
    let mut near = NearSession::new(FrontDoor::Logon, IpAddr::from([127, 0, 0, 1]));
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
        data(&mut near, DataEvent::Delivered).len(),
        count + 1,
        "none is lost"
    );
    assert!(near.wants_far());
}

#[test]
fn quit_before_the_logon_closes() {
    let mut near = NearSession::new(FrontDoor::Logon, IpAddr::from([127, 0, 0, 1]));
    drain(&mut near);
    assert_eq!(
        client(&mut near, "QUIT"),
        ["> 221 Goodbye", "leave", "close"]
    );
}

#[test]
fn a_server_that_closes_is_told_apart_from_goodbye() {
    let mut near = fixed();
    client(&mut near, "QUIT");
    reply(&mut near, 1, 0, "221 bye");
    near.handle(Input::ServerClosed);
    assert_eq!(drain(&mut near), ["leave", "close"]);

    let mut near = downloading();
    near.handle(Input::ServerClosed);
    let out = drain(&mut near);
    assert_eq!(out[0], "1 Kill");
    assert!(out[1].starts_with("> 421 gateway"), "{out:?}");
}

#[test]
fn a_server_that_closes_behind_its_226_does_not_cut_the_data_short() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    near.handle(Input::ServerClosed);
    assert!(drain(&mut near).is_empty());
    assert_eq!(data(&mut near, DataEvent::Delivered)[0], "> 226 done");
}
