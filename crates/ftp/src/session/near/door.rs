//! Where a session's server comes from: fixed by the configuration, or named by the client when it
//! logs on. Until it has named one, the gateway itself answers.

use crate::{
    command::{Command, Kind},
    logon::{Logon, LogonError, Server},
};

/// Where the server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontDoor {
    /// One server for all clients.
    Fixed,
    /// The client names it: `USER name@server`.
    Logon,
}

/// What becomes of a command at the door.
pub(super) enum Admission {
    /// It is for the server.
    Server,
    /// It names a server.
    LogOn(Logon),
    /// The gateway answers.
    Answer(&'static str),
    /// The gateway answers, and the session is over.
    Goodbye(&'static str),
}

#[derive(Debug)]
pub(super) struct Door {
    front: FrontDoor,
    has_server: bool,
    /// Named for all logons to come: their accounts may contain an `@`.
    named: Option<Server>,
}

impl Door {
    pub(super) fn new(front: FrontDoor) -> Self {
        Self {
            front,
            has_server: front == FrontDoor::Fixed,
            named: None,
        }
    }

    /// The gateway's greeting, where it is not the server that greets.
    pub(super) fn greeting(&self) -> Option<&'static [u8]> {
        (self.front == FrontDoor::Logon)
            .then_some(b"220 Longhaul gateway: log in as USER name@server[:port]")
    }

    pub(super) fn admit(&mut self, command: &Command<'_>) -> Admission {
        if self.front == FrontDoor::Fixed {
            return Admission::Server;
        }
        if self.names_server(command) {
            return match Server::parse(command.argument()) {
                Ok(server) => {
                    self.named = Some(server);
                    Admission::Answer("220 gateway: go on with USER")
                }
                Err(_) => {
                    Admission::Answer("501 gateway: expected a server: name or address[:port]")
                }
            };
        }
        if command.kind() == Kind::User
            && let Some(server) = self.named.clone()
        {
            self.has_server = true;
            let user = command.argument().to_vec();
            return Admission::LogOn(Logon { user, server });
        }
        match (command.kind(), Logon::parse(command.argument())) {
            (Kind::User, Ok(logon)) => {
                self.has_server = true;
                Admission::LogOn(logon)
            }
            (Kind::User, Err(LogonError::Malformed)) => {
                Admission::Answer("501 gateway: expected USER name@server[:port]")
            }
            _ if self.has_server => Admission::Server,
            _ => before_logon(command),
        }
    }

    /// The forms of FileZilla, WinSCP, lftp and ncftp, and RFC 7151. No server knows `OPEN`; the others
    /// are for the server where there is one.
    fn names_server(&self, command: &Command<'_>) -> bool {
        match command.verb() {
            "OPEN" => true,
            "HOST" | "SITE" => !self.has_server,
            _ => false,
        }
    }

    /// The server could not be reached. Returns whether the client may name another.
    pub(super) fn server_refused(&mut self) -> bool {
        self.has_server = false;
        self.front == FrontDoor::Logon
    }
}

/// Proxy logons with an account on the gateway come as `USER`, `PASS`, `USER name@server`; there are
/// no accounts here, and any is as good as another.
fn before_logon(command: &Command<'_>) -> Admission {
    Admission::Answer(match command.kind() {
        Kind::User => "331 gateway: any password, then USER name@server[:port]",
        Kind::Pass => "230 gateway: go on with USER name@server[:port]",
        Kind::Quit => return Admission::Goodbye("221 Goodbye"),
        _ => match command.verb() {
            "NOOP" => "200 NOOP ok",
            _ => LOG_IN_FIRST,
        },
    })
}

/// The answer to commands that need a server.
pub(super) const LOG_IN_FIRST: &str = "530 gateway: log in as USER name@server[:port] first";
