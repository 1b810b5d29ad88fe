//! Tests with clients that close their sending direction early, and with lines that must not reach
//! a server.

use super::*;

fn ended(near: &mut NearSession) -> Vec<String> {
    near.handle(NearInput::ClientEnded);
    drain(near)
}

#[test]
fn what_a_client_has_sent_before_its_end_is_answered() {
    let mut near = fixed();
    client(&mut near, "USER joe");
    client(&mut near, "PASS x");
    assert!(ended(&mut near).is_empty());
    assert!(near.is_half_closed() && !near.wants_client());
    assert_eq!(reply(&mut near, 1, 0, "331 password"), ["> 331 password"]);
    assert_eq!(
        reply(&mut near, 2, 0, "230 in"),
        ["> 230 in", "leave", "close"]
    );
}

#[test]
fn a_client_that_awaits_nothing_is_gone_at_its_end() {
    assert_eq!(ended(&mut fixed()), ["leave", "close"]);
    let mut silent = NearSession::new(STRICT);
    assert_eq!(ended(&mut silent), ["leave", "close"], "without a greeting");
}

#[test]
fn an_end_during_a_transfer_is_an_abort() {
    let out = ended(&mut downloading());
    assert_eq!(out, ["1 Kill", "leave", "close"]);
}

#[test]
fn a_client_that_reads_no_more_is_not_waited_for() {
    let mut near = fixed();
    client(&mut near, "SYST");
    ended(&mut near);
    near.handle(NearInput::ClientClosed);
    assert_eq!(drain(&mut near), ["leave", "close"]);
}

#[test]
fn an_empty_line_is_no_command() {
    let mut near = fixed();
    for line in ["", " ", "\r", "\0"] {
        assert!(client(&mut near, line).is_empty(), "{line:?}");
    }
    assert!(near.is_idle());
    assert_eq!(client(&mut near, "NOOP"), ["< NOOP"]);
}

#[test]
fn what_some_servers_split_is_refused() {
    let mut near = fixed();
    for (line, code) in [
        ("NOOP x\rPORT 10,0,0,9,0,25", "501"),
        ("CWD a\0b", "501"),
        ("MODE B", "504"),
        ("MODE C", "504"),
    ] {
        let out = client(&mut near, line);
        assert!(
            out[0].starts_with(&format!("> {code}")),
            "{line:?}: {out:?}"
        );
    }
    assert_eq!(client(&mut near, "MODE S"), ["< MODE S"]);
    assert_eq!(client(&mut near, "NOOP\r"), ["< NOOP"]);
}

#[test]
fn an_abor_that_is_left_unanswered_lets_later_answers_pass() {
    let mut near = downloading();
    client(&mut near, "ABOR");
    client(&mut near, "NOOP");
    reply(&mut near, 2, 1, "426 broken");
    near.handle(NearInput::Received(MessageToNear::LeftUnanswered(
        CommandId(3),
    )));
    drain(&mut near);
    assert_eq!(reply(&mut near, 4, 0, "200 ok"), ["> 200 ok"]);
    assert!(near.is_idle());
}
