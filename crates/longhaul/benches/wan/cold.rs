//! Trials of the first transfer of a link, on an unknown path and on a path that earlier gateway
//! processes have measured.

use std::time::Duration;

use link::sim::SimSite;
use units::{BitRate, ByteCount};

use crate::{page::ResultsPage, path_pair::PathPair, setting::Setting, table, virtual_time};

const RATE: BitRate = BitRate::mbit(300);
const RTT: Duration = Duration::from_millis(200);
const SIZE: ByteCount = ByteCount::megabytes(100);
const LIMIT: Duration = Duration::from_secs(60);
/// Rows of the table. Each row has the permitted excess over the ideal time, in round trips.
const ROWS: [(&str, f64); 2] = [
    ("never seen before", 4.0),
    ("seen by an earlier run of both gateways", 2.0),
];

/// Measured excess over the ideal time, in round trips. There is one value for each row.
type Excess = [f64; ROWS.len()];

fn excess_rtts(took_s: f64) -> f64 {
    let ideal = PathPair::plain(RATE, RTT).ideal(SIZE);
    (took_s - ideal.as_secs_f64()) / RTT.as_secs_f64()
}

fn over_kernel(seed: u64) -> anyhow::Result<Excess> {
    let mut setting = Setting::new(PathPair::plain(RATE, RTT).paths(), seed)?;
    setting.settle()?;
    let unknown_s = setting.transfer_s(SIZE, LIMIT)?;
    setting.restart_gateways()?;
    setting.settle()?;
    let known_s = setting.transfer_s(SIZE, LIMIT)?;
    Ok([unknown_s, known_s].map(excess_rtts))
}

fn in_virtual_time(seed: u64) -> Excess {
    let route = PathPair::plain(RATE, RTT);
    let mut world = virtual_time::world(&route, seed);
    let unknown_s = virtual_time::transfer_s(&mut world, SIZE);
    for side in [SimSite::A, SimSite::B] {
        world.restart(side, &virtual_time::config(&route, seed));
    }
    virtual_time::settle(&mut world);
    let known_s = virtual_time::transfer_s(&mut world, SIZE);
    [unknown_s, known_s].map(excess_rtts)
}

/// Runs all rows. Returns whether all required results were reached.
pub fn run(runs: usize, page: &mut ResultsPage) -> anyhow::Result<bool> {
    page.announce(ROWS.len(), runs, EXPECTED * runs as u32)?;
    let mut found: Vec<Excess> = Vec::new();
    for seed in 1..=runs {
        let excess = over_kernel(seed as u64).unwrap_or_else(|error| {
            page.progress(&format!("run {seed} failed: {error:#}"));
            [f64::INFINITY; ROWS.len()]
        });
        page.progress(&format!("run {seed}: {excess:.2?} RTT beyond ideal"));
        found.push(excess);
    }
    let in_virtual_time = virtual_time::by_seeds(in_virtual_time);
    let header = [
        "100 MB at 300 Mbit/s, 200 ms; path",
        "RTT beyond ideal",
        "required",
        "",
        "virtual",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    let mut is_reached = true;
    for (index, (name, most)) in ROWS.into_iter().enumerate() {
        let figures: Vec<f64> = found.iter().map(|excess| excess[index]).collect();
        let is_missed = table::middle(&figures) > most;
        is_reached &= !is_missed;
        lines.push(vec![
            name.to_owned(),
            table::spread(&figures),
            format!("<= {most}"),
            if is_missed { "MISSED" } else { "" }.to_owned(),
            table::spread(&in_virtual_time[index]),
        ]);
    }
    page.finish(&table::align(&lines))?;
    Ok(is_reached)
}

/// Duration of a run if no failure occurs.
const EXPECTED: Duration = Duration::from_secs(14);
