//! The table that the demonstration prints at its end.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeStruct};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

use crate::ftp::TrialDirection;
use units::calc::Transfer;

/// One transfer as a row of the table.
#[derive(Debug, Clone)]
pub(super) struct DemoRow {
    label: String,
    direction: TrialDirection,
    bytes: ByteCount,
    elapsed: Duration,
    is_complete: bool,
}

impl DemoRow {
    pub(super) fn new(
        label: &str,
        direction: TrialDirection,
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

    /// Returns the time for a complete transfer of `size`. For an aborted transfer, the time is
    /// projected from the rate that the transfer reached.
    fn full_time_s(&self, size: ByteCount) -> f64 {
        if self.is_complete {
            self.elapsed.as_secs_f64()
        } else {
            self.elapsed.as_secs_f64() * size.bytes() as f64 / self.bytes.bytes().max(1) as f64
        }
    }
}

impl fmt::Display for DemoRow {
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

impl Serialize for DemoRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("DemoRow", 6)?;
        row.serialize_field("label", &self.label)?;
        row.serialize_field("direction", &self.direction)?;
        row.serialize_field("bytes", &self.bytes)?;
        row.serialize_field("seconds", &self.elapsed.as_secs_f64())?;
        row.serialize_field("is_complete", &self.is_complete)?;
        row.serialize_field("goodput_bits_per_s", &self.rate())?;
        row.end()
    }
}

/// Results of the demonstration.
#[derive(Debug, Clone, Serialize)]
pub struct Demonstration {
    size_bytes: ByteCount,
    /// Time that a perfect sender would need for a file.
    ideal_s: f64,
    transfers: Vec<DemoRow>,
    /// Message about a machine that could not keep up with the emulation.
    saturation: Option<String>,
}

impl Demonstration {
    /// Creates the results from all transfers of `size` bytes over `path`.
    pub(super) fn new(
        transfers: Vec<DemoRow>,
        size: ByteCount,
        path: &PathConfig,
        saturation: Option<String>,
    ) -> Self {
        let ideal = Transfer {
            size,
            rate: path.rate.unwrap_or(BitRate::gbit(100)),
            rtt: 2 * path.delay,
            loss: path.loss,
            window: None,
        };
        Self {
            size_bytes: size,
            ideal_s: ideal.ideal_time().as_secs_f64(),
            transfers,
            saturation,
        }
    }

    /// Formats the table, and suggestions for next steps.
    pub fn text(&self) -> String {
        let size = self.size_bytes;
        let mut text = format!(
            "\n{:<28} {:<10} {:>12} {:>10} {:>10}\n",
            "", "", "time", "Mbit/s", "of ideal"
        );
        for row in &self.transfers {
            let time = row.full_time_s(size);
            let shown = format!("{}{time:.1} s", if row.is_complete { "" } else { "~" });
            text += &format!(
                "{:<28} {:<10} {shown:>12} {:>10.1} {:>10.2}\n",
                row.label,
                row.direction.to_string(),
                row.rate().as_bits_per_s() as f64 * 1e-6,
                self.ideal_s / time,
            );
        }
        text += &format!(
            "{:<28} {:<10} {:>12} {:>10.1} {:>10.2}\n",
            "ideal",
            "",
            format!("{:.1} s", self.ideal_s),
            size.bytes() as f64 * 8e-6 / self.ideal_s,
            1.0
        );
        if self.transfers.iter().any(|row| !row.is_complete) {
            text += "~ cut off and projected at the rate reached\n";
        }
        if let Some(saturation) = &self.saturation {
            text += &format!("{saturation}\n");
        }
        text + "\nNext: two real machines, see README.md; or your own programs on an emulated WAN:\n  \
                longhaul wan up --profile transatlantic && longhaul wan exec site-a -- bash\n"
    }
}
