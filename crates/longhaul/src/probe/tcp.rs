//! `longhaul probe tcp`: measures the goodput of bulk TCP.

use bench_kit::plot::{Axis, Mark, Plot, Series};
use probe::tcp::{
    self, StreamEnd, StreamLimit, TcpDirection, TcpProbe, TcpRecord, TcpStreamRecord, TcpTask,
};
use units::ByteCount;

use super::{
    Verdict,
    options::{Output, PeerArgs, SendArgs},
};

/// Measure the goodput, the retransmissions and the window scales of bulk TCP transfers
///
/// The peer runs `longhaul probe serve`. Options with the same meaning have the same letters as in
/// iperf3.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    send: SendArgs,
    /// Send in both directions at the same time
    #[arg(long, alias = "both", conflicts_with = "reverse")]
    bidir: bool,
    /// Number of parallel connections in each direction
    #[arg(
        short = 'P',
        long,
        alias = "parallel",
        default_value_t = 1,
        value_name = "NUMBER"
    )]
    streams: u16,
    /// Size of the socket buffers at both ends, which limits the TCP window: '64 KiB' [default: set
    /// by the kernel]
    #[arg(short, long, value_name = "SIZE")]
    window: Option<ByteCount>,
    /// Congestion control at both ends, by its name in the kernel: cubic, bbr, reno [default: set
    /// by the kernel]
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    /// Number of bytes to send on each connection, instead of a time
    #[arg(short = 'n', long, conflicts_with = "time", value_name = "SIZE")]
    bytes: Option<ByteCount>,
    #[command(flatten)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe tcp 10.77.0.2
  longhaul probe tcp 10.77.0.2 -w 64K -P 10 -t 20
  longhaul probe tcp 10.77.0.2 --reverse --congestion bbr

Goodput is the rate at which the receiving program read data. If the window scale that one end
received differs from the scale that the other end sent, a device on the path changed the scale or
terminated the connection.

Exit codes: 0 all streams were complete; 1 some streams failed, or no peer answered; 2 wrong use.";

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let direction = match (args.send.reverse, args.bidir) {
        (true, _) => TcpDirection::Down,
        (_, true) => TcpDirection::Both,
        _ => TcpDirection::Up,
    };
    let limit = match args.bytes {
        Some(bytes) => StreamLimit::Bytes {
            count: bytes.bytes(),
        },
        None => StreamLimit::Time {
            ms: args.send.time.as_millis() as u64,
        },
    };
    let probe = TcpProbe {
        peer: args.peer.address()?,
        task: TcpTask {
            direction,
            streams: args.streams,
            window_bytes: args.window.map(ByteCount::bytes),
            congestion: args.congestion.clone(),
            limit,
        },
        timeout: args.send.timeout,
    };
    let mut sink = args.output.sink(1)?;
    let record = tcp::run(&probe, |gone| {
        sink.say(&format!("{:.0} s elapsed", gone.as_secs_f64()))
    })?;
    let is_good = failures(&record).is_empty();
    sink.add(&record, is_good);
    sink.finish()?;
    args.output.conclude(&text(&record), &[plot(&record)])?;
    Ok(Verdict::of(is_good))
}

fn ways(record: &TcpRecord) -> Vec<(bool, &'static str)> {
    let has = |is_up: bool| record.streams.iter().any(|stream| stream.is_up == is_up);
    let ways = [(true, "to the peer"), (false, "from the peer")];
    ways.into_iter().filter(|(is_up, _)| has(*is_up)).collect()
}

fn text(record: &TcpRecord) -> String {
    let mut text = String::new();
    for (is_up, way) in ways(record) {
        let intervals = record.intervals(is_up);
        for (at, bytes) in intervals
            .iter()
            .take(intervals.len().saturating_sub(1))
            .enumerate()
        {
            let rate = bytes.bytes() as f64 * 8.0 / TcpRecord::INTERVAL.as_secs_f64();
            text += &format!(
                "{:>3} - {:<3} s  {:>10.3} Mbit/s {way}\n",
                at,
                at + 1,
                rate / 1e6
            );
        }
        let mine = || record.streams.iter().filter(|stream| stream.is_up == is_up);
        let bytes: u64 = mine().map(|stream| stream.receiver.bytes).sum();
        let least = mine().map(|stream| stream.sender.info.min_rtt_us).min();
        text += &format!(
            "{way}: {:.3} Mbit/s goodput, {} by {} connections, {} segments sent again, least RTT {:.3} ms\n",
            record.goodput_bits_per_s(is_up) / 1e6,
            ByteCount::new(bytes),
            mine().count(),
            record.retransmissions(is_up),
            f64::from(least.unwrap_or_default()) / 1e3,
        );
    }
    if let Some(first) = record.streams.first() {
        text += &scales(first);
    }
    text += &buffers(record);
    for failure in failures(record) {
        text += &format!("failed: {failure}\n");
    }
    text
}

/// Returns the window scales of a connection as text. If a device on the path has changed the
/// scales or the addresses, the text also names this change.
fn scales(stream: &TcpStreamRecord) -> String {
    let (client, peer) = stream.client_and_peer();
    let shown = |shift: Option<u8>| shift.map_or("none".to_owned(), |shift| shift.to_string());
    let mut text = format!(
        "window scale: we sent {}, the peer received {}; the peer sent {}, we received {}\n",
        shown(client.info.sent_wscale),
        shown(peer.info.received_wscale),
        shown(peer.info.sent_wscale),
        shown(client.info.received_wscale),
    );
    match (stream.is_rewritten(), stream.is_translated()) {
        (true, true) => {
            text += "  scales and addresses change on the way: something there ends the connections, as a \
                     proxy or a pair of gateways does, or rewrites them\n";
        }
        (true, false) => {
            text += "  a window scale is rewritten on the way, by a router or a firewall\n"
        }
        (false, true) => {
            text += "  addresses are translated on the way; window scales are not changed\n"
        }
        (false, false) => {}
    }
    text
}

/// Returns a line of text if a system has used smaller buffers than `--window` requests.
fn buffers(record: &TcpRecord) -> String {
    let Some(asked) = record.task.window_bytes else {
        return String::new();
    };
    let mut text = String::new();
    let (mine, theirs): (Vec<_>, Vec<_>) = record
        .streams
        .iter()
        .map(TcpStreamRecord::client_and_peer)
        .unzip();
    for (who, ends) in [("our", mine), ("the peer's", theirs)] {
        let least = |of: fn(&StreamEnd) -> Option<u64>| ends.iter().filter_map(|end| of(end)).min();
        for (what, limit, bytes) in [
            ("receive", "rmem_max", least(|end| end.receive_buffer_bytes)),
            ("send", "wmem_max", least(|end| end.send_buffer_bytes)),
        ] {
            // The kernel doubles the requested size.
            if let Some(bytes) = bytes.filter(|bytes| bytes / 2 < asked) {
                text += &format!(
                    "window: {who} {what} buffer is {} instead of {}: net.core.{limit}\n",
                    ByteCount::new(bytes / 2),
                    ByteCount::new(asked),
                );
            }
        }
    }
    text
}

fn failures(record: &TcpRecord) -> Vec<String> {
    let ends = record
        .streams
        .iter()
        .flat_map(|stream| [&stream.sender, &stream.receiver]);
    ends.filter_map(|end| Some(format!("stream {}: {}", end.index, end.failure.as_ref()?)))
        .collect()
}

fn plot(record: &TcpRecord) -> Plot {
    let series = ways(record).into_iter().map(|(is_up, way)| {
        let intervals = record.intervals(is_up);
        // The last interval is omitted, because it is incomplete.
        let whole = intervals.len().saturating_sub(1).max(1);
        let point =
            |(at, bytes): (usize, &ByteCount)| (at as f64 + 0.5, bytes.bytes() as f64 * 8.0 / 1e6);
        Series {
            label: way.to_owned(),
            points: intervals
                .iter()
                .take(whole)
                .enumerate()
                .map(point)
                .collect(),
            mark: Mark::Line,
        }
    });
    Plot {
        title: "Goodput over time".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("Mbit/s"),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use probe::TcpInfo;

    use super::*;

    #[test]
    fn rewritten_scales_and_smaller_buffers_are_reported() {
        let end = |port: u16, other: u16, sent, received| StreamEnd {
            index: 0,
            local: Some(([10, 0, 0, 1], port).into()),
            remote: Some(([10, 0, 0, 1], other).into()),
            bytes: 1,
            seconds: 1.0,
            interval_bytes: vec![],
            receive_buffer_bytes: Some(8192),
            send_buffer_bytes: Some(2 * 65_536),
            info: TcpInfo {
                sent_wscale: sent,
                received_wscale: received,
                ..TcpInfo::default()
            },
            failure: None,
        };
        let stream = |peer_received| TcpStreamRecord {
            is_up: true,
            sender: end(1, 2, Some(7), Some(9)),
            receiver: end(2, 1, Some(9), peer_received),
        };
        assert!(!scales(&stream(Some(7))).contains("on the way"));
        let text = scales(&stream(Some(0)));
        assert!(text.contains("we sent 7, the peer received 0; the peer sent 9, we received 9"));
        assert!(
            text.contains("a window scale is rewritten on the way"),
            "{text}"
        );
        assert!(scales(&stream(None)).contains("rewritten"));
        let record = TcpRecord {
            begun_unix_us: 0,
            task: TcpTask {
                window_bytes: Some(65_536),
                ..TcpTask::new()
            },
            streams: vec![stream(None)],
        };
        let text = buffers(&record);
        assert!(text.contains("our receive buffer is") && text.contains("the peer's receive"));
        assert!(!text.contains("send buffer"), "{text}");
    }
}
