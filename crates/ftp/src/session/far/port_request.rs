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
    /// The server has refused to open a port itself.
    in_place_of_passive: bool,
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
    NoPassive,
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

    /// The same, after the server has refused to open a port itself.
    pub(super) fn in_place_of_passive(self) -> Self {
        Self {
            in_place_of_passive: true,
            ..self
        }
    }

    /// Whether the server connects although it was to open a port.
    pub(super) fn is_in_place_of_passive(&self) -> bool {
        self.in_place_of_passive
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
            in_place_of_passive: false,
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
        match (self.other, self.asked) {
            (Some(other), _) if is_refused || has_agreed => PortAnswer::Again(Self {
                in_place_of_passive: self.in_place_of_passive,
                ..Self::new(self.transfer, self.answered, other, None)
            }),
            (_, Ask::Passive(_)) if is_refused => PortAnswer::NoPassive,
            _ if code.class() == Class::Failed => PortAnswer::Refused(self.held),
            _ => PortAnswer::Unreadable,
        }
    }
}
