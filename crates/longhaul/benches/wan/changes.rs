//! Trials on routes whose round-trip time or capacity changes, either during a transfer or between
//! two transfers.
//!
//! The measurement of goodput starts after a pause. The pause is the sum of four round trips of the
//! new route and two seconds. Each trial also runs in virtual time.

use std::{
    thread,
    time::{Duration, Instant},
};

use link::{
    StreamClass,
    sim::{SimSite, SimWorld},
};
use units::{BitRate, ByteCount};

use crate::{page::ResultsPage, path_pair::PathPair, setting::Setting, table, virtual_time};

struct Row {
    name: String,
    before: PathPair,
    after: PathPair,
    /// Whether the route changes while no transfer runs.
    is_idle: bool,
}

/// Outcome of a row. Each value is goodput as a fraction of the ideal goodput on the new route.
struct Outcome {
    runs: Vec<f64>,
    /// Results in virtual time, one for each seed.
    in_virtual_time: Vec<f64>,
}

/// Time for which the route is in use before it changes.
const BEFORE: Duration = Duration::from_secs(10);
/// Pause between two transfers. An idle route changes in the middle of this pause.
const PAUSE: Duration = Duration::from_secs(4);
/// Time that the link gets to find the rate of the new route, in addition to four round trips.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time over which the trial measures goodput.
const WINDOW: Duration = Duration::from_secs(8);
const REQUIRED: f64 = 0.9;
/// Size of a transfer that cannot finish within the trial on any route.
const ENDLESS: ByteCount = ByteCount::megabytes(10_000);

fn rows() -> Vec<Row> {
    let route =
        |(mbit, rtt_ms)| PathPair::plain(BitRate::mbit(mbit), Duration::from_millis(rtt_ms));
    let mut rows = Vec::new();
    for (before, after) in [
        ((300, 40), (300, 1000)),
        ((300, 1000), (300, 40)),
        ((300, 40), (300, 200)),
        ((300, 200), (300, 40)),
        ((300, 200), (60, 200)),
        ((60, 200), (300, 200)),
    ] {
        for is_idle in [false, true] {
            let [(mbit, rtt_ms), (new_mbit, new_rtt_ms)] = [before, after];
            let change = if mbit == new_mbit {
                format!("{mbit} Mbit/s, {rtt_ms} -> {new_rtt_ms} ms")
            } else {
                format!("{rtt_ms} ms, {mbit} -> {new_mbit} Mbit/s")
            };
            let moment = if is_idle { "idle" } else { "in use" };
            rows.push(Row {
                name: format!("{change}, {moment}"),
                before: route(before),
                after: route(after),
                is_idle,
            });
        }
    }
    rows
}

impl Row {
    /// Returns the pause before the measurement of goodput. The pause begins with the change, or
    /// with the first transfer after the change.
    fn timeout(&self) -> Duration {
        4 * self.after.rtt + TIMEOUT
    }

    /// Returns the goodput as a fraction of the ideal goodput on the new route.
    fn fraction(&self, bytes: u64, time: Duration) -> f64 {
        bytes as f64 / time.as_secs_f64() / self.after.goodput_bytes_per_s()
    }

    fn over_kernel(&self, seed: u64) -> anyhow::Result<f64> {
        let setting = Setting::new(self.before.paths(), seed)?;
        setting.settle()?;
        if self.is_idle {
            let size = self.before.size(BEFORE);
            setting.transfer_s(size, 4 * BEFORE)?;
            thread::sleep(PAUSE / 2);
            setting.set_paths(self.after.paths());
            thread::sleep(PAUSE / 2);
        }
        let in_use_before = if self.is_idle { Duration::ZERO } else { BEFORE };
        let limit = in_use_before + self.timeout() + WINDOW + Duration::from_secs(1);
        let transfer = setting.begin(setting.bulk(ENDLESS, limit))?;
        if !self.is_idle {
            thread::sleep(BEFORE);
            setting.set_paths(self.after.paths());
        }
        thread::sleep(self.timeout());
        let (began, before) = (Instant::now(), setting.received());
        thread::sleep(WINDOW);
        let bytes = setting.received().bytes() - before.bytes();
        let fraction = self.fraction(bytes, began.elapsed());
        transfer.join().expect("a transfer does not panic")??;
        Ok(fraction)
    }

    fn in_virtual_time(&self, seed: u64) -> f64 {
        let mut world = virtual_time::world(&self.before, seed);
        if self.is_idle {
            virtual_time::transfer_s(&mut world, self.before.size(BEFORE));
            world.run_for(PAUSE / 2);
            self.change(&mut world);
            world.run_for(PAUSE / 2);
        }
        let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
        if !self.is_idle {
            world.run_for(BEFORE);
            self.change(&mut world);
        }
        world.run_for(self.timeout());
        let before = world.progress(id).delivered;
        world.run_for(WINDOW);
        let bytes = world.progress(id).delivered.bytes() - before.bytes();
        self.fraction(bytes, WINDOW)
    }

    fn change(&self, world: &mut SimWorld) {
        world.set_path(SimSite::A, self.after.forward.clone());
        world.set_path(SimSite::B, self.after.backward.clone());
    }

    /// Returns the duration of a run if no failure occurs.
    fn expected(&self) -> Duration {
        let pause = if self.is_idle { PAUSE } else { Duration::ZERO };
        Duration::from_secs(4) + BEFORE + pause + self.timeout() + WINDOW
    }
}

impl Outcome {
    fn is_reached(&self) -> bool {
        table::middle(&self.runs) >= REQUIRED
    }
}

/// Runs the rows whose names contain `name`. Returns whether all required results were reached.
pub fn run(name: &str, runs: usize, page: &mut ResultsPage) -> anyhow::Result<bool> {
    let mut rows = rows();
    rows.retain(|row| row.name.contains(name));
    let expected: Duration = rows.iter().map(Row::expected).sum();
    page.announce(rows.len(), runs, expected * runs as u32)?;
    let mut outcomes = Vec::new();
    for row in &rows {
        let mut fractions = Vec::new();
        for seed in 1..=runs {
            let fraction = row.over_kernel(seed as u64).unwrap_or_else(|error| {
                page.progress(&format!("{}, run {seed} failed: {error:#}", row.name));
                0.0
            });
            page.progress(&format!("{}, run {seed}: {fraction:.3} of ideal", row.name));
            fractions.push(fraction);
        }
        let [in_virtual_time] = virtual_time::by_seeds(|seed| [row.in_virtual_time(seed)]);
        outcomes.push(Outcome {
            runs: fractions,
            in_virtual_time,
        });
        page.draft(&render(&rows, &outcomes))?;
    }
    page.finish(&render(&rows, &outcomes))?;
    Ok(outcomes.iter().all(Outcome::is_reached))
}

fn render(rows: &[Row], outcomes: &[Outcome]) -> String {
    let header = [
        "change",
        "of the new ideal",
        "required",
        "",
        "virtual",
        "difference",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (row, outcome) in rows.iter().zip(outcomes) {
        let mark = if outcome.is_reached() { "" } else { "MISSED" };
        lines.push(vec![
            row.name.clone(),
            table::spread(&outcome.runs),
            format!(">= {REQUIRED}"),
            mark.to_owned(),
            table::spread(&outcome.in_virtual_time),
            table::difference(&outcome.runs, &outcome.in_virtual_time),
        ]);
    }
    table::align(&lines)
}
