//! One page with a plot of each run: the rates of all flows and the queue's delay over time. It
//! needs nothing beside itself, and is readable in light and dark.

use std::{fmt::Write, time::Duration};

use link::sim::Record;

/// Plots that belong together.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) plots: Vec<Plot>,
}

/// One run over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// What was required and reached, and whether it was.
    pub(crate) captions: Vec<(String, bool)>,
    capacity_mbit: f64,
    end_s: f64,
    /// Each flow: whether it is ours, and its Mbit/s over time.
    flows: Vec<(bool, Vec<f64>)>,
    queue_ms: Vec<f64>,
    /// What the first of ours takes the path for, over time.
    moods: Vec<Mood>,
}

/// States of the controller, as far as a plot can show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Absent,
    Alone,
    Company,
    Loss,
}

/// Samples that make up a point.
const BIN: Duration = Duration::from_millis(500);

impl Plot {
    pub(crate) fn of(record: &Record, capacity_bits_per_s: f64) -> Self {
        let end = record.every() * (record.len() - 1) as u32;
        let bins = (end.as_nanos() / BIN.as_nanos()) as u32;
        let spans = || (0..bins).map(|number| BIN * number..BIN * (number + 1));
        let is_ours = |flow: usize| {
            let samples = record.samples(flow);
            samples
                .iter()
                .any(|sample| sample.allowed_bytes_per_s > 0.0)
        };
        let flow = |flow: usize| {
            let rates = spans().map(|span| record.rate(flow, &span) / 1e6);
            (is_ours(flow), rates.collect())
        };
        let first_of_ours = (0..record.flows()).find(|flow| is_ours(*flow));
        let mood = |span: std::ops::Range<Duration>| {
            first_of_ours.map_or(Mood::Absent, |flow| {
                match record.sample(flow, span.end).state {
                    "" | "none" => Mood::Absent,
                    "compete" | "compete test" => Mood::Company,
                    "loss drain" | "experiment" | "policed" => Mood::Loss,
                    _ => Mood::Alone,
                }
            })
        };
        Self {
            title: String::new(),
            captions: Vec::new(),
            capacity_mbit: capacity_bits_per_s / 1e6,
            end_s: (BIN * bins).as_secs_f64(),
            flows: (0..record.flows()).map(flow).collect(),
            queue_ms: spans()
                .map(|span| record.queue_mean(&span).as_secs_f64() * 1e3)
                .collect(),
            moods: spans().map(mood).collect(),
        }
    }

    fn svg(&self) -> String {
        let mut svg = String::new();
        let top_mbit = self.flows.iter().flat_map(|(_, rates)| rates).copied();
        let top_mbit = top_mbit.fold(self.capacity_mbit, f64::max) * 1.05;
        let top_ms = self.queue_ms.iter().copied().fold(5.0, f64::max) * 1.1;
        let _ = write!(
            svg,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        let capacity = Panel::RATES.y(self.capacity_mbit / top_mbit);
        let _ = write!(
            svg,
            "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{capacity:.1}\" y2=\"{capacity:.1}\"/>"
        );
        // Ours lie above the others.
        for wanted in [false, true] {
            for (is_ours, rates) in &self.flows {
                if *is_ours == wanted {
                    let class = if wanted { "ours" } else { "tcp" };
                    let points = Panel::RATES.points(rates, top_mbit);
                    let _ = write!(svg, "<polyline class=\"{class}\" points=\"{points}\"/>");
                }
            }
        }
        self.write_moods(&mut svg);
        let points = Panel::QUEUE.points(&self.queue_ms, top_ms);
        let _ = write!(svg, "<polyline class=\"queue\" points=\"{points}\"/>");
        Panel::RATES.write_axis(&mut svg, top_mbit, "Mbit/s");
        Panel::QUEUE.write_axis(&mut svg, top_ms, "queue, ms");
        let step_s = if self.end_s > 60.0 { 30.0 } else { 10.0 };
        let mut at_s = 0.0;
        while at_s <= self.end_s {
            let x = LEFT + (RIGHT - LEFT) * at_s / self.end_s.max(1.0);
            let y = HEIGHT - 4.0;
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{at_s} s</text>"
            );
            at_s += step_s;
        }
        svg.push_str("</svg>");
        svg
    }

    fn write_moods(&self, svg: &mut String) {
        let width = (RIGHT - LEFT) / self.moods.len().max(1) as f64;
        let mut at = 0;
        for run in self.moods.chunk_by(|a, b| a == b) {
            let class = match run[0] {
                Mood::Absent => "",
                Mood::Alone => "alone",
                Mood::Company => "company",
                Mood::Loss => "loss",
            };
            if !class.is_empty() {
                let x = LEFT + width * at as f64;
                let run_width = width * run.len() as f64;
                let _ = write!(
                    svg,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{MOODS_Y}\" width=\"{run_width:.1}\" height=\"5\"/>"
                );
            }
            at += run.len();
        }
    }
}

/// A part of the picture with its own scale.
struct Panel {
    top: f64,
    bottom: f64,
}

impl Panel {
    const RATES: Self = Self {
        top: 8.0,
        bottom: 128.0,
    };
    const QUEUE: Self = Self {
        top: 146.0,
        bottom: 196.0,
    };

    fn y(&self, fraction: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * fraction
    }

    fn points(&self, values: &[f64], top: f64) -> String {
        let step = (RIGHT - LEFT) / values.len().max(1) as f64;
        let mut points = String::new();
        for (index, value) in values.iter().enumerate() {
            let x = LEFT + step * (index as f64 + 0.5);
            let _ = write!(points, "{x:.1},{:.1} ", self.y(value / top));
        }
        points
    }

    fn write_axis(&self, svg: &mut String, top: f64, label: &str) {
        let (bottom, head) = (self.bottom, self.top);
        let middle = (head + bottom) / 2.0;
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text x=\"{x}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{top:.0}</text>\
             <text transform=\"translate(10 {middle}) rotate(-90)\" text-anchor=\"middle\">{label}</text>",
            x = LEFT - 4.0,
            y = head + 8.0,
        );
    }
}

/// The page as HTML; `note` says what was run, in a sentence or two.
pub(crate) fn render(note: &str, sections: &[Section]) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(page, "{}</p>", escape(note));
    for section in sections {
        let _ = write!(
            page,
            "<h2>{}</h2><div class=\"plots\">",
            escape(section.name)
        );
        for plot in &section.plots {
            let _ = write!(
                page,
                "<figure><h3>{}</h3>{}<figcaption>",
                escape(&plot.title),
                plot.svg()
            );
            for (caption, is_kept) in &plot.captions {
                let (class, mark) = if *is_kept {
                    ("", "")
                } else {
                    (" class=\"missed\"", "missed: ")
                };
                let _ = write!(page, "<div{class}>{mark}{}</div>", escape(caption));
            }
            page.push_str("</figcaption></figure>");
        }
        page.push_str("</div>");
    }
    page.push_str("</body></html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 214.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 472.0;
const MOODS_Y: f64 = 132.0;

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>How the link shares</title>
<style>
:root { color-scheme: light dark; --ground: #fff; --text: #222; --faint: #888; --ours: #1f6fb2;
  --tcp: #d9822b; --queue: #6b7a86; --alone: #b9d3e8; --company: #e8c39a; --loss: #d98a8a;
  --missed: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181b; --text: #ddd; --faint: #888;
  --ours: #6cb4f0; --tcp: #f0a95c; --queue: #9fb0bd; --alone: #2d4a61; --company: #6b4a22;
  --loss: #7a3434; --missed: #ff8a80; } }
body { background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, sans-serif;
  margin: 2em auto; max-width: 1500px; padding: 0 1em; }
h2 { font-size: 1.15em; margin: 2em 0 0.5em; }
h3 { font-size: 0.95em; font-weight: 600; margin: 0; }
.plots { display: grid; gap: 1.5em; grid-template-columns: repeat(auto-fill, minmax(400px, 1fr)); }
figure { margin: 0; }
figcaption { color: var(--faint); font-size: 0.82em; }
.missed { color: var(--missed); }
svg { display: block; width: 100%; }
svg text { fill: var(--faint); font-size: 10px; }
polyline { fill: none; stroke-linejoin: round; stroke-width: 1.4; }
.ours { stroke: var(--ours); } .tcp { stroke: var(--tcp); } .queue { stroke: var(--queue); }
.axis { stroke: var(--faint); stroke-width: 0.5; }
.limit { stroke: var(--faint); stroke-dasharray: 3 3; stroke-width: 0.7; }
.alone { fill: var(--alone); } .company { fill: var(--company); } .loss { fill: var(--loss); }
.key { border-radius: 2px; display: inline-block; height: 0.7em; margin: 0 0.3em 0 1em; width: 1.4em; }
</style></head><body>
<h1>How the link shares a bottleneck</h1>
<p><span class="key" style="background: var(--ours)"></span>the link
<span class="key" style="background: var(--tcp)"></span>TCP
<span class="key" style="background: var(--queue)"></span>delay of the bottleneck's queue.
The band says what the first link takes itself for:
<span class="key" style="background: var(--alone)"></span>alone
<span class="key" style="background: var(--company)"></span>in company
<span class="key" style="background: var(--loss)"></span>losing too much.
Half a second a point.
"#;
