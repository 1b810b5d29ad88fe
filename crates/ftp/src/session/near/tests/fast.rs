use super::*;

/// Creates a session after `PASS` (command 1). The far gateway is sending prefetched commands to
/// the server.
fn logged_in() -> NearSession {
    let mut near = greeted(FAST);
    client(&mut near, "PASS x");
    let tag = ReplyTag {
        command: Some(CommandId(1)),
        transfer: None,
        stage: ReplyStage::Final,
        code: 230,
        last: true,
        prefetches: true,
    };
    let line = b"230 in";
    relayed(&mut near, tag, line);
    assert_eq!(drain(&mut near), ["> 230 in"]);
    near
}

fn prefetched(
    near: &mut NearSession,
    subject: QuestionSubject,
    answer: &str,
    last: bool,
) -> Vec<String> {
    near.handle(NearInput::Received(MessageToNear::Prefetched {
        subject,
        answer: Some(answer.as_bytes().to_vec()),
        last,
    }));
    drain(near)
}

#[test]
fn what_was_asked_ahead_is_answered_at_once() {
    let mut near = logged_in();
    assert!(client(&mut near, "SYST").is_empty());
    assert!(!near.wants_client(), "nothing overtakes it");
    let out = prefetched(&mut near, QuestionSubject::System, "215 UNIX", false);
    assert_eq!(out, ["> 215 UNIX"]);
    let features = "211-Features\r\n AUTH TLS\r\n MDTM\r\n211 End";
    prefetched(&mut near, QuestionSubject::Features, features, false);
    assert_eq!(
        client(&mut near, "FEAT"),
        ["> 211-Features", ">  MDTM", "> 211 End"]
    );
    prefetched(&mut near, QuestionSubject::Directory, "257 \"/\"", true);
    assert_eq!(client(&mut near, "PWD"), ["> 257 \"/\""]);
    assert_eq!(
        client(&mut near, "PWD"),
        ["< PWD"],
        "a second one may differ"
    );
}

#[test]
fn data_connections_are_promised_at_once_in_the_order_of_commands() {
    let mut near = logged_in();
    assert_eq!(client(&mut near, "SIZE a"), ["< SIZE a"]);
    assert_eq!(client(&mut near, "PASV"), ["data 1", "listen 1"]);
    assert!(
        listening(&mut near, 1).is_empty(),
        "SIZE has not been answered"
    );
    assert_eq!(
        reply(&mut near, 2, 0, "213 5"),
        [
            "> 213 5",
            "> 227 Entering Passive Mode (127,0,0,1,4,1).",
            "1 Announced"
        ]
    );
    assert_eq!(
        client(&mut near, "RETR a"),
        ["1 Start(Some(Download))", "< RETR a"]
    );
    assert_eq!(
        client(&mut near, "PORT 127,0,0,1,4,1"),
        ["data 2", "dial 2 127.0.0.1:1025"]
    );
    assert_eq!(
        reply(&mut near, 4, 1, "550 no"),
        [
            "1 Finish { succeeded: false }",
            "> 550 no",
            "> 200 gateway: data port accepted"
        ]
    );
}

#[test]
fn a_data_port_without_a_connection_is_reported_at_epsv() {
    let mut near = logged_in();
    client(&mut near, "EPSV");
    near.handle(NearInput::NoData(TransferId(1)));
    let out = drain(&mut near);
    assert_eq!(out[0], "1 Kill");
    assert!(out[1].starts_with("> 425 gateway"), "{out:?}");
}

/// Case: the client sends the transfer command before it receives the refusal of its data
/// connection.
#[test]
fn a_transfer_behind_a_refused_request_does_not_reach_the_server() {
    let mut near = logged_in();
    client(&mut near, "PORT 127,0,0,1,4,1");
    near.handle(NearInput::NoData(TransferId(1)));
    drain(&mut near);
    let out = client(&mut near, "STOR a");
    assert!(out[0].starts_with("> 425 gateway"), "{out:?}");
    // The gateway does not connect to this port.
    client(&mut near, "PORT 127,0,0,1,0,1");
    let out = client(&mut near, "STOR a");
    assert!(out[0].starts_with("> 425 gateway"), "{out:?}");
    client(&mut near, "PORT 127,0,0,1,4,1");
    assert_eq!(client(&mut near, "STOR a")[1], "< STOR a");
}

#[test]
fn abor_takes_a_promise_back_once_it_is_answered() {
    let mut near = logged_in();
    client(&mut near, "PASV");
    listening(&mut near, 1);
    assert_eq!(client(&mut near, "ABOR"), ["< ABOR"]);
    assert_eq!(client(&mut near, "PASV"), ["data 2", "listen 2"]);
    near.handle(NearInput::Received(MessageToNear::AnsweredAhead));
    let out = reply(&mut near, 3, 0, "225 ok");
    assert_eq!(out, ["1 Kill", "> 225 ok"]);
    assert_eq!(listening(&mut near, 2)[1], "2 Announced");
    let start = "2 Start(Some(Download))";
    assert_eq!(client(&mut near, "LIST"), [start, "< LIST"]);
}

#[test]
fn a_type_that_every_server_has_is_answered_and_sent_along() {
    let mut near = logged_in();
    near.handle(NearInput::ClientLine(b"TYPE I"));
    let Some(NearOutput::Send(MessageToFar::Request(ServerRequest::Command {
        answered,
        line,
        ..
    }))) = near.poll()
    else {
        panic!("the server is told")
    };
    assert!(answered && line == b"TYPE I");
    assert_eq!(drain(&mut near), ["> 200 gateway: TYPE I"]);
    assert_eq!(client(&mut near, "TYPE E"), ["< TYPE E"]);
}

#[test]
fn before_the_login_nothing_is_promised() {
    let mut near = greeted(FAST);
    assert_eq!(client(&mut near, "PASV"), ["data 1"]);
    assert_eq!(reply(&mut near, 1, 0, "530 no"), ["> 530 no", "1 Kill"]);
    assert_eq!(client(&mut near, "SYST"), ["< SYST"]);
}

#[test]
fn after_rein_or_user_nothing_is_promised_until_the_next_login() {
    for line in ["REIN", "USER joe"] {
        let mut near = logged_in();
        let relayed = format!("< {line}");
        assert_eq!(client(&mut near, line), [relayed]);
        assert_eq!(client(&mut near, "TYPE I"), ["< TYPE I"]);
        assert_eq!(client(&mut near, "PASV"), ["data 1"]);
        assert_eq!(reply(&mut near, 2, 0, "331 go on"), ["> 331 go on"]);
        assert_eq!(reply(&mut near, 3, 0, "530 log in"), ["> 530 log in"]);
        let out = reply(&mut near, 4, 0, "530 log in");
        assert_eq!(out, ["> 530 log in", "1 Kill"]);
    }
}

#[test]
fn answers_keep_their_order_behind_a_final_reply_that_waits() {
    let mut near = logged_in();
    client(&mut near, "PASV");
    listening(&mut near, 1);
    client(&mut near, "RETR a");
    reply(&mut near, 3, 1, "150 go");
    assert_eq!(client(&mut near, "TYPE I"), ["< TYPE I"]);
    client(&mut near, "SIZE b");
    reply(&mut near, 3, 1, "226 done");
    assert!(reply(&mut near, 5, 0, "213 5").is_empty());
    assert_eq!(
        data(&mut near, NearDataEvent::Delivered),
        ["> 226 done", "> 200 gateway: TYPE I", "> 213 5"]
    );
}

#[test]
fn what_is_answered_ahead_is_bounded_by_what_the_far_half_has_dealt_with() {
    let mut near = logged_in();
    let mut sent = 0;
    while near.wants_client() {
        client(&mut near, "TYPE I");
        sent += 1;
        assert!(sent <= 256, "nothing bounds them");
    }
    near.handle(NearInput::Received(MessageToNear::AnsweredAhead));
    assert!(near.wants_client());
}

#[test]
fn behind_a_transfer_the_server_answers_what_another_reply_could_overtake() {
    let mut near = logged_in();
    prefetched(&mut near, QuestionSubject::System, "215 UNIX", true);
    client(&mut near, "PASV");
    listening(&mut near, 1);
    client(&mut near, "RETR a");
    reply(&mut near, 3, 1, "150 go");
    assert_eq!(client(&mut near, "SYST"), ["< SYST"]);
    assert_eq!(
        client(&mut near, "NOOP"),
        ["< NOOP"],
        "the far half keeps them in order"
    );
}
