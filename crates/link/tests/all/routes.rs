//! Tests of route changes that change the round-trip time, in virtual time.

use std::time::Duration;

use link::{
    Policy, StreamClass, congestion,
    sim::{SimSite, SimTransferId, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// Rate of the path in most tests.
const RATE: BitRate = BitRate::mbit(100);
/// Size of an endless transfer: more bytes than any of these tests can deliver.
const ENDLESS: ByteCount = ByteCount::megabytes(10_000);
/// Fraction of the line rate that is available for payload. The other bytes are headers.
const PAYLOAD: f64 = 0.94;

fn world(rtt: Duration, seed: u64) -> SimWorld {
    world_at(RATE, rtt, seed)
}

fn world_at(rate: BitRate, rtt: Duration, seed: u64) -> SimWorld {
    SimWorld::new(&WorldConfig::symmetric(PathConfig::line(rate, rtt), seed))
}

/// Returns the used fraction of the line's payload capacity over ten seconds, or over five round
/// trips if that is longer. The measurement starts four round trips plus two seconds after the
/// route change.
fn used_after_change(world: &mut SimWorld, id: SimTransferId, rate: BitRate, rtt: Duration) -> f64 {
    world.run_for(4 * rtt + Duration::from_secs(2));
    let before = world.progress(id).delivered;
    let span = Duration::from_secs(10).max(5 * rtt);
    world.run_for(span);
    let bytes = world.progress(id).delivered.bytes() - before.bytes();
    bytes as f64 / (rate.as_bytes_per_s() * PAYLOAD * span.as_secs_f64())
}

/// Checks the link after each of the given changes of the round-trip time. The new route has the
/// rate `rate`. `idle` is the duration of an idle time around the change, if any. Fails with a list
/// of all insufficient cases.
fn check(rate: BitRate, idle: Option<Duration>, changes_ms: &[(u64, u64)]) {
    let mut missed = Vec::new();
    for &(before_ms, after_ms) in changes_ms {
        let [before, after] = [before_ms, after_ms].map(Duration::from_millis);
        let mut world = world(before, before_ms + after_ms);
        let id = if let Some(idle) = idle {
            let first = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(150));
            let ended = world.run_to_end(first, Duration::from_secs(60));
            assert!(ended.is_some(), "the path is in order");
            world.run_for(idle / 2);
            world.change_paths(|config| *config = PathConfig::line(rate, after));
            world.run_for(idle / 2);
            world.send(SimSite::A, StreamClass::Bulk, ENDLESS)
        } else {
            let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
            world.run_for(Duration::from_secs(15));
            world.change_paths(|config| *config = PathConfig::line(rate, after));
            id
        };
        let used = used_after_change(&mut world, id, rate, after);
        let base = world.view(SimSite::A).base_rtt.unwrap_or_default();
        println!("{before_ms} -> {after_ms} ms, idle {idle:?}: {used:.3}, base RTT {base:?}");
        let is_known = base > after.mul_f64(0.99) && base < after.mul_f64(1.2);
        if used < 0.9 || !is_known {
            missed.push(format!("{before_ms} -> {after_ms} ms: {used:.3}, {base:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_transfer_goes_on_at_the_rate_of_the_path_when_the_route_becomes_longer() {
    check(RATE, None, &[(40, 1000), (40, 200), (40, 80), (100, 300)]);
}

#[test]
fn a_transfer_goes_on_at_the_rate_of_the_path_when_the_route_becomes_shorter() {
    check(RATE, None, &[(1000, 40), (200, 40), (80, 40)]);
}

/// After the change to a shorter route, packets on the longer route arrive after newer packets. The
/// link must then shorten its reordering window. When it measures the loss, it must leave out the
/// packets that were delivered on the longer route.
#[test]
fn a_shorter_route_is_not_flooded() {
    let rate = BitRate::mbit(300);
    for (before_ms, after_ms) in [(1000, 40), (400, 20)] {
        let [before, after] = [before_ms, after_ms].map(Duration::from_millis);
        let mut world = world_at(rate, before, 1);
        let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
        world.run_for(Duration::from_secs(10));
        let dropped = world.path_counters(SimSite::A).queue_drops;
        world.change_paths(|config| *config = PathConfig::line(rate, after));
        let used = used_after_change(&mut world, id, rate, after);
        let dropped = world.path_counters(SimSite::A).queue_drops - dropped;
        println!("{before_ms} -> {after_ms} ms: {used:.3}, {dropped} packets dropped");
        let base = world.view(SimSite::A).base_rtt.unwrap_or_default();
        assert!(base < 2 * after, "the route has changed: {base:?}");
        assert!(used > 0.9, "{before_ms} -> {after_ms} ms: {used}");
        // 600 and 530 packets are dropped now. If the reordering window stays long, 7,100 and 3,900
        // are dropped.
        assert!(dropped < 2_000, "{before_ms} -> {after_ms} ms: {dropped}");
    }
}

#[test]
fn an_idle_link_finds_the_rate_of_its_new_route() {
    let changes_ms = [(40, 1000), (40, 800), (40, 200), (1000, 40)];
    check(RATE, Some(Duration::from_secs(4)), &changes_ms);
    check(RATE, Some(Duration::from_secs(20)), &changes_ms[..1]);
    check(RATE, Some(Duration::from_secs(60)), &changes_ms[..3]);
}

/// The route becomes longer and slower, for example because a satellite connection replaces a
/// cable.
#[test]
fn a_route_that_becomes_longer_and_slower_is_found_too() {
    let rate = BitRate::mbit(20);
    check(rate, None, &[(40, 600)]);
    check(rate, Some(Duration::from_secs(4)), &[(40, 600)]);
}

/// The route changes at several moments in the link's growth and drain phases. The phase determines
/// whether one test of the route is enough. It also determines whether the measurement starts
/// before the link has found the new rate.
#[test]
fn a_route_that_becomes_longer_and_slower_is_found_at_any_moment() {
    let rate = BitRate::mbit(20);
    let [before, after] = [40, 600].map(Duration::from_millis);
    let judge = |world: &mut SimWorld, id| {
        let used = used_after_change(world, id, rate, after);
        let base = world.view(SimSite::A).base_rtt.unwrap_or_default();
        (used, base > after && base < after.mul_f64(1.05))
    };
    let in_use = |moment: u32| {
        let mut world = world(before, 640);
        let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
        world.run_for(Duration::from_secs(15) + moment * Duration::from_millis(170));
        world.change_paths(|config| *config = PathConfig::line(rate, after));
        judge(&mut world, id)
    };
    let idle = |moment: u32| {
        let mut world = world(before, 640);
        let size = ByteCount::megabytes(150 + 2 * u64::from(moment));
        let first = world.send(SimSite::A, StreamClass::Bulk, size);
        let ended = world.run_to_end(first, Duration::from_secs(60));
        assert!(ended.is_some(), "the path is in order");
        world.run_for(Duration::from_secs(2));
        world.change_paths(|config| *config = PathConfig::line(rate, after));
        world.run_for(Duration::from_secs(2));
        let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
        judge(&mut world, id)
    };
    // During a transfer, the link reaches 0.91 on average and at least 0.85. After an idle time, it
    // reaches 0.93 on average and at least 0.81. At two of 16 moments, the link still treats the
    // new route as a queue. With an earlier version the worst value after an idle time was 0.70.
    // With another version of start-up the worst value was 0.34, because a test of the route waited
    // for free space in the window. Its packet train then arrived late and counted as a queue.
    let judged: [Vec<(f64, bool)>; 2] = [(0..8).map(in_use).collect(), (0..8).map(idle).collect()];
    for judged in &judged {
        println!("{judged:.3?}");
        let mean = judged.iter().map(|(used, _)| used).sum::<f64>() / judged.len() as f64;
        assert!(mean >= 0.9, "{judged:.3?}");
        assert!(judged.iter().all(|(used, _)| *used >= 0.7), "{judged:.3?}");
    }
    let found = judged.iter().flatten().filter(|(_, is_found)| *is_found);
    assert!(found.count() >= 14, "{judged:.3?}");
}

/// A link with the background policy tests its route less often than other links do.
///
/// Regression test: such a link tested the route only once, and then used no capacity. Its base
/// round-trip time stayed at 40 ms.
#[test]
fn a_sender_that_leaves_everything_to_others_finds_a_longer_and_slower_route_too() {
    let rate = BitRate::mbit(20);
    let [before, after] = [40, 600].map(Duration::from_millis);
    let path = PathConfig::line(RATE, before);
    let mut world = SimWorld::new(&WorldConfig {
        controller: |memory, rate_max| congestion::for_policy(Policy::Background, memory, rate_max),
        ..WorldConfig::symmetric(path, 640)
    });
    let id = world.send(SimSite::A, StreamClass::Bulk, ENDLESS);
    world.run_for(Duration::from_secs(15));
    world.change_paths(|config| *config = PathConfig::line(rate, after));
    let used = used_after_change(&mut world, id, rate, after);
    let base = world.view(SimSite::A).base_rtt.unwrap_or_default();
    println!("{used:.3}, base RTT {base:?}");
    assert!(used > 0.75 && base > after, "{used:.3}, {base:?}");
}

/// An idle link carries only the keep-alives of one side. Both sides must nevertheless measure its
/// round-trip time.
#[test]
fn both_sides_of_an_idle_link_know_its_round_trip_time() {
    let [before, after] = [40, 200].map(Duration::from_millis);
    let mut world = world(before, 1);
    let first = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
    let ended = world.run_to_end(first, Duration::from_secs(60));
    assert!(ended.is_some(), "the path is in order");
    world.run_for(Duration::from_secs(3));
    world.change_paths(|config| *config = PathConfig::line(RATE, after));
    let sent = world.path_counters(SimSite::A).sent;
    world.run_for(Duration::from_secs(45));
    for side in [SimSite::A, SimSite::B] {
        let base = world.view(side).base_rtt.unwrap_or_default();
        assert!(
            base > after && base < after.mul_f64(1.05),
            "{side:?}: {base:?}"
        );
    }
    let sent = world.path_counters(SimSite::A).sent - sent;
    assert!(sent < 60, "{sent} packets in 45 s are no idle link");
}
