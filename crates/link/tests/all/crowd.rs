//! Tests with several flows on one path, in virtual time.

use std::time::Duration;

use link::{
    Policy, StreamClass, congestion,
    sim::{Crowd, CrowdConfig, FlowKind, SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::{PathConfig, Policer, profile::Profile};

const S: Duration = Duration::from_secs(1);

fn crowd(queue_bdp: f64, seed: u64) -> Crowd {
    let (rate, rtt) = (BitRate::mbit(50), Duration::from_millis(40));
    let bdp = rate.bytes_in(rtt).bytes() as f64;
    let path = PathConfig {
        rate: Some(rate),
        queue: ByteCount::new((bdp * queue_bdp) as u64),
        delay: rtt / 2,
        ..PathConfig::default()
    };
    Crowd::new(&CrowdConfig {
        forward: path.clone(),
        backward: path,
        seed,
        jitter: Duration::from_micros(240),
        sample_every: Duration::from_millis(10),
    })
}

fn ours() -> FlowKind {
    FlowKind::longhaul(|memory, max| congestion::for_policy(Policy::Fair, memory, max))
}

#[test]
fn a_pair_and_cubic_keep_the_line_full_together() {
    let mut crowd = crowd(1.0, 1);
    crowd.add(ours().flow());
    crowd.add(FlowKind::cubic().flow().starting_at(S));
    crowd.run_to(30 * S);
    let span = 10 * S..30 * S;
    let rates = [0, 1].map(|flow| crowd.record().rate(flow, &span) / 50e6);
    assert!(rates[0] + rates[1] > 0.9, "{rates:?}");
    // `cargo xtask bench fair` measures how the flows share the path.
    assert!(rates[0].min(rates[1]) > 0.0, "{rates:?}");
    assert!(crowd.record().caused_loss(&(S..30 * S)) > 0.0);
}

#[test]
fn a_run_of_a_seed_repeats_itself_and_another_seed_differs() {
    let run = |seed| {
        let mut crowd = crowd(1.0, seed);
        crowd.add(ours().flow());
        crowd.add(FlowKind::cubic().flow().starting_at(S));
        crowd.run_to(8 * S);
        let arrived = [0, 1].map(|flow| crowd.record().sample(flow, 8 * S).arrived_bytes);
        (arrived, crowd.path_counters(SimSite::A).queue_drops)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_longer_way_is_a_longer_round_trip() {
    let mut crowd = crowd(1.0, 1);
    crowd.add(ours().flow().farther_by(Duration::from_millis(100)));
    let window = ByteCount::kibibytes(64);
    crowd.add(FlowKind::cubic_with_window(window).flow());
    let far = Duration::from_millis(160);
    crowd.add(FlowKind::cubic_with_window(window).flow().farther_by(far));
    crowd.run_to(4 * S);
    let rtt = crowd
        .view(0)
        .and_then(|view| view.base_rtt)
        .expect("it runs");
    assert!((140..143).contains(&rtt.as_millis()), "{rtt:?}");
    let span = 2 * S..4 * S;
    let ratio = crowd.record().rate(1, &span) / crowd.record().rate(2, &span);
    assert!((3.5..5.5).contains(&ratio), "200 ms against 40: {ratio}");
}

#[test]
fn a_flow_that_ends_leaves_the_line_to_the_others() {
    let mut crowd = crowd(1.0, 1);
    crowd.add(FlowKind::reno().flow());
    crowd.add(FlowKind::bbr().flow().starting_at(2 * S).until(10 * S));
    crowd.run_to(40 * S);
    assert!(crowd.record().rate(1, &(5 * S..9 * S)) > 5e6);
    assert_eq!(crowd.record().rate(1, &(11 * S..40 * S)), 0.0);
    assert!(crowd.record().rate(0, &(25 * S..40 * S)) > 0.9 * 50e6);
}

#[test]
fn what_a_policer_drops_is_loss_that_the_flows_caused() {
    let mut crowd = crowd(1.0, 1);
    crowd.change_paths(|path| {
        path.policer = Some(Policer {
            rate: BitRate::mbit(10),
            burst: ByteCount::new(50_000),
        });
    });
    crowd.add(FlowKind::cubic().flow());
    crowd.run_to(20 * S);
    assert!(crowd.path_counters(SimSite::A).policer_drops > 0);
    assert!(crowd.record().caused_loss(&(S..20 * S)) > 0.0);
    let rate = crowd.record().rate(0, &(5 * S..20 * S));
    assert!((0.5..1.01).contains(&(rate / 10e6)), "{rate}");
}

/// Runs a CUBIC flow on a radio channel that carries both data and acknowledgements. The receiver
/// acknowledges every second segment, or every segment.
#[test]
fn answers_take_airtime_on_a_radio() {
    let profile = Profile::wifi_11b();
    let radio = profile.radio.expect("it is one of a radio");
    let rates = [true, false].map(|is_delaying| {
        let config = CrowdConfig {
            forward: profile.forward.clone(),
            backward: profile.backward.clone(),
            seed: 1,
            jitter: Duration::ZERO,
            sample_every: Duration::from_millis(100),
        };
        let mut crowd = Crowd::with_radio(&config, Some(radio));
        let cubic = FlowKind::cubic_with_window(ByteCount::kibibytes(64));
        let cubic = if is_delaying {
            cubic.delaying_acks()
        } else {
            cubic
        };
        crowd.add(cubic.flow());
        crowd.run_to(20 * S);
        let counters = [SimSite::A, SimSite::B].map(|side| *crowd.path_counters(side));
        assert_eq!(counters[0].queue_drops, 0);
        let answers = counters[1].delivered as f64 / counters[0].delivered as f64;
        assert!(
            (answers - if is_delaying { 0.5 } else { 1.0 }).abs() < 0.02,
            "{answers}"
        );
        let airtime = radio.airtime(1500).as_secs_f64() + answers * radio.airtime(80).as_secs_f64();
        let delivered = crowd.delivered(0).bytes() as f64 / 1448.0;
        assert!(
            (delivered * airtime / 20.0 - 1.0).abs() < 0.02,
            "the channel is full"
        );
        crowd.record().rate(0, &(S..20 * S))
    });
    assert!(rates[0] > 1.1 * rates[1], "{rates:?}");
}

/// Runs link transfers in both directions at once on a radio channel that both directions share.
#[test]
fn links_over_a_radio_share_it_between_the_directions() {
    let profile = Profile::wifi_11b();
    let radio = profile.radio.expect("it is one of a radio");
    let config = WorldConfig {
        forward: profile.forward,
        backward: profile.backward,
        seed: 1,
        controller: |memory, max| congestion::for_policy(Policy::Fair, memory, max),
        memory_max: ByteCount::gibibytes(1),
        idle_timeout: 600 * S,
    };
    let mut world = SimWorld::with_radio(&config, Some(radio));
    let size = ByteCount::megabytes(3);
    let ids = [SimSite::A, SimSite::B].map(|from| world.send(from, StreamClass::Bulk, size));
    let is_done = |world: &SimWorld| ids.iter().all(|id| world.progress(*id).confirmed.is_some());
    assert!(world.run_until(60 * S, is_done));
    let [a, b] = ids.map(|id| world.progress(id).arrived.expect("all is confirmed"));
    let alone = radio.airtime(1500).as_secs_f64() * 3e6 / 1448.0;
    assert!(
        a.max(b).as_secs_f64() > 2.0 * alone,
        "one channel carries both"
    );
}

/// Starts a flow while the queue is full of another flow's packets. The new flow never measures a
/// shorter queue, so it cannot detect queueing delay. Its drops look like random loss of the path.
#[test]
fn a_flow_that_begins_in_a_full_queue_does_not_flood_it() {
    let mut above = 0;
    for seed in 1..=8_u32 {
        let mut crowd = crowd(0.5, u64::from(seed));
        crowd.add(FlowKind::cubic().flow());
        let begins = (9 + seed) * S / 20;
        crowd.run_to(begins);
        assert!(
            crowd.path_counters(SimSite::A).queue_drops > 0,
            "the queue is full"
        );
        crowd.add(ours().flow().starting_at(begins));
        crowd.run_to(6 * S);
        let lost = crowd.record().caused_loss(&(begins..6 * S));
        let rate = crowd.record().rate(1, &(2 * S..6 * S)) / 50e6;
        assert!(rate > 0.1, "begins after {begins:?}: {rate:.3}");
        println!("begins after {begins:?}: {rate:.3} of the line, {lost:.4} lost");
        assert!(lost < 0.1, "begins after {begins:?}: {lost:.3}");
        above += u32::from(lost >= 0.08);
    }
    // The loss is at most 0.059 in all cases but one: at 850 ms it is 0.097. There, start-up with
    // losses lasts for 0.4 s. Start-up treats the queue of CUBIC as part of the path. The round
    // with the least loss already loses a fifth of the packets. Only a round that loses another
    // quarter ends start-up.
    assert!(above <= 1, "{above} of 8 above 0.08");
}
