//! `longhaul calc`: limits of a path, each printed with its formula.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use units::calc::{self, Limit, Mega, Transfer};
use units::{BitRate, ByteCount};

use crate::{exit, output};

/// Calculate the limits of a path: windows, rates, losses and times
///
/// Each figure is printed with its formula.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul calc window --rate '100 Mbit/s' --rtt 173ms
  longhaul calc time --size '1 GB' --rate '1 Gbit/s' --rtt 200ms --loss 0.1%")]
pub(crate) struct Args {
    #[command(subcommand)]
    subcommand: Subcommand,
    /// Print the figures as JSON, without formulas
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Calculate the window that a rate needs at an RTT: the bandwidth-delay product
    #[command(after_help = "\
Example:
  longhaul calc window --rate '100 Mbit/s' --rtt 173ms")]
    Window {
        /// Assume this rate of the path: '100 Mbit/s' (1 Mbit = 1,000,000 bit)
        #[arg(long, value_name = "RATE")]
        rate: BitRate,
        /// Assume this round-trip time: 173ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
    },
    /// Calculate the rate that a window allows at an RTT
    #[command(after_help = "\
Example:
  longhaul calc rate --window '64 KiB' --rtt 173ms")]
    Rate {
        /// Assume this window: '64 KiB' (65,536 bytes) or '64 kB' (64,000 bytes)
        #[arg(long, value_name = "SIZE")]
        window: ByteCount,
        /// Assume this round-trip time: 173ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
    },
    /// Calculate the rate that TCP reaches on a path with random loss
    ///
    /// The formulas are by Mathis et al. (1997) for Reno, and by RFC 9438 for CUBIC.
    #[command(after_help = "\
Example:
  longhaul calc loss --loss 0.1% --rtt 200ms")]
    Loss {
        /// Assume that this share of the packets is lost: 0.1%
        #[arg(long, value_parser = units::parse_share, value_name = "SHARE")]
        loss: f64,
        /// Assume this round-trip time: 200ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
        /// Assume this TCP payload in each packet
        #[arg(long, default_value = "1448 B", value_name = "SIZE")]
        mss: ByteCount,
    },
    /// Calculate the time of a transfer by plain FTP and through Longhaul
    #[command(after_help = "\
Examples:
  longhaul calc time --size '1 GB' --rate '1 Gbit/s' --rtt 200ms --loss 0.1%
  longhaul calc time --size '1 GB' --rate '100 Mbit/s' --rtt 200ms --shrink 3")]
    Time {
        /// Assume a file of this size: '1 GB' or '1 GiB'
        #[arg(long, value_name = "SIZE")]
        size: ByteCount,
        /// Assume this rate of the path, Ethernet framing included: '1 Gbit/s'
        #[arg(long, value_name = "RATE")]
        rate: BitRate,
        /// Assume this round-trip time: 200ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
        /// Assume that this share of the packets is lost: 0.1%
        #[arg(long, value_parser = units::parse_share, default_value = "0%", value_name = "SHARE")]
        loss: f64,
        /// Assume that TCP keeps at most this number of bytes in flight: '64 KiB' [default: no
        /// limit]
        #[arg(long, value_name = "SIZE")]
        window: Option<ByteCount>,
        /// Assume that the optimiser shrinks the file by this factor: 3 means a third of the bytes
        #[arg(long, value_name = "FACTOR")]
        shrink: Option<f64>,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    args.subcommand.check()?;
    let (text, figures) = match args.subcommand {
        Subcommand::Window { rate, rtt } => (window(rate, rtt), window_figures(rate, rtt)),
        Subcommand::Rate { window, rtt } => {
            (window_rate(window, rtt), window_rate_figures(window, rtt))
        }
        Subcommand::Loss { loss, rtt, mss } => {
            (loss_rates(loss, rtt, mss), loss_figures(loss, rtt, mss))
        }
        Subcommand::Time {
            size,
            rate,
            rtt,
            loss,
            window,
            shrink,
        } => {
            let transfer = Transfer {
                size,
                rate,
                rtt,
                loss,
                window,
            };
            (time(&transfer, shrink), time_figures(&transfer, shrink))
        }
    };
    output::print(&if args.json {
        output::json(&figures)
    } else {
        text
    })
}

impl Subcommand {
    /// Refuses values for which the formulas have no result.
    fn check(&self) -> anyhow::Result<()> {
        let zero_rate = "--rate must be above zero";
        let zero_window = "--window must be above zero";
        let all_lost = "--loss must be below 100%: nothing arrives on a path that loses everything";
        match self {
            Self::Window { rate, .. } => exit::ensure(*rate > BitRate::default(), zero_rate),
            Self::Rate { window, rtt } => {
                exit::ensure(*window > ByteCount::ZERO, zero_window)?;
                exit::ensure(
                    !rtt.is_zero(),
                    "--rtt must be above zero: without a round-trip time a window limits nothing",
                )
            }
            Self::Loss { loss, rtt, mss } => {
                exit::ensure(
                    *loss > 0.0,
                    "--loss must be above zero: without loss neither formula has a limit",
                )?;
                exit::ensure(*loss < 1.0, all_lost)?;
                exit::ensure(
                    !rtt.is_zero(),
                    "--rtt must be above zero: without a round-trip time neither formula has a limit",
                )?;
                exit::ensure(*mss > ByteCount::ZERO, "--mss must be above zero")
            }
            Self::Time {
                size,
                rate,
                loss,
                window,
                shrink,
                ..
            } => {
                exit::ensure(*size > ByteCount::ZERO, "--size must be above zero")?;
                exit::ensure(*rate > BitRate::default(), zero_rate)?;
                exit::ensure(*loss < 1.0, all_lost)?;
                exit::ensure(*window != Some(ByteCount::ZERO), zero_window)?;
                exit::ensure(
                    shrink.is_none_or(|it| it >= 1.0 && it.is_finite()),
                    "--shrink must be 1 or more: 3 leaves a third of the bytes",
                )
            }
        }
    }
}

fn window_figures(rate: BitRate, rtt: Duration) -> Value {
    let bytes = calc::bandwidth_delay_product_bytes(rate.as_bits_per_s() as f64, rtt);
    json!({
        "rate_bits_per_s": rate,
        "rtt_s": rtt.as_secs_f64(),
        "bandwidth_delay_product_bytes": bytes,
        "window_scale_shift": calc::window_scale_shift(bytes),
    })
}

fn window_rate_figures(window: ByteCount, rtt: Duration) -> Value {
    json!({
        "window_bytes": window,
        "rtt_s": rtt.as_secs_f64(),
        "rate_bits_per_s": calc::window_rate_bits_per_s(window, rtt),
    })
}

fn loss_figures(loss: f64, rtt: Duration, mss: ByteCount) -> Value {
    json!({
        "loss": loss,
        "rtt_s": rtt.as_secs_f64(),
        "mss_bytes": mss,
        "reno_bits_per_s": calc::mathis_bits_per_s(mss, rtt, loss),
        "cubic_bits_per_s": calc::cubic_bits_per_s(mss, rtt, loss),
        "longhaul_share_of_line": 1.0 - loss,
    })
}

fn time_figures(transfer: &Transfer, shrink: Option<f64>) -> Value {
    let plain = transfer.plain();
    let limit = match plain.limit {
        Limit::Rate => "rate",
        Limit::Window => "window",
        Limit::Loss => "loss",
    };
    json!({
        "size_bytes": transfer.size,
        "rate_bits_per_s": transfer.rate,
        "rtt_s": transfer.rtt.as_secs_f64(),
        "loss": transfer.loss,
        "window_bytes": transfer.window,
        "line_goodput_bits_per_s": transfer.line_goodput_bits_per_s(),
        "plain_goodput_bits_per_s": plain.goodput_bits_per_s,
        "plain_limit": limit,
        "plain_s": plain.time.as_secs_f64(),
        "longhaul_ideal_s": transfer.ideal_time().as_secs_f64(),
        "shrink": shrink,
        "longhaul_optimised_s": shrink.map(|it| transfer.optimised_time(it).as_secs_f64()),
    })
}

fn window(rate: BitRate, rtt: Duration) -> String {
    let bits_per_s = rate.as_bits_per_s() as f64;
    let bytes = calc::bandwidth_delay_product_bytes(bits_per_s, rtt);
    let shift = match calc::window_scale_shift(bytes) {
        Some(0) => "fits into 64 KiB: TCP needs no window scale option".to_owned(),
        Some(shift) => {
            format!("above 64 KiB: TCP needs the window scale option, shift {shift} or more")
        }
        None => "above 1 GiB: more than one TCP connection can announce".to_owned(),
    };
    let mut text = format!(
        "bandwidth-delay product = rate x RTT / 8\n  {} bit/s x {} s / 8 = {} bytes\n  = {} \
         (1 MB = 1,000,000 bytes) = {:.4} MiB (1 MiB = 1,048,576 bytes)\n  {shift}\n",
        grouped(bits_per_s),
        rtt.as_secs_f64(),
        grouped(bytes),
        megabytes(bytes),
        bytes / Mega::Binary.value(),
    );
    let mbit = bits_per_s / Mega::Decimal.value();
    let binary = calc::bandwidth_delay_product_bytes(mbit * Mega::Binary.value(), rtt);
    let _ = writeln!(
        text,
        "With 1 Mbit = 1024 x 1024 bit the rate is {} bit/s, and the product {:.4} MByte of 1024 x 1024 bytes.",
        grouped(mbit * Mega::Binary.value()),
        binary / Mega::Binary.value(),
    );
    text
}

fn window_rate(window: ByteCount, rtt: Duration) -> String {
    let rate = calc::window_rate_bits_per_s(window, rtt);
    let mut text = format!(
        "rate = window x 8 / RTT: a sender waits a round trip for the window to be acknowledged\n  \
         {} bytes x 8 / {} s = {} bit/s\n",
        grouped(window.bytes() as f64),
        rtt.as_secs_f64(),
        grouped(rate),
    );
    for mega in Mega::ALL {
        let _ = writeln!(
            text,
            "  = {:.2} Mbit/s with 1 Mbit = {} bit{}",
            rate / mega.value(),
            grouped(mega.value()),
            match mega {
                Mega::Decimal => " (the standard, and this program elsewhere)",
                Mega::Binary | Mega::Mixed => "",
            }
        );
    }
    text
}

fn loss_rates(loss: f64, rtt: Duration, mss: ByteCount) -> String {
    let segment = format!("{} bytes x 8 / {} s", mss.bytes(), rtt.as_secs_f64());
    let (percent, rtt_s) = (loss * 100.0, rtt.as_secs_f64());
    format!(
        "loss {percent} %, RTT {rtt_s} s, segments of {} bytes; random loss, each segment acknowledged\n\
         Reno (Mathis et al. 1997) = MSS / RTT x sqrt(3 / (2 p))\n  {segment} x {:.2} = {}\n\
         CUBIC (RFC 9438, 5.1) = MSS / RTT x 1.054 (RTT / p)^(3/4), or Reno's if larger\n  {}\n\
         Longhaul loses only the lost packets' share of the line: {:.4} of the line remain\n",
        mss.bytes(),
        (1.5 / loss).sqrt(),
        mbit(calc::mathis_bits_per_s(mss, rtt, loss)),
        mbit(calc::cubic_bits_per_s(mss, rtt, loss)),
        1.0 - loss,
    )
}

fn time(transfer: &Transfer, shrink: Option<f64>) -> String {
    let plain = transfer.plain();
    let ideal = transfer.ideal_time();
    let limit = match plain.limit {
        Limit::Rate => "the line",
        Limit::Window => "the window",
        Limit::Loss => "loss, by CUBIC's law",
    };
    let trips = if transfer.loss > 0.0 { 2 } else { 1 };
    let optimised = shrink.map_or(String::new(), |shrink| {
        let optimised = transfer.optimised_time(shrink);
        format!(
            "with the optimiser: S / {shrink} / line + {trips} RTT: {}, if the gateways' processors keep up\n  \
             (bytes / wan_bytes in the transfer log is the factor by which your own files shrink)\n\
             plain / Longhaul with the optimiser = {:.1}\n",
            human(optimised),
            plain.time.as_secs_f64() / optimised.as_secs_f64(),
        )
    });
    format!(
        "{} over {}, RTT {} s, loss {} %\n\
         line: rate x {} for headers x (1 - loss) = {}\n\
         plain FTP, one CUBIC connection: {} (limit: {limit})\n  \
         3 RTT to set up, slow start from 10 segments, the rest at that rate: {}\n\
         through Longhaul: S / line + {} RTT: {} on a warm link, at best\n  \
         (docs/results has the measured shares of this ideal; a new link needs 4 to 6 RTT to reach its rate)\n\
         plain / Longhaul = {:.1}\n{optimised}",
        transfer.size,
        transfer.rate,
        transfer.rtt.as_secs_f64(),
        transfer.loss * 100.0,
        calc::PAYLOAD_SHARE,
        mbit(transfer.line_goodput_bits_per_s()),
        mbit(plain.goodput_bits_per_s),
        human(plain.time),
        trips,
        human(ideal),
        plain.time.as_secs_f64() / ideal.as_secs_f64(),
    )
}

fn mbit(bits_per_s: f64) -> String {
    format!("{:.2} Mbit/s (1 Mbit = 1,000,000 bit)", bits_per_s / 1e6)
}

fn megabytes(bytes: f64) -> String {
    format!("{:.4} MB", bytes / 1e6)
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 120.0 => format!("{s:.2} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Rounds a number, and inserts commas between groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primers_figures_appear_with_their_definitions() {
        let rtt = Duration::from_millis(173);
        let text = window(BitRate::mbit(100), rtt);
        for part in [
            "2.1625 MB (1 MB = 1,000,000",
            "2.1625 MByte of 1024 x 1024",
            "shift 6",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = window_rate(ByteCount::kibibytes(128), rtt);
        for part in [
            "6.06 Mbit/s with 1 Mbit = 1,000,000",
            "5.78 Mbit/s with 1 Mbit = 1,048,576",
            "5.92 Mbit/s with 1 Mbit = 1,024,000",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    #[test]
    fn the_optimiser_has_its_time_beside_the_one_without() {
        let transfer = Transfer {
            size: ByteCount::megabytes(1000),
            rate: BitRate::mbit(100),
            rtt: Duration::from_millis(200),
            loss: 0.0,
            window: None,
        };
        let text = time(&transfer, Some(3.0));
        for part in [
            "S / line + 1 RTT: 85.31 s",
            "with the optimiser: S / 3 / line + 1 RTT: 28.57 s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!time(&transfer, None).contains("optimiser"));
        let figures = time_figures(&transfer, None);
        assert!(figures["longhaul_optimised_s"].is_null());
    }
}
