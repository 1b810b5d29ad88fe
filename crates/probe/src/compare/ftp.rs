//! Comparison of FTP sessions over several routes.

use super::{Comparison, failures, head, miss, row, seconds, share, text_row, time_rows};
use crate::ftp::{SessionRecord, SessionSummary};
use bench_kit::{
    plot::{Axis, Mark, Plot, Series},
    stats,
    table::Table,
};

impl Comparison {
    /// Compares sessions. The field `side` of each session contains one of `labels`.
    pub fn of_ftp(title: &str, labels: &[&str], sessions: &[SessionRecord]) -> Self {
        let of_side = |label: &&str| {
            SessionSummary::of(sessions.iter().filter(|session| session.side == **label))
        };
        let summaries: Vec<SessionSummary> = labels.iter().map(of_side).collect();
        let texts = |of: &dyn Fn(&SessionSummary) -> String| summaries.iter().map(of).collect();
        let mut rows = vec![
            text_row(
                "sessions complete",
                texts(&|s| share(s.sessions_complete, s.sessions)),
            ),
            text_row(
                "commands as expected",
                texts(&|s| share(s.commands_complete, s.commands_planned)),
            ),
            text_row(
                "transfers complete",
                texts(&|s| share(s.transfers_complete, s.transfers_planned)),
            ),
            text_row("failures", texts(&|s| failures(&s.failures))),
        ];
        for (what, time) in [
            ("response", (|s| s.response_s) as fn(&SessionSummary) -> _),
            ("transfer", |s| s.transfer_s),
            ("session", |s| s.session_s),
        ] {
            let times: Vec<_> = summaries.iter().map(time).collect();
            rows.extend(time_rows(what, &times));
        }
        let failed = sessions.iter().filter_map(|session| {
            let failure = session.failure.as_ref()?;
            Some(miss(&session.side, session.number, failure))
        });
        Self {
            title: title.to_owned(),
            table: Table {
                head: head(labels),
                rows,
            },
            detail: Some((
                "Median time of each command until its first reply, of transfers until the last"
                    .to_owned(),
                by_verb(labels, sessions),
            )),
            plots: plots(labels, sessions),
            misses: failed.collect(),
        }
    }
}

fn by_verb(labels: &[&str], sessions: &[SessionRecord]) -> Table {
    let mut verbs: Vec<&str> = Vec::new();
    for command in sessions.iter().flat_map(|session| &session.commands) {
        if !verbs.contains(&command.verb.as_str()) {
            verbs.push(&command.verb);
        }
    }
    let median = |label: &str, verb: &str| {
        let mine = sessions.iter().filter(|session| session.side == label);
        let sound = mine.flat_map(|session| &session.commands[..session.commands_complete()]);
        let seconds = sound
            .filter(|command| command.verb == verb)
            .filter_map(|command| {
                let plain = || Some((command.replied_us? - command.sent_us) as f64 / 1e6);
                command.transfer_seconds().or_else(plain)
            });
        stats::median(&seconds.collect::<Vec<_>>())
    };
    let rows = verbs.iter().map(|verb| {
        let values: Vec<_> = labels.iter().map(|label| median(label, verb)).collect();
        row(verb, &values, seconds)
    });
    Table {
        head: head(labels),
        rows: rows.collect(),
    }
}

/// Returns plots of the sessions. Two plots show the distributions of response times and of
/// transfer times. The third plot shows the durations of sessions over their start times.
fn plots(labels: &[&str], sessions: &[SessionRecord]) -> Vec<Plot> {
    let samples = |of: fn(&SessionRecord) -> Vec<f64>| -> Vec<(String, Vec<f64>)> {
        let of_way = |label: &&str| {
            let mine = sessions.iter().filter(|session| session.side == **label);
            ((*label).to_owned(), mine.flat_map(of).collect())
        };
        labels.iter().map(of_way).collect()
    };
    let first = sessions
        .iter()
        .map(|session| session.begun_unix_us)
        .min()
        .unwrap_or_default();
    let over_time = labels.iter().map(|label| Series {
        label: (*label).to_owned(),
        points: sessions
            .iter()
            .filter(|session| session.side == **label)
            .take(SESSIONS_OVER_TIME)
            .map(|session| {
                (
                    (session.begun_unix_us - first) as f64 / 1e6,
                    session.seconds(),
                )
            })
            .collect(),
        mark: Mark::Points,
    });
    vec![
        Plot::cdf(
            "Response time of commands",
            Axis::logarithmic("seconds"),
            &samples(|session| session.response_seconds().collect()),
        ),
        Plot::cdf(
            "Time of transfers, until the final reply",
            Axis::logarithmic("seconds"),
            &samples(|session| session.transfer_seconds().collect()),
        ),
        Plot {
            title: "Time of sessions, by when they began".to_owned(),
            x: Axis::linear("seconds since the first"),
            y: Axis::linear("seconds"),
            series: over_time.collect(),
        },
    ]
}

/// Maximum number of points in a plot over time. More points would merge into one area.
const SESSIONS_OVER_TIME: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, FailureKind, ftp::CommandRecord};

    fn session(side: &str, reply_us: u64, failure: Option<Failure>) -> SessionRecord {
        let command = |verb: &str, sent_us| CommandRecord {
            verb: verb.to_owned(),
            sent_us,
            replied_us: Some(sent_us + reply_us),
            code: Some(200),
            data: None,
        };
        SessionRecord {
            side: side.to_owned(),
            number: 0,
            begun_unix_us: 5,
            connected_us: Some(1),
            greeted_us: Some(2),
            commands: vec![command("NOOP", 10), command("PWD", 20_000)],
            commands_planned: 2,
            transfers_planned: 0,
            ended_us: 100_000,
            failure,
        }
    }

    #[test]
    fn both_sides_are_compared_and_failures_are_reported() {
        let failure = Failure::new(FailureKind::Reset, "PWD", "<gone>");
        let sessions = [
            session("direct", 4000, None),
            session("through", 1000, Some(failure)),
        ];
        let comparison = Comparison::of_ftp("Two ways", &["direct", "through"], &sessions);
        let text = comparison.table.text();
        for part in [
            "sessions complete     100.000 % (1 of 1)  0.000 % (0 of 1)",
            "response: median      4.0 ms              1.0 ms             0.25",
            "1 reset",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let page = comparison.html(&["a < b".to_owned()]);
        for part in [
            "a &lt; b",
            "through, number 0: PWD: reset: &lt;gone&gt;",
            "<svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let (_, verbs) = comparison.detail.expect("by verb");
        assert_eq!(verbs.rows[1], ["PWD", "4.0 ms", "-", "-"]);
    }
}
