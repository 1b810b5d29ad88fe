//! `longhaul wan show`: the settings and the counters of the emulator.

use std::time::Duration;

use emulator::{Client, Description, DirectionReport, WanReport};
use serde_json::json;
use units::ByteCount;
use wansim::{PathConfig, Radio, profile::Profile};

use crate::output::Format;

/// Prints the state of the emulator as text or as JSON.
pub(super) fn show(client: &Client, format: Format) -> anyhow::Result<()> {
    let (description, report) = (client.describe()?, client.report()?);
    let value = json!({
        "pid": description.pid,
        "sites": description.config.sites,
        "seed": description.config.seed,
        "offload": description.config.offload,
        "radio": description.config.radio,
        "a_to_b": report.directions[0],
        "b_to_a": report.directions[1],
        "thread": report.thread,
        "saturated": report.saturated(),
    });
    format.print(&value, |_| page(&description, &report))
}

/// Prints the built-in profiles of paths.
pub(super) fn profiles(format: Format) -> anyhow::Result<()> {
    let all = Profile::all();
    let fields = |profile: &Profile| {
        json!({
            "name": profile.name,
            "summary": profile.summary,
            "source": profile.source,
            "a_to_b": profile.forward,
            "b_to_a": profile.backward,
            "radio": profile.radio,
        })
    };
    let value = json!({ "profiles": all.iter().map(fields).collect::<Vec<_>>() });
    let lines = |profile: &Profile| {
        let Profile {
            name,
            summary,
            source,
            ..
        } = profile;
        format!("{name}: {summary}\n    source: {source}\n")
    };
    format.print(&value, |_| all.iter().map(lines).collect())
}

fn page(description: &Description, report: &WanReport) -> String {
    let mut lines = Vec::new();
    let [a, b] = &description.config.sites;
    for (report, (from, to)) in report.directions.iter().zip([(a, b), (b, a)]) {
        let DirectionReport {
            config,
            counters,
            load,
        } = report;
        lines.push(format!(
            "{} ({}) to {} ({})",
            from.name, from.ipv4, to.name, to.ipv4
        ));
        let mut line = |name: &str, text: String| lines.push(format!("    {name:<12}{text}"));
        line("settings", settings(config));
        line("sent", volume(counters.sent, counters.sent_bytes));
        line(
            "delivered",
            volume(counters.delivered, counters.delivered_bytes),
        );
        line(
            "lost",
            format!(
                "{} queue full, {} policed, {} random, {} burst, {} outage, {} beyond the MTU",
                counters.queue_drops,
                counters.policer_drops,
                counters.random_losses,
                counters.burst_losses,
                counters.outage_drops,
                counters.mtu_drops
            ),
        );
        line(
            "altered",
            format!(
                "{} corrupted, {} reordered, {} duplicated",
                counters.corrupted, counters.reordered, counters.duplicated
            ),
        );
        line(
            "queue",
            format!(
                "{} now, {} at most",
                ByteCount::new(counters.queue_bytes),
                ByteCount::new(counters.queue_bytes_max)
            ),
        );
        line(
            "machine",
            format!(
                "{} frames in, {} out; {} dropped, {} refused; {} late, at most {:.1} ms",
                load.frames_in,
                load.frames_out,
                load.receive_drops,
                load.send_failures,
                load.late_packets,
                load.latest_us as f64 / 1e3
            ),
        );
    }
    if let Some(radio) = &description.config.radio {
        lines.push(format!("radio: {}", medium(radio)));
    }
    let thread = &report.thread;
    lines.push(format!(
        "emulator (process {}): up {:.0} s, processor time {:.1} s, busy {:.0} % now, {:.0} % at \
         most, {}",
        description.pid,
        thread.uptime.as_secs_f64(),
        thread.cpu_time.as_secs_f64(),
        thread.busy * 100.0,
        thread.busy_max * 100.0,
        if thread.real_time {
            "real time"
        } else {
            "not real time"
        }
    ));
    if report.saturated() {
        let text = "SATURATED: this machine, not the path, has limited the traffic at some time";
        lines.push(text.to_owned());
    }
    lines.join("\n") + "\n"
}

fn volume(packets: u64, bytes: u64) -> String {
    format!("{packets} packets, {}", ByteCount::new(bytes))
}

/// Formats the settings of a radio medium that both directions share.
fn medium(radio: &Radio) -> String {
    format!(
        "half-duplex, {} and {:?} a frame, sent {} times; queue {} on either side; a full packet takes \
         {:.2} ms",
        radio.rate,
        radio.frame_time,
        radio.hops,
        radio.queue,
        radio.airtime(1500).as_secs_f64() * 1e3
    )
}

/// Formats the settings that differ from a perfect path. The text has the form of the command line
/// options.
fn settings(path: &PathConfig) -> String {
    let perfect = PathConfig::default();
    let mut parts = Vec::new();
    match path.rate {
        Some(rate) => parts.push(format!("rate {rate}, queue {}", path.queue)),
        None => parts.push("rate unlimited".to_owned()),
    }
    parts.push(format!("delay {:?}", path.delay));
    if path.jitter.spread > Duration::ZERO {
        let order = if path.jitter.in_order {
            " in order"
        } else {
            ""
        };
        parts.push(format!("jitter {:?}{order}", path.jitter.spread));
    }
    for (name, share) in [
        ("loss", path.loss),
        (
            "burst loss",
            path.bursts.map_or(0.0, |chain| chain.mean_loss()),
        ),
        ("corruption", path.corruption),
        ("reordering", path.reordering.probability),
        ("duplication", path.duplication),
    ] {
        if share > 0.0 {
            parts.push(format!("{name} {} %", (share * 1e6).round() / 1e4));
        }
    }
    if path.mtu != perfect.mtu {
        parts.push(format!("MTU {}", path.mtu));
    }
    if path.outage {
        parts.push("OUTAGE".to_owned());
    }
    parts.join(", ")
}
