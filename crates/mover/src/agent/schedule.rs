//! Schedule of a job: a fixed interval, or a cron expression.

use std::{fmt, str::FromStr, time::Duration};

use croner::Cron;
use jiff::Zoned;
use units::parse_duration;

/// Schedule of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// A fixed interval between two starts.
    Every(Duration),
    /// Start times given by a cron expression, in the time zone of the agent.
    Cron(Box<Cron>),
}

/// An error: the text is not a valid schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is not a duration, or the duration is too short.
    #[error("{0:?} is no interval: expected a time of a second at least, such as \"10 min\"")]
    Every(String),
    /// The text is not a cron expression.
    #[error("{text:?} is no cron expression: {why}")]
    Cron {
        /// The rejected text.
        text: String,
        /// The reason that the parser reports.
        why: String,
    },
}

impl Schedule {
    /// Parses an interval, such as `"10 min"`.
    ///
    /// # Errors
    /// [`ScheduleError::Every`] if the text is not a duration, or if the duration is below one
    /// second.
    pub fn every(text: &str) -> Result<Self, ScheduleError> {
        match parse_duration(text) {
            Ok(interval) if interval >= EVERY_MIN => Ok(Self::Every(interval)),
            _ => Err(ScheduleError::Every(text.to_owned())),
        }
    }

    /// Parses a cron expression of five fields: minute, hour, day, month, weekday. An optional
    /// field for seconds may precede the minute.
    ///
    /// # Errors
    /// [`ScheduleError::Cron`] if the text is not a cron expression.
    pub fn cron(text: &str) -> Result<Self, ScheduleError> {
        match Cron::from_str(text) {
            Ok(cron) => Ok(Self::Cron(Box::new(cron))),
            Err(error) => Err(ScheduleError::Cron {
                text: text.to_owned(),
                why: wrong_field(text).unwrap_or_else(|| error.to_string()),
            }),
        }
    }

    /// Returns the first time after `last` at which the job is to run. Returns `None` if the
    /// calendar has no such day in the future.
    ///
    /// If the clock is put forward past a start time, the job runs at the first moment after the
    /// gap. If the clock is put back, a job with a fixed time of day runs once. An hourly job runs
    /// in both of the repeated hours.
    pub fn after(&self, last: &Zoned) -> Option<Zoned> {
        match self {
            Self::Every(interval) => last.checked_add(*interval).ok(),
            Self::Cron(cron) => cron.find_next_occurrence(last, false).ok(),
        }
    }
}

/// Describes the first invalid field of a cron expression and the field's range. The cron library
/// does not name the field. Returns `None` if each field is valid alone.
fn wrong_field(text: &str) -> Option<String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let names = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        // The cron library also accepts a year at the end.
        7 => return None,
        count => {
            return Some(format!(
                "expected 5 fields (minute, hour, day, month, weekday), or 6 with the seconds first, got {count}"
            ));
        }
    };
    let mut pairs = fields.iter().zip(names).enumerate();
    pairs.find_map(|(number, (field, (name, range)))| {
        let mut alone = vec!["*"; fields.len()];
        alone[number] = field;
        let is_wrong = Cron::from_str(&alone.join(" ")).is_err();
        is_wrong.then(|| format!("the {name} {field} is not valid: expected {range}"))
    })
}

/// Names and ranges of the fields of a cron expression.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day", "1 to 31"),
    ("month", "1 to 12 or JAN to DEC"),
    ("weekday", "0 to 7 or SUN to SAT"),
];

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => write!(f, "every {} s", interval.as_secs_f64()),
            Self::Cron(cron) => write!(f, "cron {}", cron.pattern),
        }
    }
}

/// Shortest permitted interval. A shorter interval is assumed to be a mistake.
const EVERY_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, tz::TimeZone};

    use super::*;

    /// The present daylight saving rule of Berlin. The test states the rule because the machine may
    /// have no time zone database.
    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn at(text: &str) -> Zoned {
        let time: Timestamp = text.parse().expect("a time");
        time.to_zoned(TimeZone::posix(BERLIN).expect("a rule"))
    }

    /// Returns the start times after `from` and before `to`.
    fn times(schedule: &Schedule, from: &str, to: &str) -> Vec<String> {
        let mut last = at(from);
        let mut times = Vec::new();
        while let Some(next) = schedule.after(&last).filter(|it| *it < at(to)) {
            assert!(next > last, "time goes on: {last} {next}");
            times.push(next.strftime("%d %H:%M%:z").to_string());
            last = next;
        }
        times
    }

    #[test]
    fn a_nightly_job_runs_once_in_each_night_also_when_clocks_change() {
        let nightly = Schedule::cron("30 2 * * *").expect("cron");
        // On 29 March 2026, the time 02:30 does not exist in Berlin. On 25 October, it occurs
        // twice.
        assert_eq!(
            times(
                &nightly,
                "2026-03-28T00:00:00+01:00",
                "2026-03-31T00:00:00+02:00"
            ),
            ["28 02:30+01:00", "29 03:00+02:00", "30 02:30+02:00"]
        );
        assert_eq!(
            times(
                &nightly,
                "2026-10-24T00:00:00+02:00",
                "2026-10-27T00:00:00+01:00"
            ),
            ["24 02:30+02:00", "25 02:30+02:00", "26 02:30+01:00"]
        );
    }

    #[test]
    fn an_hourly_job_runs_in_each_hour_that_there_is() {
        let hourly = Schedule::cron("15 * * * *").expect("cron");
        let spring = times(
            &hourly,
            "2026-03-29T00:00:00+01:00",
            "2026-03-30T00:00:00+02:00",
        );
        let autumn = times(
            &hourly,
            "2026-10-25T00:00:00+02:00",
            "2026-10-26T00:00:00+01:00",
        );
        assert_eq!((spring.len(), autumn.len()), (23, 25));
        let often = Schedule::every("10 min").expect("a time");
        let spring = times(
            &often,
            "2026-03-29T00:00:00+01:00",
            "2026-03-30T00:00:00+02:00",
        );
        assert_eq!(spring.len(), 23 * 6 - 1);
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_its_reason() {
        let said = Schedule::every("0 s").expect_err("too short").to_string();
        assert!(said.contains("a second at least"), "{said}");
        for (text, why) in [
            ("61 * * * *", "the minute 61 is not valid: expected 0 to 59"),
            ("0 25 * * *", "the hour 25 is not valid: expected 0 to 23"),
            ("0 2 0 * *", "the day 0 is not valid: expected 1 to 31"),
            (
                "0 2 * MAI *",
                "the month MAI is not valid: expected 1 to 12 or JAN to DEC",
            ),
            (
                "0 2 * * 8",
                "the weekday 8 is not valid: expected 0 to 7 or SUN to SAT",
            ),
            (
                "60 0 2 * * *",
                "the second 60 is not valid: expected 0 to 59",
            ),
            (
                "0 2-25 * * *",
                "the hour 2-25 is not valid: expected 0 to 23",
            ),
            (
                "0 3 * *",
                "expected 5 fields (minute, hour, day, month, weekday), or 6 with the seconds first, got 4",
            ),
        ] {
            let said = Schedule::cron(text).expect_err("no cron").to_string();
            assert_eq!(said, format!("{text:?} is no cron expression: {why}"));
        }
    }

    #[test]
    fn a_day_that_never_comes_is_no_time() {
        let never = Schedule::cron("0 0 30 2 *").expect("cron");
        assert_eq!(never.after(&at("2026-01-01T00:00:00+01:00")), None);
    }
}
