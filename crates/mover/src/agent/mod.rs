//! Agent: runs jobs on schedules and when watched folders change. The agent also remembers moved
//! files and calls commands for them.
//!
//! [`Timetable`] decides when each job runs, and has no clock. [`JobMemory`] is stored on the disk,
//! so each file is moved once and its command is called once, even after a restart. [`run`] drives
//! both types.

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
