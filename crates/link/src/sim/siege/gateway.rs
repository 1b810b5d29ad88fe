//! Gateway under siege: a node behind a socket buffer, on a processor that needs time.
//!
//! Virtual time has no processor, so the gateway's work is counted and charged: datagrams, walked
//! log entries, and wake-ups. While it is busy, arriving datagrams of all peers wait in one queue,
//! the socket's buffer. Datagrams that do not fit are lost. The processor's real time is measured
//! beside that.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{super::inbox::Datagram, Meters, node::Node};

/// The gateway.
pub(super) struct SiegeGateway {
    pub(super) node: Node,
    meters: Meters,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    busy_until: Instant,
    wake: Option<Instant>,
    /// Time of the driver's last turn.
    turned: Instant,
    pub(super) work: GatewayWork,
}

/// Work of the gateway, and its cost.
#[derive(Debug, Default, Clone, Copy)]
pub struct GatewayWork {
    /// Datagrams that it handled.
    pub received: u64,
    /// Datagrams that found no room in the socket's buffer.
    pub overflowed: u64,
    /// Datagrams that it sent.
    pub sent: u64,
    /// Log entries that reports have caused it to walk.
    pub entries_walked: u64,
    /// Number of wake-ups.
    pub wake_ups: u64,
    /// Number of wake-ups in which it neither received nor sent anything.
    pub idle_wake_ups: u64,
    /// Virtual processor time, in seconds.
    pub charged_s: f64,
    /// Longest busy time, in seconds of the virtual processor.
    pub longest_s: f64,
    /// Real processor time, in seconds.
    pub processor_s: f64,
    /// The longest turn, in seconds of the real processor.
    pub longest_real_s: f64,
    /// Largest memory that it took from the allocator and has not given back, in bytes.
    pub heap_peak_bytes: i64,
    /// The same now.
    pub heap_bytes: i64,
}

impl SiegeGateway {
    pub(super) fn new(node: Node, meters: Meters, now: Instant) -> Self {
        Self {
            node,
            meters,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            busy_until: now,
            wake: Some(now),
            turned: now,
            work: GatewayWork::default(),
        }
    }

    /// Adds a datagram to the socket's buffer. Returns whether there is room for it.
    pub(super) fn arrive(&mut self, datagram: Datagram) -> bool {
        let bytes = datagram.bytes.len() + SOCKET_OVERHEAD_BYTES;
        if self.inbox_bytes + bytes > SOCKET_BYTES {
            self.work.overflowed += 1;
            return false;
        }
        self.inbox_bytes += bytes;
        self.inbox.push_back(datagram);
        true
    }

    /// Returns the time at which [`run`](Self::run) has work to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let next = match self.inbox.is_empty() {
            true => self.wake?,
            false => self.busy_until,
        };
        Some(next.max(self.busy_until))
    }

    /// Runs an application's action, and charges its memory to the gateway.
    pub(super) fn ask<T>(&mut self, what: impl FnOnce(&mut Node) -> T) -> T {
        let heap = (self.meters.heap_bytes)();
        let result = what(&mut self.node);
        self.work.heap_bytes += (self.meters.heap_bytes)() - heap;
        self.wake = self.node.endpoint.next_timeout(self.turned);
        result
    }

    /// Runs one turn like the driver's: datagrams, timers, applications, datagrams.
    pub(super) fn run(&mut self, now: Instant, send: &mut impl FnMut(Datagram)) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.turned = now;
        let batch = self.inbox.len().min(RECEIVED_MAX);
        let mut batch: Vec<_> = self.inbox.drain(..batch).collect();
        let mut leaving = Vec::new();
        let walked = self.node.endpoint.entries_walked();
        let (began, heap) = ((self.meters.processor)(), (self.meters.heap_bytes)());
        for datagram in &mut batch {
            self.inbox_bytes -= datagram.bytes.len() + SOCKET_OVERHEAD_BYTES;
            self.node.receive(datagram, now);
        }
        self.node.endpoint.handle_timeout(now);
        self.node.act(now);
        self.node.transmit(now, |datagram| leaving.push(datagram));
        // The driver asks once more before it sleeps.
        self.wake = self.node.endpoint.next_timeout(now);
        let work = &mut self.work;
        let heap = (self.meters.heap_bytes)() - heap;
        let took_s = ((self.meters.processor)() - began).as_secs_f64();
        let heap_of_leaving: usize = leaving
            .iter()
            .map(|datagram: &Datagram| datagram.bytes.capacity())
            .sum::<usize>()
            + leaving.capacity() * size_of::<Datagram>();
        work.heap_bytes += heap - heap_of_leaving as i64;
        work.heap_peak_bytes = work.heap_peak_bytes.max(work.heap_bytes);
        work.processor_s += took_s;
        work.longest_real_s = work.longest_real_s.max(took_s);
        let walked = self.node.endpoint.entries_walked().saturating_sub(walked);
        let (received, sent) = (batch.len() as u64, leaving.len() as u64);
        work.received += received;
        work.sent += sent;
        work.entries_walked += walked;
        work.wake_ups += 1;
        work.idle_wake_ups += u64::from(received + sent == 0);
        let charge_s = WAKE_UP_S
            + RECEIVED_S * received as f64
            + SENT_S * sent as f64
            + WALKED_S * walked as f64;
        work.charged_s += charge_s;
        work.longest_s = work.longest_s.max(charge_s);
        self.busy_until = now + Duration::from_secs_f64(charge_s);
        leaving.into_iter().for_each(send);
    }
}

/// Maximum number of datagrams that the driver receives in one turn: eight batches of 64.
const RECEIVED_MAX: usize = 8 * 64;
/// Size of the socket's buffer, and the kernel's overhead for each datagram.
const SOCKET_BYTES: usize = 4 << 20;
const SOCKET_OVERHEAD_BYTES: usize = 700;
/// Costs on the virtual processor: a turn of the driver, a datagram in and out, and an entry of the
/// log. The costs of datagrams include the kernel's part (docs/results).
const WAKE_UP_S: f64 = 20e-6;
const RECEIVED_S: f64 = 5e-6;
const SENT_S: f64 = 5e-6;
const WALKED_S: f64 = 5e-9;
