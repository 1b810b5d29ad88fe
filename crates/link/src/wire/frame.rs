//! Frames: the content of an encrypted packet.
//!
//! A packet contains a sequence of frames. A [`Frame::Chunk`] without a length extends to the end
//! of the packet. Decoding allocates no memory and checks every length.

use std::ops::Range;

use super::varint::{self, ByteReader, Malformed};

/// One frame, borrowed from the packet that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Requests a report. The frame has no fields.
    Ping,
    /// A report about packets that the sender of the frame has received.
    Feedback(crate::wire::report::Report<'a>),
    /// Bytes of slot `index` of a stream.
    Chunk {
        stream: u32,
        index: u64,
        data: &'a [u8],
    },
    /// One half of slot `index`. The slot has `len` bytes and does not fit into one packet on this
    /// path.
    Half {
        stream: u32,
        index: u64,
        len: usize,
        half: Half,
        data: &'a [u8],
    },
    /// End record of a stream: its number of slots and bytes, and the hash of its bytes.
    End {
        stream: u32,
        chunks: u64,
        bytes: u64,
        hash: u64,
    },
    /// The sender of a stream abandons the stream.
    Reset { stream: u32, code: u32 },
    /// The receiver of a stream refuses further bytes.
    Stop { stream: u32, code: u32 },
    /// Permits the sender of a stream to send slots with an index below `limit`.
    Credit { stream: u32, limit: u64 },
    /// Version 2: permits the sender of a stream to send slots with an index below `limit`. The
    /// receiver aims at a window of `window` slots.
    PacedCredit {
        stream: u32,
        limit: u64,
        window: u64,
    },
    /// The receiver's application has read a stream to its end.
    Done { stream: u32 },
    /// Announces initial credit: the pool has `free` slots just before stream `from` opens. The
    /// pool serves the bulk streams that the receiver of this frame opens.
    ///
    /// `from` counts the streams that the receiver of this frame opens. Each stream takes its share
    /// of the pool without a further frame.
    InitialWindow { from: u32, free: u64 },
    /// Total number of streams that the receiver of the frame may open, including all earlier
    /// streams.
    StreamLimit { streams: u32 },
    /// Round-trip time that the sender of the frame measured. The receiver of the frame computes
    /// its report interval from this time.
    PathHint { rtt_us: u64 },
    /// Requests reports about all packets from `number` on, because earlier reports about these
    /// packets were lost.
    TellFrom { number: u64 },
    /// Maximum rate at which the receiver of the frame may send, in bytes per second. Zero means no
    /// limit.
    RateMax { bytes_per_s: u64 },
    /// Another process will soon replace the sender of the frame. New streams must use another
    /// connection.
    Retire,
    /// Challenge to prove an address. The receiver must return the token in a [`Frame::Response`]
    /// to the address from which the challenge was sent.
    Challenge([u8; 8]),
    /// Returned token of a challenge.
    Response([u8; 8]),
    /// The sender of the frame ends the connection.
    Close { code: u32 },
}

/// One of the two halves of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    First,
    Second,
}

impl Half {
    /// Returns the byte range of this half in a slot of `len` bytes. If `len` is odd, the first
    /// half is one byte longer.
    pub(crate) fn of(self, len: usize) -> Range<usize> {
        let middle = len.div_ceil(2);
        match self {
            Self::First => 0..middle,
            Self::Second => middle..len,
        }
    }
}

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const FEEDBACK: u8 = 0x02;
const CHUNK_TO_END: u8 = 0x03;
const CHUNK: u8 = 0x04;
const END: u8 = 0x05;
const RESET: u8 = 0x06;
const STOP: u8 = 0x07;
const CREDIT: u8 = 0x08;
const DONE: u8 = 0x09;
const INITIAL_WINDOW: u8 = 0x0a;
const STREAM_LIMIT: u8 = 0x0b;
const PATH_HINT: u8 = 0x0c;
const RATE_MAX: u8 = 0x10;
const TELL_FROM: u8 = 0x11;
const PACED_CREDIT: u8 = 0x13;
const HALF: u8 = 0x14;
const RETIRE: u8 = 0x15;
const CHALLENGE: u8 = 0x0d;
const RESPONSE: u8 = 0x0e;
const CLOSE: u8 = 0x0f;

/// Maximum size in bytes of a frame other than chunks, halves and feedback.
pub(crate) const CONTROL_SIZE_MAX: usize = 1 + 4 + 8 + 8 + 8;

/// Returns the size of a [`CHUNK_TO_END`] frame without its data, in bytes.
pub(crate) fn chunk_header_size(stream: u32, index: u64) -> usize {
    1 + varint::size(u64::from(stream)) + varint::size(index)
}

/// Appends the header of a chunk frame whose data extends to the end of the packet.
pub(crate) fn put_chunk_to_end(out: &mut Vec<u8>, stream: u32, index: u64) {
    out.push(CHUNK_TO_END);
    varint::put(out, u64::from(stream));
    varint::put(out, index);
}

/// Appends the header of a chunk frame with `len` bytes of data.
pub(crate) fn put_chunk(out: &mut Vec<u8>, stream: u32, index: u64, len: usize) {
    out.push(CHUNK);
    varint::put(out, u64::from(stream));
    varint::put(out, index);
    varint::put(out, len as u64);
}

/// Appends the header of a frame with one half of a slot. The whole slot has `len` bytes.
pub(crate) fn put_half(out: &mut Vec<u8>, stream: u32, index: u64, len: usize, half: Half) {
    out.push(HALF);
    varint::put(out, u64::from(stream));
    varint::put(out, index);
    varint::put(out, len as u64);
    out.push(half as u8);
}

/// Appends the type byte of a feedback frame. The module `feedback` appends the report itself.
pub(crate) fn put_feedback_type(out: &mut Vec<u8>) {
    out.push(FEEDBACK);
}

impl Frame<'_> {
    /// Appends this frame to `out`.
    ///
    /// Other functions append chunks and halves: [`put_chunk`], [`put_chunk_to_end`] and
    /// [`put_half`]. The log of received packets appends feedback.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let mut fields = |kind: u8, values: &[u64]| {
            out.push(kind);
            for value in values {
                varint::put(out, *value);
            }
        };
        match *self {
            Frame::Ping => fields(PING, &[]),
            Frame::End {
                stream,
                chunks,
                bytes,
                hash,
            } => {
                fields(END, &[stream.into(), chunks, bytes]);
                out.extend_from_slice(&hash.to_be_bytes());
            }
            Frame::Reset { stream, code } => fields(RESET, &[stream.into(), code.into()]),
            Frame::Stop { stream, code } => fields(STOP, &[stream.into(), code.into()]),
            Frame::Credit { stream, limit } => fields(CREDIT, &[stream.into(), limit]),
            Frame::PacedCredit {
                stream,
                limit,
                window,
            } => fields(PACED_CREDIT, &[stream.into(), limit, window]),
            Frame::Done { stream } => fields(DONE, &[stream.into()]),
            Frame::InitialWindow { from, free } => fields(INITIAL_WINDOW, &[from.into(), free]),
            Frame::StreamLimit { streams } => fields(STREAM_LIMIT, &[streams.into()]),
            Frame::PathHint { rtt_us } => fields(PATH_HINT, &[rtt_us]),
            Frame::RateMax { bytes_per_s } => fields(RATE_MAX, &[bytes_per_s]),
            Frame::TellFrom { number } => fields(TELL_FROM, &[number]),
            Frame::Retire => fields(RETIRE, &[]),
            Frame::Challenge(token) => {
                fields(CHALLENGE, &[]);
                out.extend_from_slice(&token);
            }
            Frame::Response(token) => {
                fields(RESPONSE, &[]);
                out.extend_from_slice(&token);
            }
            Frame::Close { code } => fields(CLOSE, &[code.into()]),
            Frame::Chunk { .. } | Frame::Half { .. } | Frame::Feedback(_) => {
                unreachable!("chunks, halves and feedback have writers of their own")
            }
        }
    }
}

/// Iterator over the frames of a decrypted packet, in order. It stops after the first malformed
/// frame.
#[derive(Debug)]
pub(crate) struct Frames<'a>(ByteReader<'a>);

impl<'a> Frames<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self(ByteReader(payload))
    }

    fn read(&mut self) -> Result<Option<Frame<'a>>, Malformed> {
        let reader = &mut self.0;
        loop {
            if reader.is_empty() {
                return Ok(None);
            }
            let frame = match reader.byte()? {
                PADDING => continue,
                PING => Frame::Ping,
                FEEDBACK => Frame::Feedback(crate::wire::report::Report::read(reader)?),
                CHUNK_TO_END => Frame::Chunk {
                    stream: reader.varint_u32()?,
                    index: reader.varint()?,
                    data: reader.rest(),
                },
                CHUNK => {
                    let stream = reader.varint_u32()?;
                    let index = reader.varint()?;
                    let len = reader.varint_u32()? as usize;
                    Frame::Chunk {
                        stream,
                        index,
                        data: reader.bytes(len)?,
                    }
                }
                HALF => {
                    let stream = reader.varint_u32()?;
                    let index = reader.varint()?;
                    let len = reader.varint_u32()? as usize;
                    let half = match reader.byte()? {
                        0 => Half::First,
                        1 => Half::Second,
                        _ => return Err(Malformed),
                    };
                    Frame::Half {
                        stream,
                        index,
                        len,
                        half,
                        data: reader.bytes(half.of(len).len())?,
                    }
                }
                END => Frame::End {
                    stream: reader.varint_u32()?,
                    chunks: reader.varint()?,
                    bytes: reader.varint()?,
                    hash: u64::from_be_bytes(reader.array()?),
                },
                RESET => Frame::Reset {
                    stream: reader.varint_u32()?,
                    code: reader.varint_u32()?,
                },
                STOP => Frame::Stop {
                    stream: reader.varint_u32()?,
                    code: reader.varint_u32()?,
                },
                CREDIT => Frame::Credit {
                    stream: reader.varint_u32()?,
                    limit: reader.varint()?,
                },
                PACED_CREDIT => Frame::PacedCredit {
                    stream: reader.varint_u32()?,
                    limit: reader.varint()?,
                    window: reader.varint()?,
                },
                DONE => Frame::Done {
                    stream: reader.varint_u32()?,
                },
                INITIAL_WINDOW => Frame::InitialWindow {
                    from: reader.varint_u32()?,
                    free: reader.varint()?,
                },
                STREAM_LIMIT => Frame::StreamLimit {
                    streams: reader.varint_u32()?,
                },
                RATE_MAX => Frame::RateMax {
                    bytes_per_s: reader.varint()?,
                },
                TELL_FROM => Frame::TellFrom {
                    number: reader.varint()?,
                },
                RETIRE => Frame::Retire,
                PATH_HINT => Frame::PathHint {
                    rtt_us: reader.varint()?,
                },
                CHALLENGE => Frame::Challenge(reader.array()?),
                RESPONSE => Frame::Response(reader.array()?),
                CLOSE => Frame::Close {
                    code: reader.varint_u32()?,
                },
                _ => return Err(Malformed),
            };
            #[cfg(fuzz_canary)]
            if let Frame::Done { stream } = frame {
                assert!(
                    stream < 0x1000 || stream % 64 != 5,
                    "canary: in the decoder of frames"
                );
            }
            return Ok(Some(frame));
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.read().transpose();
        if matches!(frame, Some(Err(_))) {
            self.0 = ByteReader(&[]);
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn control_frame() -> impl Strategy<Value = Frame<'static>> {
        let id = 0u32..1 << 30;
        prop_oneof![
            Just(Frame::Ping),
            (id.clone(), 0..varint::MAX, 0..varint::MAX, any::<u64>()).prop_map(
                |(stream, chunks, bytes, hash)| Frame::End {
                    stream,
                    chunks,
                    bytes,
                    hash
                }
            ),
            (id.clone(), any::<u32>()).prop_map(|(stream, code)| Frame::Reset { stream, code }),
            (id.clone(), any::<u32>()).prop_map(|(stream, code)| Frame::Stop { stream, code }),
            (id.clone(), 0..varint::MAX)
                .prop_map(|(stream, limit)| Frame::Credit { stream, limit }),
            (id.clone(), 0..varint::MAX, 0..varint::MAX).prop_map(|(stream, limit, window)| {
                Frame::PacedCredit {
                    stream,
                    limit,
                    window,
                }
            }),
            id.clone().prop_map(|stream| Frame::Done { stream }),
            (any::<u32>(), 0..varint::MAX)
                .prop_map(|(from, free)| Frame::InitialWindow { from, free }),
            id.prop_map(|streams| Frame::StreamLimit { streams }),
            (0..varint::MAX).prop_map(|rtt_us| Frame::PathHint { rtt_us }),
            (0..varint::MAX).prop_map(|bytes_per_s| Frame::RateMax { bytes_per_s }),
            (0..varint::MAX).prop_map(|number| Frame::TellFrom { number }),
            Just(Frame::Retire),
            any::<[u8; 8]>().prop_map(Frame::Challenge),
            any::<[u8; 8]>().prop_map(Frame::Response),
            any::<u32>().prop_map(|code| Frame::Close { code }),
        ]
    }

    proptest! {
        #[test]
        fn frames_read_back_in_order(
            frames in prop::collection::vec(control_frame(), 0..20),
            data in prop::collection::vec(any::<u8>(), 0..1400),
        ) {
            let mut out = Vec::new();
            for frame in &frames {
                let before = out.len();
                frame.put(&mut out);
                prop_assert!(out.len() - before <= CONTROL_SIZE_MAX);
            }
            put_chunk(&mut out, 5, 77, data.len());
            out.extend_from_slice(&data);
            put_chunk_to_end(&mut out, 9, 1 << 33);
            out.extend_from_slice(&data);
            let mut halves = Vec::new();
            for half in [Half::First, Half::Second] {
                put_half(&mut halves, 5, 78, data.len(), half);
                halves.extend_from_slice(&data[half.of(data.len())]);
            }
            let together: Vec<u8> = Frames::new(&halves)
                .flat_map(|frame| match frame {
                    Ok(Frame::Half { stream: 5, index: 78, data, .. }) => data.to_vec(),
                    other => panic!("{other:?}"),
                })
                .collect();
            prop_assert_eq!(&together, &data);
            let read: Vec<_> = Frames::new(&out).collect::<Result<_, _>>().expect("all are valid");
            prop_assert_eq!(&read[..frames.len()], &frames[..]);
            prop_assert_eq!(read[frames.len()], Frame::Chunk { stream: 5, index: 77, data: &data });
            prop_assert_eq!(
                read[frames.len() + 1],
                Frame::Chunk { stream: 9, index: 1 << 33, data: &data }
            );
        }

        #[test]
        fn any_bytes_decode_to_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut errors = 0;
            for frame in Frames::new(&bytes) {
                errors += usize::from(frame.is_err());
            }
            prop_assert!(errors <= 1, "decoding stops at the first error");
        }
    }
}
