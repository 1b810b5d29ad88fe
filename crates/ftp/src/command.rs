//! One command line of a client: Telnet prefix, verb, argument.
//!
//! The parser borrows the line and does not change it. The gateway relays [`Command::line`]. The
//! output of `Debug` and `Display` is safe to log: secrets are replaced, and control characters are
//! escaped.

use std::{borrow::Cow, fmt};

use crate::address::{ActiveForm, PassiveForm};

/// A parsed command line. The line itself is unchanged.
#[derive(Clone, PartialEq, Eq)]
pub struct Command<'a> {
    line: &'a [u8],
    synch: bool,
    verb: String,
    /// Whether the verb contains invalid bytes.
    is_malformed: bool,
    /// Whether the line contains a CR or NUL.
    is_split: bool,
    argument: Cow<'a, [u8]>,
}

/// Meaning of a verb for the gateways. The gateways relay all other verbs unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// `USER`: names the account. In a proxy logon, `USER` also names the server.
    User,
    /// `PASS`: contains the password.
    Pass,
    /// `PASV`, `EPSV`, `LPSV`: requests a passive data connection.
    Passive(PassiveForm),
    /// `PORT`, `EPRT`, `LPRT`: contains the address at which the client waits for the data
    /// connection.
    Active(ActiveForm),
    /// `SPAS`, `SSCN` and other commands for data connections. The gateways do not support them.
    OtherData,
    /// `AUTH`, `PBSZ`, `PROT`, `CCC` and similar commands, which control TLS.
    Protection,
    /// A command that starts a transfer over the data connection.
    Transfer(DataDirection),
    /// `ABOR`: aborts the running transfer.
    Abort,
    /// `QUIT`: ends the session.
    Quit,
    /// `TYPE`: sets the representation type of transfers (ASCII or binary).
    Type,
    /// `NOOP`, `REIN`, or a `STAT` without a path. The gateway may relay such a command while a
    /// transfer is running.
    Overtaking,
    /// A malformed verb. A valid verb consists of letters, and digits may follow. Servers interpret
    /// a malformed verb in different ways, so the gateway never sends such a verb to a server.
    Malformed,
    /// A line that contains a CR or NUL. Some servers end the command at that byte, and execute the
    /// following bytes as another command. The gateway never sends such a line to a server.
    Split,
    /// A line without a verb. Some servers reply to such a line and others do not, so the gateway
    /// never sends such a line to a server.
    Blank,
    /// Any other verb. The gateway relays the command unchanged.
    Other,
}

/// Direction of a transfer's bytes, from the client's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDirection {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

impl<'a> Command<'a> {
    /// Parses `line`, which has no line terminator. The function never fails: an empty line has an
    /// empty verb.
    ///
    /// The function removes CR and NUL bytes at the start and the end of the line. Some clients end
    /// lines with CR CR LF, LF CR or CR NUL LF.
    pub fn parse(line: &'a [u8]) -> Self {
        let (prefix, rest) = split_telnet_prefix(trim_line_ends(line));
        let rest = trim_line_ends(rest);
        let is_split = rest.iter().any(|b| is_line_end(*b));
        let text = undouble_iac(rest);
        // Servers skip white space before a verb, and end the verb at any white space.
        let start = text
            .iter()
            .position(|b| !is_white(*b))
            .unwrap_or(text.len());
        let end = text[start..].iter().position(|b| is_white(*b));
        let end = end.map_or(text.len(), |length| start + length);
        let word = &text[start..end];
        let is_malformed = !is_verb(word);
        let verb: String = word
            .iter()
            .take(VERB_MAX)
            .map(|b| char::from(b.to_ascii_uppercase()))
            .collect();
        let argument = match text {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(end + 1..).unwrap_or_default()),
            Cow::Owned(bytes) => Cow::Owned(bytes.get(end + 1..).unwrap_or_default().to_vec()),
        };
        Self {
            line: rest,
            synch: !prefix.is_empty(),
            is_malformed,
            is_split,
            verb,
            argument,
        }
    }

    /// Returns the line that the gateway relays: the received line without its Telnet prefix, and
    /// without CR and NUL bytes at both ends.
    pub fn line(&self) -> &'a [u8] {
        self.line
    }

    /// Whether a Telnet interrupt or Synch preceded the command.
    pub fn synch(&self) -> bool {
        self.synch
    }

    /// Returns the verb in upper case.
    pub fn verb(&self) -> &str {
        &self.verb
    }

    /// Returns the text after the verb and the following white space. One IAC byte (255) replaces
    /// each pair of IAC bytes.
    pub fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// Returns the meaning of the verb for the gateways.
    pub fn kind(&self) -> CommandKind {
        match self.verb.as_str() {
            _ if self.is_split => CommandKind::Split,
            "" => CommandKind::Blank,
            "USER" => CommandKind::User,
            "PASS" => CommandKind::Pass,
            "PASV" => CommandKind::Passive(PassiveForm::Pasv),
            "EPSV" => CommandKind::Passive(PassiveForm::Epsv),
            "LPSV" => CommandKind::Passive(PassiveForm::Lpsv),
            "PORT" => CommandKind::Active(ActiveForm::Port),
            "EPRT" => CommandKind::Active(ActiveForm::Eprt),
            "LPRT" => CommandKind::Active(ActiveForm::Lprt),
            "SPAS" | "SPOR" | "CPSV" | "SSCN" => CommandKind::OtherData,
            "AUTH" | "ADAT" | "PBSZ" | "PROT" | "CCC" | "MIC" | "CONF" | "ENC" => {
                CommandKind::Protection
            }
            "RETR" | "LIST" | "NLST" | "MLSD" => CommandKind::Transfer(DataDirection::Download),
            "STOR" | "STOU" | "APPE" => CommandKind::Transfer(DataDirection::Upload),
            "ABOR" => CommandKind::Abort,
            "QUIT" => CommandKind::Quit,
            "TYPE" => CommandKind::Type,
            // With a path, `STAT` must wait: its refusal would look like the refusal of the running
            // transfer.
            "STAT" if self.argument.trim_ascii().is_empty() => CommandKind::Overtaking,
            "NOOP" | "REIN" => CommandKind::Overtaking,
            _ if self.is_malformed => CommandKind::Malformed,
            _ => CommandKind::Other,
        }
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.as_str();
        let plain = PLAIN_VERBS.contains(&verb);
        // Part of an unknown verb may be a password, because a server may ignore the bytes before
        // that part.
        f.write_str(if plain || SECRET_VERBS.contains(&verb) {
            verb
        } else {
            "***"
        })?;
        if self.argument.is_empty() {
            Ok(())
        } else if plain {
            write!(f, " {}", escape(&self.argument))
        } else {
            f.write_str(" ***")
        }
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({self})")
    }
}

/// Converts `bytes` to text for a log. The function escapes control characters and bytes that are
/// not UTF-8, and cuts the text at 256 characters.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
        if text.len() > LOGGED_MAX {
            return text.chars().take(LOGGED_MAX).chain(['…']).collect();
        }
    }
    text
}

/// Splits a line into its Telnet prefix and the command. Before `ABOR`, clients send the Telnet
/// codes IAC IP, IAC DM and IAC IAC. The urgent byte may be missing from the stream. The prefix
/// then contains the other bytes of these codes.
///
/// tnftp, lftp and the tests of pyftpdlib send these codes.
fn split_telnet_prefix(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line
        .iter()
        .position(|b| !matches!(b, 0xff | 0xf4 | 0xf2))
        .unwrap_or(line.len());
    line.split_at(end)
}

/// Removes CR and NUL at the start and the end of a line. Some servers interpret these bytes as
/// line ends.
fn trim_line_ends(mut line: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = line
        && is_line_end(*first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_line_end(*last)
    {
        line = rest;
    }
    line
}

/// Whether a server may end a command at `byte`. FileZilla Server 0.9 ends a command at each CR, LF
/// and NUL.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | 0)
}

/// Whether a word can be a verb. Verbs in RFC 959 consist of letters. Verbs of extensions may end
/// in digits (`MD5`, `XSHA256`).
///
/// At any position of a line, ProFTPD removes the Telnet codes IAC WILL, IAC WONT, IAC DO and IAC
/// DONT, each with its option byte. ProFTPD thus reads `PO` IAC WILL `x` `RT` as `PORT`. Other
/// servers remove more bytes. vsftpd reads `P@SW` as `PASV`.
///
/// In an argument, such a sequence is harmless. The verb ends before the sequence. If a gateway
/// interprets an argument itself, the gateway never sends that argument to a server.
fn is_verb(word: &[u8]) -> bool {
    let letters = word.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    word.is_empty() || letters > 0 && word[letters..].iter().all(u8::is_ascii_digit)
}

/// Whether C's `isspace` accepts `byte`.
fn is_white(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Replaces each pair of bytes with the value 255 by one such byte. Telnet (RFC 854) sends a data
/// byte 255 twice.
fn undouble_iac(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.windows(2).any(|pair| pair == [0xff, 0xff]) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        out.push(first);
        rest = if first == 0xff {
            tail.strip_prefix(&[0xff]).unwrap_or(tail)
        } else {
            tail
        };
    }
    Cow::Owned(out)
}

/// Verbs whose arguments contain no secret.
const PLAIN_VERBS: &[&str] = &[
    "ABOR", "ALLO", "APPE", "AUTH", "AVBL", "CCC", "CDUP", "CLNT", "CPSV", "CWD", "DELE", "EPRT",
    "EPSV", "FEAT", "HASH", "HELP", "HOST", "LANG", "LIST", "LPRT", "LPSV", "MD5", "MDTM", "MFCT",
    "MFF", "MFMT", "MKD", "MLSD", "MLST", "MODE", "NLST", "NOOP", "OPTS", "PASV", "PBSZ", "PORT",
    "PROT", "PWD", "QUIT", "RANG", "REIN", "REST", "RETR", "RMD", "RMDA", "RNFR", "RNTO", "SIZE",
    "SMNT", "SSCN", "STAT", "STOR", "STOU", "STRU", "SYST", "TYPE", "USER", "XCRC", "XCUP", "XCWD",
    "XMD5", "XMKD", "XPWD", "XRMD", "XSHA", "XSHA1", "XSHA256",
];

/// Verbs whose arguments may be secrets. Examples for `SITE` are `SITE RESPONSE` and `SITE GPASS`.
const SECRET_VERBS: &[&str] = &["PASS", "ACCT", "RESP", "ADAT", "SITE"];

/// Maximum length of a verb in the parsed copy, in bytes. No known verb is longer. The parser cuts
/// a longer word.
const VERB_MAX: usize = 16;

/// Maximum length of a client's text in one log field, in characters.
const LOGGED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_abor_is_recognised() {
        let forms: [&[u8]; 5] = [
            b"ABOR",
            b"abor",
            b"\xff\xf4\xff\xf2ABOR",
            b"\xf4\xffabor",
            b"\xff\xf4\xffABOR",
        ];
        for form in forms {
            let command = Command::parse(form);
            assert_eq!(command.kind(), CommandKind::Abort, "{form:?}");
            assert!(command.line().eq_ignore_ascii_case(b"ABOR"));
        }
        assert!(!Command::parse(b"ABOR").synch());
        assert!(Command::parse(b"\xff\xf4\xff\xf2ABOR").synch());
    }

    #[test]
    fn secrets_do_not_print() {
        for line in [
            &b"PASS hunter2"[..],
            b"pass hunter2",
            b"ACCT hunter2",
            b"SITE response hunter2",
            b"SITE  RESPONSE hunter2",
            b" PASS hunter2",
            b"PASS\thunter2",
            b"PASS\rhunter2",
            b"\0PASS hunter2",
            b"\xefPASS hunter2",
            b"hunter2",
        ] {
            let command = Command::parse(line);
            let text = format!("{command} {command:?}").to_lowercase();
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert_eq!(
            Command::parse(b"RETR a\x1b[2Jb").to_string(),
            "RETR a\\u{1b}[2Jb"
        );
    }

    #[test]
    fn what_servers_take_for_a_verb_is_one() {
        for line in [&b"PORT 1,2"[..], b"port\t1,2", b" PORT\x0b1,2"] {
            let command = Command::parse(line);
            assert!(matches!(command.kind(), CommandKind::Active(_)), "{line:?}");
            assert_eq!(command.argument(), b"1,2");
            assert_eq!(command.line(), line);
        }
    }

    #[test]
    fn the_argument_keeps_its_spaces_and_loses_doubled_iac() {
        let command = Command::parse(b"STOR  two  spaces \xff\xff");
        assert_eq!(command.argument(), b" two  spaces \xff");
        assert_eq!(command.line(), b"STOR  two  spaces \xff\xff");
        assert_eq!(command.kind(), CommandKind::Transfer(DataDirection::Upload));
    }

    #[test]
    fn a_verb_with_a_telnet_sequence_in_it_is_none() {
        for line in [
            &b"PO\xff\xfbxRT 127,0,0,1,4,1"[..],
            b"PO\xff\xfcxRT 127,0,0,1,4,1",
            b"PO\xff\xfdxRT 127,0,0,1,4,1",
            b"PO\xff\xfexRT 127,0,0,1,4,1",
            b"\xff\xfbxPORT 127,0,0,1,4,1",
            b"PORT\xff\xfbx 127,0,0,1,4,1",
            b"PR\xff\xfa\x01x\xff\xf0OT C",
            b"C\xff\xf1CC",
            b"EP\xff\xf6RT |1|127.0.0.1|1025|",
            b"PO\xff\xffRT 127,0,0,1,4,1",
            b"PO\xff\xf4RT 127,0,0,1,4,1",
            b"P@SW",
            b"5MD x",
            b"XM5D x",
            b"ABCDEFGHIJKLMNOPQ\xff\xfbx y",
        ] {
            let command = Command::parse(line);
            assert_eq!(command.kind(), CommandKind::Malformed, "{line:?}");
        }
    }

    #[test]
    fn verbs_of_extensions_are_for_the_server() {
        for line in [&b"MD5 a"[..], b"xsha256 a", b"XSHA1", b"STRANGE \xff\xfbx"] {
            assert_eq!(Command::parse(line).kind(), CommandKind::Other, "{line:?}");
        }
    }

    #[test]
    fn a_line_end_inside_a_line_is_no_part_of_a_command() {
        for line in [
            &b"NOOP x\rPORT 10,0,0,9,0,25"[..],
            b"NOOP\0PORT 10,0,0,9,0,25",
            b"\t PORT\r1,2",
            b"PO\0RT 127,0,0,1,4,1",
            b"PASS a\rb",
            b"RETR a\r\rDELE b",
        ] {
            assert_eq!(Command::parse(line).kind(), CommandKind::Split, "{line:?}");
        }
        for line in [&b"\rNOOP"[..], b"NOOP\r", b"NOOP\r\0", b"\0\rNOOP\r\r"] {
            let command = Command::parse(line);
            assert_eq!(
                (command.kind(), command.line()),
                (CommandKind::Overtaking, &b"NOOP"[..])
            );
        }
    }

    #[test]
    fn a_line_without_a_word_is_blank() {
        for line in [&b""[..], b" ", b"\r", b"\0", b" \t ", b"\xff\xf4\xff\xf2"] {
            assert_eq!(Command::parse(line).kind(), CommandKind::Blank, "{line:?}");
        }
    }

    /// Bytes that a server may remove from a line before it parses the line.
    #[derive(Debug, Clone, Copy)]
    enum Remove {
        /// Every Telnet sequence of RFC 854.
        Telnet,
        /// Telnet options and interrupts, but no subnegotiation. ProFTPD removes these bytes.
        Options,
        /// An IAC byte (255) and the next byte.
        Pairs,
        /// All bytes except printable ASCII.
        Unprintable,
    }

    fn removed(line: &[u8], what: Remove) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = line;
        while let Some((&first, tail)) = rest.split_first() {
            rest = match (first, tail, what) {
                (0xff, [0xfb..=0xfe, _, tail @ ..], Remove::Telnet | Remove::Options) => tail,
                (0xff, [0xfa, tail @ ..], Remove::Telnet) => {
                    let end = tail.windows(2).position(|pair| pair == [0xff, 0xf0]);
                    end.map_or(&[][..], |end| &tail[end + 2..])
                }
                (0xff, [0xf0..=0xf9, tail @ ..], Remove::Telnet)
                | (0xff, [0xf4 | 0xf2, tail @ ..], Remove::Options)
                | (0xff, [_, tail @ ..], Remove::Pairs) => tail,
                (0xff, [0xff, tail @ ..], Remove::Telnet | Remove::Options) => {
                    out.push(0xff);
                    tail
                }
                (0..=0x1f | 0x7f.., _, Remove::Unprintable) if !is_white(first) => tail,
                _ => {
                    out.push(first);
                    tail
                }
            };
        }
        out
    }

    /// Verbs that the gateway must never relay from a client to a server.
    const KEPT_FROM_SERVERS: [&str; 10] = [
        "PORT", "EPRT", "LPRT", "PASV", "EPSV", "PROT", "CCC", "SSCN", "AUTH", "CPSV",
    ];

    fn telnet_sequence() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0xfb..=0xfeu8, any::<u8>()).prop_map(|(verb, option)| vec![0xff, verb, option]),
            (0xf0..=0xffu8).prop_map(|command| vec![0xff, command]),
            any::<[u8; 2]>().prop_map(|[a, b]| vec![0xff, 0xfa, a, b, 0xff, 0xf0]),
            any::<u8>().prop_map(|byte| vec![byte]),
        ]
    }

    proptest! {
        #[test]
        fn no_server_reads_another_verb_than_the_gateway(
            verb in proptest::sample::select(&KEPT_FROM_SERVERS[..]),
            at in proptest::collection::vec((0..6usize, telnet_sequence()), 0..3),
        ) {
            let mut line = format!("{verb} 127,0,0,1,4,1").into_bytes();
            for (at, sequence) in at {
                line.splice(at..at, sequence);
            }
            // A newline ends the line.
            line.retain(|b| *b != b'\n');
            let command = Command::parse(&line);
            let is_relayed = !matches!(
                command.kind(),
                CommandKind::Passive(_) | CommandKind::Active(_) | CommandKind::OtherData | CommandKind::Protection | CommandKind::Malformed
                    | CommandKind::Split | CommandKind::Blank
            );
            prop_assert!(!is_relayed || !command.line().iter().any(|b| is_line_end(*b)));
            for what in [Remove::Telnet, Remove::Options, Remove::Pairs, Remove::Unprintable] {
                let read = removed(command.line(), what);
                let read = Command::parse(&read);
                prop_assert!(
                    !is_relayed || !KEPT_FROM_SERVERS.contains(&read.verb()),
                    "{line:?} is {:?} here, {:?} where {what:?} goes", command.verb(), read.verb()
                );
            }
        }

        #[test]
        fn any_bytes_parse_and_print_without_control_characters(
            line in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let command = Command::parse(&line);
            prop_assert!(command.to_string().chars().all(|c| !c.is_control()));
            let kept = command.line();
            prop_assert!(kept.is_empty() || line.windows(kept.len()).any(|part| part == kept));
        }
    }
}
