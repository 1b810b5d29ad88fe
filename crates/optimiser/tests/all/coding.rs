//! Tests that a decoder restores the bytes of an encoder from pieces of any size.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use optimiser::{
    check::StreamCheck,
    chunk::{ChunkName, Cutter},
    decoder::{DecodeError, Decoder, DecoderEvent},
    encoder::{EncodeScope, Encoder, SenderChunks},
    frame::{self, ChunkReference, FrameHead},
    list::ListBuilder,
    zstd_block::BLOCK_MAX,
};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64;

/// Store of a sender. For each chunk that the sender sent before, it sends a reference.
#[derive(Default)]
struct Known {
    names: HashMap<ChunkName, Bytes>,
    referred: Vec<Bytes>,
    turn: usize,
    has_room: bool,
}

impl SenderChunks for Known {
    fn receiver_may_have(&mut self, name: &ChunkName) -> bool {
        self.names.contains_key(name)
    }

    fn keep_outstanding(&mut self, chunks: &[Bytes]) -> bool {
        // Sometimes, the store has no room for outstanding references.
        let has_room = self.has_room || self.turn % 7 != 3;
        self.turn += 1;
        if has_room {
            self.referred.extend_from_slice(chunks);
        }
        has_room
    }

    fn record_sent(&mut self, name: ChunkName, chunk: Bytes) {
        self.names.insert(name, chunk);
    }
}

struct Decoded {
    bytes: Vec<u8>,
    chunks: HashMap<ChunkName, Bytes>,
    references: u64,
    lists: u64,
    list_builder: ListBuilder,
}

impl Decoded {
    fn refer(&mut self, reference: &ChunkReference, check: &mut StreamCheck) {
        self.references += 1;
        let chunk = self.chunks[&reference.name].clone();
        assert_eq!(chunk.len(), reference.bytes);
        check.update(&chunk);
        self.bytes.extend_from_slice(&chunk);
        self.list(reference);
    }

    fn list(&mut self, reference: &ChunkReference) {
        let list = self.list_builder.push(reference);
        self.chunks.extend(list.map(|list| (list.name, list.bytes)));
    }
}

/// Decodes `frames` in pieces. The sizes of the pieces repeat.
fn decode(frames: &[u8], pieces: &[usize], has_store: bool) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(has_store).with_parts();
    let mut check = StreamCheck::default();
    let mut decoded = Decoded {
        bytes: Vec::new(),
        chunks: HashMap::new(),
        references: 0,
        lists: 0,
        list_builder: ListBuilder::default(),
    };
    let mut end = None;
    let (mut rest, mut sizes) = (frames, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*sizes.next().expect("some")));
        rest = after;
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.poll()? {
            match event {
                DecoderEvent::Bytes(bytes) => {
                    check.update(&bytes);
                    decoded.bytes.extend_from_slice(&bytes);
                }
                DecoderEvent::Reference { number, reference } => {
                    assert_eq!(number, decoded.references);
                    decoded.refer(&reference, &mut check);
                }
                DecoderEvent::List { number, reference } => {
                    assert_eq!(number, decoded.references);
                    decoded.references += 1;
                    decoded.lists += 1;
                    let list = decoded.chunks[&reference.name].clone();
                    for reference in frame::references(&list) {
                        decoder.record_referenced(reference.bytes);
                        decoded.refer(&reference, &mut check);
                    }
                }
                DecoderEvent::Chunk { name, bytes } => {
                    assert_eq!(name, ChunkName::of(&bytes));
                    let bytes_of = bytes.len();
                    decoded.chunks.insert(name, bytes);
                    decoded.list(&ChunkReference {
                        bytes: bytes_of,
                        name,
                    });
                }
                DecoderEvent::End(head) => {
                    if head != check.end() {
                        return Err(DecodeError::Differs);
                    }
                    let list = decoded.list_builder.end();
                    decoded
                        .chunks
                        .extend(list.map(|list| (list.name, list.bytes)));
                    end = Some(head);
                }
            }
        }
    }
    decoder.end()?;
    assert_eq!(decoder.counts().bytes, decoded.bytes.len() as u64);
    match end == Some(check.end()) {
        true => Ok(decoded),
        false => Err(DecodeError::Differs),
    }
}

/// Encodes `bytes` in pieces. The sizes of the pieces and their encoding scopes repeat.
fn encode(
    bytes: &[u8],
    pieces: &[(usize, EncodeScope)],
    encoder: &mut Encoder,
    known: &mut Known,
) -> Vec<u8> {
    let (mut buffer, mut out) = (BytesMut::new(), VecDeque::new());
    let (mut rest, mut sizes) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let &(size, scope) = sizes.next().expect("some");
        let (piece, after) = rest.split_at(rest.len().min(size));
        rest = after;
        buffer.extend_from_slice(piece);
        encoder.encode(&mut buffer, scope, known, &mut out);
        assert!(scope == EncodeScope::Blocks || !encoder.holds_back(&buffer));
        assert!(scope != EncodeScope::Part || buffer.is_empty());
        assert!(buffer.len() < BLOCK_MAX + size);
    }
    encoder.encode(&mut buffer, EncodeScope::Rest, known, &mut out);
    // A second call yields no more frames.
    encoder.encode(&mut buffer, EncodeScope::Rest, known, &mut out);
    out.iter().flatten().copied().collect()
}

/// Generates a mixture of text, noise and repetitions.
fn mixed(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < count {
        let length = random.random_range(1..100_000);
        match random.random_range(0..3) {
            0 => bytes.extend((0..length).map(|n| b"some words of a text "[n % 21])),
            1 => {
                let from = bytes.len();
                bytes.resize(from + length, 0);
                random.fill(&mut bytes[from..]);
            }
            _ => {
                let from = random.random_range(0..=bytes.len());
                let end = bytes.len().min(from + length);
                bytes.extend_from_within(from..end);
            }
        }
    }
    bytes.truncate(count);
    bytes
}

/// Generates lines of a log whose fields recur at a distance of some hundred KiB.
fn lines(count: usize) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(3);
    let pages: Vec<[u8; 12]> = (0..4_000)
        .map(|_| std::array::from_fn(|_| random.random_range(b'a'..=b'z')))
        .collect();
    let mut bytes = Vec::new();
    while bytes.len() < count {
        bytes.extend_from_slice(&pages[random.random_range(0..pages.len())]);
        bytes.push(b'\n');
    }
    bytes.truncate(count);
    bytes
}

fn take() -> impl Strategy<Value = EncodeScope> {
    prop_oneof![
        3 => Just(EncodeScope::Blocks),
        1 => Just(EncodeScope::All),
        1 => Just(EncodeScope::Part),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn bytes_come_back(
        count in 0_usize..1_000_000,
        seed: u64,
        compresses: bool,
        cuts: bool,
        has_store: bool,
        pieces in prop::collection::vec((1_usize..300_000, take()), 1..8),
        frames_come in prop::collection::vec(1_usize..100_000, 1..8),
    ) {
        let bytes = mixed(count, seed);
        let mut encoder = Encoder::new(compresses, cuts.then(|| Cutter::new(&[9; 32]).into()));
        let mut known = Known::default();
        let frames = encode(&bytes, &pieces, &mut encoder, &mut known);
        prop_assert_eq!(encoder.counts().bytes, bytes.len() as u64);
        prop_assert_eq!(encoder.counts().coded_bytes, frames.len() as u64);
        let decoded = decode(&frames, &frames_come, has_store || cuts).expect("frames");
        prop_assert!(decoded.bytes == bytes, "other bytes");
        prop_assert_eq!(decoded.references, known.referred.len() as u64);
        prop_assert!(!cuts || decoded.chunks == known.names, "other chunks");
    }

    #[test]
    fn any_bytes_are_frames_or_an_error(
        frames: Vec<u8>,
        seed: u64,
        flips in prop::collection::vec(any::<usize>(), 1..4),
    ) {
        let forget = |event: Result<Option<DecoderEvent>, DecodeError>| matches!(event, Ok(Some(_)));
        let mut decoder = Decoder::new(true);
        decoder.push(frames.into());
        while forget(decoder.poll()) {}
        // Frames with some flipped bits.
        let mut encoder = Encoder::new(true, Some(Cutter::new(&[9; 32]).into()));
        let pieces = [(50_000, EncodeScope::All)];
        let mut frames = encode(&mixed(200_000, seed), &pieces, &mut encoder, &mut Known::default());
        let bits = 8 * frames.len();
        for flip in flips {
            let bit = flip % bits;
            frames[bit / 8] ^= 1 << (bit % 8);
        }
        let mut decoder = Decoder::new(true);
        decoder.push(frames.into());
        while forget(decoder.poll()) {}
    }
}

#[test]
fn a_known_file_goes_by_lists() {
    let bytes = mixed(20_000_000, 11);
    let cutter = Arc::new(Cutter::new(&[9; 32]));
    let mut known = Known::default();
    let pieces = [(200_000, EncodeScope::Blocks)];
    let mut frames = Vec::new();
    for turn in 0..2 {
        let mut encoder = Encoder::new(true, Some(cutter.clone()));
        known.has_room = true;
        let coded = encode(&bytes, &pieces, &mut encoder, &mut known);
        frames.push(coded);
        assert!(turn == 0 || frames[1].len() < 10_000, "{}", frames[1].len());
    }
    let first = decode(&frames[0], &[60_000], true).expect("frames");
    assert!(first.bytes == bytes, "other bytes");
}

#[test]
fn a_known_file_goes_by_references_beside_other_files() {
    let files: Vec<_> = [30_000, 700_000, 5_000_000, 900]
        .into_iter()
        .zip(20..)
        .collect();
    let files: Vec<_> = files
        .into_iter()
        .map(|(count, seed)| mixed(count, seed))
        .collect();
    let cutter = Arc::new(Cutter::new(&[9; 32]));
    let mut known = Known {
        has_room: true,
        ..Known::default()
    };
    let mut coded = |order: &[usize]| {
        let mut encoder = Encoder::new(true, Some(cutter.clone()));
        let (mut out, mut bytes) = (VecDeque::new(), Vec::new());
        for &at in order {
            bytes.extend_from_slice(&files[at]);
            let mut buffer = BytesMut::from(&files[at][..]);
            encoder.encode(&mut buffer, EncodeScope::Part, &mut known, &mut out);
            assert!(buffer.is_empty() && !encoder.holds_back(&buffer));
        }
        let frames: Vec<u8> = out.iter().flatten().copied().collect();
        (frames, bytes)
    };
    let (first, bytes) = coded(&[0, 1, 2, 3]);
    let decoded = decode(&first, &[60_000], true).expect("frames");
    assert!(decoded.bytes == bytes, "other bytes");
    let (second, _) = coded(&[2, 0, 1, 0]);
    assert!(second.len() < 10_000, "{} of {}", second.len(), first.len());
    let mut plain = Decoder::new(true);
    plain.push(first.into());
    let end = std::iter::repeat_with(|| plain.poll()).find_map(Result::err);
    assert_eq!(end, Some(DecodeError::AfterEnd), "one part is expected");
}

/// The chunks of a block are compressed together, even if the source delivers a few KiB at a time.
#[test]
fn small_reads_are_compressed_in_large_blocks() {
    let bytes = lines(4_000_000);
    let cutter = Arc::new(Cutter::new(&[9; 32]));
    let coded = |size| {
        let mut encoder = Encoder::new(true, Some(cutter.clone()));
        let pieces = [(size, EncodeScope::Blocks)];
        let mut known = Known::default();
        let frames = encode(&bytes, &pieces, &mut encoder, &mut known);
        let decoded = decode(&frames, &[60_000], true).expect("frames");
        assert!(decoded.bytes == bytes && decoded.chunks == known.names);
        frames.len()
    };
    let (large, small) = (coded(BLOCK_MAX), coded(16 * 1024));
    assert!(small <= large + large / 100, "{small}, {large}");
}

#[test]
fn a_changed_byte_is_found() {
    let bytes = mixed(400_000, 5);
    let mut encoder = Encoder::new(false, None);
    let pieces = [(100_000, EncodeScope::Blocks)];
    let mut frames = encode(&bytes, &pieces, &mut encoder, &mut Known::default());
    assert!(decode(&frames, &[4_000], false).is_ok());
    frames[1_000] ^= 1;
    assert_eq!(
        decode(&frames, &[4_000], false).err(),
        Some(DecodeError::Differs)
    );
}

#[test]
fn a_stream_that_is_cut_off_is_not_whole() {
    let mut encoder = Encoder::new(true, None);
    let pieces = [(100_000, EncodeScope::Blocks)];
    let frames = encode(
        &mixed(400_000, 6),
        &pieces,
        &mut encoder,
        &mut Known::default(),
    );
    for end in [0, 1, 1_000, frames.len() - 25, frames.len() - 1] {
        let decoded = decode(&frames[..end], &[4_000], false);
        assert_eq!(decoded.err(), Some(DecodeError::Truncated), "at {end}");
    }
}

#[test]
fn chunks_that_do_not_fit_are_refused() {
    let frames = |heads: &[&[u8]]| heads.concat();
    for (frames, error) in [
        // A reference within a chunk.
        (
            frames(&[&[3, 0, 1, 0, 9], &[4, 0, 1], &[0; 34]]),
            DecodeError::Chunks,
        ),
        // More bytes than the chunk has.
        (
            frames(&[&[1, 0, 0, 9], &[0; 9], &[3, 0, 1, 0, 4], &[1, 0, 0, 1, 0]]),
            DecodeError::Chunks,
        ),
        // The end within a chunk.
        (frames(&[&[3, 0, 1, 0, 9], &[0; 25]]), DecodeError::Chunks),
        (frames(&[&[2, 0, 0, 9, 0, 0, 1, 7]]), DecodeError::Block),
    ] {
        assert_eq!(
            decode(&frames, &[1_000], true).err(),
            Some(error),
            "{frames:?}"
        );
    }
    let mut whole = Decoder::new(true);
    whole.push(Bytes::from(frames(&[&[0; 25], &[1]])));
    assert!(matches!(whole.poll(), Ok(Some(DecoderEvent::End(_)))));
    assert_eq!(whole.poll().err(), Some(DecodeError::AfterEnd));
}

#[test]
fn a_whole_disk_of_zeros_is_small() {
    let bytes = vec![0; 20_000_000];
    for cuts in [false, true] {
        let mut encoder = Encoder::new(true, cuts.then(|| Cutter::new(&[9; 32]).into()));
        let pieces = [(BLOCK_MAX, EncodeScope::Blocks)];
        let frames = encode(&bytes, &pieces, &mut encoder, &mut Known::default());
        assert!(frames.len() < 20_000, "{}", frames.len());
        let decoded = decode(&frames, &[64 * 1024], cuts).expect("frames");
        assert!(decoded.bytes == bytes);
    }
}

#[test]
fn the_end_tells_count_and_hash() {
    let mut encoder = Encoder::new(true, None);
    let frames = encode(
        b"",
        &[(1, EncodeScope::All)],
        &mut encoder,
        &mut Known::default(),
    );
    let (head, length) = FrameHead::decode(&frames)
        .expect("a frame")
        .expect("a whole one");
    assert_eq!((head, length), (StreamCheck::default().end(), frames.len()));
}
