//! Fuzz target: an encoder and a decoder. The decoder must restore any input, which it receives in
//! pieces of any size. Encoder and decoder must cut the same chunks, make the same lists, and have
//! the same counts.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use optimiser::{
    check::StreamCheck,
    chunk::{ChunkName, Cutter},
    decoder::{Decoder, DecoderEvent},
    encoder::{EncodeScope, Encoder, SenderChunks},
    frame::{self, ChunkReference},
    level::BlockTimes,
    list::ListBuilder,
};

use crate::Tape;

/// Runs one input, which is the sequence of instructions for one stream.
pub fn run(data: &[u8]) {
    play(data);
}

/// Outcome of coding one stream.
#[derive(Debug, Default)]
pub struct Played {
    /// Frames that the encoder produced.
    pub wire: Vec<u8>,
    /// Number of chunks that references replaced, including chunks in lists.
    pub references: usize,
    /// Number of lists that references replaced.
    pub lists: usize,
    /// Bytes saved by compression.
    pub saved_bytes: u64,
}

/// Runs the instructions of a tape until the end of the stream.
///
/// # Panics
/// If the decoded bytes differ from the original bytes, or if encoder and decoder disagree.
pub fn play(data: &[u8]) -> Played {
    let mut tape = Tape::new(data);
    let flags = tape.byte();
    let cutter = (flags & 2 != 0).then(|| Arc::new(Cutter::new(&[flags; 32])));
    let mut encoder = Encoder::new(flags & 1 != 0, cutter);
    let mut known = Known {
        forgets: tape.byte(),
        refuses: tape.byte(),
        ..Known::default()
    };
    let piece = usize::from(tape.short()).max(1);
    let (mut content, mut buffer, mut frames) = (Vec::new(), BytesMut::new(), VecDeque::new());
    while !tape.is_over() && content.len() < CONTENT_MAX_BYTES {
        let step = tape.byte();
        let fresh = match step & 7 {
            0 | 1 => tape.slice().to_vec(),
            2 => vec![tape.byte(); tape.short().into()],
            3 | 4 => {
                let seed = tape.byte();
                noise(seed, tape.short().into())
            }
            5 => {
                let text = [tape.slice(), b"\n"].concat();
                text.iter()
                    .copied()
                    .cycle()
                    .take(tape.short().into())
                    .collect()
            }
            // A repetition of earlier bytes.
            _ => {
                let from = usize::from(tape.short()) * 8 % (content.len() + 1);
                let count = usize::from(tape.short()) * 16;
                content[from..].iter().copied().take(count).collect()
            }
        };
        content.extend_from_slice(&fresh);
        buffer.extend_from_slice(&fresh);
        let scope = match step & 0x88 {
            0 => EncodeScope::Blocks,
            8 => EncodeScope::All,
            _ => EncodeScope::Part,
        };
        encoder.encode(&mut buffer, scope, &mut known, &mut frames);
        let time = |shift: u32| Duration::from_millis(u64::from(step >> shift & 3));
        encoder.record_times(BlockTimes {
            bytes: fresh.len(),
            coded_bytes: fresh.len() / 2,
            coding: time(4),
            link: time(5),
            source: time(6),
        });
        let is_held = encoder.holds_back(&buffer);
        assert!(scope == EncodeScope::Blocks || !is_held, "all of it goes");
    }
    encoder.encode(&mut buffer, EncodeScope::Rest, &mut known, &mut frames);
    assert!(buffer.is_empty());
    let wire: Vec<u8> = frames.into_iter().flatten().collect();
    let counts = encoder.counts();
    let mut receiver = Receiver::new();
    for piece in wire.chunks(piece) {
        receiver.take(Bytes::copy_from_slice(piece), &known.kept);
    }
    receiver.decoder.end().expect("the end has come");
    assert!(receiver.content == content, "other bytes");
    assert_eq!(receiver.decoder.counts(), counts);
    assert_eq!(counts.bytes, content.len() as u64);
    assert_eq!(counts.coded_bytes, wire.len() as u64);
    for name in &known.sent {
        assert!(
            receiver.names.contains(name),
            "a name that only one side has"
        );
    }
    Played {
        wire,
        references: receiver.references,
        lists: receiver.lists,
        saved_bytes: counts.compression_saved_bytes,
    }
}

/// Store of a sender. It forgets some names, and refuses to keep chunks for some references.
#[derive(Default)]
struct Known {
    names: HashSet<ChunkName>,
    sent: Vec<ChunkName>,
    kept: Vec<Bytes>,
    forgets: u8,
    refuses: u8,
    asked: u8,
}

impl SenderChunks for Known {
    fn receiver_may_have(&mut self, name: &ChunkName) -> bool {
        self.names.contains(name) && name.0[1] >= self.forgets
    }

    fn keep_outstanding(&mut self, chunks: &[Bytes]) -> bool {
        self.asked = self.asked.wrapping_add(29);
        let keeps = self.asked >= self.refuses;
        if keeps {
            self.kept.extend_from_slice(chunks);
        }
        keeps
    }

    fn record_sent(&mut self, name: ChunkName, chunk: Bytes) {
        assert_eq!(ChunkName::of(&chunk), name);
        self.names.insert(name);
        self.sent.push(name);
    }
}

/// A receiver without a store. It gets the bytes of referenced chunks from the sender, and records
/// the names of all chunks and lists.
struct Receiver {
    decoder: Decoder,
    check: StreamCheck,
    list_builder: ListBuilder,
    content: Vec<u8>,
    names: HashSet<ChunkName>,
    references: usize,
    lists: usize,
}

impl Receiver {
    fn new() -> Self {
        Self {
            decoder: Decoder::new(true).with_parts(),
            check: StreamCheck::default(),
            list_builder: ListBuilder::default(),
            content: Vec::new(),
            names: HashSet::new(),
            references: 0,
            lists: 0,
        }
    }

    fn take(&mut self, bytes: Bytes, kept: &[Bytes]) {
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.poll().expect("what we write is well formed") {
            match event {
                DecoderEvent::Bytes(bytes) => self.deliver(&bytes),
                DecoderEvent::Reference { number, reference } => {
                    self.chunk(number, &reference, kept)
                }
                DecoderEvent::List { number, reference } => {
                    self.lists += 1;
                    let list = &kept[number as usize];
                    assert_eq!(ChunkName::of(list), reference.name);
                    assert_eq!(list.len(), reference.bytes);
                    for (at, reference) in frame::references(list).enumerate() {
                        self.decoder.record_referenced(reference.bytes);
                        self.chunk(number + 1 + at as u64, &reference, kept);
                    }
                }
                DecoderEvent::Chunk { name, bytes } => {
                    let bytes = bytes.len();
                    self.known(&ChunkReference { bytes, name });
                }
                DecoderEvent::End(head) => {
                    assert_eq!(head, self.check.end());
                    let list = self.list_builder.end();
                    self.names.extend(list.map(|list| list.name));
                }
            }
        }
    }

    fn chunk(&mut self, number: u64, reference: &ChunkReference, kept: &[Bytes]) {
        let chunk = &kept[number as usize];
        assert_eq!(ChunkName::of(chunk), reference.name);
        assert_eq!(chunk.len(), reference.bytes);
        self.references += 1;
        self.deliver(chunk);
        self.known(reference);
    }

    fn known(&mut self, reference: &ChunkReference) {
        self.names.insert(reference.name);
        let list = self.list_builder.push(reference);
        self.names.extend(list.map(|list| list.name));
    }

    fn deliver(&mut self, bytes: &[u8]) {
        self.check.update(bytes);
        self.content.extend_from_slice(bytes);
    }
}

/// Returns bytes that cannot be compressed.
fn noise(seed: u8, count: usize) -> Vec<u8> {
    let mut state = 1 + u64::from(seed);
    let bytes = (0..count).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    bytes.collect()
}

/// Returns first inputs for the fuzzer: words, repeated noise, and a long repeated file. The other
/// inputs are the same file with forgotten and refused chunks, a file of one chunk, and a file in
/// parts.
pub fn seeds() -> Vec<Vec<u8>> {
    let start = |flags: u8, forgets: u8, refuses: u8| vec![flags, forgets, refuses, 3, 232];
    let noise = |seed: u8, count: u16, take: u8| {
        let [high, low] = count.to_be_bytes();
        vec![3 | take, seed, high, low]
    };
    let again = |from_bytes: usize, bytes: usize, take: u8| {
        let from = ((from_bytes / 8) as u16).to_be_bytes();
        let count = ((bytes / 16) as u16).to_be_bytes();
        [vec![7 | take], from.to_vec(), count.to_vec()].concat()
    };
    let words = vec![1, 9, b'w', b'o', b'r', b'd', b's', b' ', b'a', b'n', b'd'];
    let text = vec![5, 5, b'h', b'e', b'l', b'l', b'o', 0xea, 0x60];
    let long: Vec<u8> = (BASE..BASE + 13)
        .flat_map(|seed| noise(seed, 60_000, 0))
        .collect();
    let mut seeds = vec![
        [start(1, 0, 0), words.clone(), text.clone()].concat(),
        [
            start(3, 0, 0),
            words.clone(),
            noise(1, 50_000, 8),
            text.clone(),
        ]
        .concat(),
        [start(2, 0, 0), noise(1, 60_000, 0), again(0, 60_000, 8)].concat(),
        [start(0, 0, 0), words, vec![8, 0], noise(1, 900, 8)].concat(),
    ];
    for (forgets, refuses) in [(0, 0), (40, 0), (0, 100), (9, 9)] {
        let known = again(0, 780_000, 0).repeat(2);
        seeds.push(
            [
                start(3, forgets, refuses),
                long.clone(),
                known,
                text.clone(),
            ]
            .concat(),
        );
    }
    // A file that is a single chunk.
    seeds.push([start(2, 0, 0), noise(1, 3_800, 0)].concat());
    // A file in two parts, and the first part again.
    let parts = [
        noise(1, 60_000, 0x80),
        noise(2, 9_000, 0x80),
        again(0, 60_000, 0x80),
    ];
    seeds.push([start(3, 0, 0), parts.concat()].concat());
    seeds
}

/// Maximum size of the content. It suffices for several lists.
const CONTENT_MAX_BYTES: usize = 3 * 1024 * 1024;

/// First of the numbers from which the content of the long file is generated. With this value, a
/// list ends within the file.
const BASE: u8 = 78;
