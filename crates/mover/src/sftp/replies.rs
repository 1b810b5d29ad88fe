//! Answers of an SFTP server: the bytes of the channel, assigned to the requests that await them.
//!
//! This module uses no socket and no clock.

use std::collections::HashMap;

use bytes::Bytes;
use sftp::{
    Rope, SftpError,
    packet::{
        Greeting, GreetingSource, Limits, PacketError, PacketSplitter, Response, Status, StatusCode,
    },
};
use tokio::{sync::oneshot, time::Instant};

use crate::server::{ServerError, SftpRefusal};

/// Violation of the protocol by the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    /// The stream of packets, or the order of the answers, is not valid.
    #[error(transparent)]
    Stream(#[from] SftpError),
    /// A packet is malformed.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// An answer does not fit its request.
    #[error("the answer to {0} has another type")]
    Type(&'static str),
    /// A READ returned more bytes than requested.
    #[error("a READ returned {got} bytes in place of {requested}")]
    TooMuchData {
        /// Number of bytes in the answer.
        got: usize,
        /// Number of requested bytes.
        requested: u32,
    },
}

/// Type of the answer that a request expects, if the request succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A status alone.
    Status,
    /// Handle of an open file or folder.
    Handle,
    /// At most this number of bytes.
    Data(u32),
    /// Names.
    Names,
    /// Attributes.
    Attrs,
    /// Limits of the server.
    Limits,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Success without data.
    Done,
    /// Refusal of the request.
    Refused(SftpRefusal),
    /// Handle of an open file or folder.
    Handle(Bytes),
    /// Bytes of a file.
    Data(Rope),
    /// Entries of a folder, or one resolved path.
    Names(Vec<sftp::packet::Name>),
    /// Attributes of a file.
    Attrs(sftp::packet::Attrs),
    /// Limits of the server.
    Limits(Limits),
}

impl Answer {
    /// Returns the error of a request whose answer is not the expected one.
    pub(super) fn into_error(self) -> ServerError {
        let refusal = match self {
            Self::Refused(refusal) => refusal,
            // The type of the answer was checked when the answer arrived, so this case does not
            // occur.
            _ => SftpRefusal::new("a request", &Status::new(StatusCode::BAD_MESSAGE, "")),
        };
        ServerError::SftpRefused(refusal)
    }
}

/// Answer with the time of its arrival.
pub(super) type ArrivedAnswer = (Answer, Instant);

/// Requests whose answers have not arrived, and the incomplete packet of the server.
#[derive(Debug, Default)]
pub(super) struct Replies {
    splitter: PacketSplitter,
    greeting: Option<oneshot::Sender<Greeting>>,
    has_greeting: bool,
    pending: HashMap<u32, PendingRequest>,
    next_id: u32,
}

/// Request whose answer has not arrived.
#[derive(Debug)]
struct PendingRequest {
    name: &'static str,
    expected: Expected,
    /// `None` if nothing awaits the answer.
    answer: Option<oneshot::Sender<ArrivedAnswer>>,
    /// Permit by which the request counts towards the limit on requests. The arrival of the answer
    /// releases the permit.
    _place: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Replies {
    /// Awaits the VERSION packet.
    pub(super) fn expect_greeting(&mut self) -> oneshot::Receiver<Greeting> {
        let (greeting, receiver) = oneshot::channel();
        self.greeting = Some(greeting);
        receiver
    }

    /// Registers a request. Returns its id, and the receiver of its answer.
    pub(super) fn register(
        &mut self,
        name: &'static str,
        expected: Expected,
        place: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> (u32, oneshot::Receiver<ArrivedAnswer>) {
        let (answer, receiver) = oneshot::channel();
        let request = PendingRequest {
            name,
            expected,
            answer: Some(answer),
            _place: place,
        };
        (self.insert(request), receiver)
    }

    /// Registers a request whose answer has no receiver. Returns its id.
    pub(super) fn register_unawaited(&mut self, name: &'static str) -> u32 {
        self.insert(PendingRequest {
            name,
            expected: Expected::Status,
            answer: None,
            _place: None,
        })
    }

    fn insert(&mut self, request: PendingRequest) -> u32 {
        while self.pending.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.pending.insert(id, request);
        id
    }

    /// Returns the number of requests whose answers have not arrived.
    #[cfg(test)]
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Removes all requests. Their receivers end without an answer.
    pub(super) fn clear(&mut self) {
        self.greeting = None;
        self.pending.clear();
    }

    /// Takes bytes of the channel, and passes on the answers that are complete. Returns the handles
    /// in answers that nothing awaits any more. The caller must close these handles.
    ///
    /// # Errors
    /// [`Violation`] if the server violates the protocol. The session cannot continue then.
    pub(super) fn receive(&mut self, bytes: Bytes, now: Instant) -> Result<Vec<Bytes>, Violation> {
        let mut orphans = Vec::new();
        self.splitter.push(bytes);
        while let Some(packet) = self.splitter.next_packet()? {
            if self.has_greeting {
                orphans.extend(self.answer(packet, now)?);
            } else {
                self.greet(packet)?;
            }
        }
        Ok(orphans)
    }

    fn greet(&mut self, packet: Rope) -> Result<(), Violation> {
        let greeting = Greeting::decode(GreetingSource::Server, packet);
        let greeting = greeting.map_err(|_| SftpError::NoVersion)?;
        if greeting.version != VERSION {
            return Err(SftpError::NoVersion.into());
        }
        self.has_greeting = true;
        if let Some(receiver) = self.greeting.take() {
            // The receiver may have been dropped.
            let _ = receiver.send(greeting);
        }
        Ok(())
    }

    fn answer(&mut self, packet: Rope, now: Instant) -> Result<Option<Bytes>, Violation> {
        let (id, response) = Response::decode(packet)?;
        let request = self.pending.remove(&id);
        let request = request.ok_or(SftpError::UnknownRequest(id))?;
        let answer = request.check(response)?;
        let Some(receiver) = request.answer else {
            return Ok(None);
        };
        Ok(match receiver.send((answer, now)) {
            Err((Answer::Handle(handle), _)) => Some(handle),
            _ => None,
        })
    }
}

impl PendingRequest {
    /// Checks the answer, and reduces it to the bytes that the request needs. A server could
    /// otherwise fill the memory by long answers to short requests.
    fn check(&self, response: Response) -> Result<Answer, Violation> {
        Ok(match (response, self.expected) {
            (Response::Status(status), expected) => self.check_status(&status, expected)?,
            (Response::Handle(handle), Expected::Handle) => {
                Answer::Handle(Bytes::copy_from_slice(&handle))
            }
            (Response::Data(data), Expected::Data(requested)) => {
                if data.len() > requested as usize {
                    return Err(Violation::TooMuchData {
                        got: data.len(),
                        requested,
                    });
                }
                Answer::Data(data)
            }
            (Response::Names(names), Expected::Names) => Answer::Names(names),
            (Response::Attrs(mut attrs), Expected::Attrs) => {
                attrs.extended = Vec::new();
                Answer::Attrs(attrs)
            }
            (Response::Extended(body), Expected::Limits) => Answer::Limits(Limits::decode(body)?),
            _ => return Err(Violation::Type(self.name)),
        })
    }

    fn check_status(&self, status: &Status, expected: Expected) -> Result<Answer, Violation> {
        match (status.is_ok(), expected) {
            (true, Expected::Status) => Ok(Answer::Done),
            (true, _) => Err(Violation::Type(self.name)),
            (false, _) => Ok(Answer::Refused(SftpRefusal::new(self.name, status))),
        }
    }
}

/// Version of SFTP.
pub(super) const VERSION: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sftp::packet::{Attrs, Name};

    use super::*;

    fn greeted() -> Replies {
        let mut replies = Replies::default();
        let greeting = Greeting {
            version: VERSION,
            extensions: Vec::new(),
        };
        let greeting = greeting.encode(GreetingSource::Server).into_bytes();
        replies
            .receive(greeting, Instant::now())
            .expect("a greeting");
        replies
    }

    fn receive(
        replies: &mut Replies,
        id: u32,
        response: &Response,
    ) -> Result<Vec<Bytes>, Violation> {
        replies.receive(response.encode(id).into_bytes(), Instant::now())
    }

    #[tokio::test]
    async fn answers_in_any_order_reach_their_requests() {
        let mut replies = greeted();
        let (first, one) = replies.register("READ", Expected::Data(4), None);
        let (second, other) = replies.register("READ", Expected::Data(4), None);
        receive(&mut replies, second, &Response::Data(vec![2; 4].into())).expect("valid");
        receive(&mut replies, first, &Response::Status(Status::eof())).expect("valid");
        assert_eq!(
            other.await.expect("an answer").0,
            Answer::Data(vec![2; 4].into())
        );
        let Answer::Refused(refusal) = one.await.expect("an answer").0 else {
            panic!("no refusal");
        };
        assert_eq!(refusal.code, StatusCode::EOF);
        assert_eq!(replies.pending_count(), 0);
    }

    #[test]
    fn an_answer_that_does_not_fit_is_a_violation() {
        let data = |length| Response::Data(vec![0; length].into());
        let name = Name {
            name: Bytes::from_static(b"a"),
            long_name: Bytes::new(),
            attrs: Attrs::default(),
        };
        for (expected, response) in [
            (Expected::Data(4), data(5)),
            (Expected::Data(4), Response::Handle(Bytes::new())),
            (Expected::Data(4), Response::Status(Status::ok())),
            (Expected::Status, data(1)),
            (Expected::Attrs, Response::Names(vec![name])),
            (Expected::Limits, Response::Extended(Rope::new())),
            (Expected::Handle, Response::Attrs(Attrs::default())),
        ] {
            let mut replies = greeted();
            let (id, _receiver) = replies.register("X", expected, None);
            let received = receive(&mut replies, id, &response);
            assert!(received.is_err(), "{expected:?} {response:?}");
        }
        let mut replies = greeted();
        let unknown = receive(&mut replies, 9, &data(1));
        assert_eq!(unknown, Err(SftpError::UnknownRequest(9).into()));
    }

    #[test]
    fn a_handle_without_a_receiver_is_returned_to_be_closed() {
        let mut replies = greeted();
        let (id, receiver) = replies.register("OPEN", Expected::Handle, None);
        drop(receiver);
        let handle = Bytes::from_static(b"h");
        let orphans = receive(&mut replies, id, &Response::Handle(handle.clone()));
        assert_eq!(orphans, Ok(vec![handle]));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_answers_or_violations(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20),
            is_greeted: bool,
        ) {
            let mut replies = if is_greeted { greeted() } else { Replies::default() };
            for (expected, name) in [
                (Expected::Status, "CLOSE"),
                (Expected::Data(9), "READ"),
                (Expected::Names, "READDIR"),
            ] {
                let _ = replies.register(name, expected, None);
            }
            for piece in pieces {
                if replies.receive(piece.into(), Instant::now()).is_err() {
                    break;
                }
            }
            prop_assert!(replies.pending_count() <= 3);
        }
    }
}
