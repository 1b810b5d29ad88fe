//! Late replies to prefetched commands, in virtual time. The tests check that the session never
//! assigns a late reply to another command, and that it continues afterwards.

use std::{collections::VecDeque, time::Duration};

use super::*;

/// Delay of the replies to the slow command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// The server reads no further command before it has replied.
    InOrder(Duration),
    /// The server handles other commands before it replies.
    Aside(Duration),
    Never,
    /// The server replies twice.
    Twice,
}

/// A scripted server, and the session that uses it.
struct ReplyScript {
    far: FarSession,
    now: Duration,
    /// Replies that the server will send, with their times.
    due: VecDeque<(Duration, String)>,
    /// Time at which the server reads the next command.
    free_at: Duration,
    slow: &'static str,
    delay: Delay,
    /// Number of replies that the server sends to the slow command without delay.
    prompt: usize,
    /// Reply to the slow command. `None` for the standard reply.
    answer: Option<&'static str>,
    /// Time that the server takes for each command other than `USER`, `PASS`, `SYST`, `FEAT` and
    /// `PWD`.
    work: Duration,
    wait: Option<(ServerWait, Duration)>,
    /// Final replies to the client: number of the command, code and time.
    replies: Vec<(Option<u32>, u16, Duration)>,
    connections: usize,
    is_closed: bool,
}

impl ReplyScript {
    fn new(slow: &'static str, delay: Delay) -> Self {
        let mut script = Self {
            far: fast_session(),
            now: Duration::ZERO,
            due: VecDeque::new(),
            free_at: Duration::ZERO,
            slow,
            delay,
            prompt: 0,
            answer: None,
            work: Duration::ZERO,
            wait: None,
            replies: Vec::new(),
            connections: 1,
            is_closed: false,
        };
        script.client(1, "USER joe");
        script.client(2, "PASS x");
        script
    }

    fn client(&mut self, id: u32, line: &str) {
        let request = match line {
            "PASV" => ServerRequest::Data {
                id: CommandId(id),
                transfer: TransferId(id),
                answered: false,
            },
            line => ServerRequest::Command {
                id: CommandId(id),
                synch: false,
                answered: false,
                line: line.as_bytes().to_vec(),
            },
        };
        self.handle(FarInput::Received(request.into()));
    }

    fn handle(&mut self, input: FarInput<'_>) {
        self.far.handle(input).expect("no limit is hit");
        while let Some(output) = self.far.poll() {
            match output {
                FarOutput::ToServer { line, .. } => self.command(&String::from_utf8_lossy(&line)),
                FarOutput::Send(MessageToNear::Reply { tag, .. })
                    if tag.last && tag.stage == ReplyStage::Final =>
                {
                    let id = tag.command.map(|id| id.0);
                    self.replies.push((id, tag.code, self.now));
                }
                FarOutput::Send(MessageToNear::DataReady(id)) => {
                    self.replies.push((Some(id.0), 227, self.now));
                }
                // The server replies twice only while the session sends prefetched commands.
                // Afterwards, each reply belongs to the client.
                FarOutput::Learned(_) if self.delay == Delay::Twice => self.prompt = usize::MAX,
                FarOutput::Reconnect => {
                    self.connections += 1;
                    self.due = VecDeque::from([(self.now, "220 again".to_owned())]);
                    self.free_at = self.now;
                    self.handle(FarInput::Reconnected);
                }
                FarOutput::Close => self.is_closed = true,
                _ => {}
            }
        }
    }

    /// Passes a command to the scripted server.
    fn command(&mut self, line: &str) {
        let verb = line.split(' ').next().unwrap_or_default();
        let at = self.now.max(self.free_at);
        let is_slow = verb == self.slow && self.prompt == 0;
        if verb == self.slow {
            self.prompt = self.prompt.saturating_sub(1);
        }
        let (at, free_at) = match self.delay {
            _ if !is_slow => (at, at),
            Delay::InOrder(delay) => (at + delay, at + delay),
            Delay::Aside(delay) => (at + delay, at),
            Delay::Twice => (at, at),
            Delay::Never => return,
        };
        let is_question = matches!(verb, "SYST" | "FEAT" | "PWD");
        let (at, free_at) = match verb {
            "USER" | "PASS" => (at, free_at),
            _ if is_question => (at, free_at),
            _ => (at + self.work, free_at + self.work),
        };
        self.free_at = free_at;
        let answer = match verb {
            _ if verb == self.slow && self.answer.is_some() => self.answer.unwrap_or_default(),
            "USER" => "331 password",
            "PASS" => "230 in",
            "SYST" => "215 UNIX",
            "FEAT" => "211 none",
            "PWD" => "257 \"/\"",
            "CWD" => "250 there",
            "PASV" => "227 ok (1,2,3,4,4,1)",
            "RETR" => "550 none",
            _ => "200 ok",
        };
        let behind = self.due.iter().filter(|(due, _)| *due <= at).count();
        self.due.insert(behind, (at, answer.to_owned()));
        if is_slow && self.delay == Delay::Twice {
            self.due.insert(behind + 1, (at, answer.to_owned()));
        }
    }

    /// Runs the session until no reply and no timeout is pending, or until `end`.
    fn run(&mut self, end: Duration) {
        while !self.is_closed {
            self.wait = self.far.wait().map(|wait| match self.wait {
                Some((before, since)) if before.number == wait.number => (wait, since),
                _ => (wait, self.now),
            });
            let due = self.due.front().map(|(at, _)| *at);
            let over = self.wait.map(|(wait, since)| since + wait.time);
            let Some(next) = due.into_iter().chain(over).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = next;
            if due == Some(next) {
                if let Some((_, line)) = self.due.pop_front() {
                    self.handle(FarInput::ServerLine(line.as_bytes()));
                }
            } else {
                self.handle(FarInput::WaitTimedOut);
            }
        }
        self.now = self.now.max(end);
    }

    /// Returns the code and the time of the reply to a command.
    fn reply_to(&self, id: u32) -> Option<(u16, Duration)> {
        let is_it = |reply: &&(Option<u32>, u16, Duration)| reply.0 == Some(id);
        let reply = self.replies.iter().find(is_it)?;
        Some((reply.1, reply.2))
    }

    fn context(&self) -> String {
        format!(
            "{} {:?}: {:?}, {} connections, closed {}",
            self.slow, self.delay, self.replies, self.connections, self.is_closed
        )
    }
}

fn fast_session() -> FarSession {
    with(FarSetup {
        mode: SessionMode::Fast,
        ..STRICT
    })
}

const COMMANDS: [(&str, u16); 7] = [
    ("SYST", 215),
    ("FEAT", 211),
    ("PWD", 257),
    ("PASV", 227),
    ("NOOP", 200),
    ("CWD a", 250),
    ("RETR a", 550),
];

fn delays() -> impl Iterator<Item = Delay> {
    let times = [2_900, 3_100, 5_000, 7_900, 8_100, 10_000, 40_000].map(Duration::from_millis);
    let in_order = times.map(Delay::InOrder);
    in_order.into_iter().chain([Delay::Never])
}

/// Checks that each command has its own reply, before the time `max`. If the session has ended,
/// commands may lack their replies.
fn check(script: &ReplyScript, commands: &[(u32, &str, u16)], max: Duration) {
    let context = script.context();
    for (id, line, code) in commands {
        let count = script.replies.iter().filter(|it| it.0 == Some(*id)).count();
        assert!(count <= 1, "{line} is answered {count} times: {context}");
        match script.reply_to(*id) {
            Some((reply, at)) => {
                assert!(reply == *code || reply == 421, "{line}: {reply}, {context}");
                assert!(at <= max, "{line} at {at:?}: {context}");
            }
            None => assert!(script.is_closed, "{line}: {context}"),
        }
    }
    let strays = script
        .replies
        .iter()
        .filter(|it| it.0.is_none() && it.1 != 421);
    assert_eq!(strays.count(), 0, "{context}");
}

#[test]
fn a_late_answer_to_a_question_is_the_reply_to_no_command() {
    for (slow, delay) in ["SYST", "FEAT", "PWD"]
        .into_iter()
        .flat_map(|slow| delays().map(move |delay| (slow, delay)))
    {
        for (line, code) in COMMANDS {
            for at in [0, 4, 120].map(Duration::from_secs) {
                let mut script = ReplyScript::new(slow, delay);
                script.run(at);
                script.client(3, line);
                script.client(4, "NOOP");
                script.run(Duration::from_secs(3600));
                let max = at + Duration::from_secs(310);
                check(&script, &[(3, line, code), (4, "NOOP", 200)], max);
                let is_own = line == slow && delay == Delay::Never;
                assert_eq!(script.is_closed, is_own, "{line}: {}", script.context());
            }
        }
    }
}

#[test]
fn a_question_that_is_never_answered_holds_commands_up_for_some_seconds_only() {
    for slow in ["SYST", "FEAT", "PWD"] {
        let mut script = ReplyScript::new(slow, Delay::Never);
        script.client(3, "NOOP");
        script.run(Duration::from_secs(60));
        let (code, at) = script.reply_to(3).expect("a reply");
        assert_eq!(code, 200);
        assert!(at <= Duration::from_secs(9), "{at:?}");
        assert_eq!(script.connections, 2);
    }
}

#[test]
fn a_late_answer_in_a_session_that_cannot_be_repeated_is_waited_for() {
    for delay in delays() {
        for (line, code) in COMMANDS {
            let mut script = ReplyScript::new("PWD", delay);
            // The first reply to PWD, after the log-in, arrives without delay.
            script.prompt = 1;
            script.client(3, "CWD a");
            script.client(4, line);
            script.client(5, "NOOP");
            script.run(Duration::from_secs(3600));
            let commands = [(3, "CWD a", 250), (4, line, code), (5, "NOOP", 200)];
            check(&script, &commands, Duration::from_secs(610));
            assert_eq!(script.connections, 1);
            assert_eq!(script.is_closed, delay == Delay::Never);
        }
    }
}

#[test]
fn a_late_answer_out_of_order_is_the_reply_to_no_command() {
    for slow in ["SYST", "FEAT", "PWD"] {
        for (seconds, (line, code)) in [4, 10, 40]
            .into_iter()
            .flat_map(|seconds| COMMANDS.map(|command| (seconds, command)))
        {
            let mut script = ReplyScript::new(slow, Delay::Aside(Duration::from_secs(seconds)));
            script.client(3, line);
            script.client(4, "NOOP");
            script.run(Duration::from_secs(seconds));
            script.client(5, "NOOP");
            script.run(Duration::from_secs(600));
            let commands = [(3, line, code), (4, "NOOP", 200), (5, "NOOP", 200)];
            check(&script, &commands, Duration::from_secs(600));
            assert!(!script.is_closed);
        }
    }
}

/// Replies to prefetched commands, some of them with non-standard codes. `None` stands for the
/// standard reply.
const ANSWERS: [Option<&str>; 8] = [
    None,
    Some("200 UNIX"),
    Some("200 ok"),
    Some("211 x"),
    Some("215 x"),
    Some("257 \"/x\""),
    Some("500 what"),
    Some("530 no"),
];

#[test]
fn a_second_answer_to_a_question_is_the_reply_to_no_command() {
    let cases = ["SYST", "FEAT", "PWD"]
        .into_iter()
        .flat_map(|slow| ANSWERS.map(|answer| (slow, answer)))
        .flat_map(|(slow, answer)| COMMANDS.map(|command| (slow, answer, command)));
    for (slow, answer, (line, code)) in cases {
        for (before, work) in [(0, 0), (0, 9), (1, 0), (1, 9)] {
            let mut script = ReplyScript::new(slow, Delay::Twice);
            script.answer = answer;
            script.work = Duration::from_secs(work);
            script.run(Duration::from_secs(before));
            script.client(3, line);
            script.client(4, "NOOP");
            script.run(Duration::from_secs(60));
            let code = match answer {
                Some(answer) if line == slow => answer[..3].parse().expect("a code"),
                _ => code,
            };
            let commands = [(3, line, code), (4, "NOOP", 200)];
            check(&script, &commands, Duration::from_secs(60));
            let is_read_only = line != "RETR a";
            assert!(!script.is_closed || !is_read_only, "{}", script.context());
        }
    }
}

#[test]
fn a_second_answer_in_a_session_that_cannot_be_repeated_ends_it() {
    for (line, code) in COMMANDS {
        let mut script = ReplyScript::new("PWD", Delay::Twice);
        // The first reply, after the log-in, arrives only once.
        script.prompt = 1;
        script.work = Duration::from_secs(9);
        script.client(3, "CWD a");
        script.client(4, line);
        script.client(5, "NOOP");
        script.run(Duration::from_secs(60));
        let commands = [(3, "CWD a", 250), (4, line, code), (5, "NOOP", 200)];
        check(&script, &commands, Duration::from_secs(60));
        assert!(script.is_closed, "{}", script.context());
    }
}

#[test]
fn an_answer_in_time_costs_no_second_log_in() {
    for slow in ["SYST", "FEAT", "PWD"] {
        for answer in ANSWERS.into_iter().filter(|it| *it != Some("200 ok")) {
            let mut script = ReplyScript::new(slow, Delay::InOrder(Duration::from_millis(20)));
            script.answer = answer;
            script.client(3, "NOOP");
            script.client(4, "CWD a");
            script.run(Duration::from_secs(60));
            let commands = [(3, "NOOP", 200), (4, "CWD a", 250)];
            check(&script, &commands, Duration::from_secs(1));
            assert_eq!((script.connections, script.is_closed), (1, false));
        }
    }
}

#[test]
fn a_code_of_a_question_is_left_to_commands_that_may_have_it() {
    for (line, reply) in [
        ("MKD a", "257 \"/a\" made"),
        ("SITE MKDIR a", "257 \"/a\" made"),
        ("STAT", "211 all well"),
        ("HELP", "211 help"),
        ("XYZZY", "215 magic"),
        ("RNFR a", "350 go on"),
        ("REST 5", "350 from there"),
    ] {
        let mut script = ReplyScript::new("SYST", Delay::Never);
        script.run(Duration::from_secs(60));
        for id in [3, 4] {
            assert_eq!(client(&mut script.far, id, line), [format!("< {line}")]);
            assert_eq!(server(&mut script.far, reply), [format!("> {reply}")]);
        }
    }
}

/// Creates a session whose prefetched commands have received their replies in time.
fn answered() -> FarSession {
    let mut far = fast_session();
    client(&mut far, 1, "USER joe");
    for line in ["230 in", "215 UNIX", "211 none", "257 \"/\""] {
        server(&mut far, line);
    }
    far
}

#[test]
fn a_reply_with_the_code_of_an_answered_question_is_relayed() {
    for code in [211, 215, 257] {
        let mut far = answered();
        for (id, line) in (3..).zip([
            "NOOP", "MKD a", "XYZZY", "SITE x", "DELE a", "TYPE I", "MODE S", "STAT", "HELP",
            "RNFR a", "REST 9", "SIZE a", "ALLO 5", "RETR a",
        ]) {
            let reply = format!("{code} for {line}");
            assert_eq!(client(&mut far, id, line), [format!("< {line}")]);
            assert_eq!(server(&mut far, &reply), [format!("> {reply}")]);
        }
        client(&mut far, 30, "CWD a");
        let reply = format!("{code} \"/a\"");
        assert_eq!(
            server(&mut far, &reply),
            [format!("> {reply}"), "< PWD".to_owned()]
        );
    }
}

/// Makes the session log in again. Returns the outputs after the log-in.
fn log_in_again(far: &mut FarSession) -> Vec<String> {
    far.handle(FarInput::Reconnected).expect("no limit is hit");
    assert_eq!(server(far, "220 ready"), ["< USER joe"]);
    server(far, "230 in")
}

#[test]
fn a_reply_equal_to_the_answer_before_makes_the_session_log_in_again() {
    let left = ["learned no questions", "leave", "reconnect"];
    let mut far = answered();
    assert_eq!(client(&mut far, 3, "CDUP"), ["< CDUP"]);
    assert!(client(&mut far, 4, "NOOP").is_empty());
    assert_eq!(server(&mut far, "257 \"/\""), left);
    assert_eq!(log_in_again(&mut far), ["< CDUP"]);
    assert_eq!(server(&mut far, "257 \"/\""), ["> 257 \"/\"", "< NOOP"]);
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok"]);

    let mut far = answered();
    assert_eq!(pasv(&mut far, 3, 1), ["< PASV"]);
    assert_eq!(server(&mut far, "257 \"/\""), left);
    assert_eq!(log_in_again(&mut far), ["< PASV"]);
    let agreed = ["connect 1 1025", "ready 3"];
    assert_eq!(server(&mut far, "227 ok (1,2,3,4,4,1)"), agreed);
}

#[test]
fn a_reply_equal_to_the_answer_before_to_a_change_ends_the_session() {
    let mut far = answered();
    assert_eq!(client(&mut far, 3, "MKD a"), ["< MKD a"]);
    let out = server(&mut far, "257 \"/\"");
    assert_eq!(out[0], "learned no questions");
    assert!(out[1].starts_with("> 421 gateway"), "{out:?}");
    assert_eq!(out[2..], ["server closed", "close"]);
}

#[test]
fn a_reply_unlike_the_answer_before_leaves_nothing_ambiguous() {
    let mut far = answered();
    client(&mut far, 3, "CWD a");
    assert_eq!(server(&mut far, "257 \"/a\""), ["> 257 \"/a\"", "< PWD"]);
    server(&mut far, "257 \"/a\"");
    client(&mut far, 4, "NOOP");
    assert_eq!(server(&mut far, "200 ok"), ["> 200 ok"]);
    client(&mut far, 5, "MKD b");
    assert_eq!(server(&mut far, "257 \"/a\""), ["> 257 \"/a\""]);
}

#[test]
fn an_equal_line_behind_the_last_answer_is_dropped() {
    for answer in ["257 \"/\"", "200 /", "550 none"] {
        let mut far = fast_session();
        client(&mut far, 1, "USER joe");
        for line in ["230 in", "215 UNIX", "211 none", answer] {
            server(&mut far, line);
        }
        assert_eq!(server(&mut far, answer), ["learned no questions"]);
        client(&mut far, 3, "CWD a");
        assert_eq!(server(&mut far, "250 ok"), ["> 250 ok"], "no PWD");
    }
}

#[test]
fn a_server_that_refuses_a_question_twice_is_logged_in_to_again() {
    let mut far = fast_session();
    client(&mut far, 1, "USER joe");
    server(&mut far, "230 in");
    server(&mut far, "500 what");
    assert_eq!(
        server(&mut far, "500 what"),
        ["Features None false", "< PWD"]
    );
    assert!(client(&mut far, 2, "CWD a").is_empty());
    let left = [
        "learned no questions",
        "Directory None true",
        "leave",
        "reconnect",
    ];
    assert_eq!(server(&mut far, "211 none"), left);
    far.handle(FarInput::Reconnected).expect("no limit is hit");
    assert_eq!(server(&mut far, "220 ready"), ["< USER joe"]);
    assert_eq!(server(&mut far, "230 in"), ["< CWD a"]);
}

#[test]
fn a_refusal_of_pwd_behind_another_makes_the_session_log_in_again() {
    for answer in ["500 what", "500 what else"] {
        let mut far = fast_session();
        client(&mut far, 1, "USER joe");
        for line in ["230 in", "500 what", answer] {
            server(&mut far, line);
        }
        let out = server(&mut far, answer);
        assert_eq!(
            out,
            [
                "learned no questions",
                "Directory None true",
                "leave",
                "reconnect"
            ]
        );
        log_in_again(&mut far);
        client(&mut far, 3, "MLSD");
        assert_eq!(server(&mut far, "500 what"), ["> 500 what"]);
    }
}

#[test]
fn a_preliminary_reply_to_what_is_not_relayed_is_not_the_answer() {
    let mut far = session();
    pasv(&mut far, 1, 1);
    assert!(server(&mut far, "150 wait").is_empty());
    let agreed = ["connect 1 1025", "ready 1"];
    assert_eq!(server(&mut far, "227 ok (1,2,3,4,4,1)"), agreed);
}
