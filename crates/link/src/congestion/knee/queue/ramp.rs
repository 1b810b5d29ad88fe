//! Growth of the delay over packets that were sent consecutively.
//!
//! The input is packet arrivals. The output is the delay of the last third of the packets minus the
//! delay of the first third. The output is available once a later packet has arrived. The least
//! delay of each third counts, which removes the jitter of single packets.

use crate::congestion::PacketArrival;

/// Delays of the packets sent between two times.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayRamp {
    from_s: f64,
    until_s: f64,
    first_least_s: Option<f64>,
    last_least_s: Option<f64>,
    is_over: bool,
}

impl DelayRamp {
    pub(super) fn new(from_s: f64, until_s: f64) -> Self {
        Self {
            from_s,
            until_s,
            first_least_s: None,
            last_least_s: None,
            is_over: false,
        }
    }

    pub(super) fn on_arrival(&mut self, arrival: &PacketArrival) {
        let third_s = (self.until_s - self.from_s) / PARTS;
        let delay_s = arrival.received_s - arrival.sent_s;
        let least_s = if arrival.sent_s > self.until_s {
            self.is_over = true;
            return;
        } else if arrival.sent_s >= self.until_s - third_s {
            &mut self.last_least_s
        } else if arrival.sent_s > self.from_s && arrival.sent_s <= self.from_s + third_s {
            // The watched packets may start with a train. A packet sent at the very start may
            // precede the train, so it does not count.
            &mut self.first_least_s
        } else {
            return;
        };
        *least_s = Some(least_s.map_or(delay_s, |least| least.min(delay_s)));
    }

    /// Returns the delay of the last packets minus the delay of the first packets, in seconds.
    /// Returns `None` while the test is incomplete.
    pub(super) fn rise_s(&self) -> Option<f64> {
        let rise_s = self.last_least_s? - self.first_least_s?;
        self.is_over.then_some(rise_s)
    }
}

/// Number of equal periods of the test. The first and the last period are compared.
///
/// Each period is long enough for a reliable least delay. The two periods are far enough apart to
/// show growth.
const PARTS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the growth of the delay over 30 ms. `packets` packets are sent, one per millisecond.
    fn rise_s(packets: u64, delay_s: impl Fn(u64) -> f64) -> Option<f64> {
        let mut ramp = DelayRamp::new(0.0, 0.03);
        for number in 0..packets {
            let sent_s = number as f64 * 1e-3;
            ramp.on_arrival(&PacketArrival {
                number,
                sent_s,
                received_s: sent_s + delay_s(number),
                sent_bytes_before: number * 1500,
                in_train: false,
            });
        }
        ramp.rise_s()
    }

    #[test]
    fn the_rise_is_that_of_the_least_delays_and_known_once_all_have_arrived() {
        let grows = |number: u64| 0.1 + 1e-3 * (number / 10) as f64;
        assert_eq!(rise_s(30, grows), None);
        let rise = rise_s(32, grows).expect("a packet came after them");
        assert!((rise - 2e-3).abs() < 1e-9, "{rise}");
        let before_a_train = |number: u64| if number == 0 { 0.1 } else { 0.11 };
        let rise = rise_s(32, before_a_train).expect("as before");
        assert!(rise.abs() < 1e-9, "{rise}");
        let jitters = |number: u64| 0.1 + if number % 10 == 5 { 0.0 } else { 0.05 };
        assert!(rise_s(32, jitters).expect("as before").abs() < 1e-9);
    }
}
