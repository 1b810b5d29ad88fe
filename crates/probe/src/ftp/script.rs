//! Script of a session. Each line contains one command in the form in which it is sent to the
//! server.
//!
//! - `#` at the beginning of a line starts a comment. Elsewhere `#` is part of a name.
//! - `{user}`, `{password}` and `{folder}` are replaced by the probe's settings.
//! - `{session}` is replaced by a name that is unique to the session. `{number}` is replaced by the
//!   session's number, counted from 0. `{{` is replaced by one brace.
//! - `PASV`, `EPSV`, `PORT` and `EPRT` have no argument, because the client adds the addresses. If
//!   none of them precedes a transfer, the client sends `EPSV`. In active mode the client sends
//!   `PORT`.
//! - `RETR`, `STOR`, `APPE`, `LIST`, `NLST` and `MLSD` move data. The probe generates the content
//!   of stored files. If a session retrieves a file that it has stored, the probe compares the
//!   content.
//! - A code before a command is the expected reply: `550 MDTM gone`, `5xx RMD x`. Without a code,
//!   the expected reply is a success.
//! - `SLEEP 2s` is not an FTP command. The session pauses for an exponentially distributed time
//!   with this mean.

use std::{fmt, time::Duration};

use ::ftp::{
    address::{ActiveForm, PassiveForm},
    reply::ReplyCode,
};

/// The steps of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionScript {
    pub(super) steps: Vec<ScriptStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScriptStep {
    Sleep(Duration),
    Command(ScriptCommand),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptCommand {
    /// Verb of the command in upper case.
    pub(super) verb: String,
    pub(super) job: ClientAction,
    argument: Vec<ArgumentPart>,
    pub(super) expected: ExpectedReply,
}

/// The client's action for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAction {
    Passive(PassiveForm),
    Active(ActiveForm),
    Retrieve,
    Store,
    Append,
    List,
    /// Send the command and wait for its reply. No data connection is needed.
    Ask,
}

/// The expected final reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedReply {
    /// Any code `2yz`. Codes `3yz` are also accepted for a command that another command must
    /// follow, such as `RNFR`.
    Success,
    Code(u16),
    /// Any code with this first digit.
    Class(u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ArgumentPart {
    Text(String),
    User,
    Password,
    Folder,
    Session,
    Number,
}

/// Values of the script's placeholders in one session.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceholderValues<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    pub(super) folder: &'a str,
    pub(super) session: &'a str,
    pub(super) number: u64,
}

/// A mistake in a script, with its position. Lines and columns are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct SessionScriptError {
    /// Number of the line.
    pub line: usize,
    /// Number of the column, in characters.
    pub column: usize,
    /// Description of the mistake.
    pub message: String,
}

impl SessionScript {
    /// Returns the script of the middlebox study. The script has 35 commands, including two
    /// listings and four file transfers in passive and active mode. The remaining commands are more
    /// varied than the study's commands.
    ///
    /// Source: M. Allman, "On the Performance of Middleboxes", IMC 2003, section 7.
    pub fn middlebox() -> Self {
        Self::parse(MIDDLEBOX).expect("a test parses it")
    }

    /// Parses a script.
    ///
    /// # Errors
    /// [`SessionScriptError`] with the first mistake.
    pub fn parse(text: &str) -> Result<Self, SessionScriptError> {
        let mut steps = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at = |column: usize, message: String| SessionScriptError {
                line: index + 1,
                column,
                message,
            };
            let indent = line.chars().take_while(|c| c.is_whitespace()).count();
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            if steps.len() == STEPS_MAX {
                return Err(at(1, format!("more than {STEPS_MAX} steps")));
            }
            if line.len() > LINE_MAX {
                return Err(at(LINE_MAX, format!("longer than {LINE_MAX} bytes")));
            }
            let step = step(content);
            steps.push(step.map_err(|(column, message)| at(indent + column + 1, message))?);
        }
        if steps.is_empty() {
            return Err(SessionScriptError {
                line: 1,
                column: 1,
                message: "no command".to_owned(),
            });
        }
        Ok(Self { steps })
    }

    /// Returns the number of commands that a session sends. The number includes the commands that
    /// the client adds before transfers.
    pub fn commands(&self) -> usize {
        let (mut count, mut has_data) = (0, false);
        for job in self.jobs() {
            count += 1;
            if matches!(job, ClientAction::Passive(_) | ClientAction::Active(_)) {
                has_data = true;
            } else if job.moves_data() {
                count += usize::from(!has_data);
                has_data = false;
            }
        }
        count
    }

    /// Returns the number of file transfers of a session.
    pub fn transfers(&self) -> usize {
        let moved = self.jobs().filter(|job| job.moves_data());
        moved.filter(|job| *job != ClientAction::List).count()
    }

    fn jobs(&self) -> impl Iterator<Item = ClientAction> {
        self.steps.iter().filter_map(|step| match step {
            ScriptStep::Command(command) => Some(command.job),
            ScriptStep::Sleep(_) => None,
        })
    }
}

impl ClientAction {
    pub(super) fn moves_data(self) -> bool {
        matches!(
            self,
            Self::Retrieve | Self::Store | Self::Append | Self::List
        )
    }
}

impl ScriptCommand {
    /// Returns the argument with the values of its placeholders.
    pub(super) fn argument(&self, values: &PlaceholderValues<'_>) -> String {
        let piece = |piece: &ArgumentPart| match piece {
            ArgumentPart::Text(text) => text.clone(),
            ArgumentPart::User => values.user.to_owned(),
            ArgumentPart::Password => values.password.to_owned(),
            ArgumentPart::Folder => values.folder.to_owned(),
            ArgumentPart::Session => values.session.to_owned(),
            ArgumentPart::Number => values.number.to_string(),
        };
        self.argument.iter().map(piece).collect()
    }
}

impl ExpectedReply {
    pub(super) fn is(self, code: ReplyCode, verb: &str) -> bool {
        match self {
            Self::Code(wanted) => code.0 == wanted,
            Self::Class(digit) => code.0 / 100 == digit,
            Self::Success => match code.0 / 100 {
                2 => true,
                3 => matches!(verb, "USER" | "PASS" | "RNFR" | "REST"),
                _ => false,
            },
        }
    }
}

impl fmt::Display for ExpectedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Code(code) => write!(f, "{code}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

/// Parses a line without leading and trailing spaces. An error contains the number of characters
/// before the mistake.
fn step(content: &str) -> Result<ScriptStep, (usize, String)> {
    let (mut word, mut rest) = split(content);
    let mut before = 0;
    let mut expected = ExpectedReply::Success;
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let problem = || format!("{word:?} is not a reply's code such as 550 or 5xx");
        expected = code(word).ok_or_else(|| (0, problem()))?;
        before = content.chars().count() - rest.chars().count();
        if rest.is_empty() {
            return Err((before, "a command must follow the code".to_owned()));
        }
        (word, rest) = split(rest);
    }
    let verb = word.to_ascii_uppercase();
    let behind = before + content.chars().skip(before).count() - rest.chars().count();
    if verb == "SLEEP" {
        let time = units::parse_duration(rest).map_err(|error| (behind, error.to_string()))?;
        return Ok(ScriptStep::Sleep(time));
    }
    let job = job(&verb).map_err(|message| (before, message))?;
    if matches!(job, ClientAction::Passive(_) | ClientAction::Active(_)) && !rest.is_empty() {
        let message = format!("{verb} stands alone: its address is filled in");
        return Err((behind, message));
    }
    let takes_name = matches!(
        job,
        ClientAction::Retrieve | ClientAction::Store | ClientAction::Append
    );
    if takes_name && rest.is_empty() {
        return Err((behind, format!("{verb} needs a name")));
    }
    let argument = pieces(rest).map_err(|(column, message)| (behind + column, message))?;
    Ok(ScriptStep::Command(ScriptCommand {
        verb,
        job,
        argument,
        expected,
    }))
}

/// Returns the first word, and the text after the first space.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn code(word: &str) -> Option<ExpectedReply> {
    let bytes: &[u8; 3] = word.as_bytes().try_into().ok()?;
    let digit = (b'1'..=b'5')
        .contains(&bytes[0])
        .then(|| u16::from(bytes[0] - b'0'))?;
    if bytes[1..].eq_ignore_ascii_case(b"xx") {
        return Some(ExpectedReply::Class(digit));
    }
    word.parse().ok().map(ExpectedReply::Code)
}

fn job(verb: &str) -> Result<ClientAction, String> {
    Ok(match verb {
        "PASV" => ClientAction::Passive(PassiveForm::Pasv),
        "EPSV" => ClientAction::Passive(PassiveForm::Epsv),
        "PORT" => ClientAction::Active(ActiveForm::Port),
        "EPRT" => ClientAction::Active(ActiveForm::Eprt),
        "RETR" => ClientAction::Retrieve,
        "STOR" => ClientAction::Store,
        "APPE" => ClientAction::Append,
        "LIST" | "NLST" | "MLSD" => ClientAction::List,
        "STOU" | "ABOR" | "LPSV" | "LPRT" | "AUTH" | "PROT" => {
            return Err(format!("{verb} is not in the probe's vocabulary"));
        }
        _ if (3..=4).contains(&verb.len()) && verb.bytes().all(|b| b.is_ascii_alphabetic()) => {
            ClientAction::Ask
        }
        _ => {
            return Err(format!(
                "{verb:?} is not a command of three or four letters"
            ));
        }
    })
}

fn pieces(text: &str) -> Result<Vec<ArgumentPart>, (usize, String)> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        literal.push_str(&rest[..open]);
        let inside = &rest[open + 1..];
        if let Some(behind) = inside.strip_prefix('{') {
            literal.push('{');
            rest = behind;
            continue;
        }
        let column = text.chars().count() - rest[open..].chars().count();
        let Some(close) = inside.find('}') else {
            return Err((column, "this brace is not closed".to_owned()));
        };
        let piece = match &inside[..close] {
            "user" => ArgumentPart::User,
            "password" => ArgumentPart::Password,
            "folder" => ArgumentPart::Folder,
            "session" => ArgumentPart::Session,
            "number" => ArgumentPart::Number,
            other => {
                let known = "{user}, {password}, {folder}, {session} and {number}";
                return Err((column, format!("{{{other}}} is none of {known}")));
            }
        };
        if !literal.is_empty() {
            pieces.push(ArgumentPart::Text(std::mem::take(&mut literal)));
        }
        pieces.push(piece);
        rest = &inside[close + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(ArgumentPart::Text(literal));
    }
    Ok(pieces)
}

const MIDDLEBOX: &str = include_str!("middlebox.ftp");
const STEPS_MAX: usize = 10_000;
/// Maximum length of a line in bytes. vsftpd accepts 4096 bytes.
const LINE_MAX: usize = 4000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        SessionScript::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn the_studys_session_has_its_numbers() {
        let script = SessionScript::middlebox();
        assert_eq!((script.commands(), script.transfers()), (35, 4));
        let added = SessionScript::parse("RETR a\nPASV\nTYPE I\nRETR a\nLIST").expect("fine");
        assert_eq!((added.commands(), added.transfers()), (7, 2));
    }

    #[test]
    fn placeholders_are_filled_in() {
        let script =
            SessionScript::parse("  STOR {session}/{{x}-{number}#1 of {user}\n").expect("fine");
        let ScriptStep::Command(command) = &script.steps[0] else {
            panic!("a command");
        };
        let values = PlaceholderValues {
            user: "u",
            password: "p",
            folder: "f",
            session: "s7",
            number: 7,
        };
        assert_eq!(command.argument(&values), "s7/{x}-7#1 of u");
    }

    #[test]
    fn errors_tell_line_and_column() {
        for (text, expected) in [
            ("\n# nothing\n", "1:1: no command"),
            ("NOOP\n  RETR {nam}", "2:8: {nam} is none of"),
            ("RETR {name", "1:6: this brace"),
            ("55 NOOP", "1:1: \"55\" is not a reply's code"),
            ("550", "1:4: a command must follow"),
            ("550 NO", "1:5: \"NO\" is not a command"),
            ("SLEEP soon", "1:7: "),
            ("PORT 1,2,3,4,5,6", "1:6: PORT stands alone"),
            ("STOR", "1:5: STOR needs a name"),
            ("AUTH TLS", "1:1: AUTH is not in"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_code_in_front_is_the_reply_to_come() {
        let script =
            SessionScript::parse("550 MDTM gone\n5XX RMD x\nRNFR a\nDELE a").expect("fine");
        let expected = |step: &ScriptStep| match step {
            ScriptStep::Command(command) => command.expected,
            ScriptStep::Sleep(_) => panic!("a command"),
        };
        let [mdtm, rmd, rnfr, dele] = [0, 1, 2, 3].map(|at: usize| expected(&script.steps[at]));
        assert!(mdtm.is(ReplyCode(550), "MDTM") && !mdtm.is(ReplyCode(213), "MDTM"));
        assert!(rmd.is(ReplyCode(501), "RMD") && !rmd.is(ReplyCode(250), "RMD"));
        assert!(rnfr.is(ReplyCode(350), "RNFR") && !dele.is(ReplyCode(350), "DELE"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_script_or_an_error_within_it(text in "[ -~{}äé\n\t]{0,200}") {
            if let Err(error) = SessionScript::parse(&text) {
                let lines: Vec<_> = text.lines().collect();
                prop_assert!(error.line <= lines.len().max(1));
                let line = lines.get(error.line - 1).map_or(0, |line| line.chars().count());
                prop_assert!(error.column >= 1 && error.column <= line + 1, "{}", error);
            }
        }
    }
}
