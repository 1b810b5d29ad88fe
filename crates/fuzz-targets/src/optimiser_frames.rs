//! Fuzz target: the frames of a coded stream. Any bytes are either decoded or refused, and the size
//! of the received pieces does not change the result. The reports of the decoder are consistent.

use bytes::{Bytes, BytesMut};
use optimiser::{
    chunk::{CHUNK_MAX, ChunkName, KEPT_LEAST},
    decoder::{DecodeError, Decoder, DecoderEvent},
    frame::{ChunkReference, FrameHead, REFERENCE_BYTES},
    zstd_block,
};

use crate::{Tape, optimiser_pair};

/// Runs one input, which contains a flag, the size of the pieces, and the frames. The flag enables
/// reports of chunks.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let reports_chunks = tape.byte() & 1 == 1;
    let piece = usize::from(tape.short()).max(1);
    let bytes = data.get(3..).unwrap_or_default();
    head(bytes);
    let whole = DecoderEvents::of(bytes, reports_chunks, bytes.len().max(1));
    let in_pieces = DecoderEvents::of(bytes, reports_chunks, piece);
    if whole.is_too_much || in_pieces.is_too_much {
        return;
    }
    assert_eq!(in_pieces.error, whole.error);
    // The decoder need not report the events just before an error.
    if whole.error.is_none() {
        assert_eq!(in_pieces.marks, whole.marks);
        assert!(in_pieces.bytes == whole.bytes, "other bytes");
    } else {
        assert!(in_pieces.bytes.starts_with(&whole.bytes));
        assert!(in_pieces.marks.starts_with(&whole.marks));
    }
}

/// Checks that encoding a decoded head returns the same bytes.
fn head(bytes: &[u8]) {
    if let Ok(Some((head, length))) = FrameHead::decode(bytes) {
        let mut written = BytesMut::new();
        head.encode(&mut written);
        assert_eq!(written, bytes[..length]);
        assert!(head.body_bytes() <= zstd_block::BLOCK_MAX);
    }
}

/// All events that a decoder reported.
#[derive(Default)]
struct DecoderEvents {
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    error: Option<DecodeError>,
    /// Whether the test stopped decoding, because the output became too large.
    is_too_much: bool,
}

/// An event other than bytes. The first number is the number of bytes reported before the event.
#[derive(Debug, PartialEq)]
enum Mark {
    Reference(usize, u64, ChunkReference),
    List(usize, u64, ChunkReference),
    /// A complete chunk. The variant has no position, because the position depends on the size of
    /// the pieces.
    Chunk(ChunkName),
    End(usize, FrameHead),
}

impl DecoderEvents {
    fn of(bytes: &[u8], reports_chunks: bool, piece: usize) -> Self {
        let mut reported = Self::default();
        let mut decoder = Decoder::new(reports_chunks);
        let (mut numbers, mut referred_bytes, mut is_ended) = (0, 0, false);
        for piece in bytes.chunks(piece) {
            decoder.push(Bytes::copy_from_slice(piece));
            loop {
                let event = match decoder.poll() {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => {
                        reported.error = Some(error);
                        return reported;
                    }
                };
                assert!(!is_ended, "nothing is reported behind the end");
                let at = reported.bytes.len();
                match event {
                    DecoderEvent::Bytes(bytes) => {
                        assert!(!bytes.is_empty() && bytes.len() <= zstd_block::BLOCK_MAX);
                        reported.bytes.extend_from_slice(&bytes);
                    }
                    DecoderEvent::Reference { number, reference } => {
                        assert_eq!(number, numbers);
                        assert!((1..=CHUNK_MAX).contains(&reference.bytes));
                        numbers += 1;
                        referred_bytes += reference.bytes;
                        reported.marks.push(Mark::Reference(at, number, reference));
                    }
                    DecoderEvent::List { number, reference } => {
                        assert_eq!(number, numbers);
                        numbers += 1 + (reference.bytes / REFERENCE_BYTES) as u64;
                        reported.marks.push(Mark::List(at, number, reference));
                    }
                    DecoderEvent::Chunk { name, bytes } => {
                        assert!(reports_chunks);
                        assert!((KEPT_LEAST..=CHUNK_MAX).contains(&bytes.len()));
                        assert_eq!(name, ChunkName::of(&bytes));
                        reported.marks.push(Mark::Chunk(name));
                    }
                    DecoderEvent::End(head) => {
                        is_ended = true;
                        reported.marks.push(Mark::End(at, head));
                    }
                }
                if reported.bytes.len() > TOLD_MAX_BYTES {
                    reported.is_too_much = true;
                    return reported;
                }
            }
        }
        let counts = decoder.counts();
        assert_eq!(counts.bytes, (reported.bytes.len() + referred_bytes) as u64);
        assert_eq!(counts.coded_bytes, bytes.len() as u64);
        assert_eq!(decoder.end().is_ok(), is_ended);
        reported
    }
}

/// Returns first inputs for the fuzzer: frames of an encoder, complete and truncated.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |wire: Vec<u8>, reports_chunks: bool, piece: u16| {
        let mut seed = vec![u8::from(reports_chunks)];
        seed.extend_from_slice(&piece.to_be_bytes());
        seed.extend_from_slice(&wire);
        seed
    };
    let inputs = optimiser_pair::seeds();
    let wires = inputs.iter().map(|input| optimiser_pair::play(input).wire);
    let mut seeds: Vec<_> = wires
        .enumerate()
        .map(|(number, wire)| seed(wire, number % 4 != 3, 1 + 700 * number as u16))
        .collect();
    let long: Vec<_> = seeds
        .iter()
        .map(|seed| seed[..seed.len().min(3_000)].to_vec())
        .collect();
    seeds.extend(long);
    seeds
}

/// Limit for the output of the decoder. Without a limit, an input of a few bytes could produce any
/// number of bytes.
const TOLD_MAX_BYTES: usize = 4 * 1024 * 1024;
