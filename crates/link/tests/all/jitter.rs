//! Tests on paths with a varying delay, in virtual time.

use std::time::Duration;

use link::{
    StreamClass,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::{Jitter, PathConfig};

const RTT: Duration = Duration::from_millis(180);

/// Returns a path configuration with jitter but without reordering. Each packet is up to 20 ms
/// earlier or later. Each packet also waits for all packets that were sent before it. At a low
/// rate, delays are therefore spread over 40 ms. At a high rate, nearly all delays are close to the
/// maximum.
fn config(seed: u64, is_both_ways: bool) -> WorldConfig {
    let rate = BitRate::mbit(270);
    let path = PathConfig {
        queue: PathConfig::default_queue(rate, RTT / 2),
        ..PathConfig::line(rate, RTT)
    };
    let mut config = WorldConfig::symmetric(path, seed);
    let jitter = Jitter {
        spread: Duration::from_millis(20),
        in_order: true,
    };
    config.forward.jitter = jitter;
    if is_both_ways {
        config.backward.jitter = jitter;
    }
    config
}

/// Regression test: the link treated the minimum delay at a low rate as the delay without a queue.
///
/// During start-up, the link treated the additional delay as queueing delay. Start-up therefore
/// ended at 17 to 60 Mbit/s on a path of 270 Mbit/s. Growth to the full rate then took minutes.
#[test]
fn a_delay_that_rises_with_the_rate_and_stays_there_ends_no_start_up() {
    let mut bases = Vec::new();
    for (seed, is_both_ways) in [(2, false), (8, false), (16, false), (2, true), (10, true)] {
        let mut world = SimWorld::new(&config(seed, is_both_ways));
        let size = ByteCount::megabytes(50);
        let ideal = Duration::from_secs_f64(size.bytes() as f64 * 8.0 / 270e6 / 0.95) + RTT;
        for number in 0..3 {
            let id = world.send(SimSite::A, StreamClass::Bulk, size);
            let took = world.run_to_end(id, Duration::from_secs(100));
            let share = took.map_or(0.0, |took| ideal.as_secs_f64() / took.as_secs_f64());
            println!("seed {seed}, both ways {is_both_ways}, transfer {number}: {share:.3}");
            assert!(share >= 0.45, "{share:.3} of ideal");
            world.run_for(Duration::from_secs(2));
        }
        bases.push(world.view(SimSite::A).base_rtt.expect("it is measured"));
    }
    // Without jitter, each value is longer by the transmission time of a packet, 0.1 ms.
    let is_off = |base: &&Duration| base.abs_diff(RTT) > Duration::from_micros(200);
    assert!(
        bases.iter().filter(is_off).count() >= 4,
        "no jitter: {bases:?}"
    );
}
