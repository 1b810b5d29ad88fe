//! Tests with servers that send no reply to a command, send a wrong reply, or end the session.

use std::time::Duration;

use super::*;

fn fast() -> FarSession {
    with(FarSetup {
        mode: SessionMode::Fast,
        ..STRICT
    })
}

/// Creates a session whose user has logged in, and whose `SYST` waits for the server's reply.
fn asked() -> FarSession {
    let mut far = fast();
    client(&mut far, 1, "USER joe");
    server(&mut far, "331 password");
    client(&mut far, 2, "PASS x");
    assert_eq!(server(&mut far, "230 in"), ["> 230 in", "< SYST"]);
    far
}

/// Outputs of a session that disconnects because its server does not reply to `SYST`.
const LEFT: [&str; 4] = [
    "learned no questions",
    "System None true",
    "leave",
    "reconnect",
];

fn reconnected(far: &mut FarSession) -> Vec<String> {
    far.handle(FarInput::Reconnected).expect("no limit is hit");
    drain(far)
}

#[test]
fn a_server_that_leaves_a_question_unanswered_is_logged_in_to_again() {
    let mut far = asked();
    assert!(client(&mut far, 3, "CWD a").is_empty());
    let (seconds, out) = silence(&mut far);
    assert!(seconds <= 8, "a client waits meanwhile: {seconds} s");
    assert_eq!(out, LEFT);
    assert!(reconnected(&mut far).is_empty());
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["< PASS x"]);
    assert_eq!(server(&mut far, "230 in"), ["< CWD a"]);
    assert_eq!(server(&mut far, "250 there"), ["> 250 there"], "no PWD");
}

#[test]
fn an_overdue_answer_is_not_relayed() {
    let mut far = asked();
    for line in ["215 UNIX", "500 what", "257 \"/\""] {
        server(&mut far, line);
    }
    client(&mut far, 3, "CWD a");
    assert_eq!(server(&mut far, "250 ok"), ["> 250 ok", "< PWD"]);
    assert!(client(&mut far, 4, "CWD b").is_empty());
    assert_eq!(
        silence(&mut far).1,
        ["learned no questions", "Directory None true"]
    );
    assert_eq!(server(&mut far, "257 \"/a\""), ["< CWD b"]);
    assert_eq!(server(&mut far, "250 ok"), ["> 250 ok"]);
}

fn refuse_login(far: &mut FarSession) -> Vec<String> {
    server(far, "220 ready");
    server(far, "530 too many connections")
}

#[test]
fn a_refused_log_in_is_repeated_after_growing_pauses() {
    let mut far = asked();
    assert!(client(&mut far, 3, "CWD a").is_empty());
    silence(&mut far);
    let greetings = [Some("220 ready"), Some("421 full"), None, Some("450 busy")];
    for (greeting, pause) in greetings.into_iter().zip([1, 3, 7, 15]) {
        reconnected(&mut far);
        assert!(far.wants_server());
        let out = match greeting {
            Some("220 ready") => refuse_login(&mut far),
            Some(line) => server(&mut far, line),
            None => closed_by_server(&mut far),
        };
        assert_eq!(out, ["leave"]);
        assert!(!far.wants_server(), "it has been left");
        assert_eq!(silence(&mut far), (pause, vec!["reconnect".to_owned()]));
    }
    let mut over = asked();
    silence(&mut over);
    for _ in 0..4 {
        reconnected(&mut over);
        refuse_login(&mut over);
        silence(&mut over);
    }
    reconnected(&mut over);
    assert_eq!(refuse_login(&mut over), ["server closed", "close"]);

    reconnected(&mut far);
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["< PASS x"]);
    assert_eq!(server(&mut far, "230 in"), ["< CWD a"]);
    assert_eq!(server(&mut far, "250 there"), ["> 250 there"]);
}

#[test]
fn a_command_that_has_failed_is_not_repeated() {
    let mut far = fast();
    client(&mut far, 1, "FEAT");
    server(&mut far, "500 what");
    client(&mut far, 2, "OPTS UTF8 ON");
    server(&mut far, "501 no");
    client(&mut far, 3, "USER eve");
    server(&mut far, "530 no");
    client(&mut far, 4, "USER joe");
    assert_eq!(server(&mut far, "230 in"), ["> 230 in", "< SYST"]);
    client(&mut far, 5, "NOOP");
    closed_by_server(&mut far);
    reconnected(&mut far);
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert_eq!(server(&mut far, "230 in"), ["< NOOP"]);
}

#[test]
fn a_password_that_has_failed_is_not_repeated() {
    let mut far = fast();
    client(&mut far, 1, "USER joe");
    server(&mut far, "331 password");
    client(&mut far, 2, "PASS typo");
    server(&mut far, "530 no");
    client(&mut far, 3, "PASS right");
    server(&mut far, "230 in");
    silence(&mut far);
    reconnected(&mut far);
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["< PASS right"]);
}

#[test]
fn a_command_that_has_succeeded_must_succeed_again() {
    for line in ["TYPE I", "OPTS UTF8 ON", "LANG en", "HOST a"] {
        let mut far = fast();
        client(&mut far, 1, line);
        server(&mut far, "200 ok");
        client(&mut far, 2, "USER joe");
        server(&mut far, "230 in");
        silence(&mut far);
        reconnected(&mut far);
        assert_eq!(server(&mut far, "220 ready"), [format!("< {line}")]);
        assert_eq!(server(&mut far, "450 busy"), ["leave"]);
    }
}

#[test]
fn lines_outside_replies_are_not_relayed_while_the_session_logs_in_again() {
    let mut far = asked();
    silence(&mut far);
    assert!(server(&mut far, "Goodbye!").is_empty());
    reconnected(&mut far);
    assert!(server(&mut far, "Welcome!").is_empty());
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert!(server(&mut far, "Welcome again!").is_empty());
    server(&mut far, "530 busy");
    assert!(server(&mut far, "Goodbye!").is_empty());
}

#[test]
fn a_client_hears_why_the_session_cannot_log_in_again() {
    let mut far = asked();
    assert!(client(&mut far, 3, "CWD a").is_empty());
    silence(&mut far);
    for _ in 0..4 {
        reconnected(&mut far);
        refuse_login(&mut far);
        silence(&mut far);
    }
    reconnected(&mut far);
    let text = "> 421 gateway: the server refuses to log in again: 530 too many connections";
    assert_eq!(refuse_login(&mut far), [text, "server closed", "close"]);
}

#[test]
fn all_attempts_to_log_in_again_share_one_time() {
    let mut far = asked();
    assert!(client(&mut far, 3, "CWD a").is_empty());
    silence(&mut far);
    let first = far.wait().expect("the connection is awaited");
    assert_eq!(first.time, Duration::from_secs(30));
    reconnected(&mut far);
    refuse_login(&mut far);
    assert_eq!(far.wait().map(|wait| wait.number), Some(first.number));
    silence(&mut far);
    reconnected(&mut far);
    server(&mut far, "220-slow");
    assert_eq!(far.wait(), Some(first));
    let out = silence(&mut far).1;
    assert!(out[0].starts_with("> 421 gateway"), "{out:?}");
    assert_eq!(out[1..], ["server closed", "close"]);
}

#[test]
fn an_answer_that_does_not_end_is_overdue() {
    let mut far = asked();
    server(&mut far, "215-UNIX");
    let first = far.wait();
    assert!(server(&mut far, " and more").is_empty());
    assert_eq!(far.wait(), first);
    assert_eq!(silence(&mut far).1, LEFT);
}

#[test]
fn a_client_that_has_gone_is_not_logged_in_again() {
    let left = |far: &mut FarSession| {
        far.handle(FarInput::ClientGone).expect("no limit is hit");
        drain(far)
    };
    let mut far = asked();
    assert!(left(&mut far).is_empty());
    let out = [
        "learned no questions",
        "System None true",
        "server closed",
        "close",
    ];
    assert_eq!(silence(&mut far).1, out);
    let mut far = asked();
    silence(&mut far);
    reconnected(&mut far);
    refuse_login(&mut far);
    assert_eq!(left(&mut far), ["server closed", "close"]);
    let mut far = asked();
    client(&mut far, 3, "DELE a");
    left(&mut far);
    assert_eq!(silence(&mut far).1, LEFT, "its command is to be executed");
}

#[test]
fn a_second_reply_to_a_repeated_log_in_is_the_reply_to_no_command() {
    for stray in ["230 in", "230 Welcome", "220 hello", "232 in"] {
        let mut far = asked();
        assert!(client(&mut far, 3, "CWD a").is_empty());
        silence(&mut far);
        reconnected(&mut far);
        server(&mut far, "220 ready");
        server(&mut far, "331 password");
        assert_eq!(server(&mut far, "230 in"), ["< CWD a"]);
        assert!(server(&mut far, stray).is_empty());
        assert_eq!(server(&mut far, "250 there"), ["> 250 there"]);
        client(&mut far, 4, "USER eve");
        assert_eq!(server(&mut far, "230 in"), ["> 230 in"]);
    }
}

#[test]
fn a_server_known_to_dislike_questions_gets_none() {
    let mut far = with(FarSetup {
        mode: SessionMode::Fast,
        known: ServerTraits {
            dislikes_questions: true,
            ..ServerTraits::default()
        },
        ..STRICT
    });
    client(&mut far, 1, "USER joe");
    assert_eq!(server(&mut far, "230 in"), ["> 230 in"]);
}

#[test]
fn a_server_that_leaves_at_a_question_is_logged_in_to_again() {
    for farewell in [None, Some("221 goodbye"), Some("421 goodbye")] {
        let mut far = asked();
        assert!(client(&mut far, 3, "CWD a").is_empty());
        if let Some(line) = farewell {
            assert!(server(&mut far, line).is_empty(), "{line}");
        }
        assert_eq!(closed_by_server(&mut far), LEFT);
        assert!(reconnected(&mut far).is_empty());
        assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
        assert_eq!(server(&mut far, "331 password"), ["< PASS x"]);
        assert_eq!(server(&mut far, "230 in"), ["< CWD a"]);
        assert_eq!(server(&mut far, "250 there"), ["> 250 there"]);
        assert_eq!(closed_by_server(&mut far), ["server closed", "close"]);
    }
}

#[test]
fn a_session_that_has_come_further_is_not_begun_again() {
    let mut far = asked();
    for line in ["215 UNIX", "500 what", "257 \"/\""] {
        server(&mut far, line);
    }
    client(&mut far, 3, "CWD a");
    assert_eq!(server(&mut far, "250 ok"), ["> 250 ok", "< PWD"]);
    assert_eq!(closed_by_server(&mut far), ["server closed", "close"]);
}

#[test]
fn another_reply_to_the_log_in_is_no_answer_to_a_question() {
    let mut far = asked();
    assert_eq!(server(&mut far, "230 Welcome"), ["> 230 Welcome"]);
    assert_eq!(
        server(&mut far, "215 UNIX"),
        ["System Some(\"215 UNIX\") false", "< FEAT"]
    );
}

#[test]
fn another_reply_to_cwd_is_no_answer_to_a_question() {
    let mut far = asked();
    for line in ["215 UNIX", "500 what", "257 \"/\""] {
        server(&mut far, line);
    }
    client(&mut far, 3, "CWD a");
    assert_eq!(server(&mut far, "200 OK"), ["> 200 OK", "< PWD"]);
    assert_eq!(server(&mut far, "250 changed"), ["> 250 changed"]);
    let answer = "Directory Some(\"257 \\\"/a\\\"\") true";
    assert_eq!(server(&mut far, "257 \"/a\""), [answer]);
}

#[test]
fn an_answer_with_a_code_of_its_own_is_not_repeated() {
    let mut far = asked();
    assert_eq!(server(&mut far, "200 UNIX"), ["System None true"]);
}

#[test]
fn the_code_of_the_last_line_counts() {
    let mut far = session();
    client(&mut far, 1, "HELP");
    client(&mut far, 2, "NOOP");
    assert_eq!(server(&mut far, "214-these"), ["> 214-these"]);
    assert!(server(&mut far, "200 HELP done").is_empty());
    far.handle(FarInput::WaitTimedOut).expect("no limit is hit");
    let Some(FarOutput::Send(MessageToNear::Reply { tag, .. })) = far.poll() else {
        panic!("a reply")
    };
    assert_eq!((tag.code, tag.last), (200, true));
    assert_eq!(drain(&mut far), ["< NOOP"]);
}

#[test]
fn a_line_with_another_code_inside_a_reply_is_text() {
    let mut far = session();
    client(&mut far, 1, "STAT x");
    client(&mut far, 2, "NOOP");
    assert_eq!(server(&mut far, "250-"), ["> 250-"]);
    assert!(server(&mut far, "550 x").is_empty());
    assert_eq!(server(&mut far, "550"), ["> 550 x"]);
    assert_eq!(
        server(&mut far, "250 end"),
        ["> 550", "> 250 end", "< NOOP"]
    );
}

#[test]
fn an_upload_ends_at_a_final_reply_with_two_codes() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    server(&mut far, "150 go");
    server(&mut far, "226-thanks");
    server(&mut far, "250 done");
    assert_eq!(silence(&mut far).1, ["> 250 done"]);
    assert!(!far.transfer_running());
}

#[test]
fn an_abor_without_an_answer_of_its_own_lets_the_session_go_on() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    client(&mut far, 3, "ABOR");
    assert_eq!(server(&mut far, "426 broken"), ["> 426 broken"]);
    client(&mut far, 4, "NOOP");
    let (seconds, out) = silence(&mut far);
    assert!(seconds < 5, "{seconds} s");
    assert_eq!(out, ["unanswered 3", "< NOOP"]);
    assert!(server(&mut far, "226 aborted").is_empty(), "it comes late");
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok"]);
}

#[test]
fn an_abor_that_the_server_passes_over_takes_no_answer_of_another_command() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    client(&mut far, 3, "ABOR");
    assert_eq!(client(&mut far, 4, "NOOP"), ["< NOOP"]);
    assert_eq!(server(&mut far, "426 broken"), ["> 426 broken"]);
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok", "unanswered 3"]);
    assert_eq!(far.wait(), None);
}

#[test]
fn a_client_that_awaits_an_answer_to_abor_gets_one() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    client(&mut far, 3, "ABOR");
    far.handle(FarInput::Data(TransferId(1), FarDataEvent::Closed))
        .expect("no limit is hit");
    drain(&mut far);
    assert!(silence(&mut far).1[0].starts_with("> 426 gateway"));
    assert!(silence(&mut far).1[0].starts_with("> 226 gateway"));
    assert_eq!(client(&mut far, 4, "NOOP"), ["< NOOP"]);
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok"]);
}

#[test]
fn a_command_that_stays_unanswered_ends_the_session_with_421() {
    let mut far = session();
    client(&mut far, 1, "PWD");
    client(&mut far, 2, "NOOP");
    assert_eq!(far.wait().map(|wait| wait.time), Some(REPLY_TIMEOUT));
    let (_, out) = silence(&mut far);
    assert_eq!(
        out,
        [
            "> 421 gateway: the server has not answered PWD for 5 minutes",
            "server closed",
            "close"
        ]
    );
}

#[test]
fn work_gets_an_hour_and_idleness_no_end() {
    let mut far = session();
    assert_eq!(far.wait(), None);
    for (id, line) in [(1, "SITE CHMOD 644 a"), (2, "XSHA256 big"), (3, "DELE a")] {
        client(&mut far, id, line);
        let wait = far.wait().expect("an answer is awaited");
        assert_eq!(
            (wait.time, wait.counts_data),
            (LONG_REPLY_TIMEOUT, true),
            "{line}"
        );
        server(&mut far, "200 ok");
    }
    let mut far = prepared();
    client(&mut far, 2, "STOR big");
    assert_eq!(
        far.wait(),
        None,
        "the data connection has timeouts of its own"
    );
    far.handle(FarInput::Data(TransferId(1), FarDataEvent::Delivered))
        .expect("no limit is hit");
    far.handle(FarInput::Data(TransferId(1), FarDataEvent::Closed))
        .expect("no limit is hit");
    assert_eq!(far.wait().map(|wait| wait.time), Some(LONG_REPLY_TIMEOUT));
}

#[test]
fn each_word_of_the_server_begins_the_wait_anew() {
    let mut far = session();
    client(&mut far, 1, "STAT big");
    let first = far.wait();
    client(&mut far, 2, "NOOP");
    assert_eq!(far.wait(), first, "further commands do not");
    server(&mut far, "213-status");
    assert_ne!(far.wait(), first);
}

#[test]
fn where_no_form_is_taken_the_refusal_is_relayed() {
    let mut far = session();
    pasv(&mut far, 1, 1);
    server(&mut far, "502 no");
    server(&mut far, "502 no");
    let at = Some("10.0.0.9:1025".parse().expect("an address"));
    far.handle(FarInput::Listening(at))
        .expect("no limit is hit");
    drain(&mut far);
    server(&mut far, "502 no");
    assert_eq!(server(&mut far, "502 none"), ["unlisten 1", "> 502 none"]);
    let mut far = session();
    pasv(&mut far, 1, 1);
    assert_eq!(server(&mut far, "530 log in"), ["> 530 log in"]);
}

#[test]
fn a_port_is_read_in_the_form_and_the_line_in_which_it_comes() {
    for (lines, form) in [
        (&["229 ok (|||1025|)"][..], "PASV"),
        (&["227-go (1,2,3,4,4,1)", "227 there"][..], "PASV"),
        (&["200 ok (1,2,3,4,4,1)"][..], "PASV"),
        (&["502 no", "227 ok ( 1, 2, 3, 4, 4, 1)"][..], "EPSV"),
    ] {
        let mut far = session();
        pasv(&mut far, 1, 1);
        let out: Vec<_> = lines
            .iter()
            .flat_map(|line| server(&mut far, line))
            .collect();
        assert!(
            out.ends_with(&["connect 1 1025".into(), "ready 1".into()]),
            "{form}: {out:?}"
        );
    }
}

#[test]
fn what_some_servers_split_never_reaches_one() {
    for line in ["NOOP x\rPORT 10,0,0,9,0,25", "NOOP\0DELE a", "", "MODE B"] {
        let out = client(&mut session(), 1, line);
        assert!(out[0].starts_with("> 50"), "{line:?}: {out:?}");
    }
    assert_eq!(client(&mut session(), 1, "MODE S"), ["< MODE S"]);
}

#[test]
fn a_download_that_succeeds_without_a_beginning_may_be_empty() {
    let mut far = prepared();
    client(&mut far, 2, "LIST");
    assert_eq!(server(&mut far, "226 done"), ["> 226 done", "done 1"]);
    let mut far = prepared();
    client(&mut far, 2, "LIST");
    server(&mut far, "150 go");
    assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
}
