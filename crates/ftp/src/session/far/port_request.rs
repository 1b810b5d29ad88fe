//! Requests to the server for a data connection. The command depends on the address family of the
//! server.

use std::net::SocketAddr;

use super::reply_buffer::ReplyBuffer;
use crate::{
    address::{ActiveForm, PassiveForm, active_line, announced_port},
    reply::{ReplyClass, ReplyCode},
    session::TransferId,
};

/// A request to the server for a data connection.
#[derive(Debug)]
pub(super) struct PortRequest {
    pub(super) transfer: TransferId,
    /// Whether the client already has a reply from the near gateway.
    pub(super) answered: bool,
    asked: PortCommand,
    /// Command to send if the server refuses `asked`, or if the reply to `asked` contains no
    /// readable port.
    other: Option<PortCommand>,
    /// Whether the server has rejected all earlier commands of this request as unsupported.
    is_unknown: bool,
    pub(super) held: ReplyBuffer,
}

/// Command that requests a data connection from the server.
#[derive(Debug, Clone, Copy)]
enum PortCommand {
    Passive(PassiveForm),
    Active(ActiveForm, SocketAddr),
}

/// Meaning of the server's reply to a request for a data connection.
pub(super) enum PortAnswer {
    /// The server waits for a connection at this port.
    Port(u16),
    /// The server will connect to the gateway.
    Connects,
    /// Send this request, which uses the other command.
    Again(PortRequest),
    /// The server refuses all commands that open a port. The gateway must listen for the server's
    /// connection instead.
    NoPassive {
        /// Whether the server has rejected every command as unsupported.
        is_unknown: bool,
    },
    /// The server refuses the data connection. Relay these lines.
    Refused(ReplyBuffer),
    /// The reply is a success, but contains no readable port.
    Unreadable,
}

impl PortRequest {
    /// Creates a request for a port of the server. An IPv4 request starts with `PASV`, because
    /// `EPSV` over IPv4 breaks in NATs without FTP support. An IPv6 request uses `EPSV`, because
    /// `PASV` cannot carry an IPv6 address.
    pub(super) fn passive(transfer: TransferId, answered: bool, server_is_v6: bool) -> Self {
        let (asked, other) = if server_is_v6 {
            (PassiveForm::Epsv, None)
        } else {
            (
                PassiveForm::Pasv,
                Some(PortCommand::Passive(PassiveForm::Epsv)),
            )
        };
        Self::new(transfer, answered, PortCommand::Passive(asked), other)
    }

    /// Creates a request for a connection from the server to `at`. The address `at` and the
    /// server's address have the same family.
    pub(super) fn active(transfer: TransferId, answered: bool, at: SocketAddr) -> Self {
        let (asked, other) = if at.is_ipv6() {
            (ActiveForm::Eprt, None)
        } else {
            (
                ActiveForm::Port,
                Some(PortCommand::Active(ActiveForm::Eprt, at)),
            )
        };
        Self::new(transfer, answered, PortCommand::Active(asked, at), other)
    }

    /// Whether the server connects and the gateway listens.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.asked, PortCommand::Active(..))
    }

    /// Returns the verb of the command.
    pub(super) fn verb(&self) -> &'static str {
        match self.asked {
            PortCommand::Passive(PassiveForm::Pasv) => "PASV",
            PortCommand::Passive(_) => "EPSV",
            PortCommand::Active(ActiveForm::Port, _) => "PORT",
            PortCommand::Active(..) => "EPRT",
        }
    }

    fn new(
        transfer: TransferId,
        answered: bool,
        asked: PortCommand,
        other: Option<PortCommand>,
    ) -> Self {
        Self {
            transfer,
            answered,
            asked,
            other,
            is_unknown: true,
            held: ReplyBuffer::default(),
        }
    }

    /// Returns the command line for the server.
    pub(super) fn line(&self) -> Vec<u8> {
        match self.asked {
            PortCommand::Passive(PassiveForm::Pasv) => b"PASV".to_vec(),
            PortCommand::Passive(_) => b"EPSV".to_vec(),
            PortCommand::Active(form, at) => active_line(form, at)
                .expect("the form was chosen for the address")
                .into_bytes(),
        }
    }

    pub(super) fn ended(self, code: ReplyCode) -> PortAnswer {
        let has_agreed = code.class() == ReplyClass::Completed;
        match self.asked {
            PortCommand::Active(..) if has_agreed => return PortAnswer::Connects,
            PortCommand::Passive(form) if has_agreed => {
                let mut lines = self.held.lines();
                if let Some(port) = lines.find_map(|line| announced_port(form, line)) {
                    return PortAnswer::Port(port);
                }
            }
            _ => {}
        }
        // Before a log-in, servers refuse every form of the request with 530 or 532.
        let is_refused = code.0 / 100 == 5 && !matches!(code.0, 530 | 532);
        let is_unknown = self.is_unknown && matches!(code.0, 500 | 502);
        match (self.other, self.asked) {
            (Some(other), _) if is_refused || has_agreed => PortAnswer::Again(Self {
                is_unknown,
                ..Self::new(self.transfer, self.answered, other, None)
            }),
            (_, PortCommand::Passive(_)) if is_refused => PortAnswer::NoPassive { is_unknown },
            _ if code.class() == ReplyClass::Failed => PortAnswer::Refused(self.held),
            _ => PortAnswer::Unreadable,
        }
    }
}
