//! Tests with two cores and an adversary between them, in virtual time.
//!
//! The adversary may drop, change, copy and forge datagrams. No core may panic, deliver a wrong
//! byte, or use more and more memory. No core may reply to strangers with more than the permitted
//! multiple of the bytes received from them. The simulator compares all delivered bytes.
//!
//! While the adversary only adds datagrams, transfers must continue. If the adversary also
//! interferes and then stops, all transfers must end.

use std::time::Duration;

use link::{
    Policy, StreamClass, congestion,
    sim::{Adversary, AdversaryConfig, SimSite, SimTransferId, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RTT: Duration = Duration::from_millis(40);

fn config(seed: u64) -> WorldConfig {
    // The slower the path, the more of the adversary's datagrams are handshakes.
    let rate = BitRate::mbit([100, 10, 1][seed as usize % 3]);
    let path = PathConfig {
        rate: Some(rate),
        queue: PathConfig::default_queue(rate, RTT),
        delay: RTT / 2,
        loss: 0.005,
        duplication: 0.01,
        ..PathConfig::default()
    };
    WorldConfig {
        forward: path.clone(),
        backward: path,
        seed,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::mebibytes(64),
        idle_timeout: Duration::from_secs(60),
    }
}

/// Two sites under attack. Each site starts a new transfer whenever its previous transfer has
/// ended.
struct Siege {
    world: SimWorld,
    config: WorldConfig,
    running: [Option<SimTransferId>; 2],
    turn: u64,
    confirmed: u64,
    lost: u64,
    restarts: u64,
}

impl Siege {
    fn new(adversary: AdversaryConfig) -> Self {
        let config = config(adversary.seed);
        let mut world = SimWorld::new(&config);
        world.admit_adversary(adversary);
        Self {
            world,
            config,
            running: [None; 2],
            turn: 0,
            confirmed: 0,
            lost: 0,
            restarts: 0,
        }
    }

    fn deeds(&self) -> u64 {
        self.world.adversary().map_or(0, Adversary::deeds_in_all)
    }

    /// Runs until the adversary has performed `deeds` actions.
    fn run_to(&mut self, deeds: u64) {
        while self.deeds() < deeds {
            self.keep_busy();
            self.world.run_for(Duration::from_millis(200));
            self.check();
        }
    }

    /// Runs until the adversary has performed `deeds` actions. The two sites restart in turn and
    /// lose all their state.
    fn run_with_restarts_to(&mut self, deeds: u64) {
        while self.deeds() < deeds {
            let next = self.deeds() + 1500;
            self.run_to(next.min(deeds));
            let side = [SimSite::A, SimSite::B][self.turn as usize % 2];
            self.world.restart(side, &self.config);
            self.restarts += 1;
            // The restarted site loses its own transfers together with its state.
            self.running[side as usize] = None;
        }
    }

    fn keep_busy(&mut self) {
        for side in [SimSite::A, SimSite::B] {
            let running = &mut self.running[side as usize];
            if let Some(id) = *running {
                let progress = self.world.progress(id);
                match (progress.confirmed, progress.lost) {
                    (Some(_), _) => self.confirmed += 1,
                    (None, Some(_)) => self.lost += 1,
                    (None, None) => continue,
                }
            }
            self.turn += 1;
            let size = ByteCount::kibibytes([1, 40, 300, 700, 2000][self.turn as usize % 5]);
            *running = Some(self.world.send(side, StreamClass::Bulk, size));
        }
    }

    fn check(&self) {
        let seed = self.config.seed;
        let adversary = self.world.adversary().expect("it was admitted");
        let overpaid = adversary.overpaid();
        assert!(
            overpaid.is_empty(),
            "seed {seed}: strangers got {overpaid:?}"
        );
        for side in [SimSite::A, SimSite::B] {
            let endpoint = self.world.endpoint(side);
            let footprint = endpoint.footprint();
            let is_small = footprint.attempts <= 5
                && footprint.connections <= 4
                && footprint.packets <= 50_000
                && footprint.controls <= 1000
                && footprint.streams <= 64;
            assert!(is_small, "seed {seed}: {side:?} keeps {footprint:?}");
            let malformed = self.world.view(side).stats.malformed;
            assert_eq!(malformed, 0, "seed {seed}: {side:?} believed a forger");
        }
    }

    /// Stops the adversary. All transfers in progress must then end, and a new transfer must
    /// succeed.
    fn end(&mut self) {
        let seed = self.config.seed;
        self.world.calm_adversary();
        // In these five seconds, the sites detect restarts and lost streams.
        self.world.run_for(Duration::from_secs(5));
        self.keep_busy();
        for side in [SimSite::A, SimSite::B] {
            let id = self.running[side as usize].expect("it was kept busy");
            self.world.run_until(Duration::from_secs(90), |world| {
                let progress = world.progress(id);
                progress.confirmed.is_some() || progress.lost.is_some()
            });
            let progress = self.world.progress(id);
            assert!(
                progress.confirmed.is_some() || progress.lost.is_some(),
                "seed {seed}: a transfer hangs: {progress:?}"
            );
            let again = self
                .world
                .send(side, StreamClass::Bulk, ByteCount::megabytes(1));
            let took = self.world.run_to_end(again, Duration::from_secs(30));
            assert!(
                took.is_some(),
                "seed {seed}: {:?}",
                self.world.progress(again)
            );
        }
        self.check();
    }

    fn print(&self) {
        let adversary = self.world.adversary().expect("it was admitted");
        println!(
            "seed {}: {} deeds in {:.0} s: {:?}; {} strangers were sent something; {} transfers \
             confirmed, {} lost",
            self.config.seed,
            self.deeds(),
            self.world.now().as_secs_f64(),
            adversary.deeds(),
            adversary.strangers_answered(),
            self.confirmed,
            self.lost,
        );
        for side in [SimSite::A, SimSite::B] {
            let endpoint = self.world.endpoint(side);
            println!(
                "  {side:?}: {:?}, {:?}",
                endpoint.dropped(),
                endpoint.footprint()
            );
        }
    }
}

/// Runs one siege until the adversary has performed `deeds` actions. Returns the number of actions.
fn besiege(adversary: AdversaryConfig, deeds: u64) -> u64 {
    let mut siege = Siege::new(adversary);
    if adversary.meddles {
        siege.run_to(deeds / 2);
        siege.run_with_restarts_to(deeds);
    } else {
        siege.run_to(deeds);
    }
    siege.end();
    siege.print();
    let seed = adversary.seed;
    let answered = siege
        .world
        .adversary()
        .expect("it was admitted")
        .strangers_answered();
    if adversary.meddles {
        assert!(
            siege.restarts > 0 && answered > 0,
            "seed {seed}: it was a siege"
        );
    } else {
        assert_eq!(siege.lost, 0, "seed {seed}");
        assert_eq!(answered > 0, adversary.knows_public_keys, "seed {seed}");
    }
    siege.deeds()
}

fn adds(seed: u64) -> AdversaryConfig {
    AdversaryConfig {
        seed,
        meddles: false,
        knows_public_keys: false,
    }
}

fn meddles(seed: u64) -> AdversaryConfig {
    AdversaryConfig {
        seed,
        meddles: true,
        knows_public_keys: seed.is_multiple_of(2),
    }
}

#[test]
fn transfers_go_on_beside_an_adversary_that_adds() {
    for seed in 1..=2 {
        besiege(adds(seed), 20_000);
    }
}

#[test]
fn transfers_go_on_beside_an_adversary_that_knows_both_public_keys() {
    for seed in 1..=2 {
        let knows_public_keys = true;
        let adversary = AdversaryConfig {
            knows_public_keys,
            ..adds(seed)
        };
        besiege(adversary, 20_000);
    }
}

#[test]
fn transfers_end_when_an_adversary_that_meddled_rests() {
    for seed in 1..=4 {
        besiege(meddles(seed), 20_000);
    }
}

#[test]
fn what_an_adversary_adds_costs_no_time() {
    let time = |adversary: Option<AdversaryConfig>| {
        let mut world = SimWorld::new(&config(3));
        if let Some(adversary) = adversary {
            world.admit_adversary(adversary);
        }
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
        let took = world.run_to_end(id, Duration::from_secs(60));
        let deeds = world.adversary().map_or(0, Adversary::deeds_in_all);
        (took.expect("it ends").as_secs_f64(), deeds)
    };
    let (alone, _) = time(None);
    let (besieged, deeds) = time(Some(adds(3)));
    assert!(deeds > 10_000, "{deeds}");
    assert!(
        besieged < 1.05 * alone,
        "{besieged:.2} s, alone {alone:.2} s"
    );
}

/// Long test that `cargo xtask siege link` runs.
#[test]
#[ignore = "takes a minute: `cargo xtask siege link`"]
fn a_million_datagrams_of_an_adversary_do_no_harm() {
    let mut deeds = 0;
    let mut memory_kib = Vec::new();
    for seed in 1.. {
        deeds += besiege(adds(seed), 20_000) + besiege(meddles(seed), 80_000);
        memory_kib.push(resident_kib());
        if deeds >= 1_000_000 {
            break;
        }
    }
    println!("{deeds} deeds; resident after each two sieges, KiB: {memory_kib:?}");
    let (first, last) = (memory_kib[0], memory_kib[memory_kib.len() - 1]);
    assert!(last < first + 64 * 1024, "memory grows: {memory_kib:?}");
}

/// Returns the resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|text| text.parse().ok())
        .expect("a number of KiB")
}
