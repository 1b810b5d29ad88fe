//! The record of a crowd, sampled at equal intervals, and the figures of the benches. A crowd of
//! the kernel's flows has its record filled in by hand.
//!
//! Rates count bytes on the wire that arrive at the receiver, with Ethernet's overhead. The rates
//! of all flows therefore add up to the bottleneck's rate.

use std::{fmt::Write, ops::Range, time::Duration};

use wansim::Counters;

/// Samples of the path and of each flow; totals are since the start.
#[derive(Debug, Clone)]
pub struct CrowdRecord {
    every: Duration,
    queue_delays: Vec<Duration>,
    sent: Vec<u64>,
    drops: Vec<u64>,
    lost: Vec<u64>,
    flows: Vec<Vec<FlowSample>>,
}

/// One sample of one flow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowSample {
    /// Bytes on the wire that have arrived.
    pub arrived_bytes: u64,
    /// Packets sent into the path.
    pub sent: u64,
    /// Packets of them for which the bottleneck's queue had no room.
    pub drops: u64,
    /// Rate that a link's controller allows.
    pub allowed_bytes_per_s: f64,
    /// Queueing delay that a link's controller measures.
    pub queue_seen: Duration,
    /// Name of the controller's or the law's state; empty before the flow begins.
    pub state: &'static str,
}

impl CrowdRecord {
    /// Creates an empty record of samples that are `every` apart.
    pub fn new(every: Duration) -> Self {
        Self {
            every,
            queue_delays: Vec::new(),
            sent: Vec::new(),
            drops: Vec::new(),
            lost: Vec::new(),
            flows: Vec::new(),
        }
    }

    /// Begins to record a flow that was silent so far.
    pub fn add_flow(&mut self) {
        self.flows.push(vec![FlowSample::default(); self.len()]);
    }

    /// Begins a sample with the state and the counters of the path. A sample of each flow follows.
    pub fn begin_sample(&mut self, queue_delay: Duration, path: &Counters) {
        let drops = path.queue_drops + path.policer_drops;
        self.queue_delays.push(queue_delay);
        self.sent.push(path.sent);
        self.drops.push(drops);
        self.lost.push(path.dropped() - drops);
    }

    /// Adds the state and the counters of a flow, after [`begin_sample`](Self::begin_sample).
    pub fn add_sample(&mut self, flow: usize, sample: FlowSample) {
        self.flows[flow].push(sample);
    }

    /// Time between two samples.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.queue_delays.len()
    }

    /// Whether none was taken.
    pub fn is_empty(&self) -> bool {
        self.queue_delays.is_empty()
    }

    /// Number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The samples of a flow.
    pub fn samples(&self, flow: usize) -> &[FlowSample] {
        &self.flows[flow]
    }

    /// The latest sample at the time `at`.
    pub fn sample(&self, flow: usize, at: Duration) -> FlowSample {
        self.flows[flow][self.index(at)]
    }

    /// Delay of the bottleneck's queue at each sample.
    pub fn queue_delays(&self) -> &[Duration] {
        &self.queue_delays
    }

    /// Returns the bits per second of a flow that arrived in a span of time.
    pub fn rate(&self, flow: usize, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let samples = &self.flows[flow];
        let bytes = samples[to].arrived_bytes - samples[from].arrived_bytes;
        bytes as f64 * 8.0 / (self.every * (to - from) as u32).as_secs_f64()
    }

    /// Mean delay of the queue in a span of time.
    pub fn queue_mean(&self, span: &Range<Duration>) -> Duration {
        let (from, to) = self.indices(span);
        self.queue_delays[from..to].iter().sum::<Duration>() / (to - from) as u32
    }

    /// Returns the delay of the queue that a fraction of the samples in a span of time does not
    /// exceed.
    pub fn queue_quantile(&self, fraction: f64, span: &Range<Duration>) -> Duration {
        let (from, to) = self.indices(span);
        let mut delays = self.queue_delays[from..to].to_vec();
        delays.sort();
        delays[((delays.len() - 1) as f64 * fraction) as usize]
    }

    /// Returns the fraction of the packets sent in a span of time that queue or policer dropped.
    pub fn caused_loss(&self, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let sent = self.sent[to] - self.sent[from];
        (self.drops[to] - self.drops[from]) as f64 / sent.max(1) as f64
    }

    /// Returns the fraction of the packets that passed the bottleneck in a span of time and that
    /// the path then lost.
    pub fn path_loss(&self, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let sent = self.sent[to] - self.sent[from];
        let drops = self.drops[to] - self.drops[from];
        (self.lost[to] - self.lost[from]) as f64 / (sent - drops).max(1) as f64
    }

    /// Returns R. Jain's index of the flows' rates in a span of time: 1 where all are equal.
    pub fn jain(&self, span: &Range<Duration>) -> f64 {
        let rates: Vec<f64> = (0..self.flows())
            .map(|flow| self.rate(flow, span))
            .collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (rates.len() as f64 * squares).max(f64::MIN_POSITIVE)
    }

    /// Returns the whole record as text, ten lines for each second.
    ///
    /// A line has the time and the queue. For each flow it has the arrived Mbit/s, the state and
    /// the drops in the queue. For a link it also has the Mbit/s that its controller permits and
    /// the queue that it measures.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        let end = self.every * self.len().saturating_sub(1) as u32;
        let mut at = Duration::ZERO;
        while at + TRACE_EVERY <= end {
            let _ = write!(text, "{:7.1}", at.as_secs_f64());
            let queue_ms = self.queue_delays[self.index(at)].as_secs_f64() * 1e3;
            let _ = write!(text, "  queue {queue_ms:6.1} ms");
            for flow in 0..self.flows() {
                let sample = self.sample(flow, at);
                let rate = self.rate(flow, &(at..at + TRACE_EVERY)) / 1e6;
                let _ = write!(
                    text,
                    " | {rate:6.1} {:12} dropped {:5}",
                    sample.state, sample.drops
                );
                if sample.allowed_bytes_per_s > 0.0 {
                    let allowed = sample.allowed_bytes_per_s * 8e-6;
                    let seen_ms = sample.queue_seen.as_secs_f64() * 1e3;
                    let _ = write!(text, " allowed {allowed:6.1} sees {seen_ms:5.1} ms");
                }
            }
            text.push('\n');
            at += TRACE_EVERY;
        }
        text
    }

    fn index(&self, at: Duration) -> usize {
        let index = (at.as_nanos() / self.every.as_nanos()) as usize;
        index.min(self.len() - 1)
    }

    /// Returns the indices of a span, at least one sample apart.
    fn indices(&self, span: &Range<Duration>) -> (usize, usize) {
        let to = self.index(span.end).max(1);
        (self.index(span.start).min(to - 1), to)
    }
}

/// Time between two lines of a trace.
const TRACE_EVERY: Duration = Duration::from_millis(100);
