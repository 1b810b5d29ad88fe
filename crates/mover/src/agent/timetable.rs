//! Timetable of an agent. The timetable starts a job at its scheduled times, after a change of its
//! watched folder, and after an unfinished run.
//!
//! The module has no clock and no timer. The driver passes the wall clock's time to each method,
//! and the timetable returns the jobs to start. The wall clock may be put forward or back. Tests
//! simulate years within milliseconds.

use std::time::Duration;

use jiff::Zoned;

use super::schedule::Schedule;

/// Start times of all jobs, in one time zone.
#[derive(Debug)]
pub struct Timetable {
    jobs: Vec<ScheduledJob>,
}

/// Rules that determine when one job starts.
#[derive(Debug, Clone)]
pub struct JobTimes {
    /// Schedule of the job.
    pub schedule: Schedule,
    /// Whether a change of the watched folder starts the job. Such a job also starts when the agent
    /// starts.
    pub is_watched: bool,
    /// Time after which an unchanged file counts as settled.
    pub settle: Duration,
}

/// Outcome of a run: the kinds of work that the run could not finish.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOutcome {
    /// Whether the run skipped files because programs may still be writing them.
    pub unsettled: bool,
    /// Whether any file, directory or other step of the run failed.
    pub failures: bool,
}

impl RunOutcome {
    /// Returns whether the run finished all work. If so, only the schedule determines the next run.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

#[derive(Debug)]
struct ScheduledJob {
    times: JobTimes,
    last_start: Option<Zoned>,
    /// Wall-clock time at which `scheduled` was computed.
    reckoned: Zoned,
    /// Next start according to the schedule.
    scheduled: Option<Zoned>,
    /// Time of the next start because of a change of the folder, or because of unfinished work of
    /// the last run.
    wanted: Option<Zoned>,
    is_running: bool,
    /// Number of consecutive runs with failures.
    failures: u32,
}

impl Timetable {
    /// Creates the timetable of jobs. Each job comes with its last start, or `None` if the job was
    /// never started.
    ///
    /// If a job has missed start times since its last start, the job runs once immediately. If a
    /// job was never started and has an interval, the job also runs immediately. If a job was never
    /// started and has a calendar schedule, the job waits for its next time.
    pub fn new(jobs: Vec<(JobTimes, Option<Zoned>)>, now: &Zoned) -> Self {
        let jobs = jobs.into_iter().map(|(times, last_start)| {
            let mut job = ScheduledJob {
                times,
                last_start,
                reckoned: now.clone(),
                scheduled: None,
                wanted: None,
                is_running: false,
                failures: 0,
            };
            let is_new = job.last_start.is_none();
            match job.times.schedule {
                Schedule::Every(_) if is_new => job.scheduled = Some(now.clone()),
                _ => job.reschedule(now),
            }
            // The folder may have changed before the agent started, so a watched job runs at once.
            job.wanted = job.times.is_watched.then(|| now.clone());
            job
        });
        Self {
            jobs: jobs.collect(),
        }
    }

    /// Returns a job to start now. The job counts as running until [`ended`](Self::ended) is
    /// called.
    pub fn poll(&mut self, now: &Zoned) -> Option<usize> {
        for job in &mut self.jobs {
            job.follow_clock(now);
        }
        let is_due = |it: &ScheduledJob| !it.is_running && it.due().is_some_and(|due| due <= *now);
        let first = self.jobs.iter().position(is_due)?;
        let job = &mut self.jobs[first];
        job.is_running = true;
        job.last_start = Some(now.clone());
        job.wanted = None;
        job.reschedule(now);
        Some(first)
    }

    /// Returns the earliest start time of all jobs, without the jobs that are running. A clock
    /// change or another event may change this time.
    pub fn due(&self) -> Option<Zoned> {
        let waiting = self.jobs.iter().filter(|it| !it.is_running);
        waiting.filter_map(ScheduledJob::due).min()
    }

    /// Returns the next start of this job. While the job is running, returns the start after the
    /// present run.
    pub fn next(&self, job: usize) -> Option<Zoned> {
        self.jobs[job].due()
    }

    /// Records that the folder of a job has changed.
    pub fn noticed(&mut self, job: usize, now: &Zoned) {
        let job = &mut self.jobs[job];
        job.want(now, job.times.settle);
    }

    /// Schedules the job to start immediately.
    pub fn asked(&mut self, job: usize, now: &Zoned) {
        self.jobs[job].want(now, Duration::ZERO);
    }

    /// Records that a run has ended.
    pub fn ended(&mut self, job: usize, outcome: RunOutcome, now: &Zoned) {
        let job = &mut self.jobs[job];
        job.is_running = false;
        if outcome.unsettled {
            let settle = job.times.settle;
            job.want(now, settle);
        }
        if outcome.failures {
            let doublings = job.failures.min(RETRY_DOUBLINGS);
            job.failures += 1;
            job.want(now, RETRY_FIRST * 2_u32.pow(doublings));
        } else {
            job.failures = 0;
        }
    }
}

impl ScheduledJob {
    fn due(&self) -> Option<Zoned> {
        self.scheduled.iter().chain(&self.wanted).min().cloned()
    }

    fn want(&mut self, now: &Zoned, after: Duration) {
        let at = later(now, after);
        if self.wanted.as_ref().is_none_or(|wanted| *wanted > at) {
            self.wanted = Some(at);
        }
    }

    /// Computes the next start according to the schedule.
    fn reschedule(&mut self, now: &Zoned) {
        let last = self.last_start.as_ref().unwrap_or(now);
        // The zone of the machine may have changed since the last start.
        let last = last.with_time_zone(now.time_zone().clone());
        self.reckoned = now.clone();
        self.scheduled = self.times.schedule.after(&last);
    }

    /// Adjusts the times of a job after the clock was put back. Without this adjustment, a job
    /// could wait until the clock again reaches a time that it showed before the change.
    fn follow_clock(&mut self, now: &Zoned) {
        // Small backward steps are ignored, because they are normal for a synchronised clock.
        let latest = later(now, CLOCK_STEP);
        let is_put_back = |it: &Zoned| *it > latest;
        if is_put_back(&self.reckoned) || self.last_start.as_ref().is_some_and(is_put_back) {
            self.last_start = self.last_start.take().map(|it| it.min(now.clone()));
            self.reschedule(now);
        }
        let latest = later(now, self.times.settle.max(RETRY_MAX));
        if self.wanted.as_ref().is_some_and(|it| *it > latest) {
            self.wanted = Some(latest);
        }
    }
}

fn later(now: &Zoned, after: Duration) -> Zoned {
    now.checked_add(after).unwrap_or_else(|_| now.clone())
}

/// Pause before a run with failures is repeated. Each further consecutive failure doubles the
/// pause.
const RETRY_FIRST: Duration = Duration::from_secs(60);

/// Largest backward step of the clock for which the start times stay unchanged.
const CLOCK_STEP: Duration = Duration::from_secs(60);

const RETRY_DOUBLINGS: u32 = 5;

const RETRY_MAX: Duration = Duration::from_secs(60 * 32);

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp, tz::TimeZone};

    use super::*;

    const UNSETTLED: RunOutcome = RunOutcome {
        unsettled: true,
        failures: false,
    };
    const FAILURES: RunOutcome = RunOutcome {
        unsettled: false,
        failures: true,
    };

    fn at(minutes: f64) -> Zoned {
        let start: Timestamp = "2026-11-25T00:00:00Z".parse().expect("a time");
        let time = start + SignedDuration::from_millis((minutes * 60e3) as i64);
        time.to_zoned(TimeZone::UTC)
    }

    fn every(minutes: u64) -> JobTimes {
        JobTimes {
            schedule: Schedule::Every(Duration::from_secs(60 * minutes)),
            is_watched: false,
            settle: Duration::from_secs(10),
        }
    }

    fn watched() -> JobTimes {
        JobTimes {
            schedule: Schedule::Every(Duration::from_secs(86_400)),
            is_watched: true,
            settle: Duration::from_secs(30),
        }
    }

    fn cron(text: &str) -> JobTimes {
        JobTimes {
            schedule: Schedule::cron(text).expect("cron"),
            is_watched: false,
            settle: Duration::ZERO,
        }
    }

    /// Returns the jobs' start times in minutes, until `end`. Each simulated run lasts `takes`
    /// minutes and finishes all work.
    fn starts(table: &mut Timetable, from: f64, end: f64, takes: f64) -> Vec<(usize, f64)> {
        let mut starts = Vec::new();
        let mut ends: Vec<(f64, usize)> = Vec::new();
        let mut now = from;
        while now <= end {
            ends.retain(|(when, job)| {
                if *when <= now {
                    table.ended(*job, RunOutcome::default(), &at(*when));
                }
                *when > now
            });
            while let Some(job) = table.poll(&at(now)) {
                starts.push((job, now));
                ends.push((now + takes, job));
            }
            now += 0.25;
        }
        starts
    }

    #[test]
    fn an_interval_counts_from_the_last_start_also_over_a_restart() {
        let mut table = Timetable::new(vec![(every(10), None)], &at(0.0));
        assert_eq!(
            starts(&mut table, 0.0, 25.0, 1.0),
            [(0, 0.0), (0, 10.0), (0, 20.0)]
        );
        let mut again = Timetable::new(vec![(every(10), Some(at(20.0)))], &at(26.0));
        assert_eq!(starts(&mut again, 26.0, 41.0, 1.0), [(0, 30.0), (0, 40.0)]);
        let mut late = Timetable::new(vec![(every(10), Some(at(20.0)))], &at(95.0));
        assert_eq!(
            starts(&mut late, 95.0, 106.0, 1.0),
            [(0, 95.0), (0, 105.0)],
            "what was missed is done once"
        );
    }

    #[test]
    fn a_calendar_waits_for_its_time_and_makes_up_for_one_that_passed() {
        let mut table = Timetable::new(vec![(cron("30 * * * *"), None)], &at(0.0));
        assert_eq!(starts(&mut table, 0.0, 91.0, 1.0), [(0, 30.0), (0, 90.0)]);
        let mut late = Timetable::new(vec![(cron("30 * * * *"), Some(at(30.0)))], &at(200.0));
        assert_eq!(
            starts(&mut late, 200.0, 211.0, 1.0),
            [(0, 200.0), (0, 210.0)]
        );
    }

    #[test]
    fn a_calendar_follows_the_zone_of_the_machine() {
        let east = TimeZone::posix("<+03>-3").expect("a rule");
        let now = at(60.0).with_time_zone(east);
        let mut table = Timetable::new(vec![(cron("0 6 * * *"), Some(at(0.0)))], &now);
        assert_eq!(table.due(), Some(at(180.0)), "06:00 of the zone of now");
        assert_eq!(table.poll(&at(180.0)), Some(0));
        table.ended(0, RunOutcome::default(), &at(181.0));
        assert_eq!(table.due(), Some(at(360.0)), "06:00 UTC");
    }

    #[test]
    fn a_run_that_takes_longer_than_the_interval_is_followed_by_the_next_and_not_joined_by_it() {
        let mut table = Timetable::new(vec![(every(10), None)], &at(0.0));
        assert_eq!(
            starts(&mut table, 0.0, 50.0, 15.0),
            [(0, 0.0), (0, 15.0), (0, 30.0), (0, 45.0)]
        );
    }

    #[test]
    fn a_change_of_the_folder_starts_a_job_when_it_can_have_settled() {
        let mut table = Timetable::new(vec![(watched(), None)], &at(0.0));
        assert_eq!(table.poll(&at(0.0)), Some(0), "what is there already");
        table.ended(0, RunOutcome::default(), &at(0.0));
        assert_eq!(table.due(), Some(at(24.0 * 60.0)));
        table.noticed(0, &at(5.0));
        table.noticed(0, &at(5.25));
        assert_eq!(table.due(), Some(at(5.5)));
        assert_eq!(starts(&mut table, 5.25, 20.0, 1.0), [(0, 5.5)]);
        let mut again = Timetable::new(vec![(watched(), Some(at(5.5)))], &at(20.0));
        assert_eq!(
            again.due(),
            Some(at(20.0)),
            "nobody told of what came meanwhile"
        );
        assert_eq!(again.poll(&at(20.0)), Some(0));
        table.noticed(0, &at(21.0));
        assert_eq!(table.poll(&at(21.5)), Some(0));
        table.noticed(0, &at(21.6));
        assert_eq!(table.poll(&at(22.2)), None, "it still runs");
        table.ended(0, UNSETTLED, &at(22.3));
        assert_eq!(
            table.poll(&at(22.3)),
            Some(0),
            "a change while it ran counts"
        );
    }

    #[test]
    fn failures_are_tried_again_ever_more_rarely_and_never_later_than_the_schedule() {
        let mut table = Timetable::new(vec![(watched(), None)], &at(0.0));
        let mut now = 0.0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(table.poll(&at(now)), Some(0));
            table.ended(0, FAILURES, &at(now));
            let next = table.due().expect("again");
            let pause = next.duration_since(&at(now)).as_secs_f64() / 60.0;
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]);
        let mut table = Timetable::new(vec![(every(10), None)], &at(0.0));
        assert_eq!(table.poll(&at(0.0)), Some(0));
        table.ended(0, FAILURES, &at(9.5));
        assert_eq!(table.due(), Some(at(10.0)));
    }

    #[test]
    fn a_file_that_fails_does_not_hold_up_one_that_settles() {
        let mut table = Timetable::new(vec![(watched(), None)], &at(0.0));
        let outcome = RunOutcome {
            unsettled: true,
            failures: true,
        };
        for now in 0..8 {
            let now = f64::from(now) / 2.0;
            assert_eq!(table.poll(&at(now)), Some(0));
            table.ended(0, outcome, &at(now));
            assert_eq!(table.due(), Some(at(now + 0.5)));
        }
    }

    #[test]
    fn a_clock_that_is_put_back_stops_no_job() {
        let mut table = Timetable::new(
            vec![(every(10), Some(at(600.0))), (watched(), None)],
            &at(0.0),
        );
        assert_eq!(table.poll(&at(0.0)), Some(1));
        table.ended(1, FAILURES, &at(600.0));
        let first = starts(&mut table, 0.0, 33.0, 1.0);
        assert_eq!(first, [(0, 10.0), (0, 20.0), (0, 30.0), (1, 32.0)]);
    }
}
