//! Tests of the last bytes of a transfer over a lossy path, in virtual time. The last bytes must
//! arrive soon, whether or not the sender ends its stream. A sender that writes in bursts, or to a
//! slow reader, must not cause many repeats.

use std::time::Duration;

use link::{
    StreamClass,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns a world with a path that loses packets in both directions.
fn world(rtt: Duration, loss: f64, memory_max: ByteCount, seed: u64) -> SimWorld {
    let path = PathConfig {
        loss,
        ..PathConfig::line(BitRate::mbit(300), rtt)
    };
    SimWorld::new(&WorldConfig {
        memory_max,
        ..WorldConfig::symmetric(path, seed)
    })
}

/// Returns the bytes that site A sent again, divided by the bytes that it sent for the first time.
fn sent_again(world: &SimWorld) -> f64 {
    let stats = world.view(SimSite::A).stats;
    stats.payload_again as f64 / stats.payload_sent as f64
}

/// Returns the time, in round trips, from the last write of a 30 MB transfer until all bytes have
/// arrived. An earlier transfer runs first, so that the link has measured the path.
fn tail_round_trips(rtt: Duration, loss: f64, stays_open: bool, seed: u64) -> f64 {
    let mut world = world(rtt, loss, ByteCount::gibibytes(1), seed);
    let first = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(40));
    world.run_to_end(first, TIMEOUT).expect("it ends");
    let size = ByteCount::megabytes(30);
    let id = world.send(SimSite::A, StreamClass::Bulk, size);
    if stays_open {
        world.keep_open(id);
    }
    world.run_until(TIMEOUT, |world| world.progress(id).delivered == size);
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

#[test]
fn a_sender_of_bursts_loses_no_time_at_each_pause() {
    let loss = 0.01;
    for (rtt_ms, burst_bytes, pause_ms) in [(20, 100_000, 16), (100, 1_000_000, 100)] {
        let (rtt, burst) = (Duration::from_millis(rtt_ms), ByteCount::new(burst_bytes));
        let mut world = world(rtt, loss, ByteCount::gibibytes(1), 1);
        let id = world.send(SimSite::A, StreamClass::Bulk, burst);
        world.keep_open(id);
        for _ in 0..200 {
            world.run_for(Duration::from_millis(pause_ms));
            world.write_more(id, burst);
        }
        world.run_for(Duration::from_secs(2));
        let written = ByteCount::new(201 * burst_bytes);
        assert_eq!(world.progress(id).delivered, written);
        let again = sent_again(&world);
        assert!(world.path_counters(SimSite::A).random_losses > 0);
        println!("{rtt_ms} ms, {burst} each {pause_ms} ms: {again:.3} of the payload sent again");
        assert!(again < loss + 0.05, "{again}");
    }
}

#[test]
fn a_sender_to_a_slow_reader_does_not_repeat_unread_data() {
    let loss = 0.1;
    let mut world = world(Duration::from_millis(100), loss, ByteCount::mebibytes(8), 1);
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::gibibytes(1));
    world.set_reading_rate(id, BitRate::mbit(100));
    world.run_for(Duration::from_secs(6));
    let again = sent_again(&world);
    assert!(world.path_counters(SimSite::A).random_losses > 0);
    println!("{again:.3} of the payload sent again");
    assert!(again < loss + 0.05, "{again}");
}
