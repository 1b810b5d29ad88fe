//! Wire format of a report about received packets.
//!
//! ```text
//! largest | front, counted back from largest | time of front, us | delay, us | bytes received
//!   | length of samples | samples | length of blocks | blocks
//! sample:  packet number | receive time in us; both as signed differences from the sample before
//! block:   first packet number, counted back from largest | count | kind | runs or bits
//! ```
//!
//! A report that does not fit into a packet is split into several frames. Each frame is a complete
//! report. If a block covers a packet but does not mark it as received, the packet had not arrived
//! when the frame was created.
//!
//! The first sample is relative to `front`, and each further sample is relative to the sample
//! before it. Samples go back in time. Runs of received packets and runs of missing packets
//! alternate. The first run contains received packets. In a bitmap, the least significant bit
//! stands for the first packet.

use crate::wire::{
    Malformed,
    varint::{self, ByteReader},
};

/// Decoded report. Samples and blocks are decoded only when they are iterated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    /// Highest packet number that has arrived.
    pub(crate) largest: u64,
    /// Packet number and receive time of a recent packet with the typical delay of the path. The
    /// module `feedback` selects the packet.
    pub(crate) front: ArrivalSample,
    /// Time between the arrival of the packet `front` and the creation of the report, in
    /// microseconds.
    pub(crate) delay_us: u64,
    /// Total size of all distinct packets that have arrived, headers included, in bytes.
    pub(crate) bytes_received: u64,
    samples: &'a [u8],
    blocks: &'a [u8],
}

/// Receive time of one packet, in microseconds of the receiver's clock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalSample {
    pub(crate) number: u64,
    pub(crate) time_us: u64,
}

/// Maximum number of packet numbers that one report may cover. The receiver must store the arrivals
/// of this number of packets.
///
/// The number exceeds the packets in flight at 10 Gbit/s with a round-trip time of 1 s. A bitmap of
/// this size has 128 KiB.
pub(crate) const WINDOW: u64 = 1 << 20;
/// Maximum number of receive times in one report.
pub(crate) const SAMPLES_MAX: usize = 32;
/// Kind of a block that contains alternating run lengths.
pub(crate) const RUNS: u8 = 0;
/// Kind of a block that contains one bit for each packet.
pub(crate) const BITS: u8 = 1;

impl<'a> Report<'a> {
    pub(crate) fn read(reader: &mut ByteReader<'a>) -> Result<Self, Malformed> {
        let largest = reader.varint()?;
        let report = Self {
            largest,
            front: ArrivalSample {
                number: largest.checked_sub(reader.varint()?).ok_or(Malformed)?,
                time_us: reader.varint()?,
            },
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

    /// Appends the report to `out`. Its samples and blocks are already encoded.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for value in [
            self.largest,
            self.largest - self.front.number,
            self.front.time_us,
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

    pub(crate) fn with_parts(self, samples: &'a [u8], blocks: &'a [u8]) -> Self {
        Self {
            samples,
            blocks,
            ..self
        }
    }

    /// Creates a report without samples and blocks.
    pub(crate) fn new(
        largest: u64,
        front: ArrivalSample,
        delay_us: u64,
        bytes_received: u64,
    ) -> Self {
        Self {
            largest,
            front,
            delay_us,
            bytes_received,
            samples: &[],
            blocks: &[],
        }
    }

    /// Calls `visit` for each sample, newest first.
    pub(crate) fn for_each_sample(
        &self,
        mut visit: impl FnMut(ArrivalSample),
    ) -> Result<(), Malformed> {
        let mut reader = ByteReader(self.samples);
        let mut sample = self.front;
        for _ in 0..SAMPLES_MAX {
            if reader.is_empty() {
                return Ok(());
            }
            sample.number = sample
                .number
                .checked_add_signed(reader.signed()?)
                .filter(|number| *number <= self.largest)
                .ok_or(Malformed)?;
            sample.time_us = sample
                .time_us
                .checked_add_signed(reader.signed()?)
                .ok_or(Malformed)?;
            visit(sample);
        }
        reader.is_empty().then_some(()).ok_or(Malformed)
    }

    /// Calls `visit` for each run of packets that have all arrived or are all missing. The
    /// arguments are the first packet number, the last packet number plus one, and whether the
    /// packets arrived.
    ///
    /// The report contains no information about packets outside these runs.
    pub(crate) fn for_each_run(
        &self,
        mut visit: impl FnMut(u64, u64, bool),
    ) -> Result<(), Malformed> {
        let mut reader = ByteReader(self.blocks);
        // A report covers each packet in the window at most once.
        let mut left = WINDOW;
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
                        if run > 0 {
                            visit(at, stop, received);
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
                        let (start, received) = (at, bit(at));
                        while at < end && bit(at) == received {
                            at += 1;
                        }
                        visit(start, at, received);
                    }
                }
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }
}
