//! The first transfer of a link: on a path that nobody knows, and on one that the last run knew.

use std::time::Duration;

use link::{
    Class, Policy, congestion,
    sim::{Side, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RATE: BitRate = BitRate::mbit(300);
const RTT: Duration = Duration::from_millis(200);
const SIZE: ByteCount = ByteCount::megabytes(100);
/// The payload of a full packet by what it takes on the line.
const PAYLOAD: f64 = 0.94;

fn config(seed: u64) -> WorldConfig {
    let path = PathConfig {
        rate: Some(RATE),
        queue: PathConfig::default_queue(RATE, RTT),
        delay: RTT / 2,
        ..PathConfig::default()
    };
    WorldConfig {
        forward: path.clone(),
        backward: path,
        seed,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::mebibytes(256),
        idle_timeout: Duration::from_secs(120),
    }
}

/// How many round trips longer than the ideal a transfer takes on a link that has just come up.
fn surplus_rtts(world: &mut World) -> f64 {
    world.run_for(Duration::from_secs(2));
    let id = world.send(Side::A, Class::Bulk, SIZE);
    let took = world.run_to_end(id, Duration::from_secs(60));
    let ideal_s = SIZE.bytes() as f64 / (PAYLOAD * RATE.as_bytes_per_s()) + RTT.as_secs_f64();
    let took_s = took.map_or(f64::INFINITY, |took| took.as_secs_f64());
    (took_s - ideal_s) / RTT.as_secs_f64()
}

#[test]
fn the_first_transfer_takes_four_round_trips_more_and_two_where_the_last_run_knew_the_path() {
    for seed in 1..=5 {
        let config = config(seed);
        let mut world = World::new(&config);
        let unknown = surplus_rtts(&mut world);
        world.restart(Side::A, &config);
        world.restart(Side::B, &config);
        let known = surplus_rtts(&mut world);
        println!("seed {seed}: {unknown:.2} and {known:.2} RTT more than ideal");
        assert!(
            unknown <= 4.0,
            "{unknown:.2} RTT, seed {seed}, path unknown"
        );
        assert!(known <= 2.0, "{known:.2} RTT, seed {seed}, path known");
    }
}

/// What was known is a guess: a path that has become slower is not flooded.
#[test]
fn a_path_that_was_ten_times_faster_loses_next_to_nothing() {
    let config = config(1);
    let mut world = World::new(&config);
    surplus_rtts(&mut world);
    world.change_paths(|path| {
        path.rate = Some(BitRate::mbit(30));
        path.queue = PathConfig::default_queue(BitRate::mbit(30), RTT);
    });
    world.restart(Side::A, &config);
    let before = *world.path_counters(Side::A);
    world.run_for(Duration::from_secs(2));
    let id = world.send(Side::A, Class::Bulk, ByteCount::megabytes(20));
    world
        .run_to_end(id, Duration::from_secs(60))
        .expect("it arrives");
    let after = world.path_counters(Side::A);
    let dropped = (after.queue_drops - before.queue_drops) as f64;
    let sent = (after.sent - before.sent) as f64;
    assert!(dropped <= 0.02 * sent, "{dropped} of {sent}");
}
