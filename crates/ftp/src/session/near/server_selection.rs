//! Source of a session's server: the configuration, or the client's logon. Until the client has
//! named a server, the gateway itself answers.

use crate::{
    command::{Command, CommandKind},
    logon::{Logon, LogonError, NamedServer},
};

/// Source of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSource {
    /// One server for all clients.
    Fixed,
    /// The client names the server: `USER name@server`.
    Logon,
}

/// Handling of a command at the listener.
pub(super) enum Admission {
    /// The command is for the server.
    Server,
    /// The command names a server.
    LogOn(Logon),
    /// The gateway answers.
    Answer(&'static str),
    /// The gateway answers, and the session ends.
    Goodbye(&'static str),
}

#[derive(Debug)]
pub(super) struct ServerSelection {
    server_source: ServerSource,
    has_server: bool,
    /// Server for all further logons, whose accounts may contain an `@`.
    named: Option<NamedServer>,
}

impl ServerSelection {
    pub(super) fn new(server_source: ServerSource) -> Self {
        Self {
            server_source,
            has_server: server_source == ServerSource::Fixed,
            named: None,
        }
    }

    /// Returns the gateway's greeting. `None` if the server greets.
    pub(super) fn greeting(&self) -> Option<&'static [u8]> {
        (self.server_source == ServerSource::Logon)
            .then_some(b"220 Longhaul gateway: log in as USER name@server[:port]")
    }

    pub(super) fn admit(&mut self, command: &Command<'_>) -> Admission {
        if self.server_source == ServerSource::Fixed {
            return Admission::Server;
        }
        if self.names_server(command) {
            return match NamedServer::parse(command.argument()) {
                Ok(server) => {
                    self.named = Some(server);
                    Admission::Answer("220 gateway: continue with USER")
                }
                Err(_) => {
                    Admission::Answer("501 gateway: expected a server: name or address[:port]")
                }
            };
        }
        if command.kind() == CommandKind::User
            && let Some(server) = self.named.clone()
        {
            self.has_server = true;
            let user = command.argument().to_vec();
            return Admission::LogOn(Logon { user, server });
        }
        match (command.kind(), Logon::parse(command.argument())) {
            (CommandKind::User, Ok(logon)) => {
                self.has_server = true;
                Admission::LogOn(logon)
            }
            (CommandKind::User, Err(LogonError::Malformed)) => {
                Admission::Answer("501 gateway: expected USER name@server[:port]")
            }
            _ if self.has_server => Admission::Server,
            _ => before_logon(command),
        }
    }

    /// Whether the command names a server. FileZilla, WinSCP, lftp, ncftp and RFC 7151 define the
    /// forms. No server supports `OPEN`. If there is a server, it gets the others.
    fn names_server(&self, command: &Command<'_>) -> bool {
        match command.verb() {
            "OPEN" => true,
            "HOST" | "SITE" => !self.has_server,
            _ => false,
        }
    }

    /// Records that the server could not be reached. Returns whether the client may name another.
    pub(super) fn server_refused(&mut self) -> bool {
        self.has_server = false;
        self.server_source == ServerSource::Logon
    }
}

/// Answers a command before the server is named. Proxy logons with an account on the gateway use
/// `USER`, `PASS`, `USER name@server`. The gateway has no accounts, and accepts any.
fn before_logon(command: &Command<'_>) -> Admission {
    Admission::Answer(match command.kind() {
        CommandKind::User => "331 gateway: any password, then USER name@server[:port]",
        CommandKind::Pass => "230 gateway: continue with USER name@server[:port]",
        CommandKind::Quit => return Admission::Goodbye("221 Goodbye"),
        _ => match command.verb() {
            "NOOP" => "200 NOOP ok",
            _ => LOG_IN_FIRST,
        },
    })
}

/// The reply to commands that need a server.
pub(super) const LOG_IN_FIRST: &str = "530 gateway: log in as USER name@server[:port] first";
