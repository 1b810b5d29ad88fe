//! Calibration in virtual time. Each test checks that an impairment has the configured effect.

use std::time::{Duration, Instant};

use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, Packet, Path, PathConfig, Policer, Reordering, Straggler};

/// A numbered packet of 1,462 bytes. It occupies 1,500 bytes on the wire, so that computed times
/// are round numbers.
#[derive(Clone, Debug, PartialEq)]
struct Numbered {
    number: u64,
    flipped: Option<usize>,
}

impl Packet for Numbered {
    fn ip_bytes(&self) -> usize {
        1462
    }
    fn flip_bit(&mut self, bit: usize) {
        assert!(bit < 1462 * 8);
        self.flipped = Some(bit);
    }
}

const SEED: u64 = 20_260_101;
const MS: Duration = Duration::from_millis(1);

struct Run {
    path: Path<Numbered>,
    start: Instant,
    arrivals: Vec<(Duration, Numbered)>,
}

/// Sends `count` packets with the interval `gap`, and waits until all have arrived.
#[expect(
    clippy::disallowed_methods,
    reason = "an origin for virtual time; nothing waits for it"
)]
fn run(config: PathConfig, count: u64, gap: Duration) -> Run {
    let start = Instant::now();
    let mut run = Run {
        path: Path::new(config, SEED),
        start,
        arrivals: Vec::new(),
    };
    for number in 0..count {
        let now = start + gap * u32::try_from(number).expect("small counts");
        run.collect(Some(now));
        run.path.send(
            Numbered {
                number,
                flipped: None,
            },
            now,
        );
    }
    run.collect(None);
    run
}

impl Run {
    /// Collects the arrivals until `end`. Without `end`, collects all arrivals. Polls exactly at
    /// the times that the path returns.
    fn collect(&mut self, end: Option<Instant>) {
        while let Some(at) = self.path.next_arrival()
            && end.is_none_or(|end| at <= end)
        {
            while let Some(packet) = self.path.poll(at) {
                self.arrivals.push((at - self.start, packet));
            }
        }
    }
}

/// Asserts that `hits` divided by `n` equals `probability` within three standard errors.
fn assert_share(hits: u64, n: u64, probability: f64) {
    let error = (probability * (1.0 - probability) / n as f64).sqrt();
    let share = hits as f64 / n as f64;
    assert!(
        (share - probability).abs() <= 3.0 * error,
        "{hits} of {n} is {share}, not {probability} +- 3 * {error} (seed {SEED})"
    );
}

#[test]
fn a_saturated_path_delivers_its_rate_and_its_minimum_delay() {
    let rate = BitRate::mbit(300);
    let config = PathConfig {
        rate: Some(rate),
        delay: 100 * MS,
        queue: ByteCount::megabytes(1),
        ..PathConfig::default()
    };
    let run = run(config, 100_000, Duration::from_micros(20));
    assert!(
        run.path.counters().queue_drops > 0,
        "the sender must be faster than the path"
    );
    let (first, last) = (run.arrivals[0].0, run.arrivals[run.arrivals.len() - 1].0);
    assert_eq!(
        first,
        100 * MS + Duration::from_micros(40),
        "transmission plus propagation"
    );
    let bits = (run.arrivals.len() as f64 - 1.0) * 1500.0 * 8.0;
    let measured = bits / (last - first).as_secs_f64();
    assert!((measured / 300e6 - 1.0).abs() < 0.0001, "{measured} bit/s");
}

#[test]
fn rounding_does_not_add_up_at_an_odd_rate() {
    let config = PathConfig {
        rate: Some(BitRate::bits_per_s(7_777_777_777)),
        ..PathConfig::default()
    };
    let run = run(config, 1_000_000, Duration::ZERO);
    let last = run.arrivals[999_999].0;
    let exact_ns = 1_000_000.0 * 12_000.0 / 7.777_777_777;
    assert!(
        (last.as_nanos() as f64 - exact_ns).abs() < 1.0,
        "{last:?} instead of {exact_ns} ns"
    );
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate_without_delay() {
    // 300 Mbit/s arrive. The policer passes 100 Mbit/s, and 1 MB at once.
    let config = PathConfig {
        policer: Some(Policer {
            rate: BitRate::mbit(100),
            burst: ByteCount::megabytes(1),
        }),
        delay: 100 * MS,
        ..PathConfig::default()
    };
    let sent = 100_000;
    let run = run(config, sent, Duration::from_micros(40));
    let first_drop = run
        .arrivals
        .windows(2)
        .position(|pair| pair[1].1.number > pair[0].1.number + 1);
    // During the burst, a packet of 1500 bytes removes 1000 tokens, since 500 tokens arrive between
    // two packets.
    let burst = first_drop.expect("more is sent than passes") + 1;
    assert!((999..=1001).contains(&burst), "{burst}");
    let passed_bits = run.arrivals.len() as f64 * 12_000.0 - 8e6;
    let measured = passed_bits / (sent as f64 * 40e-6);
    assert!((measured / 100e6 - 1.0).abs() < 0.001, "{measured} bit/s");
    let counters = run.path.counters();
    assert_eq!(counters.policer_drops + counters.delivered, sent);
    for (at, packet) in &run.arrivals {
        assert_eq!(
            *at,
            100 * MS + Duration::from_micros(40) * packet.number as u32
        );
    }
}

#[test]
fn a_full_queue_holds_its_bytes_and_drops_the_rest() {
    // 10 packets of 1500 bytes fit, and 25 arrive at once. The line has 12 Mbit/s, so a packet
    // takes 1 ms.
    let config = PathConfig {
        rate: Some(BitRate::mbit(12)),
        queue: ByteCount::new(15_999),
        ..PathConfig::default()
    };
    let mut run = run(config, 25, Duration::ZERO);
    let counters = run.path.counters();
    assert_eq!((counters.queue_drops, counters.delivered), (15, 10));
    assert_eq!(
        (counters.queue_bytes_max, counters.queue_bytes),
        (15_000, 0)
    );
    let expected: Vec<_> = (0..10u32).map(|i| (MS * (i + 1), u64::from(i))).collect();
    let arrivals: Vec<_> = run
        .arrivals
        .drain(..)
        .map(|(at, packet)| (at, packet.number))
        .collect();
    assert_eq!(arrivals, expected);
}

#[test]
fn bytes_in_flight_do_not_count_against_the_queue() {
    // 12 Mbit/s for 600 ms is 900 kB in flight. A queue of 3 kB must still pass the full rate.
    let config = PathConfig {
        rate: Some(BitRate::mbit(12)),
        queue: ByteCount::new(3_000),
        delay: 600 * MS,
        ..PathConfig::default()
    };
    let run = run(config, 5_000, MS);
    assert_eq!(run.path.counters().delivered, 5_000);
}

#[test]
fn delay_is_exact_without_a_bottleneck() {
    let run = run(
        PathConfig {
            delay: 77 * MS,
            ..PathConfig::default()
        },
        1000,
        MS,
    );
    for (at, packet) in &run.arrivals {
        assert_eq!(
            *at,
            MS * u32::try_from(packet.number).expect("small") + 77 * MS
        );
    }
}

#[test]
fn shares_of_lost_duplicated_and_corrupted_packets_are_as_set() {
    const N: u64 = 400_000;
    let config = PathConfig {
        loss: 0.001,
        duplication: 0.02,
        corruption: 0.005,
        ..PathConfig::default()
    };
    let run = run(config, N, Duration::from_micros(10));
    let counters = run.path.counters();
    assert_share(counters.random_losses, N, 0.001);
    let survivors = N - counters.random_losses;
    assert_share(counters.duplicated, survivors, 0.02);
    assert_share(counters.corrupted, survivors, 0.005);
    assert_eq!(counters.delivered, survivors + counters.duplicated);
    let bits: Vec<_> = run
        .arrivals
        .iter()
        .filter_map(|(_, packet)| packet.flipped)
        .collect();
    let mean = bits.iter().sum::<usize>() as f64 / bits.len() as f64;
    assert!(
        (mean / (1462.0 * 4.0) - 1.0).abs() < 0.05,
        "bits flip anywhere: mean {mean}"
    );
}

#[test]
fn bursts_have_the_share_and_the_length_they_are_set_to() {
    const N: u64 = 1_000_000;
    let chain = GilbertElliott::bursts_of(8.0, 0.02);
    assert!((chain.mean_loss() - 0.02).abs() < 1e-12);
    let config = PathConfig {
        bursts: Some(chain),
        ..PathConfig::default()
    };
    let run = run(config, N, Duration::ZERO);
    let mut bursts = Vec::new();
    let mut expected = 0;
    for (_, packet) in &run.arrivals {
        if packet.number > expected {
            bursts.push((packet.number - expected) as f64);
        }
        expected = packet.number + 1;
    }
    let n = bursts.len() as f64;
    let mean = bursts.iter().sum::<f64>() / n;
    // A geometric length of mean 8 has a standard deviation of sqrt(56).
    assert!(
        (mean - 8.0).abs() < 3.0 * 56f64.sqrt() / n.sqrt(),
        "bursts of {mean} on average"
    );
    // Losses occur in n independent groups. The fraction of losses therefore has the error of n
    // groups, not of N packets.
    let share = run.path.counters().burst_losses as f64 / N as f64;
    assert!(
        (share - 0.02).abs() < 3.0 * 0.02 * (2.0 / n).sqrt(),
        "{share} lost"
    );
}

#[test]
fn reordered_packets_skip_the_delay_with_share_and_correlation_as_set() {
    const N: u64 = 400_000;
    let reordering = Reordering {
        probability: 0.1,
        correlation: 0.5,
        straggler: Straggler::Early,
    };
    let config = PathConfig {
        delay: 10 * MS,
        reordering,
        ..PathConfig::default()
    };
    let run = run(config, N, MS);
    let mut early = vec![false; N as usize];
    for (at, packet) in &run.arrivals {
        let sent = MS * u32::try_from(packet.number).expect("small");
        assert!(*at == sent || *at == sent + 10 * MS);
        early[packet.number as usize] = *at == sent;
    }
    let reordered = early.iter().filter(|early| **early).count() as u64;
    assert_eq!(reordered, run.path.counters().reordered);
    // Correlation 1/2 leaves a third of the independent choices: (1 - r) / (1 + r).
    let share = reordered as f64 / N as f64;
    let error = (0.1 * 0.9 / (N as f64 / 3.0)).sqrt();
    assert!((share - 0.1).abs() < 3.0 * error, "{share} reordered");
    let pairs = early.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
    let correlation = (pairs / N as f64 - share * share) / (share * (1.0 - share));
    assert!(
        (correlation - 0.5).abs() < 0.02,
        "correlation {correlation}"
    );
}

#[test]
fn late_packets_are_overtaken_by_as_many_as_fit_into_the_extra_delay() {
    let reordering = Reordering {
        probability: 0.01,
        correlation: 0.0,
        straggler: Straggler::Late(Duration::from_micros(3500)),
    };
    let config = PathConfig {
        delay: 10 * MS,
        reordering,
        ..PathConfig::default()
    };
    let run = run(config, 50_000, MS);
    assert!(run.path.counters().reordered > 300, "some must be late");
    assert_share(run.path.counters().reordered, 50_000, 0.01);
    for (at, packet) in &run.arrivals {
        let delay = *at - MS * u32::try_from(packet.number).expect("small");
        assert!(delay == 10 * MS || delay == Duration::from_micros(13_500));
    }
    let overtaken = run
        .arrivals
        .windows(2)
        .filter(|w| w[1].1.number < w[0].1.number)
        .count();
    assert!(overtaken as u64 > run.path.counters().reordered * 9 / 10);
}

#[test]
fn jitter_spreads_evenly_and_in_order_jitter_keeps_the_order() {
    let jitter = Jitter {
        spread: 4 * MS,
        in_order: false,
    };
    let config = PathConfig {
        delay: 10 * MS,
        jitter,
        ..PathConfig::default()
    };
    let free = run(config.clone(), 100_000, MS);
    let delays: Vec<f64> = free
        .arrivals
        .iter()
        .map(|(at, packet)| at.as_secs_f64() * 1e3 - packet.number as f64)
        .collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64;
    assert!((mean - 10.0).abs() < 0.03, "mean {mean} ms");
    assert!(
        (variance / (16.0 / 3.0) - 1.0).abs() < 0.02,
        "uniform over 8 ms: {variance} ms^2"
    );
    assert!(
        free.arrivals
            .windows(2)
            .any(|w| w[1].1.number < w[0].1.number)
    );

    let jitter = Jitter {
        in_order: true,
        ..jitter
    };
    let held = run(PathConfig { jitter, ..config }, 100_000, MS);
    assert!(
        held.arrivals
            .windows(2)
            .all(|w| w[0].1.number < w[1].1.number)
    );
    for (at, packet) in &held.arrivals {
        let delay = *at - MS * u32::try_from(packet.number).expect("small");
        assert!((6 * MS..=14 * MS).contains(&delay));
    }
}

#[test]
fn long_packets_and_packets_in_an_outage_are_lost() {
    let short = run(
        PathConfig {
            mtu: 1461,
            ..PathConfig::default()
        },
        10,
        MS,
    );
    assert_eq!(short.path.counters().mtu_drops, 10);
    let fits = run(
        PathConfig {
            mtu: 1462,
            ..PathConfig::default()
        },
        10,
        MS,
    );
    assert_eq!(fits.path.counters().delivered, 10);
    let cut = run(
        PathConfig {
            outage: true,
            ..PathConfig::default()
        },
        10,
        MS,
    );
    assert_eq!(
        (
            cut.path.counters().outage_drops,
            cut.path.counters().dropped()
        ),
        (10, 10)
    );
}
