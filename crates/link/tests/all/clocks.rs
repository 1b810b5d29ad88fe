//! Tests of the link with clocks that jump or stop, in virtual time.

use std::time::Duration;

use link::{
    LostReason, Policy, StreamClass, congestion,
    sim::{SimSite, SimTransferId, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RTT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);

fn config(seed: u64) -> WorldConfig {
    let rate = BitRate::mbit(100);
    let path = PathConfig {
        rate: Some(rate),
        queue: PathConfig::default_queue(rate, RTT),
        delay: RTT / 2,
        loss: 0.001,
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

/// Starts a transfer of 40 MB and returns when a quarter has been delivered. Undisturbed, the whole
/// transfer takes four seconds.
fn under_way(world: &mut SimWorld) -> SimTransferId {
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(40));
    let quarter = ByteCount::megabytes(10);
    let reached = world.run_until(Duration::from_secs(60), |w| {
        w.progress(id).delivered > quarter
    });
    assert!(reached, "the transfer must be under way");
    id
}

const SIDES: [&[SimSite]; 3] = [&[SimSite::A], &[SimSite::B], &[SimSite::A, SimSite::B]];
/// Maximum time for the remaining three quarters of the transfer. Undisturbed, they take 2.6 s.
const REST_MAX: Duration = Duration::from_millis(3300);

/// Runs to the end of the transfer, and returns the time that this takes.
fn run_to_end(world: &mut SimWorld, id: SimTransferId) -> Duration {
    let before = world.now();
    world.run_to_end(id, Duration::from_secs(120));
    let progress = world.progress(id);
    let took = progress.confirmed.and_then(|end| end.checked_sub(before));
    took.unwrap_or_else(|| panic!("it did not end: {progress:?}"))
}

#[test]
fn a_clock_that_jumps_an_hour_ahead_holds_nothing_up() {
    for sides in SIDES {
        for seed in 1..=3 {
            let mut world = SimWorld::new(&config(seed));
            let id = under_way(&mut world);
            for side in sides {
                world.jump_clock(*side, HOUR);
            }
            let took = run_to_end(&mut world, id);
            assert!(took < REST_MAX, "{sides:?}, seed {seed}: {took:?}");
        }
    }
}

/// Suspends one site or both. The site's clock continues during the suspension, or stops like the
/// clock of a suspended virtual machine.
#[test]
fn a_suspended_machine_goes_on_where_it_was() {
    for sides in SIDES {
        for clock_runs_on in [true, false] {
            for seconds in [5, 100] {
                let mut world = SimWorld::new(&config(1));
                let id = under_way(&mut world);
                world.suspend(sides, Duration::from_secs(seconds), clock_runs_on);
                assert!(world.progress(id).confirmed.is_none());
                let took = run_to_end(&mut world, id);
                let what = format!("{sides:?} for {seconds} s, {clock_runs_on}");
                assert!(took < REST_MAX, "{what}: {took:?}");
            }
        }
    }
}

#[test]
fn two_machines_suspended_for_an_hour_go_on_where_they_were() {
    for clock_runs_on in [true, false] {
        let mut world = SimWorld::new(&config(1));
        let id = under_way(&mut world);
        world.suspend(&[SimSite::A, SimSite::B], HOUR, clock_runs_on);
        let took = run_to_end(&mut world, id);
        assert!(took < REST_MAX, "{took:?}");
    }
}

/// During the suspension of one site, the other site ends the connection after two minutes.
#[test]
fn a_process_suspended_for_longer_than_the_timeout_of_its_peer_detects_that_in_seconds() {
    for side in [SimSite::A, SimSite::B] {
        // A clock that has stopped does not show the duration of the suspension.
        for (clock_runs_on, bound_s) in [(true, 6), (false, 25)] {
            let what = format!("{side:?}, {clock_runs_on}");
            let mut world = SimWorld::new(&config(1));
            let id = under_way(&mut world);
            world.suspend(&[side], HOUR, clock_runs_on);
            let bound = Duration::from_secs(bound_s);
            let told = world.run_until(bound, |world| world.lost_streams(side) > 0);
            assert!(told, "{what}: its application waits in vain");
            let lost = world.progress(id).lost;
            let silence = match lost {
                Some(LostReason::Silence(silence)) => silence,
                other => panic!("{what}: {other:?}"),
            };
            assert!(!clock_runs_on || silence > HOUR, "{what}: {silence:?}");
            let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
            let took = world.run_to_end(again, Duration::from_secs(5));
            assert!(took.is_some(), "{what}: {:?}", world.progress(again));
        }
    }
}

#[test]
fn after_a_long_sleep_the_link_is_up_within_two_seconds() {
    for side in [SimSite::A, SimSite::B] {
        let mut world = SimWorld::new(&config(1));
        under_way(&mut world);
        world.suspend(&[side], HOUR, true);
        world.run_for(RTT);
        let up = |world: &SimWorld| world.endpoint(side).is_up(0);
        assert!(!up(&world), "what it had is in doubt");
        assert!(world.run_until(Duration::from_secs(2), up), "{side:?}");
    }
}

/// The system time matters only at the start of a gateway that initiates handshakes.
#[test]
fn a_time_of_day_that_was_a_year_ahead_locks_nobody_out() {
    const NOW_NS: u64 = 1_700_000_000_000_000_000;
    const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
    let config = config(1);
    let mut world = SimWorld::new(&config);
    let times = [NOW_NS, NOW_NS + YEAR_NS, NOW_NS, NOW_NS - YEAR_NS, 0];
    for (start, unix_ns) in times.into_iter().enumerate() {
        world.set_time_of_day(SimSite::A, unix_ns);
        world.restart(SimSite::A, &config);
        world.run_for(Duration::from_secs(1));
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
        let took = world.run_to_end(id, Duration::from_secs(5));
        assert!(took.is_some(), "start {start}: {:?}", world.progress(id));
        // The time of day of the waiting side does not matter.
        world.set_time_of_day(SimSite::B, NOW_NS + unix_ns % 7 * YEAR_NS);
        world.restart(SimSite::B, &config);
        world.run_for(Duration::from_secs(5));
    }
    assert_eq!(world.endpoint(SimSite::B).dropped().replayed, 0);
}
