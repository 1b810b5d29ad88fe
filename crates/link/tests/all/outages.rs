//! Tests of outages that the link must survive, and of conditions that it must distinguish from
//! outages, in virtual time.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use link::{
    LostReason, Policy, StreamClass,
    congestion::{self, FixedRate},
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, PathConfig};

const RTT: Duration = Duration::from_millis(100);

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

/// Starts a transfer of `size` bytes and returns when a quarter has been delivered.
fn under_way(world: &mut SimWorld, size: ByteCount) -> link::sim::SimTransferId {
    let id = world.send(SimSite::A, StreamClass::Bulk, size);
    let quarter = ByteCount::new(size.bytes() / 4);
    let reached = world.run_until(Duration::from_secs(60), |w| {
        w.progress(id).delivered > quarter
    });
    assert!(reached, "the transfer must be under way");
    id
}

#[test]
fn a_transfer_goes_on_after_a_twenty_second_outage() {
    for seed in 1..=5 {
        let mut world = SimWorld::new(&config(seed));
        let id = under_way(&mut world, ByteCount::megabytes(40));
        world.change_paths(|path| path.outage = true);
        world.run_for(Duration::from_secs(20));
        assert!(
            world.path_counters(SimSite::A).outage_drops > 0,
            "the outage must hit the transfer"
        );
        assert!(
            world.view(SimSite::A).silent.is_some(),
            "the silence is noticed"
        );
        let before = world.progress(id).delivered;
        world.change_paths(|path| path.outage = false);
        // The link reaches the full rate within three round trips after the first probe that
        // arrives.
        world.run_for(Duration::from_millis(500) + 3 * RTT);
        let start = world.progress(id).delivered;
        world.run_for(Duration::from_secs(1));
        let rate =
            BitRate::from_transfer(world.progress(id).delivered - start, Duration::from_secs(1));
        assert!(
            rate > BitRate::mbit(75),
            "seed {seed}: {rate} after the outage, {before} before"
        );
        world
            .run_to_end(id, Duration::from_secs(60))
            .expect("it ends");
    }
}

#[test]
fn a_peer_stopped_for_twenty_seconds_goes_on() {
    let mut world = SimWorld::new(&config(1));
    let id = under_way(&mut world, ByteCount::megabytes(40));
    world.set_stopped(SimSite::B, true);
    world.run_for(Duration::from_secs(20));
    world.set_stopped(SimSite::B, false);
    world
        .run_to_end(id, Duration::from_secs(60))
        .expect("it ends");
    assert_eq!(world.progress(id).lost, None);
}

/// Stops site A until its peer has ended the connection. Earlier packets of the peer wait in the
/// socket of A.
#[test]
fn a_site_stopped_for_longer_than_the_peer_waits_learns_within_seconds_that_its_stream_is_lost() {
    let config = config(1);
    let mut world = SimWorld::new(&config);
    under_way(&mut world, ByteCount::megabytes(40));
    world.set_stopped(SimSite::A, true);
    world.run_for(config.idle_timeout + Duration::from_secs(20));
    assert!(world.lost_streams(SimSite::B) > 0, "B has given up");
    world.set_stopped(SimSite::A, false);
    let woken = world.now();
    world.run_until(Duration::from_secs(200), |w| w.lost_streams(SimSite::A) > 0);
    let took = world.now() - woken;
    assert!(took <= Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_restarted_peer_differs_from_a_silent_one_within_two_seconds() {
    for side in [SimSite::A, SimSite::B] {
        let config = config(1);
        let mut world = SimWorld::new(&config);
        let id = under_way(&mut world, ByteCount::megabytes(40));
        // The site is killed, and starts again after five seconds.
        world.set_stopped(side, true);
        world.run_for(Duration::from_secs(5));
        world.restart(side, &config);
        world.set_stopped(side, false);
        let returned = world.now();
        // The site that did not restart detects it: a sender reports its transfer as lost, and a
        // receiver reports its stream as lost.
        let other = if side == SimSite::A {
            SimSite::B
        } else {
            SimSite::A
        };
        let known = world.run_until(Duration::from_secs(10), |world| {
            world.lost_streams(other) > 0
        });
        assert!(known, "{side:?} restarted unnoticed");
        let took = world.now() - returned;
        assert!(took <= Duration::from_secs(2), "{side:?}: {took:?}");
        if side == SimSite::B {
            assert_eq!(world.progress(id).lost, Some(LostReason::PeerRestarted));
        }
        let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
        world
            .run_to_end(again, Duration::from_secs(20))
            .expect("new streams work");
    }
}

/// Restarts the sender of a transfer. Only a sender has packets in flight, so only a sender could
/// detect the loss of its peer from missing reports.
#[test]
fn a_receiver_learns_within_two_seconds_that_the_sender_has_restarted() {
    for seed in 1..=4 {
        let config = config(seed);
        let mut world = SimWorld::new(&config);
        world.run_for(Duration::from_secs(2));
        let id = world.send(SimSite::B, StreamClass::Bulk, ByteCount::megabytes(40));
        let half = ByteCount::megabytes(20);
        world.run_until(Duration::from_secs(60), |w| w.progress(id).delivered > half);
        // Only A has the peer's address. B is stopped after all its credit in flight has arrived.
        world.set_stopped(SimSite::B, true);
        world.run_for(Duration::from_secs(1));
        world.restart(SimSite::B, &config);
        world.set_stopped(SimSite::B, false);
        let returned = world.now();
        let known = world.run_until(Duration::from_secs(10), |world| {
            world.lost_streams(SimSite::A) > 0
        });
        let took = world.now() - returned;
        assert!(known && took <= Duration::from_secs(2), "{took:?}");
    }
}

#[test]
fn a_peer_gone_for_the_idle_timeout_is_given_up() {
    let mut world = SimWorld::new(&config(1));
    let id = under_way(&mut world, ByteCount::megabytes(40));
    world.change_paths(|path| path.outage = true);
    let lost = world.run_until(Duration::from_secs(200), |w| w.progress(id).lost.is_some());
    assert!(lost, "the transfer must be given up");
    assert!(
        matches!(world.progress(id).lost, Some(LostReason::Silence(time)) if time >= Duration::from_secs(120))
    );
    world.change_paths(|path| path.outage = false);
    let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
    world
        .run_to_end(again, Duration::from_secs(30))
        .expect("the link comes back by itself");
}

#[test]
fn a_new_address_of_the_peer_is_followed_after_a_challenge() {
    let mut world = SimWorld::new(&config(1));
    let id = under_way(&mut world, ByteCount::megabytes(40));
    let moved: SocketAddr = "10.77.0.1:60123".parse().expect("an address");
    world.set_address(SimSite::A, moved);
    world
        .run_to_end(id, Duration::from_secs(60))
        .expect("it ends");
    assert_eq!(world.view(SimSite::B).address, Some(moved));
}

/// Moves a peer from a line to a satellite connection. Measurements of the line do not apply to the
/// satellite path.
#[test]
fn a_peer_that_moves_to_another_host_is_measured_anew() {
    let mut world = SimWorld::new(&config(1));
    let id = world.send(SimSite::B, StreamClass::Bulk, ByteCount::megabytes(200));
    world.run_for(Duration::from_secs(5));
    let before = world.view(SimSite::B).base_rtt.expect("it was measured");
    assert!(before < Duration::from_millis(110), "{before:?}");
    world.change_paths(|path| path.delay = Duration::from_millis(300));
    let elsewhere = "10.99.0.7:4810".parse().expect("well formed");
    world.set_address(SimSite::A, elsewhere);
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.view(SimSite::B).address, Some(elsewhere));
    let after = world.view(SimSite::B).base_rtt.expect("it was measured");
    assert!(after > Duration::from_millis(590), "{after:?}");
    world
        .run_to_end(id, Duration::from_secs(120))
        .expect("it ends");
}

/// Moves a peer to another path. The new path has 600 times the round-trip time of the former path.
#[test]
fn a_peer_that_moves_from_a_local_network_to_a_satellite_is_followed() {
    for from in [SimSite::A, SimSite::B] {
        let mut world = SimWorld::new(&config(1));
        world.change_paths(|path| path.delay = Duration::from_micros(500));
        let id = world.send(from, StreamClass::Bulk, ByteCount::megabytes(100));
        world.run_for(Duration::from_secs(3));
        assert!(world.progress(id).arrived.is_none(), "it is under way");
        world.change_paths(|path| path.delay = Duration::from_millis(300));
        let elsewhere = "10.99.0.7:4810".parse().expect("well formed");
        world.set_address(SimSite::A, elsewhere);
        world.run_for(Duration::from_secs(2));
        assert_eq!(
            world.view(SimSite::B).address,
            Some(elsewhere),
            "sent by {from:?}"
        );
        world
            .run_to_end(id, Duration::from_secs(60))
            .expect("it ends");
    }
}

#[test]
fn a_first_flight_recorded_before_a_restart_is_not_answered_after_it() {
    let config = config(1);
    let mut world = SimWorld::new(&config);
    world.record(SimSite::B);
    let id = under_way(&mut world, ByteCount::megabytes(1));
    world
        .run_to_end(id, Duration::from_secs(30))
        .expect("it ends");
    let recorded = world.take_recorded();
    let first_flights: Vec<_> = recorded.iter().filter(|bytes| bytes[0] == 0xc1).collect();
    assert!(!first_flights.is_empty(), "a first flight was recorded");
    let stranger: SocketAddr = "198.51.100.66:5555".parse().expect("an address");
    for restart in 1..=2 {
        world.set_stopped(SimSite::A, true);
        world.restart(SimSite::B, &config);
        for datagram in &first_flights {
            world.inject(SimSite::B, stranger, datagram);
        }
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.sent_to(stranger), 0, "restart {restart}");
        let replayed = world.endpoint(SimSite::B).dropped().replayed;
        assert_eq!(replayed, first_flights.len() as u64, "restart {restart}");
    }
    world.set_stopped(SimSite::A, false);
    // The site detects that its connection has ended.
    world.run_for(Duration::from_secs(5));
    let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
    world
        .run_to_end(again, Duration::from_secs(20))
        .expect("the peer itself is let in");
}

#[test]
fn a_clock_set_back_between_two_starts_locks_nobody_out() {
    // In the simulator, the system time is the same at every start.
    let config = config(1);
    let mut world = SimWorld::new(&config);
    let id = under_way(&mut world, ByteCount::megabytes(1));
    world
        .run_to_end(id, Duration::from_secs(30))
        .expect("it ends");
    world.restart(SimSite::A, &config);
    let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
    world
        .run_to_end(again, Duration::from_secs(20))
        .expect("its timestamps go on from where they were");
}

#[test]
fn strangers_replays_and_flipped_bits_are_never_answered() {
    let config = config(1);
    let mut world = SimWorld::new(&config);
    world.record(SimSite::B);
    let id = under_way(&mut world, ByteCount::megabytes(4));
    world
        .run_to_end(id, Duration::from_secs(30))
        .expect("it ends");
    world.run_for(Duration::from_secs(2));
    let recorded = world.take_recorded();
    assert!(
        recorded.len() > 1000,
        "first flights and data were recorded"
    );
    let stranger: SocketAddr = "198.51.100.66:5555".parse().expect("an address");
    let sent_before = world.sent_to(stranger);
    // The site receives the same datagrams from another address, both unchanged and with one
    // flipped bit. It also receives noise.
    for (index, datagram) in recorded
        .iter()
        .enumerate()
        .step_by(7)
        .chain(recorded.iter().enumerate().take(20))
    {
        world.inject(SimSite::B, stranger, datagram);
        let mut flipped = datagram.clone();
        let bit = index * 31 % (flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        world.inject(SimSite::B, stranger, &flipped);
    }
    for len in 0..200 {
        let noise: Vec<u8> = (0..len).map(|at| (at * 89 + len * 13) as u8).collect();
        world.inject(SimSite::B, stranger, &noise);
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        world.sent_to(stranger),
        sent_before,
        "a stranger got an answer"
    );
    let dropped = world.endpoint(SimSite::B).dropped();
    assert!(
        dropped.replayed > 0 && dropped.bad_mac > 0 && dropped.malformed > 0,
        "{dropped:?}"
    );
    let again = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(1));
    world
        .run_to_end(again, Duration::from_secs(20))
        .expect("the connection is unharmed");
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "compares two runs; prints how long they took"
)]
fn a_seed_gives_the_same_run_every_time() {
    let run = || {
        let mut world = SimWorld::new(&config(42));
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
        let time = world
            .run_to_end(id, Duration::from_secs(60))
            .expect("it ends");
        (
            time,
            world.view(SimSite::A).stats.datagrams_sent,
            world.path_counters(SimSite::A).random_losses,
        )
    };
    let began = Instant::now();
    assert_eq!(run(), run());
    println!("two runs took {:?}", began.elapsed());
}

#[test]
fn readers_that_stall_leave_room_for_others() {
    for (memory_mebibytes, stalled) in [(64, 10), (64, 40), (16, 10), (16, 30), (256, 100)] {
        let config = WorldConfig {
            memory_max: ByteCount::mebibytes(memory_mebibytes),
            ..config(1)
        };
        let mut world = SimWorld::new(&config);
        for _ in 0..stalled {
            let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(50));
            world.leave_unread(id);
        }
        world.run_for(Duration::from_secs(20));
        let what = format!("{memory_mebibytes} MiB, {stalled} stalled");
        let command = world.send(SimSite::A, StreamClass::Control, ByteCount::new(100));
        let answered = world.run_to_end(command, Duration::from_secs(5));
        assert!(answered.is_some(), "{what}: a command must get through");
        // Unread data must not use up the memory for sending, in either direction.
        for from in [SimSite::A, SimSite::B] {
            let id = world.send(from, StreamClass::Bulk, ByteCount::megabytes(1));
            let took = world.run_to_end(id, Duration::from_secs(30));
            assert!(
                took.is_some(),
                "{what}: 1 MB from {from:?} must get through"
            );
        }
        let (sender, receiver) = (world.view(SimSite::A), world.view(SimSite::B));
        let refused = receiver.stats.no_memory;
        assert!(
            refused < 100,
            "{what}: {refused} slots were refused for lack of memory"
        );
        assert!(sender.loss < 0.05, "{what}: {}", sender.loss);
        assert_eq!(
            sender.stats.malformed + receiver.stats.malformed,
            0,
            "{what}"
        );
    }
}

/// Reduces the path MTU during a transfer. Slots that were cut for larger packets must be sent in
/// halves.
#[test]
fn a_transfer_goes_on_when_the_path_comes_to_carry_less() {
    for (seed, loss) in (1..).zip([0.001, 0.001, 0.05, 0.05, 0.3, 0.3].repeat(3)) {
        let mut config = config(seed);
        config.forward.loss = loss;
        config.forward.jitter.spread = Duration::from_millis(seed % 3 * 10);
        let mut world = SimWorld::new(&config);
        let id = under_way(&mut world, ByteCount::megabytes(20));
        world.change_paths(|path| path.mtu = 1400);
        let before = world.now();
        let delivered = world.progress(id).delivered;
        world.run_until(Duration::from_secs(60), |w| {
            w.progress(id).delivered > delivered + ByteCount::megabytes(3)
        });
        assert!(
            world.path_counters(SimSite::A).mtu_drops > 0,
            "packets vanish"
        );
        let took = world.now() - before;
        // If a third of the packets is lost anyway, it takes longer to detect the smaller MTU.
        let most = Duration::from_secs(if loss < 0.1 { 6 } else { 15 });
        assert!(took < most, "{took:?}, seed {seed}");
        world
            .run_to_end(id, Duration::from_secs(60))
            .expect("it ends");
        assert_eq!(world.progress(id).lost, None);
    }
}

/// On a connection that sends little, a burst of losses lasts for seconds. The connection then
/// seems to have lost its peer while a newer connection works. The streams of the older connection
/// must nevertheless survive.
#[test]
fn long_bursts_of_losses_cost_no_stream() {
    for seed in 1..=6 {
        let mut config = config(seed);
        config.controller = |_, _| Box::new(FixedRate::new(100_000.0));
        for path in [&mut config.forward, &mut config.backward] {
            path.delay = Duration::from_millis(100);
            path.bursts = Some(GilbertElliott::bursts_of(50.0, 0.3));
        }
        let mut world = SimWorld::new(&config);
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(2));
        world.run_until(Duration::from_secs(300), |w| {
            let progress = w.progress(id);
            progress.confirmed.is_some() || progress.lost.is_some()
        });
        assert!(world.path_counters(SimSite::A).burst_losses > 0);
        let progress = world.progress(id);
        assert!(progress.confirmed.is_some(), "seed {seed}: {progress:?}");
    }
}
