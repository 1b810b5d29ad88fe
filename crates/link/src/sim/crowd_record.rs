//! Record of several flows, sampled at equal intervals, and the results that the benches compute
//! from it.
//!
//! A bench that runs TCP flows of the kernel fills the record itself.
//!
//! Rates count bytes on the wire that arrive at the receiver, including Ethernet overhead. The sum
//! of all flows' rates therefore equals the rate of the bottleneck.

use std::{fmt::Write, ops::Range, time::Duration};

use wansim::Counters;

/// Samples of the path and of each flow. Counters are totals since the start.
#[derive(Debug, Clone)]
pub struct CrowdRecord {
    every: Duration,
    queue_delays: Vec<Duration>,
    sent: Vec<u64>,
    drops: Vec<u64>,
    lost: Vec<u64>,
    flows: Vec<Vec<FlowSample>>,
}

/// Sample of one flow at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowSample {
    /// Bytes on the wire that have arrived at the receiver.
    pub arrived_bytes: u64,
    /// Number of packets that the flow sent into the path.
    pub sent: u64,
    /// Number of the flow's packets that the bottleneck's full queue dropped.
    pub drops: u64,
    /// Sending rate that the controller of a Longhaul flow permits. Zero for TCP.
    pub allowed_bytes_per_s: f64,
    /// Queueing delay that the controller of a Longhaul flow measures. Zero for TCP.
    pub queue_seen: Duration,
    /// Name of the state of the controller or of TCP's congestion control. Empty before the flow
    /// starts.
    pub state: &'static str,
}

impl CrowdRecord {
    /// Creates an empty record. `every` is the time between two samples.
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

    /// Adds a flow. Earlier samples of the flow are empty.
    pub fn add_flow(&mut self) {
        self.flows.push(vec![FlowSample::default(); self.len()]);
    }

    /// Starts a sample with the queueing delay and the counters of the path. The caller then adds a
    /// sample for each flow.
    pub fn begin_sample(&mut self, queue_delay: Duration, path: &Counters) {
        let drops = path.queue_drops + path.policer_drops;
        self.queue_delays.push(queue_delay);
        self.sent.push(path.sent);
        self.drops.push(drops);
        self.lost.push(path.dropped() - drops);
    }

    /// Adds the sample of one flow. The caller must already have called
    /// [`begin_sample`](Self::begin_sample).
    pub fn add_sample(&mut self, flow: usize, sample: FlowSample) {
        self.flows[flow].push(sample);
    }

    /// Returns the time between two samples.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.queue_delays.len()
    }

    /// Whether the record has no sample.
    pub fn is_empty(&self) -> bool {
        self.queue_delays.is_empty()
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns all samples of a flow.
    pub fn samples(&self, flow: usize) -> &[FlowSample] {
        &self.flows[flow]
    }

    /// Returns the newest sample of a flow at the time `at`.
    pub fn sample(&self, flow: usize, at: Duration) -> FlowSample {
        self.flows[flow][self.index(at)]
    }

    /// Returns the queueing delay of the bottleneck at each sample.
    pub fn queue_delays(&self) -> &[Duration] {
        &self.queue_delays
    }

    /// Returns the rate of a flow in bits per second, from the bytes that arrived during `span`.
    pub fn rate(&self, flow: usize, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let samples = &self.flows[flow];
        let bytes = samples[to].arrived_bytes - samples[from].arrived_bytes;
        bytes as f64 * 8.0 / (self.every * (to - from) as u32).as_secs_f64()
    }

    /// Returns the mean queueing delay during `span`.
    pub fn queue_mean(&self, span: &Range<Duration>) -> Duration {
        let (from, to) = self.indices(span);
        self.queue_delays[from..to].iter().sum::<Duration>() / (to - from) as u32
    }

    /// Returns a quantile of the queueing delay during `span`. The given fraction of the samples
    /// does not exceed the result.
    pub fn queue_quantile(&self, fraction: f64, span: &Range<Duration>) -> Duration {
        let (from, to) = self.indices(span);
        let mut delays = self.queue_delays[from..to].to_vec();
        delays.sort();
        delays[((delays.len() - 1) as f64 * fraction) as usize]
    }

    /// Returns the fraction of packets that the queue or the policer dropped, among the packets
    /// sent during `span`.
    pub fn caused_loss(&self, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let sent = self.sent[to] - self.sent[from];
        (self.drops[to] - self.drops[from]) as f64 / sent.max(1) as f64
    }

    /// Returns the fraction of packets lost at random during `span`, among the packets that the
    /// queue and the policer did not drop.
    pub fn path_loss(&self, span: &Range<Duration>) -> f64 {
        let (from, to) = self.indices(span);
        let sent = self.sent[to] - self.sent[from];
        let drops = self.drops[to] - self.drops[from];
        (self.lost[to] - self.lost[from]) as f64 / (sent - drops).max(1) as f64
    }

    /// Returns R. Jain's fairness index of the flows' rates during `span`. The index is 1 if all
    /// rates are equal.
    pub fn jain(&self, span: &Range<Duration>) -> f64 {
        let rates: Vec<f64> = (0..self.flows())
            .map(|flow| self.rate(flow, span))
            .collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (rates.len() as f64 * squares).max(f64::MIN_POSITIVE)
    }

    /// Returns the whole record as text with ten lines per second.
    ///
    /// A line contains the time and the queueing delay. For each flow, a line also contains the
    /// arrival rate in Mbit/s, the state, and the drops in the queue. For a Longhaul flow, it also
    /// contains the permitted rate in Mbit/s and the measured queueing delay.
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

    /// Returns the indices of the first and last sample of a time span. The indices differ by at
    /// least one.
    fn indices(&self, span: &Range<Duration>) -> (usize, usize) {
        let to = self.index(span.end).max(1);
        (self.index(span.start).min(to - 1), to)
    }
}

/// Time between two lines of the text trace.
const TRACE_EVERY: Duration = Duration::from_millis(100);
