//! Handling of the end of a session: a refusal by the server, a closed control connection, or a
//! lost link.

use super::{LOG_IN_FIRST, NearOutput, NearSession, TlsStep};

impl NearSession {
    pub(super) fn on_refused(&mut self, code: u16, text: &str) {
        let transfers = self.transfers.take_all();
        self.give_up(transfers, None);
        self.held.clear();
        self.last_code = code;
        self.write(format!("{code} gateway: {text}").as_bytes());
        // This was the reply to the logon. Later commands need a server.
        self.write_own_answers();
        self.pending.drop_next();
        for line in self.pending.give_up(LOG_IN_FIRST) {
            self.write(&line);
        }
        let may_go_on = self.server_selection.server_refused();
        if !may_go_on || code == 421 {
            self.server_gone = true;
            self.last_code = 421;
        }
    }

    pub(super) fn on_server_closed(&mut self) {
        let unfinished = self
            .transfers
            .take_unanswered(|id| self.held.reports_on(id));
        self.give_up(unfinished, None);
        self.server_gone = true;
    }

    pub(super) fn on_link_lost(&mut self, why: &str) {
        let was_running = self.transfers.is_running();
        let transfers = self.transfers.take_all();
        self.give_up(transfers, Some(426));
        self.held.clear();
        if was_running {
            self.write(format!("426 gateway: transfer aborted: {why}").as_bytes());
        }
        self.write(format!("421 gateway: {why}").as_bytes());
        self.pending.clear();
        self.tls_step = TlsStep::None;
        self.last_code = 421;
        self.server_gone = true;
    }

    /// Handles the end of the client's input. During a transfer, the end aborts the transfer (RFC
    /// 959). Otherwise, the session first waits for the replies to earlier commands.
    pub(super) fn on_client_ended(&mut self) {
        if self.client_ended {
            return;
        }
        if self.is_transferring() || self.tls_step != TlsStep::None {
            return self.on_client_closed();
        }
        self.client_ended = true;
    }

    /// Closes the session if the client's input has ended and all commands have their replies.
    pub(super) fn leave_if_answered(&mut self) {
        let waits = self.pending.has_commands() || self.waiting.is_some() || self.is_transferring();
        if self.client_ended && !self.closed && !waits {
            self.on_client_closed();
        }
    }

    pub(super) fn on_client_closed(&mut self) {
        // The client reads no replies any more.
        self.held.clear();
        self.pending.clear();
        for (id, order, record) in self.transfers.client_gone() {
            self.record(record);
            if let Some(order) = order {
                self.order(id, order);
            }
        }
        self.leave();
    }

    pub(super) fn close(&mut self) {
        // An idle client receives no reply. It detects the closed connection, as without gateways.
        if !self.is_idle() && !matches!(self.last_code, 221 | 421) {
            self.write(b"421 gateway: the server closed its control connection");
        }
        let unanswered = self.transfers.take_unanswered(|_| false);
        self.give_up(unanswered, None);
        self.leave();
    }

    pub(super) fn leave(&mut self) {
        self.tls_step = TlsStep::None;
        self.out.push_back(NearOutput::LeaveServer);
        self.closed = true;
        self.out.push_back(NearOutput::Close);
    }
}
