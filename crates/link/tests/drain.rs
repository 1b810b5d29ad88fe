//! Streams whose reader limits the time in which what is on its way drains, in virtual time: how long it
//! still reads after the writer's end, and what the limit costs a reader that is fast.

use std::time::Duration;

use link::{
    Class,
    sim::{Side, TransferId, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// What the gateway asks for.
const LIMIT: Duration = Duration::from_secs(5);
/// Longer than any transfer here takes.
const PATIENCE: Duration = Duration::from_secs(3600);

fn world(line: BitRate, rtt: Duration, loss: f64, seed: u64) -> World {
    let path = PathConfig {
        loss,
        ..PathConfig::line(line, rtt)
    };
    World::new(&WorldConfig::symmetric(path, seed))
}

/// The greeting has long been read when the client begins: it waits for the server's word.
fn upload(world: &mut World, size: ByteCount, limit: Option<Duration>) -> TransferId {
    let id = world.greet(Side::A, size, limit);
    world.run_until(PATIENCE, |w| w.progress(id).delivered > ByteCount::ZERO);
    world.run_for(Duration::from_secs(2));
    world.go_on(id);
    id
}

/// Runs to the end of a transfer. Returns how long the reader went on after the writer.
fn tail(world: &mut World, id: TransferId) -> Duration {
    world.run_until(PATIENCE, |w| w.progress(id).arrived.is_some());
    let progress = world.progress(id);
    let arrived = progress.arrived.expect("it ends");
    arrived - progress.finished.expect("it was written")
}

/// Bytes that a reader of this rate reads in so many seconds.
fn size(rate: BitRate, seconds: u64) -> ByteCount {
    rate.bytes_in(Duration::from_secs(seconds))
}

fn rtts() -> [Duration; 3] {
    [20, 200, 600].map(Duration::from_millis)
}

#[test]
fn what_is_on_its_way_to_a_slow_reader_drains_within_the_limit() {
    for rtt in rtts() {
        for (rate, seconds) in [
            (BitRate::kbit(100), 90),
            (BitRate::mbit(1), 60),
            (BitRate::mbit(10), 30),
        ] {
            let mut world = world(BitRate::mbit(1000), rtt, 0.0, 1);
            let id = upload(&mut world, size(rate, seconds), Some(LIMIT));
            world.set_reading_rate(id, rate);
            let tail = tail(&mut world, id);
            let progress = world.progress(id);
            let time = progress.arrived.expect("it ended") - progress.began;
            println!("{rate}, {rtt:?}: {tail:?} of {time:?}");
            assert!(tail < LIMIT + rtt, "{rate}, {rtt:?}: {tail:?}");
            // It never had to wait: only the first bytes take their way.
            let ideal = Duration::from_secs(seconds) + 2 * rtt;
            assert!(time < ideal.mul_f64(1.02), "{rate}, {rtt:?}: {time:?}");
        }
    }
}

#[test]
fn without_the_limit_a_slow_reader_has_minutes_left() {
    let mut world = world(BitRate::mbit(1000), Duration::from_millis(20), 0.0, 1);
    let rate = BitRate::mbit(1);
    let id = upload(&mut world, size(rate, 60), None);
    world.set_reading_rate(id, rate);
    let tail = tail(&mut world, id);
    assert!(tail > Duration::from_secs(50), "{tail:?}");
}

/// Seconds that 100 MB take to a reader that reads at once, on a path that is known or not.
fn seconds_of_100_mb(rtt: Duration, is_known: bool, limit: Option<Duration>) -> f64 {
    let mut world = world(BitRate::mbit(1000), rtt, 0.0, 1);
    if is_known {
        let id = world.send(Side::A, Class::Bulk, ByteCount::megabytes(300));
        world.run_to_end(id, PATIENCE).expect("it ends");
    }
    let id = upload(&mut world, ByteCount::megabytes(100), limit);
    world.run_until(PATIENCE, |w| w.progress(id).arrived.is_some());
    let progress = world.progress(id);
    (progress.arrived.expect("it ends") - progress.began).as_secs_f64()
}

/// Two round trips, and one more on a path that is not known yet: there the rate grows with the window.
#[test]
fn the_limit_costs_a_fast_reader_two_or_three_round_trips_at_most() {
    for rtt in rtts() {
        for is_known in [false, true] {
            let [without, with] =
                [None, Some(LIMIT)].map(|limit| seconds_of_100_mb(rtt, is_known, limit));
            let lost = (with - without) / rtt.as_secs_f64();
            println!(
                "{rtt:?}, known: {is_known}: {without:.3} s, {with:.3} s: {lost:.2} round trips"
            );
            let most = if is_known { 2.0 } else { 3.0 };
            assert!(lost < most, "{rtt:?}, known: {is_known}: {lost}");
        }
    }
}

/// The reader of the first upload is that of the second.
#[test]
fn the_limit_costs_a_reader_that_was_fast_next_to_nothing() {
    for rtt in rtts() {
        let second = |limit| {
            let mut world = world(BitRate::mbit(300), rtt, 0.0, 1);
            let first = upload(&mut world, ByteCount::megabytes(150), limit);
            world.run_until(PATIENCE, |w| w.progress(first).arrived.is_some());
            let id = upload(&mut world, ByteCount::megabytes(50), limit);
            world.run_until(PATIENCE, |w| w.progress(id).arrived.is_some());
            let progress = world.progress(id);
            (progress.arrived.expect("it ends") - progress.began).as_secs_f64()
        };
        let [without, with] = [None, Some(LIMIT)].map(second);
        let lost = (with - without) / rtt.as_secs_f64();
        println!("{rtt:?}: {without:.3} s, {with:.3} s: {lost:.2} round trips");
        assert!(lost < 0.25, "{rtt:?}: {lost}");
    }
}

/// It gets half of what it drained in the limit's share, and takes ten times as long.
#[test]
fn a_reader_that_was_ten_times_faster_in_its_last_stream_drains_in_twice_the_limit() {
    for rtt in rtts() {
        let mut world = world(BitRate::mbit(1000), rtt, 0.0, 1);
        let (fast, slow) = (BitRate::mbit(10), BitRate::mbit(1));
        let first = upload(&mut world, size(fast, 20), Some(LIMIT));
        world.set_reading_rate(first, fast);
        world.run_until(PATIENCE, |w| w.progress(first).arrived.is_some());
        let id = upload(&mut world, size(slow, 8), Some(LIMIT));
        world.set_reading_rate(id, slow);
        let tail = tail(&mut world, id);
        println!("{rtt:?}: {tail:?}");
        assert!(tail < 2 * LIMIT + 8 * rtt, "{rtt:?}: {tail:?}");
    }
}

#[test]
fn a_reader_that_stalls_for_ten_seconds_goes_on_as_before() {
    for rtt in rtts() {
        let mut world = world(BitRate::mbit(100), rtt, 0.0, 1);
        let rate = BitRate::mbit(10);
        let id = upload(&mut world, size(rate, 60), Some(LIMIT));
        world.set_reading_rate(id, rate);
        world.run_for(Duration::from_secs(20));
        let before = world.progress(id).delivered;
        world.set_reading_rate(id, BitRate::kbit(0));
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.progress(id).delivered, before, "it must stall");
        world.set_reading_rate(id, rate);
        let tail = tail(&mut world, id);
        let progress = world.progress(id);
        let time = progress.arrived.expect("it ended") - progress.began;
        println!("{rtt:?}: {tail:?} of {time:?}");
        assert!(tail < LIMIT + rtt, "{rtt:?}: {tail:?}");
        assert!(
            time < Duration::from_secs(71) + 3 * rtt,
            "{rtt:?}: {time:?}"
        );
    }
}

/// What was promised at the old rate cannot be taken back: if the writer ends just then, that takes ten times
/// as long. What comes later is bounded again.
#[test]
fn a_reader_that_becomes_ten_times_slower_drains_what_was_promised_and_then_in_time() {
    for rtt in rtts() {
        for seconds_at_slow in [0, 40] {
            let mut world = world(BitRate::mbit(1000), rtt, 0.0, 1);
            let (fast, slow) = (BitRate::mbit(10), BitRate::mbit(1));
            let bytes = size(fast, 20) + size(slow, seconds_at_slow);
            let id = upload(&mut world, bytes, Some(LIMIT));
            world.set_reading_rate(id, fast);
            let is_finished = |w: &World| w.progress(id).finished.is_some();
            if seconds_at_slow == 0 {
                world.run_until(PATIENCE, is_finished);
            } else {
                world.run_for(Duration::from_secs(20));
                assert!(!is_finished(&world), "more must be to come");
            }
            world.set_reading_rate(id, slow);
            let tail = tail(&mut world, id);
            println!("{rtt:?}, {seconds_at_slow} s at the slow rate: {tail:?}");
            let bound = if seconds_at_slow == 0 {
                10 * LIMIT
            } else {
                LIMIT
            };
            assert!(tail < bound + rtt, "{rtt:?}, {seconds_at_slow} s: {tail:?}");
        }
    }
}

#[test]
fn a_path_that_loses_a_tenth_does_not_make_a_slow_reader_wait() {
    for rtt in rtts() {
        for seed in 1..=3 {
            let mut world = world(BitRate::mbit(100), rtt, 0.1, seed);
            let rate = BitRate::mbit(2);
            let id = upload(&mut world, size(rate, 60), Some(LIMIT));
            world.set_reading_rate(id, rate);
            let tail = tail(&mut world, id);
            assert!(world.path_counters(Side::A).random_losses > 100);
            let progress = world.progress(id);
            let time = progress.arrived.expect("it ended") - progress.began;
            println!("{rtt:?}, seed {seed}: {tail:?} of {time:?}");
            assert!(tail < LIMIT + rtt, "{rtt:?}, seed {seed}: {tail:?}");
            assert!(
                time < Duration::from_secs(63) + 3 * rtt,
                "{rtt:?}, seed {seed}: {time:?}"
            );
        }
    }
}

/// A slow path is no other than a slow reader to who waits for the last reply.
#[test]
fn what_waits_for_a_slow_path_drains_within_the_limit_too() {
    for rtt in rtts() {
        for loss in [0.0, 0.1] {
            let line = BitRate::mbit(2);
            let mut tails: Vec<Duration> = (1..=5)
                .map(|seed| {
                    let mut world = world(line, rtt, loss, seed);
                    let id = upload(&mut world, size(line, 60), Some(LIMIT));
                    tail(&mut world, id)
                })
                .collect();
            tails.sort_unstable();
            println!("{rtt:?}, loss {loss}: {tails:?}");
            // With loss the last bytes may need one round trip or two, by chance.
            let median = tails[tails.len() / 2];
            assert!(median < LIMIT + rtt, "{rtt:?}, loss {loss}: {tails:?}");
            assert!(
                tails[4] < LIMIT + 2 * rtt,
                "{rtt:?}, loss {loss}: {tails:?}"
            );
        }
    }
}

#[test]
fn eight_streams_at_once_drain_in_time_and_share_the_line() {
    let rtt = Duration::from_millis(200);
    let mut world = world(BitRate::mbit(100), rtt, 0.001, 1);
    let rates = [1, 1, 2, 2, 5, 5, 100, 100].map(BitRate::mbit);
    let sizes = rates.map(|rate| size(rate, 30).min(ByteCount::megabytes(100)));
    let ids = sizes.map(|size| world.greet(Side::A, size, Some(LIMIT)));
    world.run_for(Duration::from_secs(2));
    for (id, rate) in ids.into_iter().zip(rates) {
        world.set_reading_rate(id, rate);
        world.go_on(id);
    }
    world.run_until(PATIENCE, |w| {
        ids.iter().all(|id| w.progress(*id).arrived.is_some())
    });
    for (id, rate) in ids.into_iter().zip(rates) {
        let progress = world.progress(id);
        let arrived = progress.arrived.expect("all end");
        let tail = arrived - progress.finished.expect("all were written");
        let time = arrived - progress.began;
        println!("{rate}: {tail:?} of {time:?}");
        assert!(tail < LIMIT + rtt, "{rate}: {tail:?}");
        if rate < BitRate::mbit(100) {
            assert!(time < Duration::from_secs(32), "{rate}: {time:?}");
        }
    }
}

/// Whatever the reader does, when it waits something comes.
#[test]
fn credit_comes_back_however_often_the_reader_changes_its_pace() {
    for seed in 1..=6 {
        let rtt = Duration::from_millis(100 * seed);
        let mut world = world(BitRate::mbit(50), rtt, 0.05, seed);
        let id = upload(&mut world, ByteCount::megabytes(20), Some(LIMIT));
        let mut state = seed;
        while world.progress(id).arrived.is_none() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // From 8 kbit/s to 64 Mbit/s.
            let rate = BitRate::kbit(8 << (state >> 60).min(13));
            world.set_reading_rate(id, rate);
            world.run_for(Duration::from_millis(50 + (state >> 40) % 3000));
            let before = world.progress(id);
            world.set_reading_rate(id, BitRate::mbit(10_000));
            world.run_for(4 * rtt + Duration::from_millis(500));
            let after = world.progress(id);
            assert!(
                after.arrived.is_some() || after.delivered > before.delivered,
                "seed {seed}: nothing comes at {:?}",
                world.now()
            );
        }
    }
}
