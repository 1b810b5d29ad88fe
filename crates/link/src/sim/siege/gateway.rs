//! Attacked gateway: a node with a socket buffer and a simulated processor.
//!
//! Virtual time has no processor, so the simulation charges time for the gateway's work: datagrams,
//! scanned log entries, and wake-ups. While the gateway is busy, arriving datagrams of all peers
//! wait in the socket buffer. Datagrams that do not fit are lost. The simulation also measures the
//! real processor time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{super::inbox::Datagram, Meters, node::Node};

/// Attacked gateway.
pub(super) struct SiegeGateway {
    pub(super) node: Node,
    meters: Meters,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    busy_until: Instant,
    wake: Option<Instant>,
    /// Time of the gateway's last turn.
    turned: Instant,
    pub(super) work: GatewayWork,
}

/// Amount and cost of the gateway's work.
#[derive(Debug, Default, Clone, Copy)]
pub struct GatewayWork {
    /// Number of datagrams that the gateway handled.
    pub received: u64,
    /// Number of datagrams that were lost because the socket buffer was full.
    pub overflowed: u64,
    /// Number of datagrams that the gateway sent.
    pub sent: u64,
    /// Number of log entries that the gateway scanned because of reports.
    pub entries_walked: u64,
    /// Number of wake-ups.
    pub wake_ups: u64,
    /// Number of wake-ups in which the gateway neither received nor sent a datagram.
    pub idle_wake_ups: u64,
    /// Total time charged on the virtual processor, in seconds.
    pub charged_s: f64,
    /// Longest time charged for one turn on the virtual processor, in seconds.
    pub longest_s: f64,
    /// Total real processor time, in seconds.
    pub processor_s: f64,
    /// Longest real processor time of one turn, in seconds.
    pub longest_real_s: f64,
    /// Maximum heap memory of the gateway, in bytes.
    pub heap_peak_bytes: i64,
    /// Present heap memory of the gateway, in bytes.
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

    /// Adds a datagram to the socket buffer. Returns false if the buffer has no room.
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

    /// Returns the time of the next turn. Returns `None` if no work is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let next = match self.inbox.is_empty() {
            true => self.wake?,
            false => self.busy_until,
        };
        Some(next.max(self.busy_until))
    }

    /// Runs an application's action on the node. The simulation counts the memory for this action
    /// as the gateway's memory.
    pub(super) fn ask<T>(&mut self, what: impl FnOnce(&mut Node) -> T) -> T {
        let heap = (self.meters.heap_bytes)();
        let result = what(&mut self.node);
        self.work.heap_bytes += (self.meters.heap_bytes)() - heap;
        self.wake = self.node.endpoint.next_timeout(self.turned);
        result
    }

    /// Runs one turn as the driver does: received datagrams, timers, applications, and datagrams to
    /// send.
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
        // Before it sleeps, the driver asks for the next deadline once more.
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
/// Size of the socket buffer in bytes.
const SOCKET_BYTES: usize = 4 << 20;
/// Space that each datagram uses in the socket buffer in addition to its bytes.
const SOCKET_OVERHEAD_BYTES: usize = 700;
/// Duration of a turn of the driver on the virtual processor.
const WAKE_UP_S: f64 = 20e-6;
/// Time for a received datagram on the virtual processor, including the kernel's work
/// (docs/results).
const RECEIVED_S: f64 = 5e-6;
/// Time for a sent datagram on the virtual processor, including the kernel's work.
const SENT_S: f64 = 5e-6;
/// Time for a scanned log entry on the virtual processor.
const WALKED_S: f64 = 5e-9;
