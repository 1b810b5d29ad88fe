//! Printed trace of one cell of the matrix over time.

use std::time::Duration;

use link::sim::{SimSite, SimWorld};

use super::trial::Trial;

/// Runs a trial, and prints the state of the controller four times per round trip.
pub fn print(trial: &Trial) {
    let mut lines = TraceLines::new(trial.rtt);
    // Watching does not change the run.
    let outcome = trial.run_watched(&mut |world| lines.look(world));
    println!(
        "{:.3} of ideal in {:.3} s; tail {:.2} RTT; reports {:.3} %, needless {:.2} %, memory {} MB",
        outcome.fraction,
        outcome.time_s,
        outcome.tail_rtts,
        outcome.feedback * 100.0,
        outcome.needless * 100.0,
        outcome.memory_peak_bytes / 1_000_000,
    );
}

/// Printer of the sender's state, with up to four lines per round trip.
pub struct TraceLines {
    step: Duration,
    next: Duration,
}

impl TraceLines {
    pub fn new(rtt: Duration) -> Self {
        println!(
            "{:>9} {:>9} {:>8} {:>13} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "s", "MB", "Mbit/s", "state", "base ms", "queue ms", "drops", "sent MB", "loss %"
        );
        Self {
            step: (rtt / 4).max(Duration::from_millis(5)),
            next: Duration::ZERO,
        }
    }

    pub fn look(&mut self, world: &SimWorld) {
        if world.now() < self.next {
            return;
        }
        self.next = world.now() + self.step;
        let view = world.view(SimSite::A);
        println!(
            "{:9.3} {:9.1} {:8.1} {:>13} {:9.1} {:9.2} {:9} {:9.1} {:9.2}",
            world.now().as_secs_f64(),
            world.view(SimSite::B).stats.payload_received as f64 / 1e6,
            view.allowed_bytes_per_s * 8e-6,
            view.controller_state,
            view.base_rtt.unwrap_or_default().as_secs_f64() * 1e3,
            view.queue_delay.as_secs_f64() * 1e3,
            world.path_counters(SimSite::A).queue_drops,
            view.stats.payload_sent as f64 / 1e6,
            view.loss * 100.0,
        );
    }
}
