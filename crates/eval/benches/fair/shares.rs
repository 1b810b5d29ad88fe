//! Shares of the flows in a recorded run: rates, and the time until the rates are even.

use std::{ops::Range, time::Duration};

use link::sim::CrowdRecord;

use crate::S;

/// Returns the mean rates of all flows during `span`, in bits per second.
pub fn rates(record: &CrowdRecord, span: &Range<Duration>) -> Vec<f64> {
    (0..record.flows())
        .map(|flow| record.rate(flow, span))
        .collect()
}

pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the seconds until the first flow holds its fair share for twenty seconds. During these
/// twenty seconds, the mean of each five seconds must be 0.5 to 1.5 times the fair share. Returns
/// infinity if no such period ends before `end`.
pub fn seconds_to_fair(record: &CrowdRecord, fair: f64, end: Duration) -> f64 {
    let is_fair = |at: Duration| {
        let share = record.rate(0, &(at..at + 5 * S)) / fair;
        (0.5..=1.5).contains(&share)
    };
    first(Duration::ZERO, end, 20 * S, |at| {
        (0..4).all(|step| is_fair(at + 5 * S * step))
    })
}

/// Returns the seconds from `from` until the rates stay even for ten seconds. During these ten
/// seconds, Jain's index of each two seconds must be 0.95 or more. Returns infinity if no such
/// period ends before `end`.
pub fn seconds_to_converge(record: &CrowdRecord, from: Duration, end: Duration) -> f64 {
    let is_even = |at: Duration| record.jain(&(at..at + 2 * S)) >= 0.95;
    first(from, end, 10 * S, |at| {
        (0..5).all(|step| is_even(at + 2 * S * step))
    })
}

/// Returns the seconds from `from` to the first time at which `holds` is true. Calls `holds` with
/// the start of every half second. `holds` examines the period of length `ahead` that begins at its
/// argument.
fn first(from: Duration, end: Duration, ahead: Duration, holds: impl Fn(Duration) -> bool) -> f64 {
    (0..)
        .map(|step| from + S / 2 * step)
        .take_while(|at| *at + ahead <= end)
        .find(|at| holds(*at))
        .map_or(f64::INFINITY, |at| (at - from).as_secs_f64())
}
