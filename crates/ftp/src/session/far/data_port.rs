//! Asking the server for a passive data connection, in the form that fits its own address.

use super::held::Held;
use crate::{
    address::announced_port,
    command::PassiveForm,
    reply::{Class, Code},
    session::TransferId,
};

/// A request that the server has been sent.
#[derive(Debug)]
pub(super) struct Passive {
    pub(super) transfer: TransferId,
    tried: PassiveForm,
    /// The form to try when the server does not know this one.
    other: Option<PassiveForm>,
    pub(super) held: Held,
}

/// What the server's answer means.
pub(super) enum Answer {
    /// The server awaits a connection at this port.
    Port(u16),
    /// Ask again in the other form.
    Again(Passive),
    /// Relay these lines.
    Refused(Held),
    /// No refusal, and no port either.
    Unreadable,
}

impl Passive {
    /// EPSV on IPv4 breaks in NATs that do not know FTP; PASV cannot carry IPv6.
    pub(super) fn new(transfer: TransferId, server_is_v6: bool) -> Self {
        let (tried, other) = if server_is_v6 {
            (PassiveForm::Epsv, None)
        } else {
            (PassiveForm::Pasv, Some(PassiveForm::Epsv))
        };
        Self {
            transfer,
            tried,
            other,
            held: Held::default(),
        }
    }

    /// What to send to the server.
    pub(super) fn line(&self) -> Vec<u8> {
        match self.tried {
            PassiveForm::Pasv => b"PASV".to_vec(),
            PassiveForm::Epsv => b"EPSV".to_vec(),
        }
    }

    pub(super) fn ended(self, code: Code) -> Answer {
        let ok_code = match self.tried {
            PassiveForm::Pasv => 227,
            PassiveForm::Epsv => 229,
        };
        let has_port = code.0 == ok_code;
        let port = self
            .held
            .last()
            .and_then(|line| announced_port(self.tried, line));
        if let (Some(port), true) = (port, has_port) {
            return Answer::Port(port);
        }
        let not_understood = matches!(code.0, 500..=504 | 522) || has_port;
        match self.other {
            Some(other) if not_understood => Answer::Again(Self {
                transfer: self.transfer,
                tried: other,
                other: None,
                held: Held::default(),
            }),
            _ if code.class() == Class::Failed => Answer::Refused(self.held),
            _ => Answer::Unreadable,
        }
    }
}
