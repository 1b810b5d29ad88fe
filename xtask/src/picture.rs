//! `cargo xtask picture`: draws the picture of the README, `docs/time-of-10-gb.svg`, from the
//! tables of `docs/results/wan.md`.

use std::{fmt::Write as _, fs};

use anyhow::{Context, Result, bail};

use crate::{Failure, shell::root};

const FILE_BYTES: f64 = 10e9;
const SOURCE: &str = "docs/results/wan.md";
const PICTURE: &str = "docs/time-of-10-gb.svg";

/// The paths of the picture: name in the table, title for readers, and round-trip time in seconds.
const PATHS: [(&str, &str, f64); 2] = [
    (
        "300 Mbit/s, 200 ms, 0.1 %",
        "An ocean: 300 Mbit/s, 200 ms, 0.1 % loss",
        0.2,
    ),
    (
        "300 Mbit/s, 1000 ms, 0.1 %",
        "A satellite behind a backbone: 300 Mbit/s, 1 s, 0.1 % loss",
        1.0,
    ),
];
/// First words of the row for a first transfer. The row states the excess of such a transfer over
/// the ideal time, in round trips.
const COLD: &str = "never seen before";

/// Range of the time axis in seconds. The axis is logarithmic.
const LEAST_S: f64 = 60.0;
const MOST_S: f64 = 500_000.0;
const TICKS: [(f64, &str); 5] = [
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (36_000.0, "10 h"),
    (360_000.0, "100 h"),
];

const WIDTH: u32 = 760;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const BAR: u32 = 20;
const GAP: u32 = 6;
const HEAD: u32 = 30;

/// Time of one kind of transfer over one path, as a bar of the picture.
struct Bar {
    name: &'static str,
    seconds: f64,
    is_ours: bool,
}

pub(crate) fn run() -> Result<Result<(), Failure>> {
    let text = fs::read_to_string(root().join(SOURCE)).context(SOURCE)?;
    let cold_rtts = cell(&text, COLD, 1)?;
    let mut parts = Vec::new();
    for (row, title, rtt_s) in PATHS {
        let (size, ideal_s) = (cell(&text, row, 1)? * 1e6, cell(&text, row, 2)?);
        // The ideal time for a file of any size includes one round trip.
        let ideal_s = (ideal_s - rtt_s) * FILE_BYTES / size + rtt_s;
        let by = |column| Ok::<_, anyhow::Error>(ideal_s / cell(&text, row, column)?);
        let warm_s = by(4)?;
        let bars = [
            ("FTP, CUBIC", by(6)?, false),
            ("FTP, BBR", by(7)?, false),
            ("Longhaul, first transfer", warm_s + cold_rtts * rtt_s, true),
            ("Longhaul", warm_s, true),
        ];
        let bars = bars.map(|(name, seconds, is_ours)| Bar {
            name,
            seconds,
            is_ours,
        });
        for bar in &bars {
            println!("{title}: {}: {}", bar.name, duration(bar.seconds));
        }
        parts.push((title, bars));
    }
    fs::write(root().join(PICTURE), draw(&parts)?).context(PICTURE)?;
    println!("{PICTURE} is written");
    Ok(Ok(()))
}

/// Returns the number at the beginning of a table cell. `row` is the beginning of the table row.
fn cell(text: &str, row: &str, column: usize) -> Result<f64> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("| {row} |")));
    let line = line.with_context(|| format!("{SOURCE} has no row {row:?}"))?;
    let cell = line.split('|').nth(column + 1).unwrap_or_default().trim();
    let number = cell.split(' ').next().unwrap_or_default();
    match number.parse() {
        Ok(0.0) => bail!("{SOURCE}: {row}: column {column} is zero"),
        Ok(number) => Ok(number),
        Err(_) => bail!("{SOURCE}: {row}: column {column} is no number: {cell:?}"),
    }
}

fn draw(parts: &[(&str, [Bar; 4])]) -> Result<String, std::fmt::Error> {
    let part_height = HEAD + 4 * (BAR + GAP) + 14;
    let bottom = 10 + part_height * parts.len() as u32;
    let height = bottom + 46;
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">Time of a 10 GB file: {}</title>\n{STYLE}",
        described(parts)
    )?;
    for (seconds, label) in TICKS {
        let x = place(seconds);
        writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.0}\" y1=\"10\" x2=\"{x:.0}\" y2=\"{bottom}\"/>\n\
             <text class=\"tick\" x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16
        )?;
    }
    for (number, (title, bars)) in parts.iter().enumerate() {
        let top = 10 + part_height * number as u32;
        writeln!(
            svg,
            "<text class=\"part\" x=\"10\" y=\"{}\">{title}</text>",
            top + 18
        )?;
        for (number, bar) in bars.iter().enumerate() {
            let y = top + HEAD + number as u32 * (BAR + GAP);
            let end = place(bar.seconds);
            let kind = if bar.is_ours { "ours" } else { "theirs" };
            writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <rect class=\"{kind}\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\n\
                 <text class=\"value\" x=\"{:.0}\" y=\"{}\">{}</text>",
                LEFT - 8.0,
                y + 15,
                bar.name,
                end - LEFT,
                end + 6.0,
                y + 15,
                duration(bar.seconds)
            )?;
        }
    }
    writeln!(
        svg,
        "<text class=\"tick\" x=\"10\" y=\"{}\">Time of a 10 GB file at the rates of docs/results/wan.md; the axis is logarithmic</text>\n</svg>",
        bottom + 38
    )?;
    Ok(svg)
}

/// Returns a description of the picture for readers who cannot see it.
fn described(parts: &[(&str, [Bar; 4])]) -> String {
    let parts = parts.iter().map(|(title, bars)| {
        let bars = bars.iter();
        let bars: Vec<_> = bars
            .map(|bar| format!("{} {}", bar.name, duration(bar.seconds)))
            .collect();
        format!("{title}: {}", bars.join(", "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn place(seconds: f64) -> f64 {
    let share = (seconds / LEAST_S).ln() / (MOST_S / LEAST_S).ln();
    LEFT + share * (f64::from(WIDTH) - LEFT - RIGHT)
}

fn duration(seconds: f64) -> String {
    match seconds {
        ..600.0 => format!("{:.1} min", seconds / 60.0),
        ..5_400.0 => format!("{:.0} min", seconds / 60.0),
        ..36_000.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

/// Style sheet with colours for the light and the dark theme. Each colour has a contrast of at
/// least 4.5 to its background.
const STYLE: &str = "\
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.part { font-weight: 600; }
.tick { font-size: 11px; fill: #59636e; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.theirs { fill: #8c959f; }
.ours { fill: #0969da; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.tick { fill: #9198a1; }
.grid { stroke: #3d444d; }
.theirs { fill: #656c76; }
.ours { fill: #4493f8; }
}
</style>";
