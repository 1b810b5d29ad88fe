//! Functions that end a process together with the processes that it started. Programs such as rsync
//! and lftp start ssh, which would continue a transfer after the end of the program.

use std::{collections::HashMap, fs, process::Child};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Kills a process and all its descendants, and waits until the process has exited. Has no effect
/// on the descendants of a process that exited before the call.
pub(super) fn kill_tree(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    // When a process has exited, the kernel assigns its children to another process.
    let descendants = descendants(child.id());
    let _ = child.kill();
    for process in descendants {
        let _ = kill(Pid::from_raw(process as i32), Signal::SIGKILL);
    }
    let _ = child.wait();
}

/// Returns the process IDs of all descendants of a process.
fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let process = entry
            .file_name()
            .to_str()
            .and_then(|it| it.parse::<u32>().ok());
        let stat = fs::read_to_string(entry.path().join("stat"));
        if let (Some(process), Ok(stat)) = (process, stat)
            && let Some(parent) = parent_of(&stat)
        {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut waiting = vec![ancestor];
    while let Some(process) = waiting.pop() {
        let own = children.remove(&process).unwrap_or_default();
        found.extend_from_slice(&own);
        waiting.extend(own);
    }
    found
}

/// Returns the parent from the content of a file `stat` (proc_pid_stat(5)). The second field is the
/// program's name in parentheses, which may contain spaces and parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a"), None);
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn descendants_end_with_the_process() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'sleep 600 & echo $!; wait' & wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let sleeper: u32 = line.trim().parse().expect("a process ID");
        assert!(is_running(sleeper) && descendants(shell.id()).contains(&sleeper));
        kill_tree(&mut shell);
        let begun = Instant::now();
        while is_running(sleeper) {
            assert!(begun.elapsed() < Duration::from_secs(60), "still running");
            thread::sleep(Duration::from_millis(5));
        }
        kill_tree(&mut shell);
    }

    /// Returns whether the process exists and has not exited.
    fn is_running(process: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, fields)| !fields.trim_start().starts_with('Z'))
    }
}
