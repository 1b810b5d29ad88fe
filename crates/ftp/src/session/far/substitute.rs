//! Servers that open no data port. Such a server connects to the gateway instead.
//!
//! A refusal of `PASV` or `EPSV` may apply only to one user or one moment. The session reports that
//! the server lacks these commands only under two conditions. The server must reply that it does
//! not support the commands, and a transfer over a connection from the server must succeed. If the
//! server later fails to connect, the session withdraws the report.

use super::LearnedTrait;
use crate::session::TransferId;

#[derive(Debug)]
pub(super) struct Substitute {
    lack: MissingPassive,
    latest: Option<Connection>,
}

/// A connection that the server opens because it offers no data port.
#[derive(Debug, Clone, Copy)]
struct Connection {
    transfer: TransferId,
    /// Whether the server replied that it does not support `PASV` and `EPSV`.
    is_unknown: bool,
}

/// Level of certainty that the server lacks `PASV` and `EPSV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingPassive {
    None,
    /// The server has replied that it does not support the commands. It has accepted `PORT` or
    /// `EPRT`.
    Claimed,
    /// A transfer over a connection from the server has succeeded.
    Shown,
}

impl Substitute {
    /// Creates the state. `is_known` is set if an earlier session has detected that the server
    /// lacks `PASV` and `EPSV`.
    pub(super) fn new(is_known: bool) -> Self {
        Self {
            lack: if is_known {
                MissingPassive::Shown
            } else {
                MissingPassive::None
            },
            latest: None,
        }
    }

    /// Whether the session requests a connection from the server without first requesting a port.
    pub(super) fn is_first_choice(&self) -> bool {
        self.lack != MissingPassive::None
    }

    /// Records that the server must connect to the gateway. `is_unknown` is set if the server does
    /// not support `PASV` and `EPSV`.
    pub(super) fn begin(&mut self, transfer: TransferId, is_unknown: bool) {
        self.latest = Some(Connection {
            transfer,
            is_unknown,
        });
    }

    /// Records that the server has accepted the request to connect.
    pub(super) fn agreed(&mut self, transfer: TransferId) {
        let is_unknown = self.find(transfer).is_some_and(|it| it.is_unknown);
        if is_unknown && self.lack == MissingPassive::None {
            self.lack = MissingPassive::Claimed;
        }
    }

    /// Records a successful transfer over a connection from the server. Returns the trait of the
    /// server if this transfer confirms it.
    pub(super) fn succeeded(&mut self, transfer: TransferId) -> Option<LearnedTrait> {
        self.find(transfer)?;
        if self.lack != MissingPassive::Claimed {
            return None;
        }
        self.lack = MissingPassive::Shown;
        Some(LearnedTrait::LacksPassive(true))
    }

    /// Records that the server has failed to connect. Returns the trait of the server if this
    /// failure changes it.
    pub(super) fn failed(&mut self, transfer: TransferId) -> Option<LearnedTrait> {
        self.find(transfer)?;
        let before = std::mem::replace(&mut self.lack, MissingPassive::None);
        (before == MissingPassive::Shown).then_some(LearnedTrait::LacksPassive(false))
    }

    fn find(&self, transfer: TransferId) -> Option<Connection> {
        self.latest.filter(|it| it.transfer == transfer)
    }
}
