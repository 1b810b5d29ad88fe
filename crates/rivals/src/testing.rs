//! A minimal path with a queue and a round-trip time, for tests of the congestion controls. The
//! benches use `wansim` instead.

use std::{collections::VecDeque, time::Duration};

use crate::{Ack, Law, Receiver, Segment, Sender, sender::Counts};

pub(crate) struct Line {
    segment_time: Duration,
    rtt: Duration,
    queue_max: usize,
    loss: f64,
    dice: u64,
    jitter_is_on: bool,
    now: Duration,
    free_at: Duration,
    /// Departure times of the packets in the queue.
    queue: VecDeque<Duration>,
    queue_samples: Vec<(Duration, Duration)>,
    flows: Vec<Flow>,
    /// Acknowledgements in flight, with their arrival times at the senders.
    acks: VecDeque<(Duration, usize, Ack)>,
    /// Segments in flight, with their arrival times at the receivers.
    segments: VecDeque<(Duration, usize, Segment)>,
    drops: u64,
    drop_next: u64,
    drop_until: Duration,
}

struct Flow {
    sender: Sender,
    receiver: Receiver,
    begins: Duration,
    arrivals: Vec<Duration>,
}

const WIRE_BITS: f64 = 1538.0 * 8.0;

impl Line {
    /// Creates a path. `queue` is the size of the queue in bandwidth-delay products.
    pub(crate) fn new(rate_bits_per_s: f64, rtt: Duration, queue: f64) -> Self {
        let segment_time = Duration::from_secs_f64(WIRE_BITS / rate_bits_per_s);
        let bdp = rtt.as_secs_f64() / segment_time.as_secs_f64();
        Self {
            segment_time,
            rtt,
            queue_max: ((queue * bdp) as usize).max(10),
            loss: 0.0,
            dice: 1,
            jitter_is_on: false,
            now: Duration::ZERO,
            free_at: Duration::ZERO,
            queue: VecDeque::new(),
            queue_samples: Vec::new(),
            flows: Vec::new(),
            acks: VecDeque::new(),
            segments: VecDeque::new(),
            drops: 0,
            drop_next: 0,
            drop_until: Duration::ZERO,
        }
    }

    pub(crate) fn lose(&mut self, loss: f64, seed: u64) {
        self.loss = loss;
        self.dice = seed;
    }

    /// Distributes drops among the flows at random, as other traffic would do.
    pub(crate) fn jitter(&mut self, seed: u64) {
        self.jitter_is_on = true;
        self.dice = seed;
    }

    pub(crate) fn drop_next(&mut self, count: u64) {
        self.drop_next = count;
    }

    pub(crate) fn drop_until(&mut self, end: Duration) {
        self.drop_until = end;
    }

    pub(crate) fn add(&mut self, law: Box<dyn Law>) {
        self.add_at(law, Duration::ZERO);
    }

    pub(crate) fn add_at(&mut self, law: Box<dyn Law>, begins: Duration) {
        self.add_with(Sender::new(law, None), begins);
    }

    pub(crate) fn add_bounded(&mut self, law: Box<dyn Law>, window_max: u64) {
        self.add_with(Sender::new(law, Some(window_max)), Duration::ZERO);
    }

    fn add_with(&mut self, sender: Sender, begins: Duration) {
        self.flows.push(Flow {
            sender,
            receiver: Receiver::default(),
            begins,
            arrivals: Vec::new(),
        });
    }

    pub(crate) fn run(&mut self, end: Duration) {
        while self.now < end {
            while let Some((_, index, segment)) = pop(&mut self.segments, self.now) {
                let flow = &mut self.flows[index];
                flow.arrivals.push(self.now);
                let ack = flow.receiver.handle_segment(segment);
                self.acks.push_back((self.now + self.rtt / 2, index, ack));
            }
            while let Some((_, index, ack)) = pop(&mut self.acks, self.now) {
                self.flows[index].sender.handle_ack(&ack, self.now);
            }
            for index in 0..self.flows.len() {
                if self.flows[index].begins > self.now {
                    continue;
                }
                self.flows[index].sender.handle_timeout(self.now);
                while let Some(segment) = self.flows[index].sender.poll_transmit(self.now) {
                    self.send(index, segment);
                }
            }
            let flows = self.flows.iter_mut().filter_map(|flow| {
                if flow.begins > self.now {
                    Some(flow.begins)
                } else {
                    flow.sender.next_timeout()
                }
            });
            let arrivals = [
                self.acks.front().map(|ack| ack.0),
                self.segments.front().map(|segment| segment.0),
            ];
            let next = flows.chain(arrivals.into_iter().flatten()).min();
            self.now = next
                .unwrap_or(end)
                .max(self.now + Duration::from_micros(1))
                .min(end);
        }
    }

    fn send(&mut self, index: usize, segment: Segment) {
        while self.queue.front().is_some_and(|at| *at <= self.now) {
            self.queue.pop_front();
        }
        let waits = self.free_at.saturating_sub(self.now);
        self.queue_samples.push((self.now, waits));
        let jitter = if self.jitter_is_on {
            (self.chance() * 4.0) as usize
        } else {
            0
        };
        if self.queue.len() + jitter >= self.queue_max {
            self.drops += 1;
            return;
        }
        self.free_at = self.free_at.max(self.now) + self.segment_time;
        self.queue.push_back(self.free_at);
        if self.drop_next > 0 {
            self.drop_next -= 1;
            return;
        }
        if self.now < self.drop_until {
            return;
        }
        if self.loss > 0.0 && self.chance() < self.loss {
            return;
        }
        self.segments
            .push_back((self.free_at + self.rtt / 2, index, segment));
    }

    fn chance(&mut self) -> f64 {
        // D. Knuth's multiplier for 64 bits; the upper bits are random enough for tests.
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn counts(&self, index: usize) -> Counts {
        self.flows[index].sender.counts()
    }

    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }

    /// Returns the capacity of the path in segments per second.
    pub(crate) fn capacity(&self) -> f64 {
        1.0 / self.segment_time.as_secs_f64()
    }

    /// Returns the rate at which segments of each flow have arrived since `from`, in segments per
    /// second.
    pub(crate) fn rates(&self, from: Duration) -> Vec<f64> {
        let span_s = (self.now - from).as_secs_f64();
        let count = |flow: &Flow| {
            let after = flow.arrivals.partition_point(|at| *at < from);
            (flow.arrivals.len() - after) as f64 / span_s
        };
        self.flows.iter().map(count).collect()
    }

    /// Returns the fraction of the capacity that was used since `from`.
    pub(crate) fn used(&self, from: Duration) -> f64 {
        self.rates(from).iter().sum::<f64>() / self.capacity()
    }

    /// Returns R. Jain's index of fairness for the rates since `from`.
    pub(crate) fn jain(&self, from: Duration) -> f64 {
        let rates = self.rates(from);
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (rates.len() as f64 * squares)
    }

    pub(crate) fn queue_mean(&self, from: Duration) -> Duration {
        let samples: Vec<_> = self
            .queue_samples
            .iter()
            .filter(|(at, _)| *at >= from)
            .collect();
        samples.iter().map(|(_, waits)| *waits).sum::<Duration>() / samples.len().max(1) as u32
    }
}

fn pop<T: Copy>(
    queue: &mut VecDeque<(Duration, usize, T)>,
    now: Duration,
) -> Option<(Duration, usize, T)> {
    let is_due = queue.front().is_some_and(|entry| entry.0 <= now);
    if is_due { queue.pop_front() } else { None }
}
