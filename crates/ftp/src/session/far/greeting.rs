//! The server's greeting in a session whose client has already received the gateway's own greeting.
//! The gateway drops the server's greeting, and then sends the `USER` command. If the greeting is a
//! refusal, the gateway relays it to the client.

use super::reply_buffer::ReplyBuffer;
use crate::reply::{ReplyClass, ReplyCode};

#[derive(Debug)]
pub(super) struct Greeting {
    then: Vec<u8>,
    pub(super) held: ReplyBuffer,
}

/// Action of the session after a greeting.
pub(super) enum GreetingAction {
    /// Wait for another greeting, because this greeting was preliminary.
    Wait(Greeting),
    /// Send this command line to the server.
    Send(Vec<u8>),
    /// Relay these lines to the client, because the server refuses the session.
    Refused(ReplyBuffer),
}

impl Greeting {
    /// Creates the state before the greeting. `then` is the command that the session sends after
    /// the greeting.
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
