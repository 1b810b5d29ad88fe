//! Trials on paths that only lose packets. Warm transfers are compared with the ideal and with the
//! kernel's TCP.

use std::time::Duration;

use anyhow::Context;

use crate::{
    cell::PathCell,
    measure::{self, Outcome, Plan},
    page::ResultsPage,
    table,
};

/// Measures all cells. Returns whether all required results were reached.
pub fn run(cells: &[PathCell], plan: &Plan, page: &mut ResultsPage) -> anyhow::Result<bool> {
    let expected = cells.iter().map(|cell| expected(cell, plan)).sum();
    page.announce(cells.len(), plan.runs, expected)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (number, cell) in (1..).zip(cells) {
        let outcome = measure::measure(cell, plan, |done| {
            page.progress(&format!(" {number}/{}  {cell}: {done}", cells.len()));
        });
        outcomes.push(outcome.with_context(|| cell.to_string())?);
        page.draft(&report(plan, &outcomes, page.elapsed()))?;
    }
    page.finish(&report(plan, &outcomes, page.elapsed()))?;
    Ok(outcomes.iter().all(table::is_reached))
}

/// Returns the table, followed by the duration and the number of missed requirements.
fn report(plan: &Plan, outcomes: &[Outcome], elapsed: Duration) -> String {
    let mut text = table::render(outcomes, plan);
    let missed = outcomes
        .iter()
        .filter(|outcome| !table::is_reached(outcome))
        .count();
    text += &format!(
        "\ntook {:.0} min {:.0} s; {missed} of {} figures missed\n",
        elapsed.as_secs() / 60,
        elapsed.as_secs() % 60,
        outcomes.len()
    );
    text
}

/// Returns the duration of a cell's measurement if no failure occurs.
fn expected(cell: &PathCell, plan: &Plan) -> Duration {
    let run = cell.ideal(cell.size(plan.least));
    let warm_ups = 1 + plan.rivals.len() as u32;
    run * plan.runs as u32
        + cell.ideal(cell.warm_up()) * warm_ups
        + (plan.rival_limit + 3 * cell.rtt) * plan.rivals.len() as u32
        + Duration::from_secs(2)
}
