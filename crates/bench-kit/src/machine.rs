//! Load of the machine during a measurement, and processor time of processes.
//!
//! A bench in real time shares the processors with all other processes. Its report states the load,
//! so that readers can judge how reliable the figures are.

use std::{
    fmt, fs, thread,
    time::{Duration, Instant},
};

use anyhow::Context;

/// A point in time, with the processor time that all processes have used up to this point.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    busy: Duration,
    stolen: Duration,
}

/// Load of the machine during a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MachineLoad {
    /// Used processor time, as a fraction of the time of all processors. It includes the time that
    /// a hypervisor took.
    pub busy: f64,
    /// Processor time of other processes, as a fraction of the time of all processors. The time of
    /// this process and its children is not included.
    pub others: f64,
}

/// Processor time of a process: the sum of user time and system time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// Time of all threads, including threads that have ended.
    pub all: Duration,
    /// Processor time of the running threads that have a given name.
    pub of_thread: Duration,
}

/// Unit of time in `/proc`. USER_HZ is 100 on all common architectures of Linux.
const TICK: Duration = Duration::from_millis(10);

impl Moment {
    /// Reads the present moment.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn now() -> anyhow::Result<Self> {
        let path = "/proc/stat";
        let stat = fs::read_to_string(path).context(path)?;
        let total = stat.lines().next().unwrap_or_default();
        let fields: Vec<u32> = total
            .split_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // The fields are user, nice, system, idle, iowait, irq, softirq and steal (proc_stat(5)).
        let &[user, nice, system, _, _, irq, softirq, stolen, ..] = &fields[..] else {
            anyhow::bail!("the format of {path}: {total:?}");
        };
        Ok(Self {
            at: Instant::now(),
            busy: TICK * (user + nice + system + irq + softirq),
            stolen: TICK * stolen,
        })
    }

    /// Returns the load since this moment. `ours` is the processor time that the bench itself used
    /// since then.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn load_since(&self, ours: Duration) -> anyhow::Result<MachineLoad> {
        let now = Self::now()?;
        let capacity = (now.at - self.at) * processors() as u32;
        let used = (now.busy - self.busy) + (now.stolen - self.stolen);
        let share = |time: Duration| time.as_secs_f64() / capacity.as_secs_f64();
        Ok(MachineLoad {
            busy: share(used).min(1.0),
            others: share(used.saturating_sub(ours)).min(1.0),
        })
    }
}

impl ProcessTime {
    /// Returns the processor time of a process. Threads called `thread` are also counted
    /// separately.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn of(pid: u32, thread: &str) -> anyhow::Result<Self> {
        let all = cpu_time(&format!("/proc/{pid}"))?;
        let mut of_thread = Duration::ZERO;
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path().display().to_string();
            // The thread may have ended since the folder was listed.
            let name = fs::read_to_string(format!("{task}/comm")).unwrap_or_default();
            if name.trim_end() == thread {
                of_thread += cpu_time(&task).unwrap_or_default();
            }
        }
        Ok(Self { all, of_thread })
    }

    /// Returns the processor time of this process.
    ///
    /// # Errors
    /// If `/proc/self/stat` cannot be read.
    pub fn own() -> anyhow::Result<Duration> {
        cpu_time("/proc/self")
    }

    /// Returns the processor time used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all.saturating_sub(earlier.all),
            of_thread: self.of_thread.saturating_sub(earlier.of_thread),
        }
    }
}

/// Returns the sum of user time and system time from the `stat` file in a folder of `/proc`.
fn cpu_time(folder: &str) -> anyhow::Result<Duration> {
    let path = format!("{folder}/stat");
    let stat = fs::read_to_string(&path).context(path)?;
    // The times are fields 14 and 15 of proc_pid_stat(5). The fields are counted from the end of
    // the name, which is in parentheses.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Option<u32> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u32>().ok())
        .sum();
    Ok(TICK * ticks.context("the format of /proc/PID/stat")?)
}

/// Returns the number of processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns one line about the machine: its processors, its kernel, and the load average of the last
/// minute.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let average = read("/proc/loadavg");
    let release = read("/proc/sys/kernel/osrelease");
    // The text after the version names a build.
    let kernel = release.trim().split('-').next().unwrap_or_default();
    format!(
        "{} processors, Linux {kernel}, load {} before it began",
        processors(),
        average.split(' ').next().unwrap_or_default()
    )
}

impl fmt::Display for MachineLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} % busy, {:.0} % by others",
            self.busy * 100.0,
            self.others * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_seen_as_ours_and_by_its_name() {
        let moment = Moment::now().expect("Linux tells");
        let before = ProcessTime::of(std::process::id(), "spinner").expect("we live");
        let own = ProcessTime::own().expect("we live");
        let spinner = thread::Builder::new().name("spinner".into()).spawn(|| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
            let pid = std::process::id();
            ProcessTime::of(pid, "spinner").expect("we live")
        });
        let after = spinner.expect("a thread").join().expect("no panic");
        let used = after.since(before);
        assert!(used.of_thread > Duration::ZERO && used.of_thread <= used.all);
        let ours = ProcessTime::own().expect("we live") - own;
        let load = moment.load_since(ours).expect("Linux tells");
        assert!(load.busy > 0.0 && load.others < load.busy, "{load}");
    }
}
