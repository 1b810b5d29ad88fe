//! `longhaul probe udp`: measures loss, duplication, reordering and jitter of datagrams that are
//! sent at a constant rate.

use std::time::Duration;

use bench_kit::plot::{Axis, Mark, Plot, Series};
use probe::udp::{self, ReceiverRecord, UdpDirection, UdpProbe, UdpRecord, UdpTask};
use units::BitRate;

use super::{
    Verdict,
    options::{Output, PeerArgs, SendArgs, parse_payload},
};
use crate::exit::{self, misuse};

/// Measure loss, duplication, reordering and jitter of UDP datagrams at a fixed rate
///
/// The peer runs `longhaul probe serve`. Options with the same meaning have the same letters as in
/// iperf3.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    peer: PeerArgs,
    /// Send UDP payload at this rate: '10 Mbit/s' or 10M (required)
    #[arg(short = 'b', long, value_name = "RATE")]
    rate: Option<BitRate>,
    #[command(flatten)]
    send: SendArgs,
    /// UDP payload of each datagram; with IPv4, 1472 bytes fill an Ethernet packet
    #[arg(
        short = 'l',
        long,
        default_value = "1400 B",
        value_parser = parse_payload,
        value_name = "SIZE"
    )]
    size: u16,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe udp 10.77.0.2 --rate '10 Mbit/s'
  longhaul probe udp 10.77.0.2 -b 1M -R -t 60 -l 200

Exit codes: 0 datagrams arrived; 1 no datagram arrived, or no peer answered; 2 wrong use.";

const WARNING: &str = "\
--rate is missing, and there is no default: UDP has no congestion control. Datagrams at more than the free
rate of the path fill the queue of the bottleneck and take the line from every TCP connection there, which is
a denial of service for its other users. Choose a rate that the path can spare while nobody else needs it.";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let rate = args.rate.ok_or_else(|| misuse(WARNING))?;
    exit::ensure(rate > BitRate::default(), "--rate must be above zero")?;
    let direction = if args.send.reverse {
        UdpDirection::Down
    } else {
        UdpDirection::Up
    };
    let probe = UdpProbe {
        peer: args.peer.address()?,
        task: UdpTask::new(direction, rate, args.size, args.send.time),
        timeout: args.send.timeout,
    };
    let mut sink = args.output.sink(1)?;
    let record = udp::run(&probe, |share| sink.say(&format!("{:.0} %", share * 100.0)))?;
    let is_good = record.received.packets > 0;
    sink.add(&record, is_good);
    sink.finish()?;
    args.output.conclude(&text(&record), &[plot(&record)])?;
    Ok(Verdict::of(is_good))
}

/// Returns a plot of the delivered bytes for each second.
fn plot(record: &UdpRecord) -> Plot {
    // A test may be shorter than an interval.
    let span = Duration::from_nanos(record.received.span_ns.max(1));
    let seconds = ReceiverRecord::INTERVAL.min(span).as_secs_f64();
    let intervals = &record.received.interval_bytes;
    // The last interval is omitted, because it is incomplete.
    let whole = intervals.len().saturating_sub(1).max(1);
    let intervals = intervals.iter().take(whole).enumerate();
    let point = |(at, bytes): (usize, &u64)| {
        let middle_s = (at as f64 + 0.5) * seconds;
        (middle_s, *bytes as f64 * 8.0 / seconds / 1e6)
    };
    Plot {
        title: "Delivered over time".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("Mbit/s"),
        series: vec![Series {
            label: "UDP payload".to_owned(),
            points: intervals.map(point).collect(),
            mark: Mark::Line,
        }],
    }
}

fn text(record: &UdpRecord) -> String {
    let UdpRecord { sent, received, .. } = record;
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let mut text = format!(
        "offered      {:.3} Mbit/s of payload, {} datagrams in {:.3} s\n\
         delivered    {:.3} Mbit/s of payload, {} datagrams\n\
         lost         {:.4} % ({})\n\
         duplicated   {:.4} % ({})\n",
        sent.rate_bits_per_s / 1e6,
        sent.packets,
        sent.seconds,
        received.rate_bits_per_s / 1e6,
        received.packets,
        record.loss() * 100.0,
        record.lost(),
        percent(received.duplicates, received.packets),
        received.duplicates,
    );
    text += &format!(
        "reordered    {:.4} % ({}), by {:.1} packets on average and {}{} at most\n",
        percent(received.reordered, received.packets),
        received.reordered,
        received.extent_mean,
        if received.extent_is_bounded {
            "more than "
        } else {
            ""
        },
        received.extent_max,
    );
    if let Some(three) = received.n_reordered.get(2) {
        let share = percent(*three, received.packets);
        text += &format!(
            "             {share:.4} % by 3 or more without a gap: losses to classic TCP\n"
        );
    }
    text += &format!(
        "jitter       {:.1} us at the end, {:.1} us at most (RFC 3550)\n",
        received.jitter_us, received.jitter_max_us
    );
    if sent.refused > 0 {
        text += &format!("refused      {} by the sender's own system\n", sent.refused);
    }
    if sent.packets + sent.refused < record.task.packets {
        text += &format!(
            "not sent     {} of {}: the sending machine is too slow for the rate, or was stopped\n",
            record.task.packets - sent.packets - sent.refused,
            record.task.packets,
        );
    }
    match received.dropped_here {
        Some(0) => {}
        Some(dropped) => {
            text += &format!(
                "             {dropped} of the lost ones arrived, and the receiving machine was too slow for them\n"
            );
        }
        None => {
            text += "             the receiving machine does not report whether it was too slow\n"
        }
    }
    text
}
