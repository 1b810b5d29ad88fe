//! TLS with the server (RFC 4217): its negotiation before the client's first command.

use super::reply_buffer::ReplyBuffer;
use crate::reply::{ReplyClass, ReplyCode};

/// TLS between the gateway and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// No TLS.
    #[default]
    Off,
    /// From `AUTH TLS` on, which the server must support.
    Explicit,
    /// From the first byte on.
    Implicit,
}

#[derive(Debug)]
pub(super) struct Protection {
    tls: ServerTls,
    step: Step,
    is_forgotten: bool,
    /// Whether protection of data was requested once.
    has_asked: bool,
}

/// Command that the server answers next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Greeting,
    Auth,
    Handshake,
    Pbsz,
    Prot,
    Done,
}

/// Next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Send(&'static str),
    BeginTls,
    Done,
    /// The server does not protect data as required. The text is the reason.
    Refused(String),
}

impl Protection {
    pub(super) fn new(tls: ServerTls) -> Self {
        let step = match tls {
            ServerTls::Off => Step::Done,
            ServerTls::Explicit | ServerTls::Implicit => Step::Greeting,
        };
        Self {
            tls,
            step,
            is_forgotten: false,
            has_asked: false,
        }
    }

    /// Whether the client's commands may go to the server.
    pub(super) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Whether data connections have TLS.
    pub(super) fn is_private(&self) -> bool {
        self.tls != ServerTls::Off
    }

    /// Records the server's greeting.
    pub(super) fn greeted(&mut self) -> Next {
        match self.tls {
            ServerTls::Off => Next::Done,
            ServerTls::Explicit => self.go(Step::Auth, "AUTH TLS"),
            ServerTls::Implicit => self.go(Step::Pbsz, "PBSZ 0"),
        }
    }

    /// Records that the server may have forgotten its protection, as pyftpdlib does after `REIN`
    /// and another `USER`. An immediate negotiation would come between `USER` and `PASS`.
    pub(super) fn forget(&mut self) {
        self.is_forgotten |= self.is_private() && self.is_done();
    }

    /// Whether protection must be requested again before data connections.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// Requests protection once more.
    pub(super) fn settle_again(&mut self) -> Next {
        self.is_forgotten = false;
        self.go(Step::Pbsz, "PBSZ 0")
    }

    /// Records the completed handshake.
    pub(super) fn tls_begun(&mut self) -> Next {
        self.go(Step::Pbsz, "PBSZ 0")
    }

    /// Records the server's reply. Returns the next action.
    pub(super) fn answered(&mut self, code: ReplyCode, held: &ReplyBuffer) -> Next {
        let is_ok = code.class() == ReplyClass::Completed;
        match self.step {
            Step::Auth if is_ok => {
                self.step = Step::Handshake;
                Next::BeginTls
            }
            Step::Auth => Next::Refused(format!("the server offers no TLS: {}", held.quoted())),
            // Servers with implicit TLS may support neither this command nor the next.
            Step::Pbsz => self.go(Step::Prot, "PROT P"),
            Step::Prot => self.prot_answered(code, held),
            Step::Greeting | Step::Handshake | Step::Done => Next::Done,
        }
    }

    fn prot_answered(&mut self, code: ReplyCode, held: &ReplyBuffer) -> Next {
        let is_ok = code.class() == ReplyClass::Completed;
        // Some servers accept `PROT` only after the log-in, and refuse it with different codes.
        let asks_again = !is_ok && !self.has_asked && !matches!(code.0, 504 | 534 | 536);
        self.has_asked = true;
        if is_ok || asks_again || self.tls == ServerTls::Implicit {
            self.is_forgotten |= asks_again;
            self.step = Step::Done;
            return Next::Done;
        }
        Next::Refused(format!(
            "the server offers no TLS for data connections: {}",
            held.quoted()
        ))
    }

    fn go(&mut self, step: Step, line: &'static str) -> Next {
        self.step = step;
        Next::Send(line)
    }
}
