//! Timeouts of the server's replies, and the actions after each.

use std::time::Duration;

use super::{
    FarSession, ServerWait,
    in_flight::{CommandInFlight, ExpectedReply, OverdueReply},
};
use crate::session::{MessageToNear, ReplyStage, ReplyTag};

impl FarSession {
    /// Returns the present wait. `None` while the server owes no reply.
    ///
    /// The caller passes [`FarInput::WaitTimedOut`](super::FarInput::WaitTimedOut) when the time
    /// has expired. Other inputs may change the wait, and end it.
    pub fn wait(&self) -> Option<ServerWait> {
        if self.closed || self.server_gone {
            return None;
        }
        let awaited = self.in_flight.awaited();
        let (number, (time, counts_data)) = match self.doubtful {
            Some(_) => (self.heard, (DOUBT_TIMEOUT, false)),
            None => (self.number_for(awaited?), self.time_for(awaited?)?),
        };
        Some(ServerWait {
            number,
            time,
            counts_data,
        })
    }

    /// Returns the number of the wait for the reply to `entry`. Further lines do not prolong the
    /// wait for a prefetched command.
    fn number_for(&self, entry: &CommandInFlight) -> u64 {
        match &entry.expect {
            ExpectedReply::Question(question) => question.wait,
            _ => self.log_in.wait().unwrap_or(self.heard),
        }
    }

    fn time_for(&self, entry: &CommandInFlight) -> Option<(Duration, bool)> {
        Some(match entry.expect {
            ExpectedReply::Question(_) if !self.dislikes_questions => (QUESTION_TIMEOUT, false),
            ExpectedReply::Pause(pause) => (pause, false),
            _ if self.log_in.is_in_relogin() => (RELOGIN_TIMEOUT, false),
            ExpectedReply::Abort if self.queue.has_later(entry.id) => {
                (ABORT_OVERTAKEN_TIMEOUT, false)
            }
            ExpectedReply::Abort => (ABORT_TIMEOUT, false),
            // The data connection has its own timeouts.
            ExpectedReply::Transfer { transfer, .. } if self.connections.is_open(transfer) => {
                return None;
            }
            ExpectedReply::Transfer { .. } if self.in_flight.has_abort() => (ABORT_TIMEOUT, false),
            ExpectedReply::Plain(_) if QUICK.contains(&entry.verb.as_str()) => {
                (REPLY_TIMEOUT, false)
            }
            ExpectedReply::Transfer { .. } | ExpectedReply::Plain(_) | ExpectedReply::Begun => {
                (LONG_REPLY_TIMEOUT, true)
            }
            _ => (REPLY_TIMEOUT, false),
        })
    }

    pub(super) fn handle_wait_timeout(&mut self) {
        if self.doubtful.is_some() {
            return self.end_doubtful();
        }
        let has_abort = self.in_flight.has_abort();
        match self.in_flight.awaited().map(|entry| &entry.expect) {
            None => {}
            Some(ExpectedReply::Question(question)) if !self.dislikes_questions => {
                self.on_question_overdue(question.subject);
            }
            Some(ExpectedReply::Pause(_)) => self.connect_again(),
            Some(ExpectedReply::Abort) => self.abort_unanswered(),
            Some(ExpectedReply::Transfer { transfer, .. }) if has_abort => {
                let transfer = *transfer;
                let id = self.in_flight.stop_waiting(OverdueReply::Transfer);
                self.end_unanswered(id, transfer);
            }
            Some(_) if self.log_in.is_in_relogin() => {
                self.end_relogin("the server does not let the session log in again in time");
            }
            Some(_) => self.abandon_server(),
        }
    }

    /// Handles a missing reply. The server answered an `ABOR` not at all, or sent a single reply
    /// for the `ABOR` and its transfer.
    fn abort_unanswered(&mut self) {
        let Some(id) = self.in_flight.stop_waiting(OverdueReply::Abort) else {
            return;
        };
        let goes_on = self.queue.has_later(Some(id));
        self.abort_prepared();
        if goes_on {
            // The client awaits no reply, and might assign one to its next command.
            self.send_to_near(MessageToNear::LeftUnanswered(id));
        } else {
            // The reply follows the replies to commands that the ABOR has overtaken.
            let tag = ReplyTag {
                command: Some(id),
                transfer: None,
                stage: ReplyStage::Final,
                code: 226,
                last: true,
                prefetches: false,
            };
            let line = b"226 gateway: aborted; the server has not answered";
            self.early.push_back((id, tag, line.to_vec()));
        }
    }

    /// Ends the session, since the server has left a command unanswered for too long.
    fn abandon_server(&mut self) {
        let time = self.wait().map_or(REPLY_TIMEOUT, |wait| wait.time);
        let minutes = time.as_secs() / 60;
        let what = match self.in_flight.awaited() {
            Some(entry) if !entry.verb.is_empty() => format!("not answered {}", entry.verb),
            _ => "sent no reply".to_owned(),
        };
        self.end_unanswerable(&format!("the server has {what} for {minutes} minutes"));
    }

    /// Answers the awaited command with 421, and ends the session.
    pub(super) fn end_unanswerable(&mut self, why: &str) {
        if let Some(CommandInFlight { id, expect, .. }) = self.in_flight.take_awaited() {
            let transfer = match expect {
                ExpectedReply::Transfer { transfer, .. } => Some(transfer),
                _ => None,
            };
            if let Some(transfer) = transfer {
                let worth = self.connections.answered(transfer, false);
                self.report_upload(transfer, worth);
                self.abort(transfer);
            }
            if let Some(id) = id {
                self.answer(id, transfer, &format!("421 gateway: {why}"));
            }
        }
        self.end_server();
    }
}

/// Timeout of a prefetched command. The client's own commands wait meanwhile, and clients wait for
/// at least half a minute.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(8);

/// Time for all attempts to log in again, connections and pauses included.
const RELOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which a line in doubt counts as the last of its reply.
const DOUBT_TIMEOUT: Duration = Duration::from_millis(500);

/// Timeout of the replies to an aborted transfer.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The same if the client has sent further commands: it may not await a reply to `ABOR`.
const ABORT_OVERTAKEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of the reply to a command that needs no work, and of the greeting. Unresponsive name
/// services take a minute or two.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Timeout of the reply to any other command, without a byte on a data connection. Checksums of
/// large files, virus scans after uploads and files on tape take that long.
pub const LONG_REPLY_TIMEOUT: Duration = Duration::from_secs(3600);

/// Commands that need no work.
const QUICK: [&str; 30] = [
    "ACCT", "ALLO", "CDUP", "CLNT", "CWD", "FEAT", "HELP", "HOST", "LANG", "MDTM", "MODE", "NOOP",
    "OPTS", "PASS", "PWD", "REIN", "REST", "RNFR", "STRU", "SYST", "TYPE", "USER", "XCUP", "XCWD",
    "XPWD", "MKD", "XMKD", "MFMT", "MFCT", "MFF",
];
