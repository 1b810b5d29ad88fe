//! Tests of complete transfers between two cores, in virtual time.

use std::time::Duration;

use link::{
    StreamClass,
    congestion::FixedRate,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Straggler};

fn path(rate: BitRate, rtt: Duration, loss: f64) -> PathConfig {
    PathConfig {
        rate: Some(rate),
        queue: PathConfig::default_queue(rate, rtt),
        delay: rtt / 2,
        loss,
        ..PathConfig::default()
    }
}

fn world(rtt: Duration, loss: f64, seed: u64) -> SimWorld {
    let path = path(BitRate::mbit(100), rtt, loss);
    SimWorld::new(&WorldConfig {
        forward: path.clone(),
        backward: path,
        seed,
        controller: |_, _| Box::new(FixedRate::new(0.96 * 12.5e6)),
        memory_max: ByteCount::mebibytes(512),
        idle_timeout: Duration::from_secs(600),
    })
}

#[test]
fn a_transfer_arrives_over_a_clean_path() {
    let mut world = world(Duration::from_millis(50), 0.0, 1);
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
    let time = world
        .run_to_end(id, Duration::from_secs(20))
        .expect("it ends");
    println!("{time:?} {:?}", world.view(SimSite::A));
    assert!(time < Duration::from_secs_f64(2.2), "{time:?}");
}

#[test]
fn a_transfer_arrives_over_lossy_paths() {
    for loss in [0.001, 0.01, 0.1, 0.3, 0.5, 0.64] {
        let mut world = world(Duration::from_millis(50), loss, 1);
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
        let time = world
            .run_to_end(id, Duration::from_secs(60))
            .expect("it ends");
        assert!(world.path_counters(SimSite::A).random_losses > 0);
        let ideal = 20e6 * 8.0 / (100e6 * 0.94 * (1.0 - loss)) + 0.1;
        println!(
            "{loss} {time:?} {:.3} {:?}",
            ideal / time.as_secs_f64(),
            world.view(SimSite::A).stats
        );
    }
}

/// The receiver's last announcement of the initial window may be lost or in flight. A new stream
/// may then have less credit than the receiver assumes. The stream must not wait for a credit frame
/// that the receiver never sends.
#[test]
fn a_stream_opened_right_after_a_large_one_goes_on_whatever_got_lost() {
    for seed in 1..=4 {
        let path = path(BitRate::mbit(100), Duration::from_millis(200), 0.3);
        let mut world = SimWorld::new(&WorldConfig {
            forward: path.clone(),
            backward: path,
            seed,
            controller: |_, _| Box::new(FixedRate::new(0.96 * 12.5e6)),
            // The window of the large stream takes all available credit.
            memory_max: ByteCount::mebibytes(64),
            idle_timeout: Duration::from_secs(600),
        });
        for size in [60, 5, 60, 5] {
            let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(size));
            let ended = world.run_to_end(id, Duration::from_secs(60));
            assert!(ended.is_some(), "seed {seed}, {size} MB");
        }
        assert!(world.path_counters(SimSite::B).random_losses > 0);
    }
}

/// Some reports arrive two seconds late. The sender has already removed the reported packets from
/// its log.
#[test]
fn a_report_that_comes_two_seconds_late_does_no_harm() {
    let mut backward = path(BitRate::mbit(100), Duration::from_millis(50), 0.0);
    backward.reordering.probability = 0.05;
    backward.reordering.straggler = Straggler::Late(Duration::from_secs(2));
    let mut world = SimWorld::new(&WorldConfig {
        forward: path(BitRate::mbit(100), Duration::from_millis(50), 0.0),
        backward,
        seed: 1,
        controller: |_, _| Box::new(FixedRate::new(0.96 * 12.5e6)),
        memory_max: ByteCount::mebibytes(512),
        idle_timeout: Duration::from_secs(600),
    });
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(60));
    assert!(world.run_to_end(id, Duration::from_secs(60)).is_some());
    let late = world.path_counters(SimSite::B).reordered;
    assert!(late > 10, "{late} reports were late");
}

/// The handshake and the first slots are repeated until the peer replies, without waiting for the
/// detection of their loss.
#[test]
fn first_words_arrive_within_five_round_trips_at_half_loss() {
    let rtt = Duration::from_millis(200);
    let mut lost = 0;
    let mut times: Vec<_> = (1..=40)
        .map(|seed| {
            let mut world = world(rtt, 0.5, seed);
            let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::new(100));
            world.run_until(Duration::from_secs(60), |w| {
                w.progress(id).arrived.is_some()
            });
            lost += world.path_counters(SimSite::A).random_losses;
            world.now()
        })
        .collect();
    assert!(lost > 40, "{lost} packets of 40 handshakes got lost");
    times.sort();
    assert!(times[35] <= 5 * rtt, "{times:?}");
}

/// Packet trains bypass the pacer.
///
/// Regression test: a cap far below the line rate applied only to packets outside trains. The link
/// sent 16.1 Mbit/s with a cap of 10 Mbit/s.
#[test]
fn a_cap_set_before_the_first_byte_holds_on_a_much_faster_path() {
    let rate = BitRate::mbit(1000);
    let path = PathConfig::line(rate, Duration::from_millis(200));
    let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
    world.set_rate_max(SimSite::A, None, Some(BitRate::mbit(10)));
    world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(500));
    world.run_for(Duration::from_secs(5));
    let before = world.path_counters(SimSite::A).sent_bytes;
    world.run_for(Duration::from_secs(10));
    let sent = world.path_counters(SimSite::A).sent_bytes - before;
    let mbit = sent as f64 * 8e-6 / 10.0;
    assert!((9.0..10.5).contains(&mbit), "{mbit} Mbit/s");
}

/// A cap from either side takes effect during a transfer, and can be removed again.
#[test]
fn a_cap_set_by_either_side_holds_at_once() {
    let mut world = world(Duration::from_millis(50), 0.01, 1);
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(500));
    world.run_for(Duration::from_secs(2));
    let cap = Some(BitRate::mbit(20));
    let caps = [
        (SimSite::A, cap, None, 20.0),
        (SimSite::A, None, cap, 20.0),
        (SimSite::A, None, None, 96.0),
        (SimSite::B, None, cap, 20.0),
        (SimSite::B, None, None, 96.0),
    ];
    for (side, all, peer, expected_mbit) in caps {
        world.set_rate_max(side, all, peer);
        world.run_for(Duration::from_secs(1));
        let before = world.path_counters(SimSite::A).sent_bytes;
        world.run_for(Duration::from_secs(2));
        let sent = world.path_counters(SimSite::A).sent_bytes - before;
        let mbit = sent as f64 * 8e-6 / 2.0;
        assert!(
            mbit < 1.05 * expected_mbit && mbit > 0.9 * expected_mbit,
            "{side:?} {all:?} {peer:?}: {mbit} Mbit/s"
        );
    }
    assert!(world.progress(id).lost.is_none());
}
