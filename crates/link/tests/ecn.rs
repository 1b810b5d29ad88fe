//! Congestion marks (ECN) instead of drops, in virtual time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use link::{
    Class, Policy,
    congestion::{self, Controller, Digest, FixedRate, PathMemory},
    sim::{Marking, Side, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RTT: Duration = Duration::from_millis(40);
const SIZE: ByteCount = ByteCount::megabytes(5);

/// Sends at one rate, and adds up the marks that it hears of.
struct Heeding {
    law: FixedRate,
    heard: &'static AtomicU64,
}

impl Controller for Heeding {
    fn on_sent(&mut self, number: u64, bytes: usize, now_s: f64) {
        self.law.on_sent(number, bytes, now_s);
    }
    fn on_report(&mut self, digest: &Digest<'_>, now_s: f64) {
        self.heard.fetch_add(digest.ce, Ordering::Relaxed);
        self.law.on_report(digest, now_s);
    }
    fn rate_bytes_per_s(&self) -> f64 {
        self.law.rate_bytes_per_s()
    }
    fn window_bytes(&self) -> f64 {
        self.law.window_bytes()
    }
    fn memory(&self) -> Option<PathMemory> {
        None
    }
    fn heeds_marks(&self) -> bool {
        true
    }
    fn state(&self) -> &'static str {
        "heeding"
    }
}

/// 10 Mbit/s with a queue of 400 ms.
fn config(controller: link::sim::ControllerMaker, loss: f64) -> WorldConfig {
    let rate = BitRate::mbit(10);
    let path = PathConfig {
        rate: Some(rate),
        queue: rate.bytes_in(RTT * 10),
        delay: RTT / 2,
        loss,
        ..PathConfig::default()
    };
    WorldConfig {
        forward: path.clone(),
        backward: path,
        seed: 1,
        controller,
        memory_max: ByteCount::mebibytes(64),
        idle_timeout: Duration::from_secs(60),
    }
}

/// Transfers over paths that do this with marks. Returns the time it took.
fn transfer(world: &mut World, marking: Marking) -> Duration {
    world.set_marking(marking);
    let id = world.send(Side::A, Class::Bulk, SIZE);
    let took = world.run_to_end(id, Duration::from_secs(60));
    took.unwrap_or_else(|| panic!("{marking:?}: {:?}", world.progress(id)))
}

#[test]
fn marks_on_the_way_reach_the_controller() {
    static HEARD: AtomicU64 = AtomicU64::new(0);
    for loss in [0.0, 0.3] {
        HEARD.store(0, Ordering::Relaxed);
        // A little more than the line passes: the queue grows, and is marked.
        let config = config(
            |_, _| {
                Box::new(Heeding {
                    law: FixedRate::new(1.4e6),
                    heard: &HEARD,
                })
            },
            loss,
        );
        let mut world = World::new(&config);
        transfer(&mut world, Marking::Beyond(Duration::from_millis(50)));
        let (marked, view) = (world.packets_marked(), world.view(Side::A));
        assert!(view.is_ecn_used, "loss {loss}");
        assert!(marked > 500, "loss {loss}: {marked}");
        let told = view.packets_marked as f64;
        let arrived = marked as f64 * (1.0 - loss);
        assert!(
            (told / arrived - 1.0).abs() < 0.1,
            "loss {loss}: {told} of {arrived}"
        );
        assert_eq!(HEARD.load(Ordering::Relaxed), view.packets_marked);
    }
}

#[test]
fn a_path_that_clears_or_drops_capable_packets_costs_no_transfer() {
    static HEARD: AtomicU64 = AtomicU64::new(0);
    let config = config(
        |_, _| {
            Box::new(Heeding {
                law: FixedRate::new(1.0e6),
                heard: &HEARD,
            })
        },
        0.0,
    );
    let carried = transfer(&mut World::new(&config), Marking::Beyond(RTT));
    for marking in [Marking::Cleared, Marking::Dropped] {
        let mut world = World::new(&config);
        let took = transfer(&mut world, marking);
        assert!(!world.view(Side::A).is_ecn_used, "{marking:?}");
        // Where they are dropped the silence must first be noticed.
        assert!(
            took < carried + Duration::from_secs(1),
            "{marking:?}: {took:?}, {carried:?}"
        );
    }
    assert_eq!(HEARD.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_capable_of_marks_whose_controller_does_not_heed_them() {
    for policy in [Policy::Fair, Policy::Background] {
        let make: link::sim::ControllerMaker = match policy {
            Policy::Fair => |memory, max| congestion::for_policy(Policy::Fair, memory, max),
            _ => |memory, max| congestion::for_policy(Policy::Background, memory, max),
        };
        let heeds = make(None, None).heeds_marks();
        let mut world = World::new(&config(make, 0.0));
        transfer(&mut world, Marking::Beyond(Duration::ZERO));
        assert_eq!(world.packets_marked() > 0, heeds);
    }
}
