//! One report on the wire.
//!
//! ```text
//! number and last | largest | time of largest, us | delay, us | bytes received
//!   | length of samples | samples | length of blocks | blocks
//! sample:  packet number, counted back | receive time in us, counted back
//! block:   first packet number, counted back from largest | count | kind | runs or bits
//! ```
//!
//! The first field is twice the report's number, plus one in the last frame of the report: one that
//! does not fit a packet is told in several frames.
//!
//! Samples run backwards from `largest`, each relative to the one before. Runs alternate between
//! received and missing, received first; bits are least significant first.

use crate::wire::{
    Malformed,
    varint::{self, Reader},
};

/// A decoded report. Samples and blocks stay encoded until they are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    /// Counts up by one with each report.
    pub(crate) number: u64,
    /// With this frame the report is complete: what it does not tell has not arrived.
    pub(crate) is_last: bool,
    /// The highest packet number that has arrived.
    pub(crate) largest: u64,
    /// When it arrived, by the receiver's clock in microseconds.
    pub(crate) largest_time_us: u64,
    /// How long after that the report was made, in microseconds.
    pub(crate) delay_us: u64,
    /// Bytes of all distinct packets that have arrived, headers included.
    pub(crate) bytes_received: u64,
    samples: &'a [u8],
    blocks: &'a [u8],
}

/// When one packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) number: u64,
    pub(crate) time_us: u64,
}

/// Encoded as alternating run lengths.
pub(super) const RUNS: u8 = 0;
/// Encoded as one bit a packet.
pub(super) const BITS: u8 = 1;

impl<'a> Report<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let number = reader.varint()?;
        let report = Self {
            number: number >> 1,
            is_last: number & 1 == 1,
            largest: reader.varint()?,
            largest_time_us: reader.varint()?,
            delay_us: reader.varint()?,
            bytes_received: reader.varint()?,
            samples: {
                let len = reader.varint_u32()? as usize;
                reader.bytes(len)?
            },
            blocks: {
                let len = reader.varint_u32()? as usize;
                reader.bytes(len)?
            },
        };
        Ok(report)
    }

    /// Appends a report whose samples and blocks are already encoded.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let number = self.number << 1 | u64::from(self.is_last);
        for value in [
            number,
            self.largest,
            self.largest_time_us,
            self.delay_us,
            self.bytes_received,
        ] {
            varint::put(out, value);
        }
        for part in [self.samples, self.blocks] {
            varint::put(out, part.len() as u64);
            out.extend_from_slice(part);
        }
    }

    pub(super) fn with_parts(self, samples: &'a [u8], blocks: &'a [u8]) -> Self {
        Self {
            samples,
            blocks,
            ..self
        }
    }

    /// A report without samples and blocks, in one frame.
    pub(super) fn new(
        number: u64,
        largest: u64,
        largest_time_us: u64,
        delay_us: u64,
        bytes_received: u64,
    ) -> Self {
        Self {
            number,
            is_last: true,
            largest,
            largest_time_us,
            delay_us,
            bytes_received,
            samples: &[],
            blocks: &[],
        }
    }

    pub(super) fn to_be_continued(self, is_continued: bool) -> Self {
        Self {
            is_last: !is_continued,
            ..self
        }
    }

    /// Calls `visit` for each sample, newest first.
    pub(crate) fn for_each_sample(&self, mut visit: impl FnMut(Sample)) -> Result<(), Malformed> {
        let mut reader = Reader(self.samples);
        let mut sample = Sample {
            number: self.largest,
            time_us: self.largest_time_us,
        };
        while !reader.is_empty() {
            sample.number = sample
                .number
                .checked_sub(reader.varint()?)
                .ok_or(Malformed)?;
            sample.time_us = sample.time_us.saturating_sub(reader.varint()?);
            visit(sample);
        }
        Ok(())
    }

    /// Calls `visit` for each run of packets that have arrived, as first number and one past the
    /// last.
    pub(crate) fn for_each_received(
        &self,
        mut visit: impl FnMut(u64, u64),
    ) -> Result<(), Malformed> {
        let mut reader = Reader(self.blocks);
        // A report speaks of each packet in the window once at most.
        let mut left = super::received::WINDOW;
        while !reader.is_empty() {
            let first = self
                .largest
                .checked_sub(reader.varint()?)
                .ok_or(Malformed)?;
            let count = reader.varint()?;
            let end = first.checked_add(count).ok_or(Malformed)?;
            left = left.checked_sub(count).ok_or(Malformed)?;
            if end > self.largest + 1 {
                return Err(Malformed);
            }
            match reader.byte()? {
                RUNS => {
                    let mut at = first;
                    let mut received = true;
                    while at < end {
                        let run = reader.varint()?;
                        let stop = at.checked_add(run).filter(|stop| *stop <= end);
                        let stop = stop.ok_or(Malformed)?;
                        if received && run > 0 {
                            visit(at, stop);
                        }
                        // Two empty runs in a row would make no progress.
                        if run == 0 && !received {
                            return Err(Malformed);
                        }
                        received = !received;
                        at = stop;
                    }
                }
                BITS => {
                    let bytes =
                        reader.bytes(usize::try_from(count.div_ceil(8)).map_err(|_| Malformed)?)?;
                    let bit = |at: u64| {
                        let offset = (at - first) as usize;
                        bytes[offset / 8] >> (offset % 8) & 1 == 1
                    };
                    let mut at = first;
                    while at < end {
                        let start = at;
                        while at < end && bit(at) {
                            at += 1;
                        }
                        if at > start {
                            visit(start, at);
                        }
                        at += 1;
                    }
                }
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }
}
