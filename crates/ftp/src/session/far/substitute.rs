//! Servers that open no data port: the server connects to the gateway instead.
//!
//! A refusal may concern one user or one moment. The session concludes that a server lacks the
//! commands only if it does not know them, and if its own connection has carried a transfer. This
//! conclusion ends when the server fails to connect.

use super::LearnedTrait;
use crate::session::TransferId;

#[derive(Debug)]
pub(super) struct Substitute {
    lack: MissingPassive,
    latest: Option<Connection>,
}

/// A connection that the server must open in place of a port.
#[derive(Debug, Clone, Copy)]
struct Connection {
    transfer: TransferId,
    /// Whether the server does not support `PASV` and `EPSV`.
    is_unknown: bool,
}

/// Certainty that the server lacks `PASV` and `EPSV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingPassive {
    None,
    /// The server does not know the commands, and accepts `PORT`.
    Claimed,
    /// A transfer has confirmed it.
    Shown,
}

impl Substitute {
    /// Creates the state. With `is_known` an earlier session has learned that the server lacks
    /// `PASV` and `EPSV`.
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

    /// Whether the server must connect at once, without a request for a port.
    pub(super) fn is_first_choice(&self) -> bool {
        self.lack != MissingPassive::None
    }

    /// Records that the server must connect. With `is_unknown` it has no command that opens a port.
    pub(super) fn begin(&mut self, transfer: TransferId, is_unknown: bool) {
        self.latest = Some(Connection {
            transfer,
            is_unknown,
        });
    }

    /// Records that the server has agreed to connect.
    pub(super) fn agreed(&mut self, transfer: TransferId) {
        let is_unknown = self.find(transfer).is_some_and(|it| it.is_unknown);
        if is_unknown && self.lack == MissingPassive::None {
            self.lack = MissingPassive::Claimed;
        }
    }

    /// Records a successful transfer over its connection.
    pub(super) fn succeeded(&mut self, transfer: TransferId) -> Option<LearnedTrait> {
        self.find(transfer)?;
        if self.lack != MissingPassive::Claimed {
            return None;
        }
        self.lack = MissingPassive::Shown;
        Some(LearnedTrait::LacksPassive(true))
    }

    /// Records that the server has not connected.
    pub(super) fn failed(&mut self, transfer: TransferId) -> Option<LearnedTrait> {
        self.find(transfer)?;
        let before = std::mem::replace(&mut self.lack, MissingPassive::None);
        (before == MissingPassive::Shown).then_some(LearnedTrait::LacksPassive(false))
    }

    fn find(&self, transfer: TransferId) -> Option<Connection> {
        self.latest.filter(|it| it.transfer == transfer)
    }
}
