//! Packets that overtake all others, in virtual time.

use std::time::Duration;

use link::{
    Class, Policy, congestion,
    sim::{Side, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Reordering, Straggler};

const RTT: Duration = Duration::from_millis(180);

fn config(seed: u64, probability: f64) -> WorldConfig {
    let rate = BitRate::mbit(270);
    let path = PathConfig {
        rate: Some(rate),
        queue: PathConfig::default_queue(rate, RTT / 2),
        delay: RTT / 2,
        ..PathConfig::default()
    };
    let mut forward = path.clone();
    forward.reordering = Reordering {
        probability,
        correlation: 0.0,
        straggler: Straggler::Early,
    };
    WorldConfig {
        forward,
        backward: path,
        seed,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::mebibytes(256),
        idle_timeout: Duration::from_secs(120),
    }
}

/// A delay that a few packets show is not the path's: where the sender took it for that, the others seemed to wait in a
/// queue, and the rate fell to nothing.
#[test]
fn three_in_a_hundred_that_skip_the_delay_do_not_slow_the_others() {
    for seed in [1, 8, 9] {
        let mut world = World::new(&config(seed, 0.03));
        let size = ByteCount::megabytes(50);
        let ideal = Duration::from_secs_f64(size.bytes() as f64 * 8.0 / 270e6 / 0.95) + RTT;
        for number in 0..4 {
            let id = world.send(Side::A, Class::Bulk, size);
            let took = world.run_to_end(id, Duration::from_secs(100));
            let share = took.map_or(0.0, |took| ideal.as_secs_f64() / took.as_secs_f64());
            let least = if number == 0 { 0.6 } else { 0.85 };
            assert!(
                share >= least,
                "{share:.2} of ideal, seed {seed}, transfer {number}"
            );
            world.run_for(Duration::from_secs(2));
        }
        let counters = world.path_counters(Side::A);
        assert!(counters.reordered > 1000, "{}", counters.reordered);
    }
}
