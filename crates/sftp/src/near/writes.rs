//! WRITEs of one handle, and the time of their answers.

use crate::{EarlyReplies, Rope};

/// WRITEs of one handle that await the server's confirmation.
#[derive(Debug)]
pub(super) struct Writes {
    early: EarlyReplies,
    unconfirmed: usize,
    /// Request id of the newest WRITE, if its answer is held.
    held: Option<u32>,
    /// STATUS packet of the first failure.
    failure: Option<Rope>,
}

/// Answer to a WRITE of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WriteAnswer {
    /// Request id of the client.
    pub(super) id: u32,
    /// STATUS packet of a failure. `None` means success.
    pub(super) failure: Option<Rope>,
}

impl WriteAnswer {
    pub(super) fn success(id: u32) -> Self {
        Self { id, failure: None }
    }

    pub(super) fn failure(id: u32, packet: Rope) -> Self {
        let failure = Some(packet);
        Self { id, failure }
    }
}

impl Writes {
    pub(super) fn new(early: EarlyReplies) -> Self {
        Self {
            early,
            unconfirmed: 0,
            held: None,
            failure: None,
        }
    }

    /// Returns the failure that all later WRITEs, `fsync@openssh.com` and CLOSE report. Returns
    /// `None` if there are no early answers, because each failed WRITE has then reported its own
    /// failure.
    pub(super) fn reported_failure(&self) -> Option<&Rope> {
        let is_early = self.early != EarlyReplies::Off;
        self.failure.as_ref().filter(|_| is_early)
    }

    /// Returns the first failure.
    pub(super) fn failure(&self) -> Option<&Rope> {
        self.failure.as_ref()
    }

    /// Accepts the failure of an OPEN whose answer was early.
    pub(super) fn open_failed(&mut self, packet: Rope) {
        self.failure.get_or_insert(packet);
    }

    /// Accepts a new WRITE. Returns the answer that is due now, if there is one. Also returns the
    /// request id if this WRITE must wait for the server's answer.
    pub(super) fn sent(&mut self, id: u32) -> (Option<WriteAnswer>, Option<u32>) {
        self.unconfirmed += 1;
        match self.early {
            EarlyReplies::Off => (None, Some(id)),
            EarlyReplies::Held => (self.held.replace(id).map(WriteAnswer::success), None),
            EarlyReplies::All => (Some(WriteAnswer::success(id)), None),
        }
    }

    /// Accepts the server's confirmation of a WRITE. Returns the answer that is due now.
    pub(super) fn confirmed(&mut self, id: Option<u32>) -> Option<WriteAnswer> {
        self.unconfirmed -= 1;
        let held = (self.unconfirmed == 0).then(|| self.held.take()).flatten();
        id.or(held).map(WriteAnswer::success)
    }

    /// Accepts the failure of a WRITE. Returns the answer that is due now.
    pub(super) fn failed(&mut self, id: Option<u32>, packet: Rope) -> Option<WriteAnswer> {
        self.unconfirmed -= 1;
        self.failure.get_or_insert_with(|| packet.clone());
        let id = id.or(self.held.take())?;
        Some(WriteAnswer::failure(id, packet))
    }
}
