//! Servers that open no data port: the server connects to the gateway instead.
//!
//! A refusal may concern one user or one moment. The session concludes that a server lacks the
//! commands only if it does not know them, and if its own connection has carried a transfer. This
//! conclusion ends when the server fails to connect.

use super::Lesson;
use crate::session::TransferId;

#[derive(Debug)]
pub(super) struct Substitute {
    lack: Lack,
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
enum Lack {
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
            lack: if is_known { Lack::Shown } else { Lack::None },
            latest: None,
        }
    }

    /// Whether the server must connect at once, without a request for a port.
    pub(super) fn is_first_choice(&self) -> bool {
        self.lack != Lack::None
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
        let is_unknown = self.of(transfer).is_some_and(|it| it.is_unknown);
        if is_unknown && self.lack == Lack::None {
            self.lack = Lack::Claimed;
        }
    }

    /// Records a successful transfer over its connection.
    pub(super) fn succeeded(&mut self, transfer: TransferId) -> Option<Lesson> {
        self.of(transfer)?;
        if self.lack != Lack::Claimed {
            return None;
        }
        self.lack = Lack::Shown;
        Some(Lesson::LacksPassive(true))
    }

    /// Records that the server has not connected.
    pub(super) fn failed(&mut self, transfer: TransferId) -> Option<Lesson> {
        self.of(transfer)?;
        let before = std::mem::replace(&mut self.lack, Lack::None);
        (before == Lack::Shown).then_some(Lesson::LacksPassive(false))
    }

    fn of(&self, transfer: TransferId) -> Option<Connection> {
        self.latest.filter(|it| it.transfer == transfer)
    }
}
