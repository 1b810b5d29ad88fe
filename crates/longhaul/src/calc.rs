//! `longhaul calc`: what a path allows, with the formula beside each figure.

use std::{fmt::Write as _, time::Duration};

use anyhow::ensure;
use clap::Subcommand;
use probe::calc::{self, Limit, Mega, Transfer};
use units::{BitRate, ByteCount};

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Bandwidth-delay product: the window that a rate needs at a round-trip time
    #[command(after_help = "Example: longhaul calc window --rate '100 Mbit/s' --rtt 173ms")]
    Window {
        /// Rate of the path: '100 Mbit/s' (1 Mbit = 1,000,000 bit)
        #[arg(long, value_name = "RATE")]
        rate: BitRate,
        /// Round-trip time: 173ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
    },
    /// Rate that a window allows at a round-trip time
    #[command(after_help = "Example: longhaul calc rate --window '64 KiB' --rtt 173ms")]
    Rate {
        /// Window: '64 KiB' (65,536 bytes) or '64 kB' (64,000)
        #[arg(long, value_name = "SIZE")]
        window: ByteCount,
        /// Round-trip time: 173ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
    },
    /// Rate that random loss leaves to TCP, by the laws of Reno (Mathis) and CUBIC (RFC 9438)
    #[command(after_help = "Example: longhaul calc loss --loss 0.1% --rtt 200ms")]
    Loss {
        /// Packets lost: 0.1%
        #[arg(long, value_parser = units::parse_share, value_name = "SHARE")]
        loss: f64,
        /// Round-trip time: 200ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
        /// Payload of a packet
        #[arg(long, default_value = "1448 B", value_name = "SIZE")]
        mss: ByteCount,
    },
    /// Time of a transfer, plainly by FTP and through Longhaul
    #[command(
        after_help = "Example: longhaul calc time --size '1 GB' --rate '1 Gbit/s' --rtt 200ms --loss 0.1%"
    )]
    Time {
        /// Bytes of the file: '1 GB' or '1 GiB'
        #[arg(long, value_name = "SIZE")]
        size: ByteCount,
        /// Rate of the path, Ethernet framing included: '1 Gbit/s'
        #[arg(long, value_name = "RATE")]
        rate: BitRate,
        /// Round-trip time: 200ms
        #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
        rtt: Duration,
        /// Packets lost: 0.1%
        #[arg(long, value_parser = units::parse_share, default_value = "0%", value_name = "SHARE")]
        loss: f64,
        /// Most that TCP keeps under way: '64 KiB' [default: enough]
        #[arg(long, value_name = "SIZE")]
        window: Option<ByteCount>,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let text = match args.what {
        What::Window { rate, rtt } => {
            ensure!(rate > BitRate::default(), "--rate must be above zero");
            window(rate, rtt)
        }
        What::Rate { window, rtt } => {
            ensure!(
                !rtt.is_zero(),
                "without a round-trip time no window limits anything"
            );
            window_rate(window, rtt)
        }
        What::Loss { loss, rtt, mss } => {
            ensure!(loss > 0.0, "without loss neither law limits anything");
            ensure!(
                !rtt.is_zero(),
                "without a round-trip time neither law limits anything"
            );
            loss_rates(loss, rtt, mss)
        }
        What::Time {
            size,
            rate,
            rtt,
            loss,
            window,
        } => {
            ensure!(rate > BitRate::default(), "--rate must be above zero");
            ensure!(
                loss < 1.0,
                "of a path that loses everything nothing arrives"
            );
            ensure!(
                window != Some(ByteCount::ZERO),
                "--window must be above zero"
            );
            time(&Transfer {
                size,
                rate,
                rtt,
                loss,
                window,
            })
        }
    };
    output::print(&text)
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
        "Who takes 1 Mbit for 1024 x 1024 bit means {} bit/s, and has {:.4} MByte of 1024 x 1024 bytes.",
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
         Longhaul's rate does not depend on random loss but for what is lost: {:.4} of the line\n",
        mss.bytes(),
        (1.5 / loss).sqrt(),
        mbit(calc::mathis_bits_per_s(mss, rtt, loss)),
        mbit(calc::cubic_bits_per_s(mss, rtt, loss)),
        1.0 - loss,
    )
}

fn time(transfer: &Transfer) -> String {
    let plain = transfer.plain();
    let ideal = transfer.ideal_time();
    let limit = match plain.limit {
        Limit::Rate => "the line",
        Limit::Window => "the window",
        Limit::Loss => "loss, by CUBIC's law",
    };
    format!(
        "{} over {}, RTT {} s, loss {} %\n\
         line: rate x {} for headers x (1 - loss) = {}\n\
         plain FTP, one CUBIC connection: {} (limit: {limit})\n  \
         3 RTT to set up, slow start from 10 segments, the rest at that rate: {}\n\
         through Longhaul: S / line + {} RTT: {} on a warm link, at best\n  \
         (docs/results says which part of that is reached where; a new link takes 4 to 6 RTT to its rate)\n\
         plain / Longhaul = {:.1}\n",
        transfer.size,
        transfer.rate,
        transfer.rtt.as_secs_f64(),
        transfer.loss * 100.0,
        calc::PAYLOAD_SHARE,
        mbit(transfer.line_goodput_bits_per_s()),
        mbit(plain.goodput_bits_per_s),
        human(plain.time),
        if transfer.loss > 0.0 { 2 } else { 1 },
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

/// Rounded, with commas between thousands.
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
}
