//! Trace of the connections to one peer: samples, and state changes.
//!
//! Input: [`ConnectionView`]s of the endpoint, and the time. Output: events in a queue of limited
//! size. If a reader is too slow, samples are dropped, and the reader receives the number of
//! dropped samples. The next sample covers the time since the last sample that was not dropped. The
//! driver never waits for a reader.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    ConnectionCounters, Endpoint, PeerId,
    endpoint::{ConnectionState, ConnectionView},
};

/// Trace of the connections to a peer. Dropping it ends the trace.
#[derive(Debug)]
pub struct ConnectionTrace {
    events: mpsc::Receiver<TraceEvent>,
    /// System time at which the trace began. Times of events are relative to it.
    pub begun: SystemTime,
}

/// Reason why a trace could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no such peer.
    #[error("there is no such peer")]
    NoPeer,
    /// The maximum number of traces is already active.
    #[error("{TRACES_MAX} traces run, and there may be no more at once")]
    TooMany,
    /// The link has ended.
    #[error("the link was closed")]
    Closed,
}

/// Event in a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceEvent {
    /// Time since the start of the trace. It never decreases from event to event.
    pub at: Duration,
    /// Connection ID that packets from the peer contain. `None` if the event concerns the peer as a
    /// whole.
    pub connection: Option<u32>,
    /// Content of the event.
    pub observation: TraceObservation,
}

/// Content of a trace event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TraceObservation {
    /// Number of handshakes begun with the peer since the last event of this kind.
    Attempts(u64),
    /// The state of a connection has changed, or is reported for the first time.
    State {
        /// Previous state. `None` at the first report.
        old: Option<ConnectionState>,
        /// Present state.
        new: ConnectionState,
    },
    /// Packets of the peer have stopped arriving (`true`) or arrive again (`false`).
    Silence(bool),
    /// The peer has requested that new streams use another connection.
    Retired,
    /// The state of the congestion controller has changed, or is reported for the first time.
    Controller {
        /// Previous state. `None` at the first report.
        old: Option<&'static str>,
        /// Present state.
        new: &'static str,
    },
    /// Measurements of a connection, and its counts since the last sample.
    Sample(Box<Sample>),
    /// Number of samples that were dropped because the queue was full.
    Lost(u64),
}

/// Measurements of a connection, and its counts since the last sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time of the recent past.
    pub base_rtt: Duration,
    /// Queueing delay in the direction to the peer.
    pub queue_delay: Duration,
    /// Rate that the congestion controller permits, in bytes per second.
    pub allowed_bytes_per_s: f64,
    /// Maximum number of bytes that may be in flight (congestion window).
    pub window_bytes: u64,
    /// Number of bytes in flight: sent, and neither acknowledged nor lost.
    pub in_flight_bytes: u64,
    /// Number of open streams.
    pub streams: usize,
    /// Number of packets declared lost since the last sample.
    pub packets_lost: u64,
    /// Number of packets that have arrived since the last sample although they had been declared
    /// lost.
    pub packets_late: u64,
    /// Counters of the connection since the last sample.
    pub counts: ConnectionCounters,
}

impl ConnectionTrace {
    /// Waits for events, and appends at most `limit` of them to `events`. Returns `false` if no
    /// more events will follow.
    pub async fn next(&mut self, events: &mut Vec<TraceEvent>, limit: usize) -> bool {
        self.events.recv_many(events, limit).await > 0
    }
}

/// Active traces.
#[derive(Debug, Default)]
pub(super) struct Tracers {
    tracers: Vec<Tracer>,
    sampled: Option<Instant>,
}

#[derive(Debug)]
struct Tracer {
    peer: usize,
    begun: Instant,
    queue: mpsc::Sender<TraceEvent>,
    /// Number of dropped samples that the reader has not been informed about yet.
    lost: u64,
    attempts: Option<u64>,
    seen: Vec<ReaderView>,
}

/// Last reported state of a connection, for one reader.
#[derive(Debug, Default)]
struct ReaderView {
    id: u32,
    state: Option<ConnectionState>,
    controller: Option<&'static str>,
    is_silent: bool,
    is_retired: bool,
    sample: Option<(Instant, ConnectionView)>,
}

impl Tracers {
    /// Starts a trace of the peer `peer`. The link has `peers` peers.
    pub(super) fn begin(
        &mut self,
        PeerId(peer): PeerId,
        peers: usize,
        now: Instant,
    ) -> Result<ConnectionTrace, TraceError> {
        self.tracers.retain(|it| !it.queue.is_closed());
        if peer >= peers {
            return Err(TraceError::NoPeer);
        }
        if self.tracers.len() >= TRACES_MAX {
            return Err(TraceError::TooMany);
        }
        let (queue, events) = mpsc::channel(EVENTS_MAX);
        self.tracers.push(Tracer {
            peer,
            begun: now,
            queue,
            lost: 0,
            attempts: None,
            seen: Vec::new(),
        });
        // The first sample is due now.
        self.sampled = None;
        Ok(ConnectionTrace {
            events,
            begun: SystemTime::now(),
        })
    }

    /// Returns the time of the next sample, or `None` if no trace is active.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.tracers.is_empty() {
            return None;
        }
        Some(self.sampled.map_or(now, |at| at + SAMPLE_INTERVAL))
    }

    /// Reports state changes at once, and samples when they are due.
    pub(super) fn look(&mut self, endpoint: &Endpoint, now: Instant) {
        if self.tracers.is_empty() {
            return;
        }
        let is_due = self.due(now).is_some_and(|due| due <= now);
        if is_due {
            self.sampled = Some(now);
            self.tracers.retain(|it| !it.queue.is_closed());
        }
        for tracer in &mut self.tracers {
            let attempts = endpoint.peer_attempts(tracer.peer);
            // A full queue is no error, since later reports contain the missing information.
            let _ = tracer.look(
                endpoint.connection_views(tracer.peer),
                attempts,
                is_due,
                now,
            );
        }
    }
}

/// Error: the reader's queue is full.
struct QueueFull;

impl Tracer {
    fn look(
        &mut self,
        views: impl Iterator<Item = ConnectionView>,
        attempts: u64,
        is_due: bool,
        now: Instant,
    ) -> Result<(), QueueFull> {
        let mut of_now = Vec::new();
        let mut emitted = Ok(());
        for view in views {
            of_now.push(view.id);
            if emitted.is_ok() {
                emitted = self.changes(&view, now);
            }
            if is_due {
                emitted = emitted.and(self.sample(view, now));
            }
        }
        emitted?;
        let before = *self.attempts.get_or_insert(attempts);
        if attempts > before {
            self.emit(None, TraceObservation::Attempts(attempts - before), now)?;
            self.attempts = Some(attempts);
        }
        while let Some(gone) = self.seen.iter().position(|it| !of_now.contains(&it.id)) {
            let (id, old) = (self.seen[gone].id, self.seen[gone].state);
            let new = ConnectionState::Closed;
            self.emit(Some(id), TraceObservation::State { old, new }, now)?;
            self.seen.swap_remove(gone);
        }
        Ok(())
    }

    fn changes(&mut self, view: &ConnectionView, now: Instant) -> Result<(), QueueFull> {
        let index = self.index(view.id);
        let old = self.seen[index].state;
        if old != Some(view.state) {
            let new = view.state;
            self.emit(Some(view.id), TraceObservation::State { old, new }, now)?;
            self.seen[index].state = Some(new);
        }
        let old = self.seen[index].controller;
        if old != Some(view.controller_state) {
            let new = view.controller_state;
            self.emit(
                Some(view.id),
                TraceObservation::Controller { old, new },
                now,
            )?;
            self.seen[index].controller = Some(new);
        }
        if self.seen[index].is_silent != view.is_silent {
            self.emit(
                Some(view.id),
                TraceObservation::Silence(view.is_silent),
                now,
            )?;
            self.seen[index].is_silent = view.is_silent;
        }
        if view.is_retired && !self.seen[index].is_retired {
            self.emit(Some(view.id), TraceObservation::Retired, now)?;
            self.seen[index].is_retired = true;
        }
        Ok(())
    }

    fn sample(&mut self, view: ConnectionView, now: Instant) -> Result<(), QueueFull> {
        let index = self.index(view.id);
        let before = match &self.seen[index].sample {
            None => &view,
            Some((at, before)) => {
                let is_due = now.duration_since(*at) >= SAMPLE_INTERVAL_IDLE;
                if *before == view && !is_due {
                    return Ok(());
                }
                before
            }
        };
        let sample = Sample {
            rtt: view.rtt,
            base_rtt: view.base_rtt,
            queue_delay: view.queue_delay,
            allowed_bytes_per_s: view.allowed_bytes_per_s,
            window_bytes: view.window_bytes,
            in_flight_bytes: view.in_flight_bytes,
            streams: view.streams,
            packets_lost: view.packets_lost.saturating_sub(before.packets_lost),
            packets_late: view.packets_late.saturating_sub(before.packets_late),
            counts: view.stats.since(&before.stats),
        };
        let emitted = self.emit(
            Some(view.id),
            TraceObservation::Sample(Box::new(sample)),
            now,
        );
        match emitted {
            Ok(()) => self.seen[index].sample = Some((now, view)),
            Err(QueueFull) => self.lost += 1,
        }
        emitted
    }

    fn index(&mut self, id: u32) -> usize {
        let known = self.seen.iter().position(|it| it.id == id);
        known.unwrap_or_else(|| {
            self.seen.push(ReaderView {
                id,
                ..ReaderView::default()
            });
            self.seen.len() - 1
        })
    }

    fn emit(
        &mut self,
        connection: Option<u32>,
        observation: TraceObservation,
        now: Instant,
    ) -> Result<(), QueueFull> {
        let at = now.saturating_duration_since(self.begun);
        if self.lost > 0 {
            let lost = TraceEvent {
                at,
                connection: None,
                observation: TraceObservation::Lost(self.lost),
            };
            self.send(lost)?;
            self.lost = 0;
        }
        self.send(TraceEvent {
            at,
            connection,
            observation,
        })
    }

    fn send(&self, event: TraceEvent) -> Result<(), QueueFull> {
        match self.queue.try_send(event) {
            Err(TrySendError::Full(_)) => Err(QueueFull),
            // A trace without a reader ends at the next sample.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// Maximum number of concurrent traces.
const TRACES_MAX: usize = 4;
/// Maximum number of events in the queue of a reader. This suffices for ten seconds of one
/// connection, and takes a quarter of a megabyte.
const EVENTS_MAX: usize = 1024;
/// Interval between samples of a connection while its measurements change.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between samples of a connection while its measurements do not change.
const SAMPLE_INTERVAL_IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn view(bytes_sent: u64) -> ConnectionView {
        ConnectionView {
            id: 7,
            state: ConnectionState::Confirmed,
            is_silent: false,
            is_retired: false,
            rtt: None,
            base_rtt: Duration::ZERO,
            queue_delay: Duration::ZERO,
            allowed_bytes_per_s: 1e6,
            window_bytes: 1,
            in_flight_bytes: 0,
            streams: 0,
            controller_state: "steady",
            packets_lost: 0,
            packets_late: 0,
            stats: ConnectionCounters {
                bytes_sent,
                ..ConnectionCounters::default()
            },
        }
    }

    fn taken(trace: &mut ConnectionTrace) -> Vec<TraceEvent> {
        std::iter::from_fn(|| trace.events.try_recv().ok()).collect()
    }

    fn bytes(events: &[TraceEvent]) -> u64 {
        let of = |event: &TraceEvent| match &event.observation {
            TraceObservation::Sample(sample) => sample.counts.bytes_sent,
            _ => 0,
        };
        events.iter().map(of).sum()
    }

    #[test]
    fn a_slow_reader_loses_samples_and_no_bytes_and_gets_their_number() {
        let mut tracers = Tracers::default();
        let begun = Instant::now();
        let mut trace = tracers.begin(PeerId(0), 1, begun).expect("the first");
        let tracer = &mut tracers.tracers[0];
        let mut now = begun;
        for step in 0..3000 {
            now += SAMPLE_INTERVAL;
            let _ = tracer.look([view(step * 10)].into_iter(), 0, true, now);
        }
        let mut events = taken(&mut trace);
        assert_eq!(events.len(), EVENTS_MAX, "the queue is full");
        now += SAMPLE_INTERVAL;
        let _ = tracer.look([view(30_000)].into_iter(), 0, true, now);
        let later = taken(&mut trace);
        // Two of the first 1024 events are reports of states.
        assert_eq!(
            later[0].observation,
            TraceObservation::Lost(3000 + 2 - EVENTS_MAX as u64)
        );
        events.extend(later);
        assert_eq!(bytes(&events), 30_000, "since the first sample");
        assert!(events.is_sorted_by_key(|event| event.at));
    }

    #[test]
    fn what_does_not_change_is_said_once_a_second() {
        let mut tracers = Tracers::default();
        let begun = Instant::now();
        let mut trace = tracers.begin(PeerId(0), 1, begun).expect("the first");
        for step in 0..300 {
            let now = begun + SAMPLE_INTERVAL * step;
            let _ = tracers.tracers[0].look([view(5)].into_iter(), 0, true, now);
        }
        let events = taken(&mut trace);
        assert_eq!(events.len(), 2 + 3, "{events:?}");
        let _ = tracers.tracers[0].look(std::iter::empty(), 2, false, begun);
        let closed = &taken(&mut trace)[1].observation;
        let (old, new) = (Some(ConnectionState::Confirmed), ConnectionState::Closed);
        assert_eq!(*closed, TraceObservation::State { old, new });
    }

    #[test]
    fn traces_are_few_and_of_peers_that_there_are() {
        let mut tracers = Tracers::default();
        let now = Instant::now();
        let mut begin = |peer| tracers.begin(PeerId(peer), 1, now);
        assert_eq!(begin(1).expect_err("one peer"), TraceError::NoPeer);
        let mut traces: Vec<_> = (0..TRACES_MAX).map(|_| begin(0).expect("room")).collect();
        assert_eq!(begin(0).expect_err("full"), TraceError::TooMany);
        traces.pop();
        assert!(begin(0).is_ok(), "one has gone");
    }
}
