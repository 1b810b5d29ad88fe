//! Calibration of rates, queues, the radio medium, and delays.

use std::time::{Duration, SystemTime};

use units::{BitRate, ByteCount};
use wansim::{ETHERNET_OVERHEAD, PathConfig, profile::Profile};

use super::{CalibrationRow, load, offloaded, up};
use crate::{
    Direction, Site, Wan, WanConfig, WanReport,
    load::{FULL_PAYLOAD, LoadError, LoadResult, UDP_OVERHEAD, UdpLoad},
};

/// Calibrates a bottleneck of 100 Mbit/s with a load of twice that rate.
pub(super) fn rate() -> Result<Vec<CalibrationRow>, LoadError> {
    let mut rows = Vec::new();
    for offload in [false, true] {
        let wan = up(offload, &bottleneck(RATE))?;
        let received = load(offload, BitRate::mbit(200), 25_000).run(&wan)?;
        let name = format!("rate {}", offloaded(offload));
        rows.push(saturated_rate(
            name,
            &wan.report(),
            Site::A,
            received,
            RATE,
        )?);
    }
    Ok(rows)
}

/// Calibrates different rates in the two directions, 10 and 100 Mbit/s, with loads in both
/// directions at the same time.
pub(super) fn asymmetric() -> Result<Vec<CalibrationRow>, LoadError> {
    let rates = [BitRate::mbit(10), BitRate::mbit(100)];
    let wan = Wan::up(WanConfig {
        paths: rates.map(bottleneck),
        ..WanConfig::default()
    })?;
    let flows = Direction::BOTH.map(|direction| {
        let offered = BitRate::bits_per_s(rates[direction.index()].as_bits_per_s() * 2);
        let packets = offered.bytes_in(Duration::from_millis(1500)).bytes() / 1538;
        let load = UdpLoad {
            from: direction.from(),
            // A super-packet of 64 KB would be a burst of 50 ms at the lower rate.
            ..load(false, offered, packets)
        };
        load.start(&wan)
    });
    let mut rows = Vec::new();
    for (direction, flow) in Direction::BOTH.into_iter().zip(flows) {
        let received = flow?.wait()?;
        let rate = rates[direction.index()];
        let name = format!("rate {direction} of an asymmetric path");
        rows.push(saturated_rate(
            name,
            &wan.report(),
            direction.from(),
            received,
            rate,
        )?);
    }
    Ok(rows)
}

/// Calibrates the queue with a burst of packets into an empty queue. The number of bytes that
/// arrive must equal the queue's capacity. The tolerance is one packet plus the bytes that leave
/// the queue during the burst.
pub(super) fn queue() -> Result<Vec<CalibrationRow>, LoadError> {
    const QUEUE_BYTES: u64 = 100_000;
    let rate = BitRate::mbit(2);
    let wan = up(
        true,
        &PathConfig {
            rate: Some(rate),
            queue: ByteCount::new(QUEUE_BYTES),
            ..PathConfig::default()
        },
    )?;
    let received = load(true, BitRate::gbit(10), 150).run(&wan)?;
    let report = wan.report();
    let packet = (FULL_PAYLOAD + UDP_OVERHEAD) as f64;
    let duration = received.sent[received.sent.len() - 1].duration_since(received.sent[0]);
    let drained = rate.bytes_in(duration.unwrap_or_default()).bytes() as f64;
    let taken = received.numbers.len() as f64 * packet;
    let held = report.directions[0].counters.queue_bytes_max;
    let set = QUEUE_BYTES as f64;
    Ok(vec![
        CalibrationRow::judge(
            &report,
            "queue: bytes of a burst that pass",
            "bytes",
            [set, taken, packet + drained],
        ),
        CalibrationRow::judge(
            &report,
            "queue: most bytes held",
            "bytes",
            [set, held as f64, packet],
        ),
    ])
}

/// Calibrates the radio medium with two stations that send more than the medium carries. One
/// station sends full frames, the other sends short frames. One full frame and one short frame
/// together need a certain airtime. In each period of this length, each station must deliver one
/// frame.
pub(super) fn radio() -> Result<Vec<CalibrationRow>, LoadError> {
    const SHORT_PAYLOAD: usize = 84;
    let profile = Profile::wifi_11b();
    let radio = profile.radio.expect("it is one of a radio");
    let wan = Wan::up(WanConfig {
        paths: [profile.forward, profile.backward],
        radio: Some(radio),
        ..WanConfig::default()
    })?;
    let full = load(false, BitRate::mbit(8), 2000);
    // 1,500 frames per second are offered; 178 can pass.
    let short = UdpLoad {
        from: Site::B,
        payload: SHORT_PAYLOAD,
        ..load(false, BitRate::kbit(1800), 4500)
    };
    let flows = [full, short].map(|load| (load, load.start(&wan)));
    let pair = radio.airtime(FULL_PAYLOAD + 28) + radio.airtime(SHORT_PAYLOAD + 28);
    let model = 1.0 / pair.as_secs_f64();
    let mut rows = Vec::new();
    for (load, flow) in flows {
        let received = flow?.wait()?;
        let report = wan.report();
        let kind = if load.payload == FULL_PAYLOAD {
            "full"
        } else {
            "short"
        };
        full_queue(&report, load.from)?;
        // In this period, both stations send: it begins after the later start, and ends before the
        // earlier end.
        let since = |at: &SystemTime| at.duration_since(received.sent[0]).unwrap_or_default();
        let span = Duration::from_millis(500)..Duration::from_millis(2500);
        let within = received.at.iter().map(since).filter(|at| span.contains(at));
        let within: Vec<_> = within.collect();
        let [first, .., last] = within[..] else {
            return Err(LoadError::Nothing("no frame passed the radio".to_owned()));
        };
        let rate = (within.len() - 1) as f64 / (last - first).as_secs_f64();
        rows.push(CalibrationRow::judge(
            &report,
            format!("radio: {kind} frames, both stations busy"),
            "frames/s",
            [model, rate, model / 100.0],
        ));
    }
    Ok(rows)
}

/// Calibrates the delay with a stream at a rate so low that no packet queues behind another packet.
pub(super) fn delay() -> Result<Vec<CalibrationRow>, LoadError> {
    let mut rows = Vec::new();
    for offload in [false, true] {
        let delay = Duration::from_millis(40);
        let wan = up(
            offload,
            &PathConfig {
                delay,
                ..PathConfig::default()
            },
        )?;
        let load = UdpLoad {
            payload: 100,
            ..load(false, BitRate::kbit(200), 150)
        };
        let mut delays = load.run(&wan)?.delays();
        if delays.len() < 150 {
            return Err(LoadError::Nothing(format!(
                "{} of 150 packets came",
                delays.len()
            )));
        }
        delays.sort();
        let report = wan.report();
        let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
        let name = offloaded(offload);
        // Without real-time priority, the emulator waits for a processor like an ordinary thread.
        // In that case only the fastest tenth of the packets must be on time.
        let (share, rank) = if report.thread.real_time {
            ("median", delays.len() / 2)
        } else {
            ("least tenth", delays.len() / 10)
        };
        let set = ms(delay);
        rows.push(CalibrationRow::judge(
            &report,
            format!("delay {name}, least"),
            "ms",
            [set, ms(delays[0]), 0.5],
        ));
        rows.push(CalibrationRow::judge(
            &report,
            format!("delay {name}, {share}"),
            "ms",
            [set, ms(delays[rank]), 0.5],
        ));
    }
    Ok(rows)
}

/// Returns a bottleneck with a queue that takes 160 ms to drain. The queue hardly ever becomes
/// empty, even if the sender waits for a processor.
fn bottleneck(rate: BitRate) -> PathConfig {
    PathConfig {
        rate: Some(rate),
        queue: rate.bytes_in(QUEUE_TIME),
        delay: Duration::from_millis(10),
        ..PathConfig::default()
    }
}

/// Measures the arrival rate of full-size packets while the queue of a [`bottleneck`] is full.
fn saturated_rate(
    name: String,
    report: &WanReport,
    from: Site,
    received: LoadResult,
    rate: BitRate,
) -> Result<CalibrationRow, LoadError> {
    full_queue(report, from)?;
    let received = received.while_queue_lasts(QUEUE_TIME);
    let least = rate.bytes_in(Duration::from_millis(250)).bytes()
        / (FULL_PAYLOAD + 28 + ETHERNET_OVERHEAD) as u64;
    if (received.numbers.len() as u64) < least {
        return Err(LoadError::Nothing(
            "the queue was full for less than a quarter of a second".to_owned(),
        ));
    }
    let [set, measured] = [
        rate.as_bits_per_s() as f64,
        received.rate_bits_per_s(FULL_PAYLOAD, rate),
    ]
    .map(|rate| rate / 1e6);
    Ok(CalibrationRow::judge(
        report,
        name,
        "Mbit/s",
        [set, measured, set / 100.0],
    ))
}

/// Checks that the sender sent more packets than the bottleneck can deliver.
fn full_queue(report: &WanReport, from: Site) -> Result<(), LoadError> {
    let drops = report.directions[from.index()].counters.queue_drops;
    if drops < 100 {
        let text = format!("the sender was slower than the path ({drops} packets dropped)");
        return Err(LoadError::Nothing(text));
    }
    Ok(())
}

const RATE: BitRate = BitRate::mbit(100);

const QUEUE_TIME: Duration = Duration::from_millis(160);
