mod active;
mod fast;
mod late;
mod spool;
mod substitute;
mod tls;
mod transfers;
mod unanswered;
mod wait;

use super::*;
use crate::{line::COMMAND_MAX, session::SessionMode};

const STRICT: FarSetup = FarSetup {
    server_is_v6: false,
    data: DataOpener::Passive,
    mode: SessionMode::Strict,
    tls: ServerTlsMode::Off,
    known: ServerTraits {
        dislikes_questions: false,
        lacks_passive: false,
    },
};

fn session() -> FarSession {
    with(STRICT)
}

fn with(setup: FarSetup) -> FarSession {
    let mut far = FarSession::new(SessionOpening::RelayGreeting, setup);
    assert_eq!(server(&mut far, "220 ready"), ["> 220 ready"]);
    far
}

/// Returns all outputs of the session as short texts. `>` marks lines for the client, `<` marks
/// lines for the server.
fn drain(far: &mut FarSession) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(output) = far.poll() {
        out.push(match output {
            FarOutput::ToServer { line, synch } => {
                format!(
                    "< {}{}",
                    if synch { "!" } else { "" },
                    String::from_utf8_lossy(&line)
                )
            }
            FarOutput::Send(message) => sent(message),
            FarOutput::Spool(request) => format!("spool from {}", request.offset_bytes),
            FarOutput::Wait(wait) => format!("wait {} s", wait.as_secs()),
            FarOutput::BeginTls => "tls".to_owned(),
            FarOutput::Order(transfer, order) => match order {
                FarDataOrder::Commanded(Some(direction)) => format!("{direction:?} {}", transfer.0),
                FarDataOrder::Commanded(None) => format!("used {}", transfer.0),
                FarDataOrder::Begin => format!("begin {}", transfer.0),
                FarDataOrder::Unlisten => format!("unlisten {}", transfer.0),
                FarDataOrder::Done => format!("done {}", transfer.0),
                FarDataOrder::Abort { grace } => format!("abort {} {grace}", transfer.0),
            },
            FarOutput::Listen(transfer) => format!("listen {}", transfer.0),
            FarOutput::Leave => "leave".to_owned(),
            FarOutput::Reconnect => "reconnect".to_owned(),
            FarOutput::Learned(learned_trait) => match learned_trait {
                LearnedTrait::DislikesQuestions => "learned no questions".to_owned(),
                LearnedTrait::LacksPassive(lacks) => format!("learned no passive: {lacks}"),
            },
            FarOutput::Connect { transfer, port } => format!("connect {} {port}", transfer.0),
            FarOutput::Close => "close".to_owned(),
        });
    }
    out
}

fn sent(message: MessageToNear) -> String {
    match message {
        MessageToNear::Reply { line, .. } => format!("> {}", String::from_utf8_lossy(&line)),
        MessageToNear::DataReady(id) => format!("ready {}", id.0),
        MessageToNear::Prefetched {
            subject,
            answer,
            last,
        } => {
            let answer = answer.map(|text| String::from_utf8_lossy(&text).into_owned());
            format!("{subject:?} {answer:?} {last}")
        }
        MessageToNear::UploadEnded { transfer, is_whole } => {
            format!("upload {} whole: {is_whole}", transfer.0)
        }
        MessageToNear::Refused { text, .. } => format!("refuse {text}"),
        MessageToNear::ServerClosed => "server closed".to_owned(),
        MessageToNear::AnsweredAhead => "taken".to_owned(),
        MessageToNear::LeftUnanswered(id) => format!("unanswered {}", id.0),
    }
}

/// Passes a client's command to the session.
fn command(
    far: &mut FarSession,
    id: u32,
    line: &[u8],
    answered: bool,
) -> Result<(), TooManyCommands> {
    let request = ServerRequest::Command {
        id: CommandId(id),
        synch: false,
        answered,
        line: line.to_vec(),
    };
    far.handle(FarInput::Received(request.into()))
}

fn abandon(transfer: u32) -> FarInput<'static> {
    FarInput::Received(MessageToFar::Abandon(TransferId(transfer)))
}

fn server(far: &mut FarSession, line: &str) -> Vec<String> {
    far.handle(FarInput::ServerLine(line.as_bytes()))
        .expect("no limit is hit");
    drain(far)
}

/// Expires the session's wait for a silent server. Returns the length of the wait in seconds, and
/// the outputs.
fn silence(far: &mut FarSession) -> (u64, Vec<String>) {
    let wait = far.wait().expect("the session waits for the server");
    far.handle(FarInput::WaitTimedOut).expect("no limit is hit");
    (wait.time.as_secs(), drain(far))
}

fn closed_by_server(far: &mut FarSession) -> Vec<String> {
    far.handle(FarInput::ServerClosed).expect("no limit is hit");
    drain(far)
}

fn client(far: &mut FarSession, id: u32, line: &str) -> Vec<String> {
    command(far, id, line.as_bytes(), false).expect("no limit is hit");
    drain(far)
}

fn pasv(far: &mut FarSession, id: u32, transfer: u32) -> Vec<String> {
    data(far, id, transfer, false)
}

fn data(far: &mut FarSession, id: u32, transfer: u32, answered: bool) -> Vec<String> {
    let request = ServerRequest::Data {
        id: CommandId(id),
        transfer: TransferId(transfer),
        answered,
    };
    far.handle(FarInput::Received(request.into()))
        .expect("no limit is hit");
    drain(far)
}

fn prepared() -> FarSession {
    let mut far = session();
    assert_eq!(pasv(&mut far, 1, 1), ["< PASV"]);
    assert_eq!(
        server(&mut far, "227 ok (1,2,3,4,4,1)"),
        ["connect 1 1025", "ready 1"]
    );
    far
}

#[test]
fn commands_go_to_the_server_one_at_a_time() {
    let mut far = session();
    assert_eq!(client(&mut far, 1, "USER joe"), ["< USER joe"]);
    assert!(client(&mut far, 2, "PASS x").is_empty());
    assert!(server(&mut far, "331-hello")[0].contains("hello"));
    assert_eq!(
        server(&mut far, "331 password"),
        ["> 331 password", "< PASS x"]
    );
}

#[test]
fn a_consumed_greeting_is_followed_by_the_account() {
    let opening = SessionOpening::ConsumeGreeting {
        id: CommandId(1),
        line: b"USER joe".to_vec(),
    };
    let mut far = FarSession::new(opening, STRICT);
    assert!(server(&mut far, "120 wait").is_empty());
    assert!(server(&mut far, "220-hello").is_empty());
    assert_eq!(server(&mut far, "220 go"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["> 331 password"]);

    let opening = SessionOpening::ConsumeGreeting {
        id: CommandId(1),
        line: b"USER joe".to_vec(),
    };
    let mut far = FarSession::new(opening, STRICT);
    assert_eq!(server(&mut far, "421 full"), ["> 421 full"]);
}

#[test]
fn pasv_falls_back_to_epsv_where_the_server_does_not_know_it() {
    let mut far = session();
    pasv(&mut far, 1, 1);
    assert_eq!(server(&mut far, "502 no PASV"), ["< EPSV"]);
    assert_eq!(
        server(&mut far, "229 ok (|||1025|)"),
        ["connect 1 1025", "ready 1"]
    );

    let mut far = session();
    pasv(&mut far, 1, 1);
    assert_eq!(server(&mut far, "530 log in first"), ["> 530 log in first"]);
}

#[test]
fn a_transfer_without_a_data_connection_is_for_the_server_to_refuse() {
    let mut far = session();
    client(&mut far, 1, "PWD");
    assert!(client(&mut far, 2, "LIST").is_empty());
    assert_eq!(server(&mut far, "257 /"), ["> 257 /", "< LIST"]);
    assert_eq!(server(&mut far, "425 PASV first"), ["> 425 PASV first"]);
}

#[test]
fn a_data_connection_that_was_given_up_is_not_offered_to_a_transfer() {
    let mut far = prepared();
    far.handle(abandon(1)).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["abort 1 false"]);
    assert!(client(&mut far, 2, "STOR a")[0].starts_with("> 425 gateway"));
}

#[test]
fn an_unreachable_data_port_is_reported_at_the_transfer_command() {
    let mut far = prepared();
    far.handle(FarInput::Data(TransferId(1), FarDataEvent::Refused))
        .expect("no limit is hit");
    let out = client(&mut far, 2, "RETR a");
    assert!(out[0].starts_with("> 425 gateway"), "{out:?}");
}

#[test]
fn commands_after_a_transfer_wait_for_its_final_reply() {
    let mut far = prepared();
    assert_eq!(client(&mut far, 2, "STOR a"), ["Upload 1", "< STOR a"]);
    assert!(client(&mut far, 3, "RNFR a").is_empty());
    assert_eq!(server(&mut far, "150 go"), ["> 150 go"]);
    assert_eq!(server(&mut far, "226 done"), ["> 226 done", "< RNFR a"]);
}

#[test]
fn another_login_need_not_await_the_end_of_a_transfer() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    assert_eq!(client(&mut far, 3, "REIN"), ["< REIN"]);
    assert_eq!(server(&mut far, "220 ready"), ["> 220 ready"]);
    assert_eq!(client(&mut far, 4, "USER joe"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["> 331 password"]);
    assert_eq!(client(&mut far, 5, "PASS x"), ["< PASS x"]);
    assert!(client(&mut far, 6, "SYST").is_empty());
    // ProFTPD replies in the order of the commands. pyftpdlib replies at once.
    assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
    assert_eq!(server(&mut far, "230 in"), ["> 230 in", "< SYST"]);
}

#[test]
fn a_preliminary_reply_is_the_last_for_a_client_that_goes_on() {
    let mut far = session();
    client(&mut far, 1, "XYZZY");
    assert_eq!(server(&mut far, "100 so far"), ["> 100 so far"]);
    assert_eq!(client(&mut far, 2, "NOOP"), ["< NOOP"]);
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok"]);

    let mut far = session();
    client(&mut far, 1, "XSHA a");
    assert!(client(&mut far, 2, "NOOP").is_empty());
    server(&mut far, "150 computing");
    assert_eq!(server(&mut far, "250 f00"), ["> 250 f00", "< NOOP"]);
}

#[test]
fn abor_overtakes_and_ends_the_data_connection() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    client(&mut far, 3, "CWD x");
    assert_eq!(client(&mut far, 4, "ABOR"), ["< ABOR", "abort 1 true"]);
    assert_eq!(server(&mut far, "426 gone"), ["> 426 gone"]);
    assert_eq!(server(&mut far, "226 aborted"), ["< CWD x"]);
    assert_eq!(
        server(&mut far, "250 there"),
        ["> 250 there", "> 226 aborted"],
        "replies keep the order of the commands"
    );
}

#[test]
fn the_gateway_s_own_answer_comes_behind_that_to_an_abor_that_overtook() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    pasv(&mut far, 3, 2);
    client(&mut far, 4, "NOOP");
    client(&mut far, 5, "ABOR");
    server(&mut far, "426 gone");
    assert_eq!(server(&mut far, "226 aborted"), ["< PASV"]);
    server(&mut far, "227 ok (1,2,3,4,4,2)");
    far.handle(abandon(2)).expect("no limit is hit");
    drain(&mut far);
    assert!(client(&mut far, 6, "LIST").is_empty());
    assert_eq!(
        server(&mut far, "200 ok"),
        [
            "> 200 ok",
            "> 226 aborted",
            "> 425 gateway: the data connection was cancelled"
        ]
    );
}

#[test]
fn abor_that_came_before_the_transfer_was_commanded_overtakes_too() {
    let mut far = session();
    pasv(&mut far, 1, 1);
    client(&mut far, 2, "RETR a");
    client(&mut far, 3, "CWD x");
    assert!(client(&mut far, 4, "ABOR").is_empty());
    let out = server(&mut far, "227 ok (1,2,3,4,4,1)");
    assert!(
        out.ends_with(&["< RETR a".into(), "< ABOR".into(), "abort 1 true".into()]),
        "{out:?}"
    );
}

#[test]
fn abor_closes_a_prepared_data_connection() {
    let mut far = prepared();
    assert_eq!(client(&mut far, 2, "ABOR"), ["< ABOR"]);
    assert_eq!(server(&mut far, "225 ok"), ["> 225 ok", "abort 1 false"]);
    assert_eq!(
        client(&mut far, 3, "LIST"),
        ["< LIST"],
        "the server has heard of it"
    );
}

#[test]
fn a_reply_that_overtakes_a_transfer_is_not_taken_for_its_end() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "150 go");
    assert_eq!(client(&mut far, 3, "STAT"), ["< STAT"]);
    far.handle(FarInput::ServerLine(b"211 all well"))
        .expect("no limit is hit");
    let Some(FarOutput::Send(MessageToNear::Reply { tag, .. })) = far.poll() else {
        panic!("a reply")
    };
    assert_eq!((tag.command, tag.transfer), (Some(CommandId(3)), None));
    assert!(far.transfer_running());
}

#[test]
fn before_its_150_a_transfer_gets_the_first_reply() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    assert_eq!(client(&mut far, 3, "NOOP"), ["< NOOP"]);
    for (line, command, transfer) in [
        ("532 need an account", 2, Some(TransferId(1))),
        ("200 ok", 3, None),
    ] {
        far.handle(FarInput::ServerLine(line.as_bytes()))
            .expect("no limit is hit");
        let outputs = std::iter::from_fn(|| far.poll());
        let tags = outputs.filter_map(|output| match output {
            FarOutput::Send(MessageToNear::Reply { tag, .. }) => Some((tag.command, tag.transfer)),
            _ => None,
        });
        let tags: Vec<_> = tags.collect();
        assert_eq!(tags, [(Some(CommandId(command)), transfer)]);
    }
    assert!(!far.transfer_running());
}

#[test]
fn the_last_line_of_a_long_answer_to_pasv_counts() {
    let mut far = session();
    pasv(&mut far, 1, 1);
    server(&mut far, "227-so much");
    for _ in 0..100 {
        assert!(server(&mut far, " to say").is_empty());
    }
    assert_eq!(
        server(&mut far, "227 ok (1,2,3,4,4,1)"),
        ["connect 1 1025", "ready 1"]
    );
}

#[test]
fn what_is_for_gateways_never_reaches_the_server() {
    for line in [
        "PORT 1,2,3,4,5,6",
        "AUTH TLS",
        "EPSV ALL",
        "PASV",
        "EPRT |1|1.2.3.4|9|",
    ] {
        let out = client(&mut session(), 1, line);
        assert!(out[0].starts_with("> 502 gateway"), "{out:?}");
    }
}

#[test]
fn a_server_that_goes_away_takes_its_data_connection_along() {
    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    far.handle(FarInput::ServerClosed).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["abort 1 false", "server closed", "close"]);

    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "226 done");
    far.handle(FarInput::ServerClosed).expect("no limit is hit");
    assert_eq!(
        drain(&mut far),
        ["server closed", "close"],
        "the server has answered for the transfer"
    );
}

#[test]
fn a_client_that_left_has_its_commands_finished_first() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    far.handle(FarInput::ClientGone).expect("no limit is hit");
    assert!(drain(&mut far).is_empty());
    let closed = |far: &mut FarSession, event| {
        far.handle(FarInput::Data(TransferId(1), event))
            .expect("no limit is hit");
        drain(far)
    };
    assert!(closed(&mut far, FarDataEvent::Delivered).is_empty());
    assert_eq!(
        server(&mut far, "226 done"),
        [
            "upload 1 whole: true",
            "> 226 done",
            "server closed",
            "close"
        ]
    );

    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    far.handle(FarInput::ClientGone).expect("no limit is hit");
    assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
    assert_eq!(
        closed(&mut far, FarDataEvent::Closed),
        ["upload 1 whole: false", "server closed", "close"],
        "what the reply is worth goes ahead of the end"
    );
}

#[test]
fn a_flood_of_commands_is_an_error() {
    let taken = |line: &[u8]| {
        let mut far = session();
        let mut flood = (1..400).map(|id| command(&mut far, id, line, false));
        flood.position(|result| result == Err(TooManyCommands))
    };
    assert_eq!(taken(b"NOOP"), Some(257), "one is with the server");
    let long = [b"STAT ".as_slice(), &[b'x'; COMMAND_MAX - 5]].concat();
    assert_eq!(taken(&long), Some(66), "one is with the server");
}

#[test]
fn a_verb_that_servers_may_read_otherwise_goes_nowhere() {
    let mut far = session();
    command(&mut far, 1, b"PR\xff\xfdxOT C", false).expect("no limit is hit");
    assert_eq!(
        drain(&mut far),
        ["> 500 gateway: a command has letters only"]
    );
}
