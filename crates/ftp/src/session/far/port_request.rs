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
    /// The form to try when the server does not know this one.
    other: Option<Ask>,
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

    fn new(transfer: TransferId, answered: bool, asked: Ask, other: Option<Ask>) -> Self {
        Self {
            transfer,
            answered,
            asked,
            other,
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
        let has_agreed = match self.asked {
            Ask::Passive(PassiveForm::Pasv) => code.0 == 227,
            Ask::Passive(_) => code.0 == 229,
            Ask::Active(..) => code.class() == Class::Completed,
        };
        match self.asked {
            Ask::Active(..) if has_agreed => return PortAnswer::Connects,
            Ask::Passive(form) if has_agreed => {
                let announced = self.held.last().and_then(|line| announced_port(form, line));
                if let Some(port) = announced {
                    return PortAnswer::Port(port);
                }
            }
            _ => {}
        }
        let not_understood = matches!(code.0, 500..=504 | 522) || has_agreed;
        match self.other {
            Some(other) if not_understood => {
                PortAnswer::Again(Self::new(self.transfer, self.answered, other, None))
            }
            _ if code.class() == Class::Failed => PortAnswer::Refused(self.held),
            _ => PortAnswer::Unreadable,
        }
    }
}
