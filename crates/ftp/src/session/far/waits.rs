//! Time limits for the server's replies, and the actions when they expire.

use std::time::Duration;

use super::{
    FarSession, ServerWait,
    in_flight::{CommandInFlight, ExpectedReply, OverdueReply},
};
use crate::session::{MessageToNear, ReplyStage, ReplyTag};

impl FarSession {
    /// Returns the present time limit for the server's reply. Returns `None` if no time limit
    /// applies.
    ///
    /// When the time has expired, the caller must pass
    /// [`FarInput::WaitTimedOut`](super::FarInput::WaitTimedOut). After any other input, the caller
    /// must call this function again, because the time limit may have changed.
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

    /// Returns the number that identifies the wait for the reply to `entry`. If the command was
    /// prefetched, arriving lines do not restart the wait.
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

    /// Handles an `ABOR` whose reply has not arrived in time. The server sent no reply, or a single
    /// reply for both the `ABOR` and its transfer.
    fn abort_unanswered(&mut self) {
        let Some(id) = self.in_flight.stop_waiting(OverdueReply::Abort) else {
            return;
        };
        let goes_on = self.queue.has_later(Some(id));
        self.abort_prepared();
        if goes_on {
            // The client does not wait for this reply, and might take it for the reply to its next
            // command.
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

    /// Ends the session, because the server's reply to a command is overdue.
    fn abandon_server(&mut self) {
        let time = self.wait().map_or(REPLY_TIMEOUT, |wait| wait.time);
        let minutes = time.as_secs() / 60;
        let what = match self.in_flight.awaited() {
            Some(entry) if !entry.verb.is_empty() => format!("not answered {}", entry.verb),
            _ => "sent no reply".to_owned(),
        };
        self.end_unanswerable(&format!("the server has {what} for {minutes} minutes"));
    }

    /// Replies with 421 to the command that waits for a reply, and ends the session.
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

/// Time limit for the reply to a prefetched command. The client's own commands wait during this
/// time. Clients wait at least half a minute for a reply.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(8);

/// Time limit for all attempts to log in again, including connection times and pauses.
const RELOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which a line counts as the last line of its reply, although its code differs from the
/// reply's code.
const DOUBT_TIMEOUT: Duration = Duration::from_millis(500);

/// Time limit for the replies to an aborted transfer and to its `ABOR`.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the reply to an `ABOR` if the client has sent further commands. Perhaps such a
/// client expects no reply to `ABOR`.
const ABORT_OVERTAKEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for the greeting, and for the reply to a command that every server executes quickly.
/// A slow name service can delay such a reply by one or two minutes.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Time limit for the reply to a command that a server may execute slowly. The time starts again
/// when a byte moves on a data connection. Checksums of large files, virus scans after uploads, and
/// files on tape may take up to this time.
pub const LONG_REPLY_TIMEOUT: Duration = Duration::from_secs(3600);

/// Commands that every server executes quickly.
const QUICK: [&str; 30] = [
    "ACCT", "ALLO", "CDUP", "CLNT", "CWD", "FEAT", "HELP", "HOST", "LANG", "MDTM", "MODE", "NOOP",
    "OPTS", "PASS", "PWD", "REIN", "REST", "RNFR", "STRU", "SYST", "TYPE", "USER", "XCUP", "XCWD",
    "XPWD", "MKD", "XMKD", "MFMT", "MFCT", "MFF",
];
