//! Servers that open no data port: the server's own connection stands in for that.
//!
//! A refusal may be about one user or one moment. Only a server that does not know the commands, and whose own connection
//! has carried a transfer, counts as one without them; it does so until its connection does not come.

use super::Lesson;
use crate::session::TransferId;

#[derive(Debug)]
pub(super) struct Substitute {
    lack: Lack,
    latest: Option<Connection>,
}

/// A connection that the server is to make although it was to open a port.
#[derive(Debug, Clone, Copy)]
struct Connection {
    transfer: TransferId,
    /// The server does not know `PASV` and `EPSV`.
    is_unknown: bool,
}

/// How sure it is that the server lacks `PASV` and `EPSV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    None,
    /// The server says so, and takes `PORT`.
    Claimed,
    /// A transfer has shown it.
    Shown,
}

impl Substitute {
    /// `is_known`: an earlier session has learned that the server lacks `PASV` and `EPSV`.
    pub(super) fn new(is_known: bool) -> Self {
        Self {
            lack: if is_known { Lack::Shown } else { Lack::None },
            latest: None,
        }
    }

    /// Whether the server is to connect at once, without a request for a port.
    pub(super) fn is_first_choice(&self) -> bool {
        self.lack != Lack::None
    }

    /// The server is to connect. `is_unknown`: it knows no command that opens a port.
    pub(super) fn begin(&mut self, transfer: TransferId, is_unknown: bool) {
        self.latest = Some(Connection {
            transfer,
            is_unknown,
        });
    }

    /// The server has agreed to connect.
    pub(super) fn agreed(&mut self, transfer: TransferId) {
        let is_unknown = self.of(transfer).is_some_and(|it| it.is_unknown);
        if is_unknown && self.lack == Lack::None {
            self.lack = Lack::Claimed;
        }
    }

    /// A transfer has succeeded over its connection.
    pub(super) fn succeeded(&mut self, transfer: TransferId) -> Option<Lesson> {
        self.of(transfer)?;
        if self.lack != Lack::Claimed {
            return None;
        }
        self.lack = Lack::Shown;
        Some(Lesson::LacksPassive(true))
    }

    /// The server does not connect.
    pub(super) fn failed(&mut self, transfer: TransferId) -> Option<Lesson> {
        self.of(transfer)?;
        let before = std::mem::replace(&mut self.lack, Lack::None);
        (before == Lack::Shown).then_some(Lesson::LacksPassive(false))
    }

    fn of(&self, transfer: TransferId) -> Option<Connection> {
        self.latest.filter(|it| it.transfer == transfer)
    }
}
