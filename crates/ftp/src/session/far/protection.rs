//! Negotiation of TLS with the server (RFC 4217), before the client's first command.

use super::reply_buffer::ReplyBuffer;
use crate::reply::{ReplyClass, ReplyCode};

/// TLS mode of the control connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerTlsMode {
    /// No TLS.
    #[default]
    Off,
    /// TLS starts after `AUTH TLS`. The server must support that command.
    Explicit,
    /// TLS starts with the first byte.
    Implicit,
}

#[derive(Debug)]
pub(super) struct ServerProtection {
    tls: ServerTlsMode,
    step: PendingAnswer,
    is_forgotten: bool,
    /// Whether the session has already requested protection of data connections.
    has_asked: bool,
}

/// Step of the negotiation: the reply or handshake for which the session waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingAnswer {
    Greeting,
    Auth,
    Handshake,
    Pbsz,
    Prot,
    Done,
}

/// Next action of the negotiation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProtectionStep {
    Send(&'static str),
    BeginTls,
    Done,
    /// The server refuses the required protection. The text is the reason.
    Refused(String),
}

impl ServerProtection {
    pub(super) fn new(tls: ServerTlsMode) -> Self {
        let step = match tls {
            ServerTlsMode::Off => PendingAnswer::Done,
            ServerTlsMode::Explicit | ServerTlsMode::Implicit => PendingAnswer::Greeting,
        };
        Self {
            tls,
            step,
            is_forgotten: false,
            has_asked: false,
        }
    }

    /// Whether the negotiation is complete. If so, the session may send the client's commands.
    pub(super) fn is_done(&self) -> bool {
        self.step == PendingAnswer::Done
    }

    /// Whether data connections to the server use TLS.
    pub(super) fn is_private(&self) -> bool {
        self.tls != ServerTlsMode::Off
    }

    /// Records the server's greeting. Returns the next action.
    pub(super) fn greeted(&mut self) -> ProtectionStep {
        match self.tls {
            ServerTlsMode::Off => ProtectionStep::Done,
            ServerTlsMode::Explicit => self.enter_step(PendingAnswer::Auth, "AUTH TLS"),
            ServerTlsMode::Implicit => self.enter_step(PendingAnswer::Pbsz, "PBSZ 0"),
        }
    }

    /// Records that the server may have lost its protection settings. pyftpdlib loses them after
    /// `REIN` or another `USER`. The session negotiates later, because no command may separate
    /// `USER` and `PASS`.
    pub(super) fn forget(&mut self) {
        self.is_forgotten |= self.is_private() && self.is_done();
    }

    /// Whether the session must request protection again before the next data connection.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// Requests protection again. Returns the next action.
    pub(super) fn settle_again(&mut self) -> ProtectionStep {
        self.is_forgotten = false;
        self.enter_step(PendingAnswer::Pbsz, "PBSZ 0")
    }

    /// Records that the TLS handshake is complete. Returns the next action.
    pub(super) fn tls_begun(&mut self) -> ProtectionStep {
        self.enter_step(PendingAnswer::Pbsz, "PBSZ 0")
    }

    /// Records the server's reply to a command of the negotiation. Returns the next action.
    pub(super) fn answered(&mut self, code: ReplyCode, held: &ReplyBuffer) -> ProtectionStep {
        let is_ok = code.class() == ReplyClass::Completed;
        match self.step {
            PendingAnswer::Auth if is_ok => {
                self.step = PendingAnswer::Handshake;
                ProtectionStep::BeginTls
            }
            PendingAnswer::Auth => {
                ProtectionStep::Refused(format!("the server offers no TLS: {}", held.quoted()))
            }
            // Some servers with implicit TLS support neither `PBSZ` nor `PROT`.
            PendingAnswer::Pbsz => self.enter_step(PendingAnswer::Prot, "PROT P"),
            PendingAnswer::Prot => self.prot_answered(code, held),
            PendingAnswer::Greeting | PendingAnswer::Handshake | PendingAnswer::Done => {
                ProtectionStep::Done
            }
        }
    }

    fn prot_answered(&mut self, code: ReplyCode, held: &ReplyBuffer) -> ProtectionStep {
        let is_ok = code.class() == ReplyClass::Completed;
        // Some servers accept `PROT` only after the log-in, and refuse it with different codes.
        let asks_again = !is_ok && !self.has_asked && !matches!(code.0, 504 | 534 | 536);
        self.has_asked = true;
        if is_ok || asks_again || self.tls == ServerTlsMode::Implicit {
            self.is_forgotten |= asks_again;
            self.step = PendingAnswer::Done;
            return ProtectionStep::Done;
        }
        ProtectionStep::Refused(format!(
            "the server offers no TLS for data connections: {}",
            held.quoted()
        ))
    }

    fn enter_step(&mut self, step: PendingAnswer, line: &'static str) -> ProtectionStep {
        self.step = step;
        ProtectionStep::Send(line)
    }
}
