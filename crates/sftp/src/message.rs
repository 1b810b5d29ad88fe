//! Messages between the two halves of an SFTP session, and their encoding.
//!
//! A body consists of a few fields and the bytes of a packet or of a file. These bytes are not
//! copied. In all messages, a *packet* begins with its SFTP type, and has no length and no request
//! id.

use bytes::Bytes;
use codec::{BodyError, Reader};

use crate::{Rope, packet::PACKET_MAX};

/// Message from the near half to the far half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToFar {
    /// First message: the client's INIT.
    Init {
        /// Whether the near half answers WRITEs early. If so, the far half sends a request to the
        /// server only after the server has confirmed all earlier WRITEs.
        is_early: bool,
        /// INIT packet of the client.
        packet: Rope,
    },
    /// Request that the far half passes on. A [`ToNear::Reply`] follows.
    Request {
        /// Number of the request. The near half never repeats a number.
        request: u64,
        /// Request of the client.
        packet: Rope,
    },
    /// OPEN or OPENDIR. A [`ToNear::Reply`] follows. If this reply contains a handle, the number of
    /// the request becomes the number of the handle.
    Open {
        /// Number of the request.
        request: u64,
        /// Number of bytes that the far half may read ahead. Zero disables read-ahead.
        credit_bytes: u64,
        /// Whether the near half has already answered the OPEN. If so, and the OPEN fails, all
        /// requests with its handle, up to CLOSE, have the same answer.
        is_early: bool,
        /// Request of the client.
        packet: Rope,
    },
    /// Request whose handle the near half has created itself. A [`ToNear::Reply`] follows.
    HandleRequest {
        /// Number of the request.
        request: u64,
        /// Number of the handle.
        handle: u64,
        /// Position in the packet at which the handle of the server belongs.
        at: u32,
        /// Request of the client without the handle.
        packet: Rope,
    },
    /// WRITE to an open handle. A [`ToNear::Written`] or [`ToNear::Reply`] follows.
    Write {
        /// Number of the request.
        request: u64,
        /// Number of the handle.
        handle: u64,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes to write.
        data: Rope,
    },
    /// CLOSE of an open handle. A [`ToNear::Reply`] follows.
    Close {
        /// Number of the request.
        request: u64,
        /// Number of the handle.
        handle: u64,
    },
    /// Start of read-ahead at an offset.
    ReadAhead {
        /// Number of the handle.
        handle: u64,
        /// Number of the read-ahead. The number grows with each start at the same handle. The
        /// read-ahead after OPEN has number 0.
        run: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes that the far half may read ahead.
        credit_bytes: u64,
    },
    /// Further bytes that the far half may read ahead.
    Credit {
        /// Number of the handle.
        handle: u64,
        /// Number of the read-ahead.
        run: u32,
        /// Number of further bytes.
        credit_bytes: u64,
    },
    /// End of a read-ahead.
    StopReadAhead {
        /// Number of the handle.
        handle: u64,
        /// Number of the read-ahead.
        run: u32,
    },
}

/// Message from the far half to the near half.
///
/// The messages of one read-ahead arrive in order, and the reply to an OPEN arrives before them.
/// Other messages may overtake a read-ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToNear {
    /// VERSION packet of the server.
    Version {
        /// Packet of the server.
        packet: Rope,
    },
    /// Answer of the server to `limits@openssh.com`, which the far half has requested itself.
    Limits {
        /// Packet of the server.
        packet: Rope,
    },
    /// Answer of the server to a request.
    Reply {
        /// Number of the request.
        request: u64,
        /// Packet of the server.
        packet: Rope,
    },
    /// The server has confirmed a WRITE.
    Written {
        /// Number of the request.
        request: u64,
    },
    /// Bytes that the far half has read ahead from a file, in order. For a folder, the data is one
    /// NAME packet.
    ReadAhead {
        /// Number of the handle.
        handle: u64,
        /// Number of the read-ahead.
        run: u32,
        /// Bytes of the file, or a packet.
        data: Rope,
    },
    /// The read-ahead has reached its end.
    ReadAheadEnd {
        /// Number of the handle.
        handle: u64,
        /// Number of the read-ahead.
        run: u32,
        /// STATUS packet of the server: the end of the file or folder, or a failure.
        packet: Rope,
    },
}

/// Message as bytes. The body of the message consists of `head` and then `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedMessage {
    /// Message type, from 64 to 95.
    pub kind: u8,
    /// First part of the body.
    pub head: Bytes,
    /// Second part of the body, without a copy.
    pub data: Rope,
}

impl EncodedMessage {
    fn new(kind: u8, fields: &[&[u8]], data: Rope) -> Self {
        let head = fields.concat().into();
        Self { kind, head, data }
    }

    /// Returns the length of the body in bytes. The length is at most [`BODY_MAX`].
    pub fn body_len(&self) -> usize {
        self.head.len() + self.data.len()
    }

    /// Returns the body.
    pub fn into_body(mut self) -> Rope {
        self.data.push_front(self.head);
        self.data
    }
}

impl ToFar {
    /// Returns the bytes of memory that the message takes in a queue.
    pub(crate) fn cost(&self) -> usize {
        let data = match self {
            Self::Init { packet, .. }
            | Self::Request { packet, .. }
            | Self::HandleRequest { packet, .. }
            | Self::Open { packet, .. } => packet.len(),
            Self::Write { data, .. } => data.len(),
            _ => 0,
        };
        MESSAGE_COST + data
    }

    /// Encodes the message.
    pub fn encode(self) -> EncodedMessage {
        match self {
            Self::Init { is_early, packet } => {
                EncodedMessage::new(INIT, &[&[u8::from(is_early)]], packet)
            }
            Self::Request { request, packet } => {
                EncodedMessage::new(REQUEST, &[&request.to_be_bytes()], packet)
            }
            Self::Open {
                request,
                credit_bytes,
                is_early,
                packet,
            } => {
                let numbers = [request, credit_bytes].map(u64::to_be_bytes).concat();
                EncodedMessage::new(OPEN, &[&numbers, &[u8::from(is_early)]], packet)
            }
            Self::HandleRequest {
                request,
                handle,
                at,
                packet,
            } => {
                let numbers = [request, handle].map(u64::to_be_bytes).concat();
                EncodedMessage::new(HANDLE_REQUEST, &[&numbers, &at.to_be_bytes()], packet)
            }
            Self::Write {
                request,
                handle,
                offset,
                data,
            } => {
                let fields = [request, handle, offset].map(u64::to_be_bytes).concat();
                EncodedMessage::new(WRITE, &[&fields], data)
            }
            Self::Close { request, handle } => {
                let fields = [request, handle].map(u64::to_be_bytes).concat();
                EncodedMessage::new(CLOSE, &[&fields], Rope::new())
            }
            Self::ReadAhead {
                handle,
                run,
                offset,
                credit_bytes,
            } => {
                let offsets = [offset, credit_bytes].map(u64::to_be_bytes).concat();
                let fields = [&handle.to_be_bytes()[..], &run.to_be_bytes(), &offsets];
                EncodedMessage::new(START, &fields, Rope::new())
            }
            Self::Credit {
                handle,
                run,
                credit_bytes,
            } => {
                let credit = credit_bytes.to_be_bytes();
                let fields = [&handle.to_be_bytes()[..], &run.to_be_bytes(), &credit];
                EncodedMessage::new(CREDIT, &fields, Rope::new())
            }
            Self::StopReadAhead { handle, run } => {
                let fields = [&handle.to_be_bytes()[..], &run.to_be_bytes()];
                EncodedMessage::new(STOP, &fields, Rope::new())
            }
        }
    }

    /// Decodes the body of a message of type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the type is unknown, or if the body is malformed or too long.
    pub fn decode(kind: u8, body: Rope) -> Result<Self, BodyError> {
        let (head, rest) = split(kind, body)?;
        let mut reader = Reader::new(kind, &head);
        let message = match kind {
            INIT => Self::Init {
                is_early: reader.flag()?,
                packet: rest,
            },
            REQUEST => Self::Request {
                request: reader.u64()?,
                packet: rest,
            },
            OPEN => Self::Open {
                request: reader.u64()?,
                credit_bytes: reader.u64()?,
                is_early: reader.flag()?,
                packet: rest,
            },
            HANDLE_REQUEST => Self::HandleRequest {
                request: reader.u64()?,
                handle: reader.u64()?,
                at: reader.u32()?,
                packet: rest,
            },
            WRITE => Self::Write {
                request: reader.u64()?,
                handle: reader.u64()?,
                offset: reader.u64()?,
                data: rest,
            },
            CLOSE => Self::Close {
                request: reader.u64()?,
                handle: reader.u64()?,
            },
            START => Self::ReadAhead {
                handle: reader.u64()?,
                run: reader.u32()?,
                offset: reader.u64()?,
                credit_bytes: reader.u64()?,
            },
            CREDIT => Self::Credit {
                handle: reader.u64()?,
                run: reader.u32()?,
                credit_bytes: reader.u64()?,
            },
            STOP => Self::StopReadAhead {
                handle: reader.u64()?,
                run: reader.u32()?,
            },
            _ => return Err(BodyError::UnknownType(kind)),
        };
        reader.end(message)
    }
}

impl ToNear {
    /// Returns the bytes of memory that the message takes in a queue.
    pub(crate) fn cost(&self) -> usize {
        let data = match self {
            Self::Version { packet }
            | Self::Limits { packet }
            | Self::Reply { packet, .. }
            | Self::ReadAheadEnd { packet, .. } => packet.len(),
            Self::ReadAhead { data, .. } => data.len(),
            Self::Written { .. } => 0,
        };
        MESSAGE_COST + data
    }

    /// Encodes the message.
    pub fn encode(self) -> EncodedMessage {
        match self {
            Self::Version { packet } => EncodedMessage::new(VERSION, &[], packet),
            Self::Limits { packet } => EncodedMessage::new(LIMITS, &[], packet),
            Self::Reply { request, packet } => {
                EncodedMessage::new(REPLY, &[&request.to_be_bytes()], packet)
            }
            Self::Written { request } => {
                EncodedMessage::new(WRITTEN, &[&request.to_be_bytes()], Rope::new())
            }
            Self::ReadAhead { handle, run, data } => {
                let fields = [&handle.to_be_bytes()[..], &run.to_be_bytes()];
                EncodedMessage::new(DATA, &fields, data)
            }
            Self::ReadAheadEnd {
                handle,
                run,
                packet,
            } => {
                let fields = [&handle.to_be_bytes()[..], &run.to_be_bytes()];
                EncodedMessage::new(END, &fields, packet)
            }
        }
    }

    /// Decodes the body of a message of type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the type is unknown, or if the body is malformed or too long.
    pub fn decode(kind: u8, body: Rope) -> Result<Self, BodyError> {
        let (head, rest) = split(kind, body)?;
        let mut reader = Reader::new(kind, &head);
        let message = match kind {
            VERSION => Self::Version { packet: rest },
            LIMITS => Self::Limits { packet: rest },
            REPLY => Self::Reply {
                request: reader.u64()?,
                packet: rest,
            },
            WRITTEN => Self::Written {
                request: reader.u64()?,
            },
            DATA => Self::ReadAhead {
                handle: reader.u64()?,
                run: reader.u32()?,
                data: rest,
            },
            END => Self::ReadAheadEnd {
                handle: reader.u64()?,
                run: reader.u32()?,
                packet: rest,
            },
            _ => return Err(BodyError::UnknownType(kind)),
        };
        reader.end(message)
    }
}

/// Splits a body into its fields and its data.
fn split(kind: u8, mut body: Rope) -> Result<(Bytes, Rope), BodyError> {
    let (length, has_data) = match kind {
        INIT => (1, true),
        REQUEST | REPLY => (8, true),
        OPEN => (17, true),
        HANDLE_REQUEST => (20, true),
        WRITE => (24, true),
        CLOSE => (16, false),
        START => (28, false),
        CREDIT => (20, false),
        STOP => (12, false),
        VERSION | LIMITS => (0, true),
        WRITTEN => (8, false),
        DATA | END => (12, true),
        _ => return Err(BodyError::UnknownType(kind)),
    };
    if body.len() < length || body.len() > BODY_MAX {
        return Err(BodyError::Malformed(kind));
    }
    let head = body.split_to_bytes(length);
    if !has_data && !body.is_empty() {
        return Err(BodyError::Malformed(kind));
    }
    Ok((head, body))
}

/// Maximum length of a body in bytes: a packet and the longest fields.
pub const BODY_MAX: usize = PACKET_MAX + 32;

/// Memory in bytes of a message without its data.
const MESSAGE_COST: usize = 64;

const INIT: u8 = 64;
const REQUEST: u8 = 65;
const OPEN: u8 = 66;
const WRITE: u8 = 67;
const CLOSE: u8 = 68;
const START: u8 = 69;
const CREDIT: u8 = 70;
const STOP: u8 = 71;
const HANDLE_REQUEST: u8 = 72;
const VERSION: u8 = 80;
const LIMITS: u8 = 81;
const REPLY: u8 = 82;
const WRITTEN: u8 = 83;
const DATA: u8 = 84;
const END: u8 = 85;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rope() -> impl Strategy<Value = Rope> {
        let piece = prop::collection::vec(any::<u8>(), 0..40);
        let pieces = prop::collection::vec(piece, 0..4);
        pieces.prop_map(|pieces| pieces.into_iter().map(Bytes::from).collect())
    }

    prop_compose! {
        fn to_far()(which in 0..9, number: u64, handle: u64, run: u32, other: u64, data in rope())
            -> ToFar
        {
            let (request, credit_bytes, packet) = (number, other, data.clone());
            match which {
                0 => ToFar::Init { is_early: run % 2 == 0, packet },
                1 => ToFar::Request { request, packet },
                2 => ToFar::Open { request, credit_bytes, is_early: run % 2 == 0, packet },
                7 => ToFar::HandleRequest { request, handle, at: run, packet },
                3 => ToFar::Write { request, handle, offset: other, data },
                4 => ToFar::Close { request, handle },
                5 => ToFar::ReadAhead { handle, run, offset: number, credit_bytes },
                6 => ToFar::Credit { handle, run, credit_bytes },
                _ => ToFar::StopReadAhead { handle, run },
            }
        }
    }

    prop_compose! {
        fn to_near()(which in 0..6, request: u64, handle: u64, run: u32, data in rope()) -> ToNear {
            let packet = data.clone();
            match which {
                0 => ToNear::Version { packet },
                1 => ToNear::Limits { packet },
                2 => ToNear::Reply { request, packet },
                3 => ToNear::Written { request },
                4 => ToNear::ReadAhead { handle, run, data },
                _ => ToNear::ReadAheadEnd { handle, run, packet },
            }
        }
    }

    proptest! {
        #[test]
        fn messages_to_far_read_back(message in to_far()) {
            let encoded = message.clone().encode();
            prop_assert!((64..96).contains(&encoded.kind));
            prop_assert_eq!(encoded.body_len(), encoded.clone().into_body().len());
            let decoded = ToFar::decode(encoded.kind, encoded.into_body());
            prop_assert_eq!(decoded, Ok(message));
        }

        #[test]
        fn messages_to_near_read_back(message in to_near()) {
            let encoded = message.clone().encode();
            let decoded = ToNear::decode(encoded.kind, encoded.into_body());
            prop_assert_eq!(decoded, Ok(message));
        }

        #[test]
        fn arbitrary_bodies_are_decoded_or_refused(kind: u8, body in rope()) {
            if let Ok(message) = ToFar::decode(kind, body.clone()) {
                prop_assert_eq!(message.encode().into_body(), body.clone());
            }
            if let Ok(message) = ToNear::decode(kind, body.clone()) {
                prop_assert_eq!(message.encode().into_body(), body);
            }
        }
    }

    #[test]
    fn body_beyond_the_limit_is_refused() {
        let body = Rope::from(vec![0; BODY_MAX + 1]);
        let refused = ToNear::decode(REPLY, body);
        assert_eq!(refused, Err(BodyError::Malformed(REPLY)));
    }
}
