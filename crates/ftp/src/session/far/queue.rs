//! Queue of the client's commands that the gateway has not sent to the server yet.

use std::collections::VecDeque;

use super::TooManyCommands;
use crate::{
    command::{Command, CommandKind},
    session::{CommandId, PIPELINED_BYTES_MAX, PIPELINED_MAX, ServerRequest},
};

impl ServerRequest {
    fn id(&self) -> CommandId {
        match self {
            Self::Command { id, .. } | Self::Data { id, .. } => *id,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Command { line, .. } => line.len(),
            Self::Data { .. } => 0,
        }
    }

    fn kind(&self) -> Option<CommandKind> {
        match self {
            Self::Command { line, .. } => Some(Command::parse(line).kind()),
            Self::Data { .. } => None,
        }
    }

    fn is_abort(&self) -> bool {
        self.kind() == Some(CommandKind::Abort)
    }

    /// Returns whether the command may be sent before the final reply of a transfer.
    fn may_overtake(&self) -> bool {
        matches!(
            self.kind(),
            Some(
                CommandKind::Abort
                    | CommandKind::Quit
                    | CommandKind::Overtaking
                    | CommandKind::User
                    | CommandKind::Pass
            )
        )
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    requests: VecDeque<ServerRequest>,
    /// Sum of the lengths of all queued command lines, in bytes.
    bytes: usize,
}

impl RequestQueue {
    /// Checks that the queue can hold another request.
    ///
    /// # Errors
    /// [`TooManyCommands`] if the queue is full.
    pub(super) fn check_room(&self) -> Result<(), TooManyCommands> {
        match self.requests.len() < PIPELINED_MAX && self.bytes < PIPELINED_BYTES_MAX {
            true => Ok(()),
            false => Err(TooManyCommands),
        }
    }

    pub(super) fn push(&mut self, request: ServerRequest) {
        self.bytes += request.bytes();
        self.requests.push_back(request);
    }

    /// Inserts a request at the front of the queue.
    pub(super) fn push_front(&mut self, request: ServerRequest) {
        self.bytes += request.bytes();
        self.requests.push_front(request);
    }

    pub(super) fn pop(&mut self) -> Option<ServerRequest> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.bytes();
        Some(request)
    }

    /// Whether the next request is a request for a data connection.
    pub(super) fn next_asks_data(&self) -> bool {
        matches!(self.requests.front(), Some(ServerRequest::Data { .. }))
    }

    /// Removes and returns the first `ABOR` of the queue.
    pub(super) fn pop_abort(&mut self) -> Option<ServerRequest> {
        let at = self.requests.iter().position(ServerRequest::is_abort)?;
        let request = self.requests.remove(at)?;
        self.bytes -= request.bytes();
        Some(request)
    }

    /// Returns the number of the first command whose reply the client still awaits.
    pub(super) fn first_unanswered(&self) -> Option<CommandId> {
        let mut requests = self.requests.iter();
        requests.find_map(|request| match request {
            ServerRequest::Command { id, answered, .. }
            | ServerRequest::Data { id, answered, .. } => (!answered).then_some(*id),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether the queue contains a request before command number `than`.
    pub(super) fn has_earlier(&self, than: CommandId) -> bool {
        self.requests.iter().any(|request| request.id() < than)
    }

    /// Whether the queue contains a request after command number `than`.
    pub(super) fn has_later(&self, than: Option<CommandId>) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|request| Some(request.id()) > than)
    }

    /// Whether the next request may be sent before the final reply of a transfer.
    pub(super) fn next_may_overtake(&self) -> bool {
        self.requests
            .front()
            .is_some_and(ServerRequest::may_overtake)
    }
}
