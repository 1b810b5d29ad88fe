//! Sieges by a hostile peer that has all keys of its connection. The peer sends false values in
//! every field, attacks a third party, reports packets that never arrived, withholds reports, and
//! floods.
//!
//! `SIEGE_CASES` sets the number of sieges, `SIEGE_SEED` the first seed, and `SIEGE_SECONDS` the
//! duration of each siege. `SIEGE_STRATEGY` sets the strategies of all sieges (names joined by
//! `+`).

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    time::Duration,
};

use link::sim::siege::{self, GOODPUT_MIN, Meters, SiegeConfig, SiegeOutcome, Strategy, WORLDS};
use units::BitRate;

/// System allocator with a count of the allocated bytes for each thread.
struct CountingAllocator;

thread_local! {
    static HEAP_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    HEAP_BYTES.set(HEAP_BYTES.get() + bytes);
}

#[expect(unsafe_code, reason = "an allocator has no safe form")]
// SAFETY: all calls are passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the rules of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the pointer came from `alloc` above, and the caller keeps the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const METERS: Meters = Meters {
    heap_bytes: || HEAP_BYTES.get(),
    processor: || {
        let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
        clock.now().map(Duration::from).unwrap_or_default()
    },
};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Results of sieges, and results of the same worlds without a hostile peer.
#[derive(Clone)]
struct Sieges {
    lasts: Duration,
    flood_rate: BitRate,
    without: BTreeMap<u64, SiegeOutcome>,
    worst: Worst,
    complaints: Vec<String>,
}

/// Worst value of each measured quantity, with the siege that caused it.
#[derive(Default, Clone)]
struct Worst {
    lines: BTreeMap<&'static str, (f64, String)>,
}

impl Worst {
    /// Records a value of a quantity for which higher values are worse. `by` names the siege.
    fn take(&mut self, line: &'static str, figure: f64, by: &str) {
        let worst = self
            .lines
            .entry(line)
            .or_insert((f64::NEG_INFINITY, String::new()));
        if figure > worst.0 {
            *worst = (figure, by.to_owned());
        }
    }
}

impl Sieges {
    fn new(lasts: Duration, flood_rate: BitRate) -> Self {
        Self {
            lasts,
            flood_rate,
            without: BTreeMap::new(),
            worst: Worst::default(),
            complaints: Vec::new(),
        }
    }

    fn config(&self, seed: u64, strategies: Vec<Strategy>) -> SiegeConfig {
        SiegeConfig {
            seed,
            strategies,
            lasts: self.lasts,
            flood_rate: self.flood_rate,
            meters: METERS,
        }
    }

    /// Runs one siege, and records its complaints and measured values.
    fn besiege(&mut self, seed: u64, strategies: Vec<Strategy>) -> SiegeOutcome {
        let names: Vec<_> = strategies.iter().map(|it| it.name()).collect();
        let by = format!("{} (seed {seed})", names.join("+"));
        let without = self.without[&(seed % WORLDS)].clone();
        let outcome = siege::run(&self.config(seed, strategies));
        for complaint in &outcome.complaints {
            self.complaints.push(format!("{by}: {complaint}"));
        }
        let kept = outcome.kept(&without);
        if kept < GOODPUT_MIN {
            self.complaints
                .push(format!("{by}: goodput {kept:.2} of that without"));
        }
        let lasts_s = self.lasts.as_secs_f64();
        let (work, alone) = (outcome.work, without.work);
        let packets = outcome.enemy_sent.max(1) as f64;
        let took_s = (work.processor_s - alone.processor_s).max(0.0);
        let worst = &mut self.worst;
        worst.take("bytes to others / 3 x bytes from there", outcome.paid, &by);
        worst.take("goodput lost", 1.0 - kept, &by);
        worst.take("buffered for the enemy / its part", outcome.share_peak, &by);
        let memory_max = outcome.memory_max.bytes() as f64;
        worst.take(
            "buffered / memory_max",
            outcome.peak.buffered_bytes as f64 / memory_max,
            &by,
        );
        worst.take(
            "heap / memory_max",
            work.heap_peak_bytes as f64 / memory_max,
            &by,
        );
        worst.take("heap, MB", work.heap_peak_bytes as f64 * 1e-6, &by);
        worst.take("streams", outcome.peak.streams as f64, &by);
        worst.take("controls waiting", outcome.peak.controls as f64, &by);
        worst.take("packets remembered", outcome.peak.packets as f64, &by);
        worst.take("connections", outcome.peak.connections as f64, &by);
        worst.take("handshakes", outcome.peak.attempts as f64, &by);
        if outcome.enemy_sent > 1000 {
            worst.take(
                "processor, us per enemy packet",
                took_s * 1e6 / packets,
                &by,
            );
        }
        worst.take(
            "processor, share of a core",
            work.processor_s / lasts_s,
            &by,
        );
        worst.take("longest turn, ms", work.longest_real_s * 1e3, &by);
        worst.take("virtual processor, share", work.charged_s / lasts_s, &by);
        worst.take("wake-ups a second", work.wake_ups as f64 / lasts_s, &by);
        worst.take(
            "idle wake-ups a second",
            work.idle_wake_ups as f64 / lasts_s,
            &by,
        );
        worst.take(
            "log entries walked a second",
            work.entries_walked as f64 / lasts_s,
            &by,
        );
        let reported = outcome.reported_bytes as f64 / 1e3 / lasts_s;
        worst.take("reports to the enemy, kB a second", reported, &by);
        let answered = outcome.answered_bytes as f64 / outcome.enemy_bytes.max(1) as f64;
        worst.take("bytes to the enemy / bytes from it", answered, &by);
        if number("SIEGE_VERBOSE").is_some() {
            println!(
                "{by}: kept {kept:.3}, paid {:.2}, {} sent, {} lies, {} breaches, buffered {:.2}, heap {:.1} MB, \
                 {:.1} us a packet, share {:.2}, virtual {:.2}, longest {:.1} ms, {:.0} wake-ups/s, {:.0} idle, \
                 walked {:.1e}, overflowed {}, answered {answered:.1}, reports {reported:.0} kB/s, {:?}",
                outcome.paid,
                outcome.enemy_sent,
                outcome.lies,
                outcome.breaches,
                outcome.peak.buffered_bytes as f64 / memory_max,
                work.heap_peak_bytes as f64 * 1e-6,
                took_s * 1e6 / packets,
                work.processor_s / lasts_s,
                work.charged_s / lasts_s,
                work.longest_real_s * 1e3,
                work.wake_ups as f64 / lasts_s,
                work.idle_wake_ups as f64 / lasts_s,
                work.entries_walked as f64,
                work.overflowed,
                outcome.peak,
            );
            println!(
                "    {:?}, stall {:?}, without {:?}, stall {:?}",
                outcome.goodput_bytes,
                outcome.longest_stall,
                without.goodput_bytes,
                without.longest_stall
            );
            for complaint in &outcome.complaints {
                println!("    {complaint}");
            }
        }
        outcome
    }

    fn add(&mut self, others: Self) {
        for (line, (figure, by)) in others.worst.lines {
            self.worst.take(line, figure, &by);
        }
        self.complaints.extend(others.complaints);
    }

    fn print(&self) {
        for (line, (figure, by)) in &self.worst.lines {
            println!("{line}: {figure:.3} by {by}");
        }
    }
}

/// Sieges that have found faults in the past: the strategies, the seed, and the rate of a flood in
/// Mbit/s.
const FOUND: &[(&str, u64, u64)] = &[
    // Frames that wait for permission to be sent.
    ("flood-cycles", 2, 20),
    // Four connections, each with the memory of a single connection.
    (
        "many-connections+slot-gaps+flood-tiny+report-nothing",
        0,
        40,
    ),
];

#[test]
fn what_sieges_have_found_stays_cured() {
    for (names, seed, mbit) in FOUND {
        let mut sieges = Sieges::new(Duration::from_secs(2), BitRate::mbit(*mbit));
        let without = siege::run(&sieges.config(seed % WORLDS, Vec::new()));
        sieges.without.insert(seed % WORLDS, without);
        sieges.besiege(*seed, Strategy::parse(names).expect("they are known"));
        assert!(sieges.complaints.is_empty(), "{:#?}", sieges.complaints);
    }
}

#[test]
fn a_hostile_peer_harms_nobody_else() {
    let cases = number("SIEGE_CASES").unwrap_or_else(|| Strategy::count() as u64);
    let first = number("SIEGE_SEED").unwrap_or(0);
    let lasts = Duration::from_secs(number("SIEGE_SECONDS").unwrap_or(2));
    let rate = BitRate::mbit(number("SIEGE_MBIT").unwrap_or(20));
    let named = std::env::var("SIEGE_STRATEGY").ok();
    let named = named.map(|names| Strategy::parse(&names).expect("the strategies are known"));
    let mut all = Sieges::new(lasts, rate);
    for world in (first..first + cases.min(WORLDS)).map(|seed| seed % WORLDS) {
        let without = siege::run(&all.config(world, Vec::new()));
        assert!(without.complaints.is_empty(), "{:?}", without.complaints);
        all.without.insert(world, without);
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (mut sieges, named) = (all.clone(), named.clone());
                scope.spawn(move || {
                    for seed in (first..first + cases).filter(|seed| seed % threads == worker) {
                        let strategies = named.clone();
                        sieges.besiege(seed, strategies.unwrap_or_else(|| Strategy::of_seed(seed)));
                    }
                    sieges
                })
            })
            .collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|sieges| sieges.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.into_iter().for_each(|sieges| all.add(sieges));
    all.print();
    assert!(all.complaints.is_empty(), "{:#?}", all.complaints);
}
