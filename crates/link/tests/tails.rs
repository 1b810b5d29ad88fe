//! The end of a transfer over a lossy path, in virtual time: what the sender has written arrives soon, whether or not it
//! ends its stream.

use std::time::Duration;

use link::{
    Class, Policy, congestion,
    sim::{Side, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const PATIENCE: Duration = Duration::from_secs(600);

/// Time from the last write of 30 MB until all of it has arrived, in round trips. The link is warm.
fn tail_round_trips(rtt: Duration, loss: f64, stays_open: bool, seed: u64) -> f64 {
    let line = BitRate::mbit(300);
    let path = PathConfig {
        rate: Some(line),
        queue: PathConfig::default_queue(line, rtt),
        delay: rtt / 2,
        loss,
        ..PathConfig::default()
    };
    let mut world = World::new(&WorldConfig {
        forward: path.clone(),
        backward: path,
        seed,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::gibibytes(1),
        idle_timeout: Duration::from_secs(600),
    });
    let first = world.send(Side::A, Class::Bulk, ByteCount::megabytes(40));
    world.run_to_end(first, PATIENCE).expect("it ends");
    let size = ByteCount::megabytes(30);
    let id = world.send(Side::A, Class::Bulk, size);
    if stays_open {
        world.keep_open(id);
    }
    world.run_until(PATIENCE, |world| world.progress(id).delivered == size);
    let finished = world.progress(id).finished.expect("it was written");
    (world.now() - finished).as_secs_f64() / rtt.as_secs_f64()
}

#[test]
fn a_stream_that_stays_open_has_no_longer_tail() {
    for rtt in [20, 1000].map(Duration::from_millis) {
        for loss in [0.01, 0.1] {
            let mean = |stays_open| {
                let tails = (1..3).map(|seed| tail_round_trips(rtt, loss, stays_open, seed));
                tails.sum::<f64>() / 2.0
            };
            let (ended, open) = (mean(false), mean(true));
            println!("{rtt:?}, loss {loss}: {ended:.2} round trips, open {open:.2}");
            assert!(
                open < ended + 0.6,
                "{rtt:?}, loss {loss}: {open}, ended {ended}"
            );
        }
    }
}
