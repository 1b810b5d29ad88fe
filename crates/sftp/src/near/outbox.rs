//! Outputs of the near half, and the requests that await an answer.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use super::{
    first_credit::first_credit_bytes, listings::ForecastKind, shared_files::ReadRegistration,
    writes::WriteAnswer,
};
use crate::{
    FileDirection, Rope, ToFar, TransferEvent,
    packet::{OpenFlags, Status, kind},
    queue::PacketQueue,
};

/// Outputs of the near half, and the requests that the far half has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) to_client: PacketQueue,
    to_far: VecDeque<ToFar>,
    to_far_bytes: usize,
    events: VecDeque<TransferEvent>,
    requests: HashMap<u64, PendingRequest>,
    /// Numbers of the requests that may change a file.
    changes: HashSet<u64>,
    /// Numbers of the requests that may change a path, except for the numbers in `changes`.
    path_changes: HashSet<u64>,
    next_request: u64,
}

/// Request that the far half has not answered yet. `id` is the request id of the client.
#[derive(Debug)]
pub(super) enum PendingRequest {
    Relayed {
        id: u32,
    },
    Open {
        id: u32,
        opening: Opening,
        /// Rule by which the near half repeats a request that has failed.
        retry: Retry,
    },
    /// OPEN for an upload. The client already has an answer.
    EarlyOpen {
        path: Bytes,
    },
    /// STAT or LSTAT that the near half has sent before the client did. If it fails, the near half
    /// repeats it.
    Stat {
        id: u32,
        retry: Rope,
    },
    /// Request that the client has not sent yet.
    Prepared {
        kind: ForecastKind,
    },
    Read {
        id: u32,
        handle: u64,
    },
    Write {
        /// Request id, if the server's answer to this request alone determines the answer to the
        /// client.
        id: Option<u32>,
        handle: u64,
        bytes: u64,
    },
    Limits {
        id: u32,
    },
    Fsync {
        id: u32,
        handle: u64,
    },
    Close {
        /// `None` if the client has not sent this CLOSE, or already has the answer.
        id: Option<u32>,
        handle: u64,
    },
}

/// Rule by which the near half repeats an OPEN that has failed.
#[derive(Debug)]
pub(super) enum Retry {
    Never,
    /// The near half repeats this packet after any failure, because it has sent the packet before
    /// the client did.
    Always(Rope),
    /// The near half repeats this packet only if the server may have too few handles. Files that
    /// the client had not opened yet may have used the handles.
    WithMoreHandles(Rope),
}

/// OPEN or OPENDIR.
#[derive(Debug)]
pub(super) enum Opening {
    File {
        path: Bytes,
        /// `None` if the client may write to the file.
        registration: Option<ReadRegistration>,
        direction: FileDirection,
        flags: OpenFlags,
        /// Number of changes before OPEN.
        changes: u64,
        /// Number of bytes that are read ahead. Zero means none.
        window_bytes: u64,
    },
    Folder {
        path: Bytes,
        window_bytes: u64,
    },
}

impl Opening {
    pub(super) fn window_bytes(&self) -> u64 {
        let (Self::File { window_bytes, .. } | Self::Folder { window_bytes, .. }) = self;
        *window_bytes
    }

    /// Returns the credit of the far half before the first READ or READDIR, in bytes.
    pub(super) fn first_credit_bytes(&self) -> u64 {
        match self {
            Self::File {
                registration,
                window_bytes,
                ..
            } => {
                let had_siblings = registration
                    .as_ref()
                    .is_some_and(ReadRegistration::had_siblings);
                first_credit_bytes(*window_bytes, had_siblings)
            }
            Self::Folder { window_bytes, .. } => *window_bytes,
        }
    }
}

impl Outbox {
    /// Returns the number of requests that the far half has not answered yet.
    pub(super) fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether the client needs no further answer of the server. It needs neither answers
    /// to requests that it has not sent, nor the answer to a CLOSE that the near half has answered.
    pub(super) fn is_settled(&self) -> bool {
        self.requests.values().all(|request| {
            matches!(
                request,
                PendingRequest::Close { id: None, .. } | PendingRequest::Prepared { .. }
            )
        })
    }

    /// Returns the memory in bytes of the messages for the far half.
    pub(super) fn to_far_bytes(&self) -> usize {
        self.to_far_bytes
    }

    /// Sends a message to the far half.
    pub(super) fn send(&mut self, message: ToFar) {
        self.to_far_bytes += message.cost();
        self.to_far.push_back(message);
    }

    pub(super) fn next_far_message(&mut self) -> Option<ToFar> {
        let message = self.to_far.pop_front()?;
        self.to_far_bytes -= message.cost();
        Some(message)
    }

    /// Stores a request, and returns its number.
    pub(super) fn register(&mut self, request: PendingRequest) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.requests.insert(number, request);
        number
    }

    /// Returns the number of the next request.
    pub(super) fn next_number(&self) -> u64 {
        self.next_request
    }

    /// Records that the next request may change a file.
    pub(super) fn mark_change(&mut self) {
        self.changes.insert(self.next_request);
    }

    /// Returns whether an unanswered request may change a file.
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Records that the next request may change a path.
    pub(super) fn mark_path_change(&mut self) {
        self.path_changes.insert(self.next_request);
    }

    /// Returns whether an unanswered request may change a path.
    pub(super) fn has_path_changes(&self) -> bool {
        !self.path_changes.is_empty()
    }

    /// Replaces a request that the near half has sent before the client did.
    pub(super) fn replace(&mut self, number: u64, request: PendingRequest) {
        self.requests.insert(number, request);
    }

    /// Removes and returns a request whose answer has arrived.
    pub(super) fn answered(&mut self, number: u64) -> Option<PendingRequest> {
        self.changes.remove(&number);
        self.path_changes.remove(&number);
        self.requests.remove(&number)
    }

    /// Passes on a request. Its answer is later passed back unchanged.
    pub(super) fn relay(&mut self, id: u32, packet: Rope) {
        self.request(PendingRequest::Relayed { id }, packet);
    }

    /// Sends a request to the far half.
    pub(super) fn request(&mut self, pending: PendingRequest, packet: Rope) {
        let request = self.register(pending);
        self.send(ToFar::Request { request, packet });
    }

    /// Answers a request by `packet`. The function adds the request id, which `packet` does not
    /// contain.
    pub(super) fn reply(&mut self, id: u32, mut packet: Rope) {
        let mut kind = [0];
        packet.peek(&mut kind);
        packet.advance(1.min(packet.len()));
        self.to_client.put_head(kind[0], id, packet.len());
        self.to_client.put_rope(packet);
    }

    /// Answers a request by a status.
    pub(super) fn reply_status(&mut self, id: u32, status: &Status) {
        let mut body = Vec::with_capacity(64);
        status.put(&mut body);
        self.to_client.put_head(kind::STATUS, id, body.len());
        self.to_client.put(&body);
    }

    /// Answers a WRITE.
    pub(super) fn reply_write(&mut self, answer: WriteAnswer) {
        match answer.failure {
            Some(packet) => self.reply(answer.id, packet),
            None => self.reply_status(answer.id, &Status::ok()),
        }
    }

    /// Answers a READ by data.
    pub(super) fn reply_data(&mut self, id: u32, handle: u64, data: Rope) {
        self.moved(handle, data.len() as u64);
        self.to_client.put_head(kind::DATA, id, 4 + data.len());
        self.to_client.put(&(data.len() as u32).to_be_bytes());
        self.to_client.put_rope(data);
    }

    /// Reports an event of a transfer.
    pub(super) fn report(&mut self, event: TransferEvent) {
        self.events.push_back(event);
    }

    /// Reports bytes of a transfer. Successive reports for the same handle become one event.
    pub(super) fn moved(&mut self, handle: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(TransferEvent::Bytes {
            handle: last,
            count,
        }) = self.events.back_mut()
            && *last == handle
        {
            *count += bytes;
            return;
        }
        self.report(TransferEvent::Bytes {
            handle,
            count: bytes,
        });
    }

    pub(super) fn next_event(&mut self) -> Option<TransferEvent> {
        self.events.pop_front()
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }
}
