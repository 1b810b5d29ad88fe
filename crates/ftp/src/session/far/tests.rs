use super::*;
use crate::session::Mode;

const STRICT: Manner = Manner {
    server_is_v6: false,
    data: DataWay::Passive,
    mode: Mode::Strict,
    tls: ServerTls::Off,
};

fn session() -> FarSession {
    with(STRICT)
}

fn with(manner: Manner) -> FarSession {
    let mut far = FarSession::new(Opening::RelayGreeting, manner);
    assert_eq!(server(&mut far, "220 ready"), ["> 220 ready"]);
    far
}

/// Everything polled, in short: `>` to the client, `<` to the server.
fn drain(far: &mut FarSession) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(output) = far.poll() {
        out.push(match output {
            Output::ToServer { line, synch } => {
                format!(
                    "< {}{}",
                    if synch { "!" } else { "" },
                    String::from_utf8_lossy(&line)
                )
            }
            Output::Reply { line, .. } => format!("> {}", String::from_utf8_lossy(&line)),
            Output::DataReady(id) => format!("ready {}", id.0),
            Output::Foreseen {
                subject,
                answer,
                last,
            } => {
                let answer = answer.map(|text| String::from_utf8_lossy(&text).into_owned());
                format!("{subject:?} {answer:?} {last}")
            }
            Output::BeginTls => "tls".to_owned(),
            Output::Download(transfer) => format!("download {}", transfer.0),
            Output::Begin(transfer) => format!("begin {}", transfer.0),
            Output::Refuse(why) => format!("refuse {why}"),
            Output::Listen(transfer) => format!("listen {}", transfer.0),
            Output::Taken => "taken".to_owned(),
            Output::Unlisten(transfer) => format!("unlisten {}", transfer.0),
            Output::Connect { transfer, port } => format!("connect {} {port}", transfer.0),
            Output::Abort { transfer, grace } => format!("abort {} {grace}", transfer.0),
            Output::Close => "close".to_owned(),
        });
    }
    out
}

fn server(far: &mut FarSession, line: &str) -> Vec<String> {
    far.handle(Input::ServerLine(line.as_bytes()))
        .expect("no limit is hit");
    drain(far)
}

fn client(far: &mut FarSession, id: u32, line: &str) -> Vec<String> {
    let line = line.as_bytes();
    far.handle(Input::Command {
        id: CommandId(id),
        line,
        synch: false,
        answered: false,
    })
    .expect("no limit is hit");
    drain(far)
}

fn pasv(far: &mut FarSession, id: u32, transfer: u32) -> Vec<String> {
    data(far, id, transfer, false)
}

fn data(far: &mut FarSession, id: u32, transfer: u32, answered: bool) -> Vec<String> {
    far.handle(Input::Data {
        id: CommandId(id),
        transfer: TransferId(transfer),
        answered,
    })
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
    let opening = Opening::ConsumeGreeting {
        id: CommandId(1),
        line: b"USER joe".to_vec(),
    };
    let mut far = FarSession::new(opening, STRICT);
    assert!(server(&mut far, "120 wait").is_empty());
    assert!(server(&mut far, "220-hello").is_empty());
    assert_eq!(server(&mut far, "220 go"), ["< USER joe"]);
    assert_eq!(server(&mut far, "331 password"), ["> 331 password"]);

    let opening = Opening::ConsumeGreeting {
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
    far.handle(Input::Abandon(TransferId(1)))
        .expect("no limit is hit");
    assert_eq!(drain(&mut far), ["abort 1 false"]);
    assert!(client(&mut far, 2, "STOR a")[0].starts_with("> 425 gateway"));
}

#[test]
fn an_unreachable_data_port_is_reported_at_the_transfer_command() {
    let mut far = prepared();
    far.handle(Input::DataRefused(TransferId(1)))
        .expect("no limit is hit");
    let out = client(&mut far, 2, "RETR a");
    assert!(out[0].starts_with("> 425 gateway"), "{out:?}");
}

#[test]
fn commands_after_a_transfer_wait_for_its_final_reply() {
    let mut far = prepared();
    assert_eq!(client(&mut far, 2, "STOR a"), ["< STOR a"]);
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
    // ProFTPD answers in the order of commands, pyftpdlib at once.
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
    assert_eq!(
        server(&mut far, "226 aborted"),
        ["> 226 aborted", "< CWD x"]
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
    far.handle(Input::ServerLine(b"211 all well"))
        .expect("no limit is hit");
    let Some(Output::Reply { tag, .. }) = far.poll() else {
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
        far.handle(Input::ServerLine(line.as_bytes()))
            .expect("no limit is hit");
        let outputs = std::iter::from_fn(|| far.poll());
        let tags = outputs.filter_map(|output| match output {
            Output::Reply { tag, .. } => Some((tag.command, tag.transfer)),
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
    far.handle(Input::ServerClosed).expect("no limit is hit");
    assert_eq!(drain(&mut far), ["abort 1 false", "close"]);

    let mut far = prepared();
    client(&mut far, 2, "RETR a");
    server(&mut far, "226 done");
    far.handle(Input::ServerClosed).expect("no limit is hit");
    assert_eq!(
        drain(&mut far),
        ["close"],
        "the server has answered for the transfer"
    );
}

#[test]
fn a_client_that_left_has_its_commands_finished_first() {
    let mut far = prepared();
    client(&mut far, 2, "STOR a");
    far.handle(Input::ClientGone).expect("no limit is hit");
    assert!(drain(&mut far).is_empty());
    assert_eq!(server(&mut far, "226 done"), ["> 226 done", "close"]);
}

#[test]
fn a_flood_of_commands_is_an_error() {
    let mut far = session();
    let line = b"NOOP";
    let mut flood = (1..200).map(|id| {
        far.handle(Input::Command {
            id: CommandId(id),
            line,
            synch: false,
            answered: false,
        })
    });
    assert!(flood.any(|result| result == Err(TooManyCommands)));
}

mod active {
    use super::*;

    fn listening(far: &mut FarSession, at: Option<&str>) -> Vec<String> {
        let at = at.map(|at| at.parse().expect("an address"));
        far.handle(Input::Listening(at)).expect("no limit is hit");
        drain(far)
    }

    fn active() -> FarSession {
        with(Manner {
            data: DataWay::Active,
            ..STRICT
        })
    }

    #[test]
    fn the_server_is_told_where_the_gateway_listens() {
        let mut far = active();
        assert_eq!(pasv(&mut far, 1, 1), ["listen 1"]);
        assert!(client(&mut far, 2, "LIST").is_empty());
        assert_eq!(
            listening(&mut far, Some("10.0.0.9:1025")),
            ["< PORT 10,0,0,9,4,1"]
        );
        assert_eq!(
            server(&mut far, "200 ok"),
            ["ready 1", "download 1", "< LIST"]
        );
        server(&mut far, "150 go");
        assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
    }

    #[test]
    fn eprt_is_for_ipv6_and_for_servers_without_port() {
        let mut far = active();
        pasv(&mut far, 1, 1);
        assert_eq!(
            listening(&mut far, Some("[2001:db8::9]:1025")),
            ["< EPRT |2|2001:db8::9|1025|"]
        );
        assert_eq!(server(&mut far, "500 what"), ["unlisten 1", "> 500 what"]);

        let mut far = active();
        pasv(&mut far, 1, 1);
        listening(&mut far, Some("10.0.0.9:1025"));
        assert_eq!(server(&mut far, "502 no"), ["< EPRT |1|10.0.0.9|1025|"]);
        assert_eq!(server(&mut far, "200 ok"), ["ready 1"]);
    }

    #[test]
    fn a_refused_transfer_is_not_waited_for() {
        let mut far = active();
        pasv(&mut far, 1, 1);
        listening(&mut far, Some("10.0.0.9:1025"));
        server(&mut far, "200 ok");
        client(&mut far, 2, "RETR a");
        assert_eq!(server(&mut far, "550 no"), ["> 550 no", "unlisten 1"]);
    }

    #[test]
    fn without_a_port_to_listen_on_the_client_is_told() {
        let mut far = active();
        pasv(&mut far, 1, 1);
        assert!(listening(&mut far, None)[0].starts_with("> 425 gateway"));
        assert_eq!(client(&mut far, 2, "NOOP"), ["< NOOP"]);
    }
}

mod fast {
    use super::*;

    fn logged_in() -> FarSession {
        let mut far = with(Manner {
            mode: Mode::Fast,
            ..STRICT
        });
        client(&mut far, 1, "USER joe");
        server(&mut far, "331 password");
        client(&mut far, 2, "PASS x");
        far
    }

    /// Nothing is on its way any more.
    fn settled() -> FarSession {
        let mut far = logged_in();
        for line in ["230 in", "215 UNIX", "500 what", "257 \"/\""] {
            server(&mut far, line);
        }
        far
    }

    fn told(far: &mut FarSession, id: u32, line: &str) -> Vec<String> {
        far.handle(Input::Command {
            id: CommandId(id),
            line: line.as_bytes(),
            synch: false,
            answered: true,
        })
        .expect("no limit is hit");
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
    fn a_refused_data_port_is_told_at_the_transfer() {
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
        assert_eq!(told(&mut far, 3, "TYPE I"), ["< TYPE I"]);
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
        told(&mut far, 7, "TYPE A");
        assert_eq!(server(&mut far, "200 ok"), ["taken"]);
        assert_eq!(client(&mut far, 8, "SIZE a"), ["< SIZE a"]);
    }

    #[test]
    fn a_servers_farewell_is_no_answer_to_a_question() {
        let mut far = logged_in();
        server(&mut far, "230 in");
        assert_eq!(server(&mut far, "421 bye")[0], "> 421 bye");
    }

    #[test]
    fn an_answer_that_ends_with_another_code_holds_nobody_up() {
        let mut far = logged_in();
        server(&mut far, "230 in");
        server(&mut far, "215-UNIX");
        assert_eq!(server(&mut far, "200 done")[1], "< FEAT");
    }
}

mod tls {
    use super::*;

    fn begun(far: &mut FarSession) -> Vec<String> {
        far.handle(Input::TlsBegun).expect("no limit is hit");
        drain(far)
    }

    fn explicit() -> FarSession {
        FarSession::new(
            Opening::RelayGreeting,
            Manner {
                tls: ServerTls::Explicit,
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
        let opening = Opening::ConsumeGreeting {
            id: CommandId(1),
            line: b"USER joe".to_vec(),
        };
        let manner = Manner {
            tls: ServerTls::Implicit,
            ..STRICT
        };
        let mut far = FarSession::new(opening, manner);
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
        far.handle(Input::ClientGone).expect("no limit is hit");
        assert_eq!(drain(&mut far), ["close"]);
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
}
