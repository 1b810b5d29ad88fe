//! Asking the server for a data connection, in the form that fits its own address.

use std::net::SocketAddr;

use super::reply_buffer::ReplyBuffer;
use crate::{
    address::{ActiveForm, PassiveForm, active_line, announced_port},
    reply::{Class, Code},
    session::TransferId,
};

/// A request for a data connection.
#[derive(Debug)]
pub(super) struct PortRequest {
    pub(super) transfer: TransferId,
    /// The client has its answer.
    pub(super) answered: bool,
    asked: Ask,
    /// The form to try when the server refuses this one.
    other: Option<Ask>,
    /// The server does not know what it has been asked so far.
    is_unknown: bool,
    pub(super) held: ReplyBuffer,
}

/// What the server is asked.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Passive(PassiveForm),
    Active(ActiveForm, SocketAddr),
}

/// What the server's answer means.
pub(super) enum PortAnswer {
    /// The server awaits a connection at this port.
    Port(u16),
    /// The server will connect.
    Connects,
    /// Ask again in the other form.
    Again(PortRequest),
    /// The server opens no port in any form: listen for its connection.
    NoPassive {
        /// It knows none of the forms.
        is_unknown: bool,
    },
    /// Relay these lines.
    Refused(ReplyBuffer),
    /// No refusal, and no port either.
    Unreadable,
}

impl PortRequest {
    /// The gateway connects. EPSV on IPv4 breaks in NATs that do not know FTP; PASV cannot carry
    /// IPv6.
    pub(super) fn passive(transfer: TransferId, answered: bool, server_is_v6: bool) -> Self {
        let (asked, other) = if server_is_v6 {
            (PassiveForm::Epsv, None)
        } else {
            (PassiveForm::Pasv, Some(Ask::Passive(PassiveForm::Epsv)))
        };
        Self::new(transfer, answered, Ask::Passive(asked), other)
    }

    /// The server connects to `at`, which has its address family.
    pub(super) fn active(transfer: TransferId, answered: bool, at: SocketAddr) -> Self {
        let (asked, other) = if at.is_ipv6() {
            (ActiveForm::Eprt, None)
        } else {
            (ActiveForm::Port, Some(Ask::Active(ActiveForm::Eprt, at)))
        };
        Self::new(transfer, answered, Ask::Active(asked, at), other)
    }

    /// Whether the gateway listens for the server.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.asked, Ask::Active(..))
    }

    /// Verb of the command.
    pub(super) fn verb(&self) -> &'static str {
        match self.asked {
            Ask::Passive(PassiveForm::Pasv) => "PASV",
            Ask::Passive(_) => "EPSV",
            Ask::Active(ActiveForm::Port, _) => "PORT",
            Ask::Active(..) => "EPRT",
        }
    }

    fn new(transfer: TransferId, answered: bool, asked: Ask, other: Option<Ask>) -> Self {
        Self {
            transfer,
            answered,
            asked,
            other,
            is_unknown: true,
            held: ReplyBuffer::default(),
        }
    }

    /// What to send to the server.
    pub(super) fn line(&self) -> Vec<u8> {
        match self.asked {
            Ask::Passive(PassiveForm::Pasv) => b"PASV".to_vec(),
            Ask::Passive(_) => b"EPSV".to_vec(),
            Ask::Active(form, at) => active_line(form, at)
                .expect("the form was chosen for the address")
                .into_bytes(),
        }
    }

    pub(super) fn ended(self, code: Code) -> PortAnswer {
        let has_agreed = code.class() == Class::Completed;
        match self.asked {
            Ask::Active(..) if has_agreed => return PortAnswer::Connects,
            Ask::Passive(form) if has_agreed => {
                let mut lines = self.held.lines();
                if let Some(port) = lines.find_map(|line| announced_port(form, line)) {
                    return PortAnswer::Port(port);
                }
            }
            _ => {}
        }
        // Before a log-in, each form is refused so.
        let is_refused = code.0 / 100 == 5 && !matches!(code.0, 530 | 532);
        let is_unknown = self.is_unknown && matches!(code.0, 500 | 502);
        match (self.other, self.asked) {
            (Some(other), _) if is_refused || has_agreed => PortAnswer::Again(Self {
                is_unknown,
                ..Self::new(self.transfer, self.answered, other, None)
            }),
            (_, Ask::Passive(_)) if is_refused => PortAnswer::NoPassive { is_unknown },
            _ if code.class() == Class::Failed => PortAnswer::Refused(self.held),
            _ => PortAnswer::Unreadable,
        }
    }
}
