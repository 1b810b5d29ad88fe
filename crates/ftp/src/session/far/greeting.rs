//! The greeting of a server whose client the gateway has greeted already. The gateway consumes it,
//! and sends the account. Only a refusal is relayed.

use super::reply_buffer::ReplyBuffer;
use crate::reply::{ReplyClass, ReplyCode};

#[derive(Debug)]
pub(super) struct Greeting {
    then: Vec<u8>,
    pub(super) held: ReplyBuffer,
}

/// Action after a greeting.
pub(super) enum GreetingAction {
    /// Wait for another greeting.
    Wait(Greeting),
    /// Send this line.
    Send(Vec<u8>),
    /// Relay these lines.
    Refused(ReplyBuffer),
}

impl Greeting {
    /// Creates the state. `then` is the command to send after the greeting.
    pub(super) fn new(then: Vec<u8>) -> Self {
        let held = ReplyBuffer::default();
        Self { then, held }
    }

    pub(super) fn ended(self, code: ReplyCode) -> GreetingAction {
        match code.class() {
            ReplyClass::Preliminary => GreetingAction::Wait(Self::new(self.then)),
            ReplyClass::Completed => GreetingAction::Send(self.then),
            ReplyClass::Intermediate | ReplyClass::Failed => GreetingAction::Refused(self.held),
        }
    }
}
