//! Rewriter of a hostile peer's packets: replaces true frames by false frames, and creates
//! payloads.
//!
//! The input is the payload of a packet before encryption. The output is another payload. The liar
//! has the state and all keys of its own endpoint, but does not see the traffic of other peers.

use super::{super::random::Random, strategy::Strategy};
use crate::wire::{
    frame::{self, Frame, Frames, Half},
    packet::OVERHEAD,
    report::{ArrivalSample, RUNS, Report, WINDOW},
    varint,
};

/// Rewriter that forges frames as its strategies require.
pub(super) struct Liar {
    pub(super) random: Random,
    pub(super) strategies: Vec<Strategy>,
    /// Probability of a forged frame.
    often: f64,
    /// Whether the liar forges frames at present.
    pub(super) is_active: bool,
    /// Highest packet number in the true reports so far.
    largest: u64,
    /// Counter from which the floods compute stream numbers. The floods thus use all streams in
    /// turn.
    turn: u64,
    /// Number of streams that the attacked gateway permits.
    pub(super) streams_max: u64,
    /// Numbers of the open streams that either peer opened.
    pub(super) known: Vec<u32>,
    /// Number of forged frames.
    pub(super) lies: u64,
}

impl Liar {
    pub(super) fn new(seed: u64, strategies: Vec<Strategy>) -> Self {
        let mut random = Random(seed ^ 0x11a2);
        let often = [0.005, 0.05, 0.3, 1.0][random.below(4)];
        Self {
            random,
            strategies,
            often,
            is_active: false,
            largest: 0,
            turn: STREAMS_OF_CORE,
            streams_max: 16,
            known: Vec::new(),
            lies: 0,
        }
    }

    pub(super) fn has(&self, strategy: Strategy) -> bool {
        self.strategies.contains(&strategy)
    }

    /// Prepares for a new connection, in which stream numbers start again.
    pub(super) fn begin_connection(&mut self) {
        self.turn = STREAMS_OF_CORE;
        self.largest = 0;
    }

    fn lies(&mut self, strategy: Strategy) -> bool {
        let lies = self.has(strategy) && self.random.chance(self.often);
        self.lies += u64::from(lies);
        lies
    }

    /// Replaces frames in the payload of a packet, and appends forged frames.
    pub(super) fn rewrite(&mut self, payload: &mut Vec<u8>) {
        if !self.is_active {
            return;
        }
        let truth = std::mem::take(payload);
        let mut frames = Frames::new(&truth);
        if truth.len() >= PROBE_MIN && frames.all(|frame| frame == Ok(Frame::Ping)) {
            // A probe keeps its length.
            *payload = truth;
            return;
        }
        for frame in Frames::new(&truth) {
            let Ok(frame) = frame else { break };
            self.put(payload, frame);
        }
        self.append(payload);
    }

    /// Appends the true frame `truth` to `out`, or a forged frame instead.
    fn put(&mut self, out: &mut Vec<u8>, truth: Frame<'_>) {
        use Strategy::*;
        match truth {
            Frame::Feedback(report) => self.put_report(out, &report),
            Frame::Chunk {
                stream,
                index,
                data,
            } => self.put_chunk(out, stream, index, data),
            Frame::Half {
                stream,
                index,
                len,
                half,
                data,
            } => {
                frame::put_half(out, stream, index, len, half);
                out.extend_from_slice(data);
            }
            Frame::Credit { .. } | Frame::InitialWindow { .. } if self.has(CreditNone) => {
                self.lies += 1;
            }
            Frame::Credit { stream, .. } if self.lies(CreditHuge) => {
                let limit = varint::MAX - self.random.below(2) as u64;
                Frame::Credit { stream, limit }.put(out);
            }
            Frame::End {
                stream,
                chunks,
                bytes,
                hash,
            } if self.lies(EndLies) => {
                let chunks = if self.random.chance(0.5) {
                    chunks
                } else {
                    self.any_number()
                };
                let bytes = if self.random.chance(0.5) {
                    bytes
                } else {
                    self.any_number()
                };
                let hash = hash ^ self.random.below(2) as u64;
                Frame::End {
                    stream,
                    chunks,
                    bytes,
                    hash,
                }
                .put(out);
            }
            frame => frame.put(out),
        }
    }

    fn put_report(&mut self, out: &mut Vec<u8>, truth: &Report<'_>) {
        use Strategy::*;
        self.largest = self.largest.max(truth.largest);
        if self.has(ReportNothing) {
            self.lies += 1;
            return;
        }
        let begins = out.len();
        let mut lie = *truth;
        let mut blocks = Vec::new();
        if self.lies(ReportAhead) {
            lie.largest += self.random.below(200) as u64;
        }
        if self.lies(ReportTimes) {
            lie.front.time_us = self.any_number() >> 1;
            lie.delay_us = self.any_number();
        }
        if self.lies(DelayLies) {
            // Overstates the delay of the report at the peer, so that the round trip seems shorter.
            lie.delay_us += self.random.below(40_000) as u64;
        }
        if self.lies(ReportBytes) {
            lie.bytes_received = self.any_number();
        }
        if self.lies(ReportUnseen) {
            let low = lie.largest.saturating_sub(500);
            put_block(&mut blocks, &lie, low, &[lie.largest + 1 - low]);
        } else if self.lies(ReportLoss) {
            let low = lie.largest.saturating_sub(200);
            let runs: Vec<_> = (low..=lie.largest).map(|_| 1).collect();
            put_block(&mut blocks, &lie, low, &runs);
        } else if self.lies(ReportWide) {
            let low = (lie.largest + 1).saturating_sub(WINDOW);
            put_block(&mut blocks, &lie, low, &[0, lie.largest + 1 - low]);
        }
        let lie = match blocks.is_empty() {
            true => lie,
            false => lie.with_parts(&[], &blocks),
        };
        frame::put_feedback_type(out);
        lie.put(out);
        if self.lies(ReportNoise) {
            let len = out.len() - begins - 1;
            for _ in 0..=self.random.below(3) {
                let at = begins + 1 + self.random.below(len);
                out[at] = self.random.next() as u8;
            }
        }
    }

    fn put_chunk(&mut self, out: &mut Vec<u8>, stream: u32, index: u64, data: &[u8]) {
        use Strategy::*;
        let mut put = |index: u64, data: &[u8]| {
            frame::put_chunk(out, stream, index, data.len());
            out.extend_from_slice(data);
        };
        if self.has(SlotGaps) && index % 64 == 1 {
            self.lies += 1;
        } else if self.lies(SlotOffsets) {
            let index = match self.random.below(3) {
                0 => index + self.random.below(60) as u64,
                1 if self.random.chance(0.1) => index + 64 * self.random.below(64) as u64,
                1 => index.saturating_sub(self.random.below(60) as u64),
                _ if self.random.chance(0.99) => index,
                _ => self.any_number(),
            };
            put(index, data);
        } else if self.lies(SlotHalves) && !data.is_empty() {
            let half = [Half::First, Half::Second][self.random.below(2)];
            let len = if self.random.chance(0.8) {
                data.len()
            } else {
                self.random.below(1600)
            };
            frame::put_half(out, stream, index, len, half);
            let part = half.of(len).len().min(data.len());
            out.extend_from_slice(&data[..part]);
        } else {
            put(index, data);
        }
    }

    /// Appends forged frames that do not replace true frames.
    fn append(&mut self, out: &mut Vec<u8>) {
        use Strategy::*;
        let mut lies = Vec::new();
        if self.lies(CreditHuge) {
            let (stream, limit) = (self.any_stream(), self.any_number());
            Frame::Credit { stream, limit }.put(&mut lies);
        }
        if self.lies(DoneLies) {
            Frame::Done {
                stream: self.any_stream(),
            }
            .put(&mut lies);
        }
        if self.lies(ResetLies) {
            let (stream, code) = (self.any_stream(), self.random.next() as u32);
            match self.random.below(2) {
                0 => Frame::Reset { stream, code }.put(&mut lies),
                _ => Frame::Stop { stream, code }.put(&mut lies),
            }
        }
        if self.lies(LimitLies) {
            let streams = self.random.next() as u32 >> self.random.below(32);
            Frame::StreamLimit { streams }.put(&mut lies);
            Frame::InitialWindow {
                from: self.random.next() as u32 >> self.random.below(32),
                free: self.any_number(),
            }
            .put(&mut lies);
        }
        if self.has(RateCrawl) || self.has(FloodCycles) {
            Frame::RateMax { bytes_per_s: 1 }.put(&mut lies);
        }
        if self.lies(PathHints) {
            let rtt_us = self.any_number();
            Frame::PathHint { rtt_us }.put(&mut lies);
        }
        if self.lies(AskAgain) {
            Frame::TellFrom {
                number: self.any_number(),
            }
            .put(&mut lies);
            Frame::TellFrom { number: 0 }.put(&mut lies);
        }
        if self.lies(FrameNoise) {
            let len = self.random.below(30);
            lies.extend((0..len).map(|_| self.random.next() as u8));
        }
        if out.len() + lies.len() <= PAYLOAD_MAX {
            out.extend_from_slice(&lies);
        }
    }

    /// Returns a random number of random magnitude.
    fn any_number(&mut self) -> u64 {
        self.random.next() >> (2 + self.random.below(61))
    }

    /// Returns the number of a stream that probably exists.
    fn any_stream(&mut self) -> u32 {
        if !self.known.is_empty() && !self.random.chance(0.01) {
            return self.known[self.random.below(self.known.len())];
        }
        let counts = [4, 40, 400][self.random.below(3)];
        (self.random.below(counts) << 2 | self.random.below(4)) as u32
    }

    /// Returns the payload of one flood packet.
    pub(super) fn flood(&mut self, strategy: Strategy) -> Vec<u8> {
        use Strategy::*;
        let mut out = Vec::new();
        self.turn += 1;
        // The enemy begins the handshake, so its streams have the lowest bit set.
        let own = |count: u64| (count << 2 | 3) as u32;
        match strategy {
            FloodControls => {
                while out.len() < CONTROLS_BYTES {
                    let stream = self.any_stream();
                    match self.random.below(5) {
                        0 => Frame::Credit {
                            stream,
                            limit: self.any_number(),
                        }
                        .put(&mut out),
                        1 => Frame::PathHint {
                            rtt_us: self.any_number(),
                        }
                        .put(&mut out),
                        2 => Frame::Stop { stream, code: 1 }.put(&mut out),
                        3 => Frame::InitialWindow {
                            from: self.random.next() as u32 >> self.random.below(32),
                            free: self.any_number(),
                        }
                        .put(&mut out),
                        _ => Frame::RateMax {
                            bytes_per_s: self.any_number(),
                        }
                        .put(&mut out),
                    }
                }
            }
            // The enemy waits until it may open more streams.
            FloodResets if self.turn >= self.streams_max => {
                self.turn = self.streams_max;
                Frame::Ping.put(&mut out);
            }
            FloodResets => {
                let stream = own(self.turn);
                frame::put_chunk(&mut out, stream, 0, 1);
                out.push(b'U');
                Frame::Reset { stream, code: 1 }.put(&mut out);
                Frame::Stop { stream, code: 1 }.put(&mut out);
            }
            FloodChallenges | GuessesFromThird => {
                Frame::Challenge(self.random.next().to_be_bytes()).put(&mut out);
                if strategy == GuessesFromThird {
                    for _ in 0..100 {
                        Frame::Response(self.random.next().to_be_bytes()).put(&mut out);
                    }
                }
            }
            FloodTiny => {
                let stream = own(self.turn % (self.streams_max / 2).max(1));
                for _ in 0..TINY_CHUNKS {
                    let index = 2 * self.random.below(400) as u64 + 1;
                    frame::put_chunk(&mut out, stream, index, 1);
                    out.push(b'U');
                }
            }
            FloodReports => {
                let largest = self.largest;
                let front = ArrivalSample {
                    number: largest,
                    time_us: self.any_number() >> 1,
                };
                let report = Report::new(largest, front, 0, self.any_number());
                let low = (largest + 1).saturating_sub(WINDOW);
                let mut blocks = Vec::new();
                put_block(&mut blocks, &report, low, &[0, largest + 1 - low]);
                frame::put_feedback_type(&mut out);
                report.with_parts(&[], &blocks).put(&mut out);
            }
            FloodCycles => {
                Frame::RateMax { bytes_per_s: 1 }.put(&mut out);
                let cycles = CYCLES_MAX.min(self.streams_max / 8).max(1);
                let hash = xxhash_rust::xxh3::xxh3_64(b"U");
                for count in self.turn..self.turn + cycles {
                    let stream = own(count);
                    frame::put_chunk(&mut out, stream, 0, 1);
                    out.push(b'U');
                    Frame::End {
                        stream,
                        chunks: 1,
                        bytes: 1,
                        hash,
                    }
                    .put(&mut out);
                    // The earlier stream `done` has been read by now.
                    if let Some(done) = count.checked_sub(2 * cycles)
                        && done > STREAMS_OF_CORE
                    {
                        Frame::Done { stream: own(done) }.put(&mut out);
                    }
                }
                self.turn += cycles - 1;
            }
            _ => Frame::Ping.put(&mut out),
        }
        out
    }

    /// Returns the number of streams that the floods have opened. The streams of the endpoint are
    /// included.
    pub(super) fn streams_opened(&self) -> u64 {
        self.turn
    }

    /// Returns a payload that opens the next stream. The enemy then leaves the stream unused.
    pub(super) fn opening(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.turn += 1;
        frame::put_chunk(&mut out, (self.turn << 2 | 3) as u32, 1, 1);
        out.push(b'U');
        out
    }
}

/// Appends a block of a report: alternating runs of packet numbers, starting at `low`.
fn put_block(out: &mut Vec<u8>, report: &Report<'_>, low: u64, runs: &[u64]) {
    varint::put(out, report.largest - low);
    varint::put(out, runs.iter().sum());
    out.push(RUNS);
    for run in runs {
        varint::put(out, *run);
    }
}

/// Least length in bytes of a path probe. The payload of a probe is a PING frame and padding.
const PROBE_MIN: usize = 1232 - OVERHEAD;
/// Number of payload bytes that fit into a packet of 1500 bytes, with a small reserve.
const PAYLOAD_MAX: usize = 1440;
/// Total size in bytes of the control frames in one flood packet.
const CONTROLS_BYTES: usize = 100;
/// Number of one-byte chunks in one flood packet.
const TINY_CHUNKS: usize = 20;
/// Maximum number of streams that one flood packet opens and ends.
const CYCLES_MAX: u64 = 16;
/// Number of streams reserved for the enemy's endpoint.
pub(super) const STREAMS_OF_CORE: u64 = 8;
