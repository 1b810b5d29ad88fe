//! Calibration of jitter and reordering, which change the order of packets.

use std::time::Duration;

use units::BitRate;
use wansim::{Jitter, PathConfig, Reordering, Straggler};

use super::{CalibrationRow, load, up};
use crate::{
    WanReport,
    load::{LoadError, LoadResult, UdpLoad},
};

/// Calibrates two kinds of jitter. For jitter that reorders packets it measures the spread of the
/// delays. For the other kind it checks the order of the packets.
pub(super) fn jitter() -> Result<Vec<CalibrationRow>, LoadError> {
    const N: u64 = 3000;
    let spread = Duration::from_millis(5);
    let mut rows = Vec::new();
    for in_order in [false, true] {
        let wan = up(
            true,
            &PathConfig {
                delay: Duration::from_millis(30),
                jitter: Jitter { spread, in_order },
                ..PathConfig::default()
            },
        )?;
        // One packet each half millisecond.
        let load = UdpLoad {
            payload: 100,
            ..load(false, BitRate::kbit(2656), N)
        };
        let received = load.run(&wan)?;
        let report = wan.report();
        if in_order {
            let late = late_by_order(&received);
            let overtaken = late.iter().filter(|late| **late).count();
            rows.push(CalibrationRow::exact(
                &report,
                "jitter in order: overtaken",
                0,
                overtaken as u64,
            ));
            continue;
        }
        let mut delays = received.delays();
        delays.sort();
        let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
        // In a uniform distribution, the distance between the quartiles is half of the width. This
        // distance has a standard error of spread / sqrt(n), and late packets hardly change it.
        let quarter = |quarters: usize| ms(delays[delays.len() * quarters / 4]);
        let error = 3.0 * ms(spread) / (N as f64).sqrt();
        rows.push(CalibrationRow::judge(
            &report,
            "jitter: spread, from quarter to quarter",
            "ms",
            [ms(spread), quarter(3) - quarter(1), error + 0.2],
        ));
        rows.push(CalibrationRow::judge(
            &report,
            "jitter: median delay",
            "ms",
            [30.0, quarter(2), error + 0.5],
        ));
    }
    Ok(rows)
}

/// Calibrates early and late reordering. Early reordering is measured with and without correlation.
pub(super) fn reordering() -> Result<Vec<CalibrationRow>, LoadError> {
    const N: u64 = 60_000;
    const SHARE: f64 = 0.05;
    let mut rows = Vec::new();
    for (name, correlation, straggler) in [
        ("early", 0.0, Straggler::Early),
        ("early, correlated", 0.5, Straggler::Early),
        ("late", 0.0, Straggler::Late(Duration::from_millis(5))),
    ] {
        let wan = up(
            true,
            &PathConfig {
                delay: Duration::from_millis(10),
                reordering: Reordering {
                    probability: SHARE,
                    correlation,
                    straggler,
                },
                ..PathConfig::default()
            },
        )?;
        let load = UdpLoad {
            payload: 64,
            ..load(true, BitRate::mbit(60), N)
        };
        let received = load.run(&wan)?;
        let report = wan.report();
        let strayed = match straggler {
            Straggler::Early => early_by_order(&received),
            Straggler::Late(_) => late_by_order(&received),
        };
        let hits = strayed.iter().filter(|strayed| **strayed).count() as u64;
        rows.push(CalibrationRow::share(
            &report,
            format!("reordering: {name}"),
            [hits, N],
            SHARE,
            correlation,
        ));
        if correlation > 0.0 {
            rows.push(correlation_row(&report, &strayed, hits, SHARE, correlation));
        }
    }
    Ok(rows)
}

/// Compares the correlation of consecutive packets with its setting.
///
/// If a packet is reordered, the probability that the next packet is reordered increases. The
/// correlation is this increase divided by the largest possible increase.
fn correlation_row(
    report: &WanReport,
    strayed: &[bool],
    hits: u64,
    share: f64,
    correlation: f64,
) -> CalibrationRow {
    let pairs = strayed.windows(2).filter(|pair| pair[0] && pair[1]).count();
    let follows = pairs as f64 / hits.max(1) as f64;
    let expected = correlation + (1.0 - correlation) * share;
    let error = (expected * (1.0 - expected) / hits.max(1) as f64).sqrt() / (1.0 - share);
    let measured = (follows - share) / (1.0 - share);
    let percent = [correlation, measured, 3.0 * error].map(|share| share * 100.0);
    CalibrationRow::judge(report, "reordering: correlation", "%", percent)
}

/// Returns, for each packet number, whether the packet arrived before a packet that was sent
/// earlier.
fn early_by_order(received: &LoadResult) -> Vec<bool> {
    let mut early = vec![false; received.sent.len()];
    let mut least = u64::MAX;
    for &number in received.numbers.iter().rev() {
        early[number as usize] = least < number;
        least = least.min(number);
    }
    early
}

/// Returns, for each packet number, whether the packet arrived after a packet that was sent later.
fn late_by_order(received: &LoadResult) -> Vec<bool> {
    let mut late = vec![false; received.sent.len()];
    let mut greatest = 0;
    for &number in &received.numbers {
        late[number as usize] = number < greatest;
        greatest = greatest.max(number);
    }
    late
}
