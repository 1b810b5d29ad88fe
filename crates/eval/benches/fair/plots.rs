//! Plots of one run over time: the rates of all flows, and the delay of the bottleneck's queue
//! below them.

use std::{ops::Range, time::Duration};

use bench_kit::plot::{Axis, Mark, Plot, Series};
use link::sim::CrowdRecord;

/// State of the path according to the link's congestion controller, as one of three classes for
/// plots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ControllerView {
    Alone,
    Competing,
    Loss,
}

/// Returns the plots of a run, with a point for each half second.
pub fn of(record: &CrowdRecord, line_bits_per_s: f64) -> Vec<Plot> {
    let end = record.every() * record.len().saturating_sub(1) as u32;
    let count = (end.as_nanos() / POINT_EVERY.as_nanos()) as u32;
    let spans: Vec<Range<Duration>> = (0..count)
        .map(|number| POINT_EVERY * number..POINT_EVERY * (number + 1))
        .collect();
    vec![
        rates(record, line_bits_per_s, &spans),
        queue(record, &spans),
    ]
}

fn rates(record: &CrowdRecord, line_bits_per_s: f64, spans: &[Range<Duration>]) -> Plot {
    let (links, others): (Vec<usize>, Vec<usize>) =
        (0..record.flows()).partition(|flow| is_link(record, *flow));
    let mut series = Vec::new();
    for (kind, flows) in [("link", &links), ("TCP", &others)] {
        for (index, flow) in flows.iter().enumerate() {
            let rate = |span: &Range<Duration>| (middle(span), record.rate(*flow, span) * 1e-6);
            series.push(Series {
                label: match flows.len() {
                    1 => kind.to_owned(),
                    _ => format!("{kind} {}", index + 1),
                },
                points: spans.iter().map(rate).collect(),
                mark: Mark::Line,
            });
        }
    }
    let end_s = spans.last().map_or(0.0, |span| span.end.as_secs_f64());
    series.push(Series {
        label: "rate of the line".to_owned(),
        points: vec![
            (0.0, line_bits_per_s * 1e-6),
            (end_s, line_bits_per_s * 1e-6),
        ],
        mark: Mark::Line,
    });
    Plot {
        title: "Rate of each flow".to_owned(),
        x: Axis::linear("s"),
        y: Axis::linear("Mbit/s"),
        series,
    }
}

/// Plots the delay of the queue. A band of points above the curve shows the state of the path
/// according to the first link.
fn queue(record: &CrowdRecord, spans: &[Range<Duration>]) -> Plot {
    let delay = |span: &Range<Duration>| {
        let delay_ms = record.queue_mean(span).as_secs_f64() * 1e3;
        (middle(span), delay_ms)
    };
    let delays: Vec<(f64, f64)> = spans.iter().map(delay).collect();
    let top_ms = delays.iter().map(|(_, ms)| *ms).fold(5.0, f64::max);
    let mut series = vec![Series {
        label: "queue".to_owned(),
        points: delays,
        mark: Mark::Line,
    }];
    let link = (0..record.flows()).find(|flow| is_link(record, *flow));
    let mood = |span: &Range<Duration>| ControllerView::of(record.sample(link?, span.end).state);
    for (wanted, label) in [
        (ControllerView::Alone, "link: alone"),
        (ControllerView::Competing, "link: in company"),
        (ControllerView::Loss, "link: losing too much"),
    ] {
        let spans = spans.iter().filter(|span| mood(span) == Some(wanted));
        series.push(Series {
            label: label.to_owned(),
            points: spans.map(|span| (middle(span), 1.1 * top_ms)).collect(),
            mark: Mark::Points,
        });
    }
    Plot {
        title: "Delay of the queue, and what the first link takes the path for".to_owned(),
        x: Axis::linear("s"),
        y: Axis::linear("ms"),
        series,
    }
}

impl ControllerView {
    /// Returns the view for a state that the link reports. Returns `None` until the link's
    /// connection is established.
    fn of(state: &str) -> Option<Self> {
        match state {
            "" | "none" => None,
            "compete" | "compete test" => Some(Self::Competing),
            "loss drain" | "experiment" | "policed" => Some(Self::Loss),
            _ => Some(Self::Alone),
        }
    }
}

/// Returns whether a flow belongs to a link. Only a link reports the rate that its congestion
/// controller allows.
fn is_link(record: &CrowdRecord, flow: usize) -> bool {
    let mut samples = record.samples(flow).iter();
    samples.any(|sample| sample.allowed_bytes_per_s > 0.0)
}

fn middle(span: &Range<Duration>) -> f64 {
    (span.start + span.end).as_secs_f64() / 2.0
}

/// Time between two points.
const POINT_EVERY: Duration = Duration::from_millis(500);
