//! Choice of the compression level of a stream: none, or zstd's level 1, 3 or 5.
//!
//! The first criterion is whether the bytes shrink. If a block hardly shrinks, the chooser turns
//! compression off. From then on, only two samples of each block are compressed, at changing
//! positions.
//!
//! The second criterion is the speed of the processor. If the stream waits for the link's queue,
//! the processor has time for a higher level. If compression takes most of the time, a lower level
//! is faster.
//!
//! If even the lowest level takes most of the time, a trial without compression follows. The
//! chooser compares the time per byte with and without compression. If the trial is faster,
//! compression stays off for half a gibibyte. If the trial becomes slower than compression was, the
//! trial ends early, since the content or the path may have changed.

use std::time::Duration;

use crate::zstd_block;

/// Compression level of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CompressionLevel {
    /// No compression.
    Off,
    /// zstd's level 1.
    #[default]
    Fast,
    /// zstd's level 3.
    Normal,
    /// zstd's level 5.
    High,
}

/// Time spent on coding a block, and on waiting before and after the coding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockTimes {
    /// Bytes of the block before compression.
    pub bytes: usize,
    /// Bytes of the block's frames.
    pub coded_bytes: usize,
    /// Elapsed time of the coding. It includes time in which the processor was busy with other
    /// work.
    pub coding: Duration,
    /// Time for which the stream waited for space in the link's queue.
    pub link: Duration,
    /// Time for which the stream waited for the application's bytes.
    pub source: Duration,
}

/// Chooser of the compression level of each block.
#[derive(Debug)]
pub struct LevelChooser {
    /// Level for blocks that are compressed. It keeps its value while compression is off.
    level: CompressionLevel,
    /// Whether the last compressed block or sample shrank enough.
    shrinks: bool,
    /// Counter that determines the position of the next sample.
    samples: u64,
    window: BlockTimes,
    /// Moving average of the time per byte with compression, in seconds.
    s_per_byte: Option<f64>,
    /// The present trial without compression. `None` while compression is allowed.
    off: Option<UncompressedTrial>,
    /// Number of bytes until compression may be turned off again.
    rest_bytes: usize,
}

impl Default for LevelChooser {
    fn default() -> Self {
        Self {
            level: CompressionLevel::default(),
            shrinks: true,
            samples: 0,
            window: BlockTimes::default(),
            s_per_byte: None,
            off: None,
            rest_bytes: FIRST_BYTES,
        }
    }
}

/// State of a trial without compression.
#[derive(Debug)]
struct UncompressedTrial {
    /// Time per byte with compression, in seconds. The trial is compared with this time.
    against_s_per_byte: f64,
    /// Number of consecutive windows in which the trial was slower than compression.
    slower: u32,
    /// Remaining number of bytes of the trial. After the trial, compression is tried again.
    left_bytes: usize,
}

impl CompressionLevel {
    /// Returns zstd's number for the level. Returns `None` for [`CompressionLevel::Off`].
    pub fn zstd(self) -> Option<i32> {
        match self {
            Self::Off => None,
            Self::Fast => Some(1),
            Self::Normal => Some(3),
            Self::High => Some(5),
        }
    }

    /// Returns the next higher level, and the time of that level divided by the time of this level.
    /// Returns `None` for the highest level.
    ///
    /// In blocks of 256 KiB, zstd 1.5.7 codes a source archive at 680 MB/s (level 1), 550 MB/s
    /// (level 3) and 230 MB/s (level 5). The rates for programs are 460, 270 and 130 MB/s. Cutting
    /// and naming the chunks takes another 1.1 s/GB at each level.
    fn higher(self) -> Option<(Self, f64)> {
        match self {
            Self::Off => Some((Self::Fast, 1.0)),
            Self::Fast => Some((Self::Normal, 1.6)),
            Self::Normal => Some((Self::High, 2.0)),
            Self::High => None,
        }
    }

    fn lower(self) -> Self {
        match self {
            Self::Off | Self::Fast | Self::Normal => Self::Fast,
            Self::High => Self::Normal,
        }
    }
}

impl LevelChooser {
    /// Returns the level for `block`.
    pub fn choose(&mut self, block: &[u8]) -> CompressionLevel {
        let is_tried = self.off.is_none() && (self.shrinks || self.samples_shrink(block));
        if is_tried {
            self.level
        } else {
            CompressionLevel::Off
        }
    }

    /// Returns the current level for blocks that shrink.
    pub fn level(&self) -> CompressionLevel {
        match self.off {
            Some(_) => CompressionLevel::Off,
            None => self.level,
        }
    }

    /// Records that a block of `bytes` bytes was compressed to `coded_bytes` bytes.
    pub fn record_sizes(&mut self, bytes: usize, coded_bytes: usize) {
        self.shrinks = is_worth_it(bytes, coded_bytes);
    }

    /// Records the time spent on a block.
    pub fn record_times(&mut self, times: BlockTimes) {
        self.window.bytes += times.bytes;
        self.window.coded_bytes += times.coded_bytes;
        self.window.coding += times.coding;
        self.window.link += times.link;
        self.window.source += times.source;
        let is_long = self.window.coded_bytes >= WINDOW_CODED_BYTES;
        if is_long && self.window.bytes >= WINDOW_BYTES || self.window.bytes >= WINDOW_MAX_BYTES {
            let window = std::mem::take(&mut self.window);
            self.judge(window);
        }
    }

    fn judge(&mut self, window: BlockTimes) {
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
            // Uncompressed bytes give no measurement of the coding time.
        } else if coding >= CODING_MOST && self.level > CompressionLevel::Fast {
            self.level = self.level.lower();
        } else if coding >= CODING_MOST {
            if self.rest_bytes == 0 {
                self.off = Some(UncompressedTrial {
                    // A single window may be an exception: the machine was busy, or a few bytes
                    // shrank much.
                    against_s_per_byte: before.min(s_per_byte),
                    slower: 0,
                    left_bytes: COMPARE_BYTES,
                });
            }
        } else if let Some((higher, cost)) = self.level.higher()
            && link >= LINK_BUSY
            && coding * cost < CODING_MOST
        {
            self.level = higher;
        }
    }

    /// Returns whether samples of the block shrink enough.
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

/// Returns whether compression saved more than a twentieth of the bytes. A smaller gain is not
/// worth the processor time of both gateways.
fn is_worth_it(bytes: usize, coded_bytes: usize) -> bool {
    coded_bytes < bytes - bytes / 20
}

/// Minimum number of bytes between two decisions.
const WINDOW_BYTES: usize = 8 * zstd_block::BLOCK_MAX;

/// Minimum number of coded bytes between two decisions. A stream that waits for the link waits
/// until half of its queue of 512 KiB is free. A shorter window may contain no such wait, and
/// coding would then seem to take all the time.
const WINDOW_CODED_BYTES: usize = 1024 * 1024;

/// Maximum number of bytes between two decisions, counted before coding. The limit applies even if
/// these bytes were coded to only a few bytes.
const WINDOW_MAX_BYTES: usize = 8 * WINDOW_BYTES;

/// Number of bytes before the first trial without compression. In this time the link's queue fills.
const FIRST_BYTES: usize = 16 * WINDOW_BYTES;

/// Number of consecutive slower windows that end a trial. A busy machine, or a pause of the path,
/// may slow a single window.
const SLOWER_MOST: u32 = 3;

/// Maximum number of bytes of a trial without compression. After a slower trial, the next trial
/// starts only after the same number of bytes.
const COMPARE_BYTES: usize = 512 * 1024 * 1024;

/// Weight of the newest window in the moving average of the time per byte.
const RECENT: f64 = 0.2;

/// Threshold for the fraction of time that the stream waits for the link. From this fraction on,
/// the link counts as the bottleneck.
const LINK_BUSY: f64 = 0.3;

/// Threshold for the fraction of time that the stream spends on coding. From this fraction on,
/// coding counts as the bottleneck.
const CODING_MOST: f64 = 0.7;

const SAMPLES: usize = 2;
const SAMPLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the level that the chooser uses for nearly all blocks after the start. The path has
    /// the capacity `line_bytes_per_s`.
    ///
    /// The four levels need `ns_per_byte` of processor time, and shrink the bytes to the fractions
    /// `shares`.
    fn settled(line_bytes_per_s: f64, ns_per_byte: [f64; 4], shares: [f64; 4]) -> CompressionLevel {
        let mut chooser = LevelChooser::default();
        let block = vec![0; zstd_block::BLOCK_MAX];
        let mut levels = [0_usize; 4];
        let mut unsent_bytes = 0.0;
        for turn in 0..8_000 {
            let level = chooser.choose(&block);
            let at = level as usize;
            let coding = block.len() as f64 * ns_per_byte[at] * 1e-9;
            let coded_bytes = (block.len() as f64 * shares[at]) as usize;
            if level != CompressionLevel::Off {
                chooser.record_sizes(block.len(), coded_bytes);
            }
            // The stream waits until half of the queue is free.
            unsent_bytes += coded_bytes as f64;
            let mut link = 0.0;
            unsent_bytes = (unsent_bytes - coding * line_bytes_per_s).max(0.0);
            if unsent_bytes >= QUEUE_BYTES {
                link = (unsent_bytes - QUEUE_BYTES / 2.0) / line_bytes_per_s;
                unsent_bytes = QUEUE_BYTES / 2.0;
            }
            chooser.record_times(BlockTimes {
                bytes: block.len(),
                coded_bytes,
                coding: Duration::from_secs_f64(coding),
                link: Duration::from_secs_f64(link),
                source: Duration::ZERO,
            });
            if turn >= 1_000 {
                levels[at] += 1;
            }
        }
        let most = (0..4).max_by_key(|&at| levels[at]).expect("four");
        let turns: usize = levels.iter().sum();
        assert!(levels[most] * 10 >= turns * 9, "{levels:?}");
        [
            CompressionLevel::Off,
            CompressionLevel::Fast,
            CompressionLevel::Normal,
            CompressionLevel::High,
        ][most]
    }

    const QUEUE_BYTES: f64 = 512.0 * 1024.0;
    const TEXT: [f64; 4] = [1.0, 0.28, 0.24, 0.22];
    const NS_PER_BYTE: [f64; 4] = [0.05, 2.2, 3.6, 8.0];

    #[test]
    fn a_slow_line_gets_the_highest_level() {
        assert_eq!(settled(12.5e6, NS_PER_BYTE, TEXT), CompressionLevel::High);
    }

    #[test]
    fn a_line_that_is_faster_than_the_processor_gets_none() {
        assert_eq!(settled(1.25e9, NS_PER_BYTE, TEXT), CompressionLevel::Off);
    }

    #[test]
    fn what_was_faster_without_is_compressed_once_it_is_slower() {
        let mut chooser = LevelChooser::default();
        let bytes = zstd_block::BLOCK_MAX;
        // A store already has these zeros, so compression only takes time.
        let spend = |chooser: &mut LevelChooser, line: Duration| {
            let level = chooser.choose(&vec![0; bytes]);
            if level != CompressionLevel::Off {
                chooser.record_sizes(bytes, bytes / 3);
            }
            let is_off = level == CompressionLevel::Off;
            chooser.record_times(BlockTimes {
                bytes,
                coded_bytes: if is_off { bytes } else { bytes / 3 },
                coding: Duration::from_micros(if is_off { 300 } else { 700 }),
                link: if is_off { line } else { line / 3 },
                source: Duration::ZERO,
            });
            level
        };
        for _ in 0..200 {
            spend(&mut chooser, Duration::ZERO);
        }
        assert_eq!(chooser.level(), CompressionLevel::Off);
        // The path pauses once.
        spend(&mut chooser, Duration::from_millis(300));
        for _ in 0..20 {
            assert_eq!(spend(&mut chooser, Duration::ZERO), CompressionLevel::Off);
        }
        // Then text follows over a path of 100 Mbit/s.
        let off = (0..200)
            .filter(|_| spend(&mut chooser, Duration::from_millis(21)) == CompressionLevel::Off)
            .count();
        assert!(off <= 4 * WINDOW_BYTES / bytes, "{off}");
        assert_eq!(chooser.level(), CompressionLevel::High);
    }

    #[test]
    fn in_between_the_level_is_what_the_processor_can_do() {
        assert_eq!(settled(125e6, NS_PER_BYTE, TEXT), CompressionLevel::Fast);
        let triple = NS_PER_BYTE.map(|ns| 3.0 * ns);
        assert_eq!(settled(12.5e6, triple, TEXT), CompressionLevel::Normal);
        let slow = NS_PER_BYTE.map(|ns| 8.0 * ns);
        assert_eq!(settled(12.5e6, slow, TEXT), CompressionLevel::Fast);
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
        let mut chooser = LevelChooser::default();
        let noise = random(zstd_block::BLOCK_MAX, 1);
        assert_ne!(chooser.choose(&noise), CompressionLevel::Off);
        chooser.record_sizes(noise.len(), noise.len());
        for _ in 0..100 {
            assert_eq!(chooser.choose(&noise), CompressionLevel::Off);
        }
        let mut mixed = noise;
        mixed[100_000..].fill(b'a');
        let tried = (0..100)
            .filter(|_| chooser.choose(&mixed) != CompressionLevel::Off)
            .count();
        assert!(tried > 60, "{tried}");
    }
}
