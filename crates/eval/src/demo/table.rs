//! The table at the end of the demonstration.

use std::{fmt, time::Duration};

use units::{BitRate, ByteCount};
use wansim::PathConfig;

use crate::ftp::Direction;
use probe::calc::Transfer;

/// One transfer.
#[derive(Debug, Clone)]
pub(super) struct Row {
    label: String,
    direction: Direction,
    bytes: ByteCount,
    elapsed: Duration,
    is_complete: bool,
}

impl Row {
    pub(super) fn new(
        label: &str,
        direction: Direction,
        bytes: ByteCount,
        elapsed: Duration,
        is_complete: bool,
    ) -> Self {
        Self {
            label: label.to_owned(),
            direction,
            bytes,
            elapsed,
            is_complete,
        }
    }

    fn rate(&self) -> BitRate {
        BitRate::from_transfer(self.bytes, self.elapsed)
    }

    /// The time for all of `size`: measured, or projected at the rate reached.
    fn full_time_s(&self, size: ByteCount) -> f64 {
        if self.is_complete {
            self.elapsed.as_secs_f64()
        } else {
            self.elapsed.as_secs_f64() * size.bytes() as f64 / self.bytes.bytes().max(1) as f64
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label,
            direction,
            bytes,
            elapsed,
            ..
        } = self;
        let seconds = elapsed.as_secs_f64();
        let rate = self.rate().as_bits_per_s() as f64 * 1e-6;
        let bytes = bytes.bytes() as f64 * 1e-6;
        write!(
            f,
            "{label}, {direction}: {bytes:.1} MB in {seconds:.2} s, {rate:.1} Mbit/s"
        )?;
        if self.is_complete {
            Ok(())
        } else {
            f.write_str(" (cut off)")
        }
    }
}

/// Prints all transfers of `size` bytes over `path`.
pub(super) fn print(rows: &[Row], size: ByteCount, path: &PathConfig) {
    let ideal = Transfer {
        size,
        rate: path.rate.unwrap_or(BitRate::gbit(100)),
        rtt: 2 * path.delay,
        loss: path.loss,
        window: None,
    };
    let ideal_s = ideal.ideal_time().as_secs_f64();
    println!(
        "{:<28} {:<10} {:>12} {:>10} {:>10}",
        "", "", "time", "Mbit/s", "of ideal"
    );
    for row in rows {
        let time = row.full_time_s(size);
        let text = format!("{}{time:.1} s", if row.is_complete { "" } else { "~" });
        println!(
            "{:<28} {:<10} {text:>12} {:>10.1} {:>10.2}",
            row.label,
            row.direction.to_string(),
            row.rate().as_bits_per_s() as f64 * 1e-6,
            ideal_s / time,
        );
    }
    println!(
        "{:<28} {:<10} {:>12} {:>10.1} {:>10.2}",
        "ideal",
        "",
        format!("{ideal_s:.1} s"),
        size.bytes() as f64 * 8e-6 / ideal_s,
        1.0
    );
    if rows.iter().any(|row| !row.is_complete) {
        println!("~ cut off and projected at the rate reached");
    }
}
