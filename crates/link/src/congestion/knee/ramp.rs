//! How the delay changes over packets that were sent in a row.
//!
//! In: arrivals. Out: by how much the last third of the packets took longer than the first third, once a packet
//! sent after them has arrived. The least delay of each third counts, which takes out the jitter of single packets.

use crate::congestion::Arrival;

/// Delays of the packets sent in a span of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ramp {
    from_s: f64,
    until_s: f64,
    first_least_s: Option<f64>,
    last_least_s: Option<f64>,
    is_over: bool,
}

impl Ramp {
    pub(super) fn new(from_s: f64, until_s: f64) -> Self {
        Self {
            from_s,
            until_s,
            first_least_s: None,
            last_least_s: None,
            is_over: false,
        }
    }

    pub(super) fn on_arrival(&mut self, arrival: &Arrival) {
        let third_s = (self.until_s - self.from_s) / 3.0;
        let delay_s = arrival.received_s - arrival.sent_s;
        let least_s = if arrival.sent_s > self.until_s {
            self.is_over = true;
            return;
        } else if arrival.sent_s >= self.until_s - third_s {
            &mut self.last_least_s
        } else if arrival.sent_s >= self.from_s && arrival.sent_s <= self.from_s + third_s {
            &mut self.first_least_s
        } else {
            return;
        };
        *least_s = Some(least_s.map_or(delay_s, |least| least.min(delay_s)));
    }

    /// How much longer the last packets took than the first, in seconds.
    pub(super) fn rise_s(&self) -> Option<f64> {
        let rise_s = self.last_least_s? - self.first_least_s?;
        self.is_over.then_some(rise_s)
    }
}
