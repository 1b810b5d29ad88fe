//! Fast mode at the near gateway. The near gateway itself replies to some commands. For other
//! commands, it repeats replies that the far gateway has prefetched from the server.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    command::{Command, CommandKind},
    session::{CommandId, QuestionSubject, SessionMode},
};

#[derive(Debug)]
pub(super) struct PrefetchedReplies {
    mode: SessionMode,
    /// Whether the client is logged in. Before the log-in, a server may refuse a command just
    /// because the command requires a log-in.
    logged_in: bool,
    /// Whether further prefetched replies are in flight from the far gateway.
    expecting: bool,
    /// Subjects whose prefetched reply is in flight but invalid, because a later command may have
    /// changed the reply.
    void: BTreeSet<QuestionSubject>,
    /// For each subject, the latest command that has made earlier replies invalid.
    voided_by: BTreeMap<QuestionSubject, CommandId>,
    /// Latest command that starts a log-in.
    login: Option<CommandId>,
    known: BTreeMap<QuestionSubject, Vec<u8>>,
}

/// Handling of a client's command in fast mode.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandHandling {
    /// The far gateway must send the command to the server.
    Server,
    /// The prefetched reply is in flight. The command must wait for it.
    Wait,
    /// This text is the prefetched reply to the command.
    Known(Vec<u8>),
    /// This text is the gateway's own reply to the command. The server must receive the command,
    /// too.
    Certain(String),
}

impl PrefetchedReplies {
    pub(super) fn new(mode: SessionMode) -> Self {
        Self {
            mode,
            logged_in: false,
            expecting: false,
            void: BTreeSet::new(),
            voided_by: BTreeMap::new(),
            login: None,
            known: BTreeMap::new(),
        }
    }

    /// Whether the near gateway accepts a request for a data connection before the server has
    /// accepted it.
    pub(super) fn promises_data(&self) -> bool {
        self.logged_in
    }

    /// Returns the handling of `command`. After [`CommandHandling::Wait`], the caller must pass the
    /// command again when the reply has arrived.
    ///
    /// `id` is the number that the command has if the server receives it. If `may_answer` is false,
    /// the server receives every `SYST`, `FEAT` and `PWD`.
    pub(super) fn answer(
        &mut self,
        command: &Command<'_>,
        id: CommandId,
        may_answer: bool,
    ) -> CommandHandling {
        if !self.logged_in {
            self.void(command, id);
            return CommandHandling::Server;
        }
        let subject =
            QuestionSubject::from_verb(command.verb()).filter(|_| command.argument().is_empty());
        match (subject, representation_type(command)) {
            (Some(_), _) if !may_answer => CommandHandling::Server,
            (Some(subject), _) => self.answer_question(subject),
            (None, Some(name)) => CommandHandling::Certain(format!("200 gateway: TYPE {name}")),
            (None, None) => {
                self.void(command, id);
                CommandHandling::Server
            }
        }
    }

    fn answer_question(&mut self, subject: QuestionSubject) -> CommandHandling {
        // Other users may change the directories. The gateway therefore uses each stored reply for
        // only one command.
        let known = match subject {
            QuestionSubject::Directory => self.known.remove(&subject),
            QuestionSubject::System | QuestionSubject::Features => {
                self.known.get(&subject).cloned()
            }
        };
        match known {
            Some(lines) => CommandHandling::Known(lines),
            None if self.expecting && !self.void.contains(&subject) => CommandHandling::Wait,
            None => CommandHandling::Server,
        }
    }

    /// Records that the far gateway sends prefetched commands, because the command `cause` has
    /// succeeded.
    pub(super) fn begin(&mut self, cause: Option<CommandId>) {
        if self.mode == SessionMode::Strict || self.login > cause {
            return;
        }
        self.logged_in = true;
        self.expecting = true;
        // A command after `cause` may have changed the answer. The prefetched reply to that subject
        // is then invalid.
        let voided = self.voided_by.iter().filter(|(_, id)| Some(**id) > cause);
        self.void = voided.map(|(subject, _)| *subject).collect();
    }

    /// Stores the server's reply to a prefetched command, unless the reply is invalid.
    pub(super) fn learn(&mut self, subject: QuestionSubject, answer: Option<&[u8]>, last: bool) {
        if self.void.contains(&subject) {
            // A command after the prefetched command may have changed the answer.
        } else if let Some(lines) = answer {
            self.known.insert(subject, lines.to_vec());
        } else {
            self.known.remove(&subject);
            self.void.insert(subject);
        }
        if last {
            self.expecting = false;
            self.void.clear();
        }
    }

    /// Drops all stored replies, because the session has no server any more.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.mode);
    }

    fn void(&mut self, command: &Command<'_>, id: CommandId) {
        let verb = command.verb();
        let voided: &[QuestionSubject] = match verb {
            "USER" | "REIN" | "ACCT" | "HOST" => {
                self.logged_in = false;
                self.login = Some(id);
                &[
                    QuestionSubject::System,
                    QuestionSubject::Features,
                    QuestionSubject::Directory,
                ]
            }
            "OPTS" | "LANG" => &[QuestionSubject::Features, QuestionSubject::Directory],
            _ if KEEP_DIRECTORY.contains(&verb) => &[],
            _ => &[QuestionSubject::Directory],
        };
        for subject in voided {
            self.known.remove(subject);
            self.void.insert(*subject);
            self.voided_by.insert(*subject, id);
        }
    }
}

/// Returns the argument of a `TYPE` command that every server accepts (RFC 1123 section 4.1.2.12).
/// Returns `None` for any other command.
fn representation_type(command: &Command<'_>) -> Option<&'static str> {
    if command.kind() != CommandKind::Type {
        return None;
    }
    match command.argument().to_ascii_uppercase().as_slice() {
        b"I" => Some("I"),
        b"A" | b"A N" => Some("A"),
        _ => None,
    }
}

/// Commands that change neither the working directory nor its name.
const KEEP_DIRECTORY: &[&str] = &[
    "ABOR", "ALLO", "APPE", "AVBL", "CLNT", "DELE", "EPRT", "EPSV", "FEAT", "HASH", "HELP", "LIST",
    "LPRT", "LPSV", "MD5", "MDTM", "MFCT", "MFF", "MFMT", "MKD", "MLSD", "MLST", "MODE", "NLST",
    "NOOP", "PASV", "PBSZ", "PORT", "PROT", "PWD", "QUIT", "REST", "RETR", "SIZE", "STAT", "STOR",
    "STOU", "STRU", "SYST", "TYPE", "XMKD", "XPWD",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(prefetched: &mut PrefetchedReplies, line: &str) -> CommandHandling {
        prefetched.answer(&Command::parse(line.as_bytes()), CommandId(9), true)
    }

    fn logged_in() -> PrefetchedReplies {
        let mut prefetched = PrefetchedReplies::new(SessionMode::Fast);
        prefetched.begin(Some(CommandId(1)));
        prefetched
    }

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let mut prefetched = logged_in();
        assert_eq!(ask(&mut prefetched, "SYST"), CommandHandling::Wait);
        prefetched.learn(QuestionSubject::System, Some(b"215 UNIX"), false);
        let known = CommandHandling::Known(b"215 UNIX".to_vec());
        assert_eq!(ask(&mut prefetched, "SYST"), known);
        assert_eq!(
            ask(&mut prefetched, "SYST"),
            known,
            "as often as it is asked"
        );
        assert_eq!(ask(&mut prefetched, "FEAT"), CommandHandling::Wait);
        prefetched.learn(QuestionSubject::Features, None, true);
        assert_eq!(ask(&mut prefetched, "FEAT"), CommandHandling::Server);
        assert_eq!(ask(&mut prefetched, "PWD"), CommandHandling::Server);
    }

    #[test]
    fn the_directory_is_reported_once_and_not_after_commands_that_may_change_it() {
        let mut prefetched = logged_in();
        prefetched.learn(QuestionSubject::Directory, Some(b"257 \"/\""), true);
        ask(&mut prefetched, "NOOP");
        assert_eq!(
            ask(&mut prefetched, "PWD"),
            CommandHandling::Known(b"257 \"/\"".to_vec())
        );
        assert_eq!(ask(&mut prefetched, "PWD"), CommandHandling::Server);
        prefetched.begin(Some(CommandId(9)));
        assert_eq!(ask(&mut prefetched, "CWD x"), CommandHandling::Server);
        assert_eq!(ask(&mut prefetched, "PWD"), CommandHandling::Server);
        prefetched.learn(QuestionSubject::Directory, Some(b"257 \"/\""), true);
        assert_eq!(
            ask(&mut prefetched, "PWD"),
            CommandHandling::Server,
            "it is the old one"
        );
    }

    #[test]
    fn an_answer_is_void_that_another_command_has_overtaken() {
        let mut prefetched = logged_in();
        prefetched.learn(QuestionSubject::Directory, Some(b"257 \"/\""), true);
        let mut cwd = |id| {
            let command = Command::parse(b"CWD a");
            prefetched.answer(&command, CommandId(id), true)
        };
        assert_eq!(cwd(5), CommandHandling::Server);
        assert_eq!(cwd(6), CommandHandling::Server);
        // The server has answered the first of these commands.
        prefetched.begin(Some(CommandId(5)));
        prefetched.learn(QuestionSubject::Directory, Some(b"257 \"/a\""), true);
        assert_eq!(ask(&mut prefetched, "PWD"), CommandHandling::Server);
        prefetched.begin(Some(CommandId(6)));
        prefetched.learn(QuestionSubject::Directory, Some(b"257 \"/a/a\""), true);
        let known = CommandHandling::Known(b"257 \"/a/a\"".to_vec());
        assert_eq!(ask(&mut prefetched, "PWD"), known);
    }

    #[test]
    fn a_login_that_another_follows_promises_nothing() {
        let mut prefetched = PrefetchedReplies::new(SessionMode::Fast);
        prefetched.answer(&Command::parse(b"USER other"), CommandId(3), true);
        prefetched.begin(Some(CommandId(2)));
        assert!(!prefetched.promises_data());
        prefetched.begin(Some(CommandId(4)));
        assert!(prefetched.promises_data());
    }

    #[test]
    fn another_login_begins_anew() {
        let mut prefetched = logged_in();
        prefetched.learn(QuestionSubject::System, Some(b"215 UNIX"), true);
        assert_eq!(ask(&mut prefetched, "USER other"), CommandHandling::Server);
        assert_eq!(ask(&mut prefetched, "SYST"), CommandHandling::Server);
        assert_eq!(ask(&mut prefetched, "TYPE I"), CommandHandling::Server);
    }

    #[test]
    fn types_that_every_server_has_are_certain() {
        let mut prefetched = logged_in();
        assert!(matches!(
            ask(&mut prefetched, "TYPE i"),
            CommandHandling::Certain(_)
        ));
        assert!(matches!(
            ask(&mut prefetched, "type A N"),
            CommandHandling::Certain(_)
        ));
        assert_eq!(ask(&mut prefetched, "TYPE E"), CommandHandling::Server);
    }

    #[test]
    fn in_strict_mode_all_is_for_the_server() {
        let mut prefetched = PrefetchedReplies::new(SessionMode::Strict);
        prefetched.begin(None);
        for line in ["SYST", "PWD", "TYPE I"] {
            assert_eq!(ask(&mut prefetched, line), CommandHandling::Server);
        }
        assert!(!prefetched.promises_data());
    }
}
