//! Fuzz target: bytes of a control connection. They arrive in pieces of any size and are split into
//! lines. Each line is parsed as a command, a reply, an address and a logon.

use ftp::{
    address::{ActiveForm, PassiveForm, active_address, announced_port, epsv_argument},
    command::Command,
    line::{LineSplitter, SplitLine},
    logon::{Logon, split_port},
    reply::ReplyTracker,
};

use crate::Tape;

/// Maximum length of a line in this target. It is short, so that many inputs exceed it.
const LINE_MAX: usize = 48;

/// Runs one input, which contains the size of the pieces and the bytes.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let piece = usize::from(tape.byte() % 32).max(1);
    let bytes = data.get(1..).unwrap_or_default();
    let lines = split(bytes, piece);
    assert_eq!(lines, split(bytes, usize::MAX), "pieces make no difference");
    let mut tracker = ReplyTracker::default();
    for line in &lines {
        let SplitLine::Complete(line) = line else {
            continue;
        };
        assert!(line.len() <= LINE_MAX && !line.contains(&b'\n'));
        read_command(line);
        let position = tracker.locate(line);
        assert!(
            position.code.is_some() || !position.last,
            "a reply has a code"
        );
        for form in [PassiveForm::Pasv, PassiveForm::Epsv] {
            assert_ne!(announced_port(form, line), Some(0));
        }
    }
}

fn split(bytes: &[u8], piece: usize) -> Vec<SplitLine> {
    let mut splitter = LineSplitter::new(LINE_MAX);
    let mut lines = Vec::new();
    for piece in bytes.chunks(piece) {
        splitter.push(piece);
        while let Some(line) = splitter.next_line() {
            lines.push(line);
        }
    }
    lines
}

fn read_command(line: &[u8]) {
    let command = Command::parse(line);
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | 0);
    let end = line.iter().rposition(|byte| !is_line_end(byte));
    let trimmed = &line[..end.map_or(0, |at| at + 1)];
    assert!(
        trimmed.ends_with(command.line()),
        "only a prefix and line ends are taken off"
    );
    let _ = (command.kind(), command.synch(), command.verb());
    let shown = format!("{command} {command:?}");
    assert!(
        !shown.contains(char::is_control),
        "what is logged is one line: {shown:?}"
    );
    if let b"PASS" | b"ACCT" = command.verb().as_bytes()
        && !command.argument().is_empty()
    {
        assert!(shown.contains("***"));
    }
    let _ = epsv_argument(command.argument());
    for form in [ActiveForm::Port, ActiveForm::Eprt, ActiveForm::Lprt] {
        let _ = active_address(form, command.argument());
    }
    if let Ok(logon) = Logon::parse(command.argument()) {
        assert!(logon.server.port != 0 && !logon.server.host.is_empty() && !logon.user.is_empty());
    }
    if let Ok(text) = std::str::from_utf8(command.argument())
        && let Some((host, port)) = split_port(text)
    {
        assert!(port != 0 && text.contains(host));
    }
}

/// Returns first inputs for the fuzzer: lines that clients and servers send.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 11] = [
        b"USER joe@ftp.example.com:2121\r\nPASS secret\r\nPASV\r\nRETR a file\r\n",
        b"USER joe%host\r\nUSER joe@[2001:db8::1]:21\nEPSV ALL\r\nEPSV 2\r\n",
        b"PORT 10,0,0,1,4,1\r\nEPRT |2|::1|1025|\r\nLPRT 4,4,10,0,0,1,2,4,1\r\n",
        b"\xff\xf4\xff\xf2ABOR\r\n",
        b"STOR \xff\xffname\r\nSITE RESPONSE x\r\n",
        b"227 Entering Passive Mode (10,0,0,1,4,1).\r\n",
        b"229 Entering Extended Passive Mode (|||6446|)\r\n",
        b"230-welcome\r\n here\r\n230 in\r\n",
        b"150 Opening\r\n226 Done\r\n",
        b"\r\n\n\x00\r\r\n",
        &[b'x'; 120],
    ];
    lines.iter().map(|line| [b"\x03", *line].concat()).collect()
}
