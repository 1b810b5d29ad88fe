//! Tests of rules that hold for every setting, and of changes of settings while traffic flows.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use units::{BitRate, ByteCount};
use wansim::{
    GilbertElliott, Jitter, Packet, Path, PathConfig, Policer, Radio, Reordering, Straggler,
};

#[derive(Clone, Debug, PartialEq)]
struct Sized {
    number: u64,
    bytes: usize,
    flips: usize,
}

impl Packet for Sized {
    fn ip_bytes(&self) -> usize {
        self.bytes
    }
    fn flip_bit(&mut self, bit: usize) {
        assert!(bit < self.bytes * 8, "bit {bit} of {} bytes", self.bytes);
        self.flips += 1;
    }
}

fn packet(number: u64) -> Sized {
    Sized {
        number,
        bytes: 1462,
        flips: 0,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an origin for virtual time; nothing waits for it"
)]
fn origin() -> Instant {
    Instant::now()
}

const MS: Duration = Duration::from_millis(1);

/// Returns all remaining arrivals, each with its time since `start`.
fn rest(path: &mut Path<Sized>, start: Instant) -> Vec<(Duration, u64)> {
    let mut arrivals = Vec::new();
    while let Some(at) = path.next_arrival() {
        while let Some(packet) = path.poll(at) {
            arrivals.push((at - start, packet.number));
        }
    }
    arrivals
}

#[test]
fn a_new_rate_applies_to_what_waits_and_to_the_rest_of_the_packet_in_transmission() {
    let start = origin();
    let slow = PathConfig {
        rate: Some(BitRate::mbit(12)),
        ..PathConfig::default()
    };
    let mut path = Path::new(slow.clone(), 1);
    (0..3).for_each(|number| path.send(packet(number), start));
    // After half of the first packet, the line becomes twice as fast.
    path.configure(
        PathConfig {
            rate: Some(BitRate::mbit(24)),
            ..slow
        },
        start + MS / 2,
    );
    let arrivals = rest(&mut path, start);
    let expected = [(750, 0), (1250, 1), (1750, 2)].map(|(us, n)| (Duration::from_micros(us), n));
    assert_eq!(arrivals, expected);
}

#[test]
fn taking_the_bottleneck_away_frees_the_queue_at_once() {
    let start = origin();
    let slow = PathConfig {
        rate: Some(BitRate::bits_per_s(0)),
        ..PathConfig::default()
    };
    let mut path = Path::new(slow.clone(), 1);
    (0..3).for_each(|number| path.send(packet(number), start));
    assert_eq!(
        path.poll(start + Duration::from_secs(86_400)),
        None,
        "rate zero passes nothing"
    );
    path.configure(
        PathConfig {
            rate: None,
            delay: MS,
            ..slow.clone()
        },
        start + 5 * MS,
    );
    assert_eq!(path.counters().queue_bytes, 0);
    assert_eq!(
        rest(&mut path, start),
        [(6 * MS, 0), (6 * MS, 1), (6 * MS, 2)]
    );
    path.configure(
        PathConfig {
            rate: Some(BitRate::mbit(12)),
            ..slow
        },
        start + 6 * MS,
    );
    path.send(packet(3), start + 7 * MS);
    assert_eq!(rest(&mut path, start), [(8 * MS, 3)]);
}

#[test]
fn a_shorter_delay_lets_later_packets_overtake_those_on_their_way() {
    let start = origin();
    let long = PathConfig {
        delay: 100 * MS,
        ..PathConfig::default()
    };
    let mut path = Path::new(long.clone(), 1);
    path.send(packet(0), start);
    path.configure(
        PathConfig {
            delay: 10 * MS,
            ..long
        },
        start + MS,
    );
    path.send(packet(1), start + MS);
    assert_eq!(rest(&mut path, start), [(11 * MS, 1), (100 * MS, 0)]);
}

#[test]
fn a_share_of_the_packets_overtakes_the_others_by_a_part_of_the_delay() {
    for (part, ahead) in [(0.1, 10 * MS), (0.5, 50 * MS), (1.0, 100 * MS)] {
        let start = origin();
        let mut config = PathConfig {
            delay: 100 * MS,
            ..PathConfig::default()
        };
        config.let_overtake(0.1, part);
        let mut path = Path::new(config, 1);
        (0..1000).for_each(|number| path.send(packet(number), start));
        let arrivals = rest(&mut path, start);
        let (early, others): (Vec<_>, Vec<_>) = arrivals
            .into_iter()
            .map(|(at, _)| at)
            .partition(|at| *at == 100 * MS - ahead);
        assert!((70..=130).contains(&early.len()), "{} early", early.len());
        assert!(others.iter().all(|at| *at == 100 * MS), "the delay stays");
    }
}

#[test]
fn an_outage_takes_what_leaves_the_bottleneck_while_it_lasts_and_nothing_else() {
    let start = origin();
    let line = PathConfig {
        rate: Some(BitRate::mbit(12)),
        delay: 50 * MS,
        ..PathConfig::default()
    };
    let mut path = Path::new(line.clone(), 1);
    (0..10).for_each(|number| path.send(packet(number), start));
    path.configure(
        PathConfig {
            outage: true,
            ..line.clone()
        },
        start + 3 * MS + MS / 2,
    );
    path.configure(line, start + 6 * MS + MS / 2);
    let arrived: Vec<_> = rest(&mut path, start)
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    assert_eq!(arrived, [0, 1, 2, 6, 7, 8, 9]);
    assert_eq!(path.counters().outage_drops, 3);
}

#[test]
fn the_fate_by_one_impairment_does_not_depend_on_the_others() {
    let lost_with = |duplication| {
        let start = origin();
        let config = PathConfig {
            loss: 0.1,
            duplication,
            ..PathConfig::default()
        };
        let mut path = Path::new(config, 99);
        (0..1000).for_each(|number| path.send(packet(number), start));
        let mut numbers: Vec<_> = rest(&mut path, start).into_iter().map(|(_, n)| n).collect();
        numbers.dedup();
        numbers
    };
    assert_eq!(lost_with(0.0), lost_with(0.5));
}

#[test]
fn settings_survive_json() {
    let profiles = wansim::profile::Profile::all();
    assert!(profiles.len() > 3);
    for profile in profiles {
        let text = serde_json::to_string(&profile.forward).expect("plain data");
        let read: PathConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(read, profile.forward);
        let text = serde_json::to_string(&profile.radio).expect("plain data");
        let read: Option<Radio> = serde_json::from_str(&text).expect("what was written");
        assert_eq!(read, profile.radio);
    }
}

fn any_config() -> impl Strategy<Value = PathConfig> {
    let ms = |max: u64| (0..=max).prop_map(Duration::from_millis);
    let reordering = (0.0..0.3, 0.0..0.9, any::<bool>(), ms(5)).prop_map(
        |(probability, correlation, early, late)| {
            let straggler = if early {
                Straggler::Early
            } else {
                Straggler::Late(late)
            };
            Reordering {
                probability,
                correlation,
                straggler,
            }
        },
    );
    let line = (
        proptest::option::of(100_000u64..1_000_000_000),
        0u64..100_000,
        ms(50),
        proptest::option::of((100_000u64..1_000_000_000, 0u64..100_000)),
    );
    let jitter = (ms(20), any::<bool>()).prop_map(|(spread, in_order)| Jitter { spread, in_order });
    let chain = proptest::option::of(
        (1.0..20.0, 0.0..0.5).prop_map(|(burst, loss)| GilbertElliott::bursts_of(burst, loss)),
    );
    (
        line,
        jitter,
        0.0..0.3,
        chain,
        0.0..0.3,
        reordering,
        0.0..0.3,
        any::<bool>(),
    )
        .prop_map(
            |(
                (rate, queue, delay, policer),
                jitter,
                loss,
                bursts,
                corruption,
                reordering,
                duplication,
                outage,
            )| {
                PathConfig {
                    rate: rate.map(BitRate::bits_per_s),
                    queue: ByteCount::new(queue),
                    policer: policer.map(|(rate, burst)| Policer {
                        rate: BitRate::bits_per_s(rate),
                        burst: ByteCount::new(burst),
                    }),
                    delay,
                    jitter,
                    loss,
                    bursts,
                    corruption,
                    reordering,
                    duplication,
                    outage,
                    mtu: 1400,
                }
            },
        )
}

/// Packet sizes with gaps in microseconds. The second field is the index of the packet at which the
/// settings change.
type Traffic = (Vec<(usize, u64)>, usize);

fn any_traffic() -> impl Strategy<Value = Traffic> {
    (
        prop::collection::vec((0usize..1500, 0u64..3000), 1..300),
        0usize..300,
    )
}

/// Sends the traffic over a path that is polled every `tick`. Returns the path and the arrived
/// packets.
fn carry(
    first: &PathConfig,
    second: &PathConfig,
    (packets, change): &Traffic,
    tick: Duration,
) -> (Path<Sized>, Vec<Sized>) {
    let mut now = origin();
    let mut path = Path::new(first.clone(), 7);
    let mut arrived = Vec::new();
    let mut next_tick = now;
    for (number, (bytes, gap_us)) in packets.iter().enumerate() {
        now += Duration::from_micros(*gap_us);
        while next_tick <= now {
            arrived.extend(std::iter::from_fn(|| path.poll(next_tick)));
            next_tick += tick;
        }
        if number == *change {
            path.configure(second.clone(), now);
        }
        path.send(
            Sized {
                number: number as u64,
                bytes: *bytes,
                flips: 0,
            },
            now,
        );
    }
    let end = now + Duration::from_secs(3600);
    arrived.extend(std::iter::from_fn(|| path.poll(end)));
    (path, arrived)
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        first in any_config(), second in any_config(), traffic in any_traffic(),
    ) {
        let (path, arrived) = carry(&first, &second, &traffic, MS);
        let counters = path.counters();
        prop_assert_eq!(path.next_arrival(), None);
        prop_assert_eq!(counters.queue_bytes, 0);
        prop_assert_eq!(counters.sent, traffic.0.len() as u64);
        prop_assert_eq!(counters.delivered, arrived.len() as u64);
        prop_assert_eq!(counters.sent + counters.duplicated, counters.delivered + counters.dropped());
        let flips = arrived.iter().map(|packet| packet.flips).max().unwrap_or(0);
        prop_assert!(flips <= 1, "at most one bit of a packet flips");
    }

    #[test]
    fn fate_and_order_do_not_depend_on_how_often_the_path_is_polled(
        first in any_config(), second in any_config(), traffic in any_traffic(),
    ) {
        let (_, often) = carry(&first, &second, &traffic, MS / 10);
        let (_, rarely) = carry(&first, &second, &traffic, 1000 * MS);
        prop_assert_eq!(often, rarely);
    }

    #[test]
    fn next_arrival_is_never_late(config in any_config(), traffic in any_traffic()) {
        let mut now = origin();
        let mut path = Path::new(config, 7);
        for (number, (bytes, gap_us)) in traffic.0.iter().enumerate() {
            path.send(Sized { number: number as u64, bytes: *bytes, flips: 0 }, now);
            now += Duration::from_micros(*gap_us);
            while let Some(at) = path.next_arrival() && at <= now {
                let before = at - Duration::from_nanos(1);
                prop_assert!(path.poll(before).is_none(), "nothing arrives before next_arrival");
                while path.poll(at).is_some() {}
            }
        }
    }
}
