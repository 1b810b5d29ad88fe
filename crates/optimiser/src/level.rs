//! How hard a stream is compressed: not at all, or by zstd's level -1, 1 or 3.
//!
//! Two questions, answered all along the stream. *Do the bytes shrink at all?* A block that hardly shrank turns compression
//! off; from then on two samples of each block are tried, wherever in the block they are. *What can the processor
//! do?* While the link's queue is full there is time for a higher level; where compression itself takes most of the time, a
//! lower one is faster. Whether none at all is faster still is not guessed: both are tried, and compared by the
//! bytes that they moved. The level stays off for half a gibibyte, unless the bytes come slower than they came with compression: other
//! bytes may follow, or the line may have changed.

use std::time::Duration;

use crate::zstd_block;

/// How hard a block is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Not at all.
    Off,
    /// zstd's -1.
    #[default]
    Fastest,
    /// zstd's 1.
    Fast,
    /// zstd's 3.
    Normal,
}

/// Time in which a block was made and left, and what else was waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes of the block before compression.
    pub bytes: usize,
    /// For coding it, by the clock: a processor that others have counts as busy.
    pub coding: Duration,
    /// For the link's queue to have room.
    pub link: Duration,
    /// For the application to bring it.
    pub source: Duration,
}

/// Chooses the level of each block.
#[derive(Debug)]
pub struct Chooser {
    /// Of compression, whether it is off or not.
    level: Level,
    /// Whether the last block that was tried has shrunk.
    shrinks: bool,
    /// Where the next sample is taken.
    samples: u64,
    window: Spent,
    /// With compression, of late.
    s_per_byte: Option<f64>,
    /// While the level is off.
    off: Option<Off>,
    /// Bytes until off may be tried again.
    rest_bytes: usize,
}

impl Default for Chooser {
    fn default() -> Self {
        Self {
            level: Level::default(),
            shrinks: true,
            samples: 0,
            window: Spent::default(),
            s_per_byte: None,
            off: None,
            rest_bytes: FIRST_BYTES,
        }
    }
}

/// Without compression: against what, and for how long.
#[derive(Debug)]
struct Off {
    /// Compression reached that.
    against_s_per_byte: f64,
    /// Windows in a row in which it was slower.
    slower: u32,
    /// Until compression is tried again all the same.
    left_bytes: usize,
}

impl Level {
    /// zstd's name of it.
    pub fn zstd(self) -> Option<i32> {
        match self {
            Self::Off => None,
            Self::Fastest => Some(-1),
            Self::Fast => Some(1),
            Self::Normal => Some(3),
        }
    }

    fn higher(self) -> Self {
        match self {
            Self::Off | Self::Fastest => Self::Fast,
            Self::Fast | Self::Normal => Self::Normal,
        }
    }

    fn lower(self) -> Self {
        match self {
            Self::Off | Self::Fastest | Self::Fast => Self::Fastest,
            Self::Normal => Self::Fast,
        }
    }
}

impl Chooser {
    /// The level for `block`.
    pub fn choose(&mut self, block: &[u8]) -> Level {
        let is_tried = self.off.is_none() && (self.shrinks || self.samples_shrink(block));
        if is_tried { self.level } else { Level::Off }
    }

    /// The level of blocks that shrink.
    pub fn level(&self) -> Level {
        match self.off {
            Some(_) => Level::Off,
            None => self.level,
        }
    }

    /// A block of `bytes` became one of `coded_bytes` by a level that is not off.
    pub fn compressed(&mut self, bytes: usize, coded_bytes: usize) {
        self.shrinks = is_worth_it(bytes, coded_bytes);
    }

    /// Takes note of the time that a block took.
    pub fn spent(&mut self, spent: Spent) {
        self.window.bytes += spent.bytes;
        self.window.coding += spent.coding;
        self.window.link += spent.link;
        self.window.source += spent.source;
        if self.window.bytes >= WINDOW_BYTES {
            let window = std::mem::take(&mut self.window);
            self.judge(window);
        }
    }

    fn judge(&mut self, window: Spent) {
        let total = window.coding + window.link + window.source;
        let total_s = total.as_secs_f64().max(1e-9);
        let coding = window.coding.as_secs_f64() / total_s;
        let link = window.link.as_secs_f64() / total_s;
        let s_per_byte = total_s / window.bytes as f64;
        self.rest_bytes = self.rest_bytes.saturating_sub(window.bytes);
        if let Some(off) = &mut self.off {
            let is_slower = s_per_byte >= off.against_s_per_byte;
            off.slower = if is_slower { off.slower + 1 } else { 0 };
            off.left_bytes = off.left_bytes.saturating_sub(window.bytes);
            let has_lost = off.slower >= SLOWER_MOST;
            if has_lost || off.left_bytes == 0 {
                self.off = None;
                self.rest_bytes = if has_lost { COMPARE_BYTES } else { 0 };
            }
            return;
        }
        let before = self.s_per_byte.unwrap_or(s_per_byte);
        self.s_per_byte = Some(before + (s_per_byte - before) * RECENT);
        if !self.shrinks {
            // What is not compressed says nothing of the time for it.
        } else if coding >= CODING_MOST && self.level > Level::Fastest {
            self.level = self.level.lower();
        } else if coding >= CODING_MOST {
            if self.rest_bytes == 0 {
                self.off = Some(Off {
                    // One window may have had a busy machine, or few bytes that shrink much.
                    against_s_per_byte: before.min(s_per_byte),
                    slower: 0,
                    left_bytes: COMPARE_BYTES,
                });
            }
        } else if link >= LINK_BUSY && coding * COST_OF_NEXT < CODING_MOST {
            self.level = self.level.higher();
        }
    }

    /// Whether samples of the block shrink.
    fn samples_shrink(&mut self, block: &[u8]) -> bool {
        if block.len() <= SAMPLE_BYTES {
            return shrinks(block);
        }
        let places = block.len() - SAMPLE_BYTES;
        (0..SAMPLES).any(|_| {
            // A sequence that visits all parts of blocks (Weyl's, by the golden ratio).
            self.samples = self.samples.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let at = ((u128::from(self.samples) * places as u128) >> 64) as usize;
            shrinks(&block[at..at + SAMPLE_BYTES])
        })
    }
}

fn shrinks(sample: &[u8]) -> bool {
    is_worth_it(sample.len(), zstd_block::compressed_bytes(sample, 1))
}

/// A gain of one in twenty is worth the time of both sides.
fn is_worth_it(bytes: usize, coded_bytes: usize) -> bool {
    coded_bytes < bytes - bytes / 20
}

/// Between two judgements: long enough for a queue to fill or to empty.
const WINDOW_BYTES: usize = 8 * zstd_block::BLOCK_MAX;

/// Before off is tried: the link's queue fills first.
const FIRST_BYTES: usize = 16 * WINDOW_BYTES;

/// One slower window may have had a busy machine, or a pause of the line.
const SLOWER_MOST: u32 = 3;

/// Between two comparisons with no compression.
const COMPARE_BYTES: usize = 512 * 1024 * 1024;

/// So much the newest window counts of how fast it goes.
const RECENT: f64 = 0.2;

/// While the link is waited for so long, the link is the bottleneck.
const LINK_BUSY: f64 = 0.3;

/// Above that, coding is the bottleneck.
const CODING_MOST: f64 = 0.7;

/// The next level takes about so much longer: zstd 1.5.7 on a source archive, -1: 600 MB/s, 1: 450, 3: 280.
const COST_OF_NEXT: f64 = 1.6;

const SAMPLES: usize = 2;
const SAMPLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of `line_bytes_per_s`, a processor that takes `ns_per_byte` by each level, and bytes that shrink to
    /// `shares` of themselves by each. Returns the level after `mebibytes`.
    fn settled(line_bytes_per_s: f64, ns_per_byte: [f64; 4], shares: [f64; 4]) -> Level {
        let mut chooser = Chooser::default();
        let block = vec![0; zstd_block::BLOCK_MAX];
        let mut levels = [0_usize; 4];
        for turn in 0..8_000 {
            let level = chooser.choose(&block);
            let at = level as usize;
            let coding = block.len() as f64 * ns_per_byte[at] * 1e-9;
            let sent = block.len() as f64 * shares[at] / line_bytes_per_s;
            if level != Level::Off {
                chooser.compressed(block.len(), (block.len() as f64 * shares[at]) as usize);
            }
            chooser.spent(Spent {
                bytes: block.len(),
                coding: Duration::from_secs_f64(coding),
                // The queue drains meanwhile.
                link: Duration::from_secs_f64((sent - coding).max(0.0)),
                source: Duration::ZERO,
            });
            if turn >= 1_000 {
                levels[at] += 1;
            }
        }
        let most = (0..4).max_by_key(|&at| levels[at]).expect("four");
        [Level::Off, Level::Fastest, Level::Fast, Level::Normal][most]
    }

    const TEXT: [f64; 4] = [1.0, 0.33, 0.28, 0.24];
    const NS_PER_BYTE: [f64; 4] = [0.05, 1.7, 2.2, 3.6];

    #[test]
    fn a_slow_line_gets_the_highest_level() {
        assert_eq!(settled(12.5e6, NS_PER_BYTE, TEXT), Level::Normal);
    }

    #[test]
    fn a_line_that_is_faster_than_the_processor_gets_none() {
        assert_eq!(settled(1.25e9, NS_PER_BYTE, TEXT), Level::Off);
    }

    #[test]
    fn what_was_faster_without_is_compressed_once_it_is_slower() {
        let mut chooser = Chooser::default();
        let bytes = zstd_block::BLOCK_MAX;
        // Zeros, which a store knows: compression only takes time.
        let spend = |chooser: &mut Chooser, line: Duration| {
            let level = chooser.choose(&vec![0; bytes]);
            if level != Level::Off {
                chooser.compressed(bytes, bytes / 3);
            }
            let is_off = level == Level::Off;
            chooser.spent(Spent {
                bytes,
                coding: Duration::from_micros(if is_off { 300 } else { 700 }),
                link: if is_off { line } else { line / 3 },
                source: Duration::ZERO,
            });
            level
        };
        for _ in 0..200 {
            spend(&mut chooser, Duration::ZERO);
        }
        assert_eq!(chooser.level(), Level::Off);
        // A pause of the line.
        spend(&mut chooser, Duration::from_millis(300));
        for _ in 0..20 {
            assert_eq!(spend(&mut chooser, Duration::ZERO), Level::Off);
        }
        // Then text over a line of 100 Mbit/s.
        let off = (0..200)
            .filter(|_| spend(&mut chooser, Duration::from_millis(21)) == Level::Off)
            .count();
        assert!(off <= 4 * WINDOW_BYTES / bytes, "{off}");
        assert_eq!(chooser.level(), Level::Normal);
    }

    #[test]
    fn in_between_the_level_is_what_the_processor_can_do() {
        assert_eq!(settled(125e6, NS_PER_BYTE, TEXT), Level::Fastest);
        let slow = NS_PER_BYTE.map(|ns| 8.0 * ns);
        assert_eq!(settled(12.5e6, slow, TEXT), Level::Fastest);
    }

    fn random(bytes: usize, seed: u8) -> Vec<u8> {
        let mut block = vec![0; bytes];
        blake3::Hasher::new()
            .update(&[seed])
            .finalize_xof()
            .fill(&mut block);
        block
    }

    #[test]
    fn what_does_not_shrink_is_tried_again_wherever_it_begins_to() {
        let mut chooser = Chooser::default();
        let noise = random(zstd_block::BLOCK_MAX, 1);
        assert_ne!(chooser.choose(&noise), Level::Off);
        chooser.compressed(noise.len(), noise.len());
        for _ in 0..100 {
            assert_eq!(chooser.choose(&noise), Level::Off);
        }
        let mut mixed = noise;
        mixed[100_000..].fill(b'a');
        let tried = (0..100)
            .filter(|_| chooser.choose(&mixed) != Level::Off)
            .count();
        assert!(tried > 60, "{tried}");
    }
}
