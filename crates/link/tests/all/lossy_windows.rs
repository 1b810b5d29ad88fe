//! Tests of windows on a long, lossy path in virtual time. Memory limits the window.
//!
//! The rate of the path is a tenth of 1 Gbit/s, and the memory is a tenth of 1 GiB.

use std::time::Duration;

use link::{
    StreamClass,
    sim::{SimSite, SimTransferId, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RATE: BitRate = BitRate::mbit(100);
const RTT: Duration = Duration::from_secs(1);
const MEMORY: ByteCount = ByteCount::new((1 << 30) / 10);
/// Payload of a full packet, as a fraction of its size on the line.
const PAYLOAD: f64 = 0.94;
/// Timeout for a transfer. It is longer than any transfer in these tests.
const LIMIT: Duration = Duration::from_secs(300);

/// Creates a connection over a path with the given loss, and transfers four bandwidth-delay
/// products, so that the path is known.
fn warm_world(loss: f64, seed: u64) -> SimWorld {
    let path = PathConfig {
        loss,
        ..PathConfig::line(RATE, RTT)
    };
    let mut world = SimWorld::new(&WorldConfig {
        memory_max: MEMORY,
        ..WorldConfig::symmetric(path, seed)
    });
    let first = send(&mut world, 4.0);
    world.run_to_end(first, LIMIT).expect("the path is known");
    let path = world.path_counters(SimSite::A);
    let lost = path.random_losses as f64 / path.sent as f64;
    assert!(
        (lost - loss).abs() < 0.05,
        "{lost:.3} of the packets are lost"
    );
    world
}

/// Begins a transfer of `bdps` bandwidth-delay products.
fn send(world: &mut SimWorld, bdps: f64) -> SimTransferId {
    let bytes = bdps * RTT.as_secs_f64() * RATE.as_bytes_per_s();
    world.send(SimSite::A, StreamClass::Bulk, ByteCount::new(bytes as u64))
}

/// Regression: a frame with the free credit was sent only once. If it was lost, the next stream
/// began with a quarter of its window.
#[test]
fn the_next_transfer_begins_with_its_whole_window() {
    for seed in 1..=8 {
        let mut world = warm_world(0.5, seed);
        let before = world.view(SimSite::A).stats.payload_sent;
        send(&mut world, 10.0);
        world.run_for(RTT);
        let sent = world.view(SimSite::A).stats.payload_sent - before;
        let part = sent as f64 / (PAYLOAD * RTT.as_secs_f64() * RATE.as_bytes_per_s());
        println!("seed {seed}: {part:.2} of the path filled");
        assert!(part > 0.9, "{part:.2} of the path filled, seed {seed}");
    }
}

/// Regression: windows widened too late, and missing slots were lost again too often. The stream
/// was then blocked.
#[test]
fn a_window_at_its_memory_limit_keeps_the_path_filled() {
    const LOSS: f64 = 0.3;
    const BDPS: f64 = 14.0;
    for seed in 1..=3 {
        let mut world = warm_world(LOSS, seed);
        let transfer = send(&mut world, BDPS);
        let took = world.run_to_end(transfer, LIMIT).expect("it ends");
        let peak = world.view(SimSite::B).receive_memory_peak_bytes as u64;
        assert!(3 * peak > MEMORY.bytes(), "the window is large: {peak}");
        // One round trip until the last slot is reported lost, and one until it has arrived.
        let ideal = RTT.mul_f64(BDPS / (PAYLOAD * (1.0 - LOSS)) + 2.0);
        let part = ideal.as_secs_f64() / took.as_secs_f64();
        println!("seed {seed}: {part:.3} of ideal, {peak} bytes of memory");
        assert!(part > 0.9, "{part:.3} of ideal, seed {seed}");
    }
}
