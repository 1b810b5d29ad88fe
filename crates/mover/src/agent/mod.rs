//! Agent: runs jobs on schedules and when watched folders change, remembers taken files, and calls
//! commands for files.
//!
//! [`Timetable`] decides which job runs when, without a clock. [`JobMemory`] outlives the process,
//! so a file is taken once and its command is called once. [`run`] drives both.

mod calls;
mod driver;
mod history;
mod mark;
mod memory;
mod pages;
#[cfg(test)]
mod power_cuts;
mod schedule;
mod status;
#[cfg(test)]
mod tests;
mod timetable;
mod watch;

pub use self::{
    calls::CallParameters,
    driver::{AgentError, AgentJob, RunJob, folder, run},
    history::{HistoryLine, JobHistory},
    mark::mark_called,
    memory::{JobMemory, MemoryError, PendingCall},
    pages::serve,
    schedule::{Schedule, ScheduleError},
    status::{AgentSnapshot, AgentStatus, JobStatus, LastRun},
    timetable::{JobTimes, RunOutcome, Timetable},
};
