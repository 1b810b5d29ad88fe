//! Selection of a session's server: by the configuration, or by the client's proxy logon. Before
//! the logon, the gateway itself replies to the client's commands.

use crate::{
    command::{Command, CommandKind},
    logon::{Logon, LogonError, NamedServer},
};

/// Method by which a session selects its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSource {
    /// The configuration names one server for all clients.
    Fixed,
    /// The client names the server, with `USER name@server`.
    Logon,
}

/// Handling of a client's command before and after the proxy logon.
pub(super) enum Admission {
    /// The server must receive the command.
    Server,
    /// The command is a proxy logon. The session must connect to the server in the logon.
    LogOn(Logon),
    /// The gateway itself sends this reply.
    Answer(&'static str),
    /// The gateway itself sends this reply, and then ends the session.
    Goodbye(&'static str),
}

#[derive(Debug)]
pub(super) struct ServerSelection {
    server_source: ServerSource,
    has_server: bool,
    /// Server that the client named with `OPEN`, `HOST` or `SITE`. All later `USER` commands log in
    /// to this server. The account names in these commands may contain an `@`.
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

    /// Returns the gateway's own greeting. Returns `None` if the gateway relays the server's
    /// greeting.
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

    /// Whether the command names a server. FileZilla, WinSCP, lftp, ncftp and RFC 7151 define these
    /// commands. `OPEN` always names a server, because no server supports this command. Once the
    /// session has a server, that server receives `HOST` and `SITE`.
    fn names_server(&self, command: &Command<'_>) -> bool {
        match command.verb() {
            "OPEN" => true,
            "HOST" | "SITE" => !self.has_server,
            _ => false,
        }
    }

    /// Records that the server could not be reached, or that it refused the session. Returns
    /// whether the client may name another server.
    pub(super) fn server_refused(&mut self) -> bool {
        self.has_server = false;
        self.server_source == ServerSource::Logon
    }
}

/// Returns the reply to a command before the proxy logon. Some clients first log in to the gateway:
/// they send `USER`, `PASS`, `USER name@server`. The gateway has no accounts, and accepts any
/// account.
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

/// Reply to a command that needs a server, before the proxy logon.
pub(super) const LOG_IN_FIRST: &str = "530 gateway: log in as USER name@server[:port] first";
