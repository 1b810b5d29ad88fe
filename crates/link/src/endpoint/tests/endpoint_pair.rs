//! Two endpoints connected by a simulated path, in virtual time.

use std::collections::BTreeMap;

use super::*;
use crate::EndpointEvent;

/// Endpoints A and B, connected by a path that carries packets of up to 1400 bytes.
pub(super) struct EndpointPair {
    pub(super) sites: SitePair,
    /// Datagrams in flight, sorted by arrival time. The flag states whether the datagram is sent to
    /// B.
    under_way: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    order: u64,
    delay: Duration,
    /// Number of datagrams sent for each lost datagram. With 1, all datagrams are lost.
    pub(super) lost_each: u64,
    /// Whether the name of B can be resolved.
    pub(super) names_resolve: bool,
    /// Whether all data packets are lost.
    pub(super) handshakes_only: bool,
    /// Number of wake-ups of A at its own deadlines.
    deadlines: u32,
}

const PAYLOAD_MAX: usize = 1400 - 28;

impl EndpointPair {
    pub(super) fn new(delay: Duration) -> Self {
        let mut pair = Self {
            sites: SitePair::new(),
            under_way: BTreeMap::new(),
            order: 0,
            delay,
            lost_each: u64::MAX,
            names_resolve: true,
            handshakes_only: false,
            deadlines: 0,
        };
        pair.run(Duration::from_secs(10));
        assert!(pair.sites.a.is_up(0) && pair.sites.b.is_up(0));
        pair
    }

    /// Advances the virtual time by `time`. Returns the number of A's deadlines per second.
    pub(super) fn run(&mut self, time: Duration) -> f64 {
        let end = self.sites.now + time;
        self.deadlines = 0;
        loop {
            self.step();
            let now = self.sites.now;
            let due = self.sites.a.next_timeout(now);
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let of_b = self.sites.b.next_timeout(now);
            let Some(next) = [due, arrival, of_b].into_iter().flatten().min() else {
                break;
            };
            // The driver runs at most once in 100 us.
            let next = next.max(now + Duration::from_micros(100));
            if next > end {
                break;
            }
            self.deadlines += u32::from(due.is_some_and(|due| due <= next));
            self.sites.now = next;
        }
        self.sites.now = end;
        f64::from(self.deadlines) / time.as_secs_f64()
    }

    fn step(&mut self) {
        let now = self.sites.now;
        while let Some(entry) = self.under_way.first_entry().filter(|e| e.key().0 <= now) {
            match entry.remove() {
                (true, bytes) => self.sites.hand_b(&bytes, at_a()),
                (false, bytes) => self.sites.hand_a(&bytes),
            }
        }
        self.sites.pass(Duration::ZERO);
        while self.sites.b.poll_event().is_some() {}
        while let Some(event) = self.sites.a.poll_event() {
            if let EndpointEvent::Resolve { peer } = event {
                let address = self.names_resolve.then(at_b);
                self.sites.a.set_address(peer, address, now);
            }
        }
        let from_a = self
            .sites
            .sent_by_a()
            .into_iter()
            .map(|bytes| (true, bytes));
        let mut sent: Vec<_> = from_a.collect();
        sent.extend(
            self.sites
                .sent_by_b()
                .into_iter()
                .map(|bytes| (false, bytes)),
        );
        for datagram in sent {
            self.order += 1;
            let is_data = datagram.1[0] < HELLO;
            let is_lost =
                self.order.is_multiple_of(self.lost_each) || is_data && self.handshakes_only;
            if datagram.1.len() <= PAYLOAD_MAX && !is_lost {
                let at = now + self.delay;
                self.under_way.insert((at, self.order), datagram);
            }
        }
    }
}
