//! File that stores the state of an endpoint across restarts. The state contains the newest
//! handshakes and the measurements of paths. The newest handshakes serve to detect replays.
//!
//! ```text
//! clock 1795264200000000000
//! newest 1k5bW… 1795264199000000000 a1a2a3a4
//! path 1k5bW… 37500000 0.001
//! end
//! ```
//!
//! The numbers in a `path` line are the capacity in bytes per second and the fraction of lost
//! packets. The file is replaced after each new connection, after changes of the measured paths,
//! and when the program ends. A separate thread writes the file, since disks are slow.
//!
//! Without the file, an attacker could record a hello and replay it after a restart. The endpoint
//! would reply once to the replayed hello. The first transfer would also start slowly. An
//! unreadable or unwritable file therefore only causes a warning.

use std::{
    fs,
    io::{self, Write},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
};

use crate::{NewestHandshake, PublicKey, RestartState, congestion::PathMemory};

/// Writer of the memory file.
pub(super) struct MemoryFile {
    memories: Option<mpsc::Sender<RestartState>>,
    writer: Option<JoinHandle<()>>,
}

impl MemoryFile {
    /// Opens the file. Returns the writer, and the state that the previous run stored.
    ///
    /// # Errors
    /// Returns an error if the writer thread cannot be started.
    pub(super) fn open(path: PathBuf) -> io::Result<(Self, RestartState)> {
        let left = read(&path);
        let (memories, queue) = mpsc::channel::<RestartState>();
        let writer = std::thread::Builder::new()
            .name("longhaul-memory".into())
            .spawn(move || {
                while let Ok(memory) = queue.recv() {
                    let newest = queue.try_iter().last().unwrap_or(memory);
                    write(&path, &newest);
                }
            })?;
        let file = Self {
            memories: Some(memories),
            writer: Some(writer),
        };
        Ok((file, left))
    }

    pub(super) fn write(&self, memory: RestartState) {
        if let Some(memories) = &self.memories {
            // The writer thread ends later than this object.
            let _ = memories.send(memory);
        }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.memories = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn read(path: &Path) -> RestartState {
    let name = path.display();
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).unwrap_or_else(|line| {
            tracing::warn!(path = %name, line, "the file of the last run is invalid; a new one begins");
            RestartState::default()
        }),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %name, %error, "cannot read the file of the last run; a new one begins");
            }
            RestartState::default()
        }
    }
}

fn write(path: &Path, memory: &RestartState) {
    if let Err(error) = replace(path, &print(memory)) {
        let path = path.display();
        tracing::warn!(
            %path, %error,
            "cannot write the state for the next start; a recorded hello may be answered then"
        );
    }
}

/// Replaces the file atomically: a reader sees either the old text or the new text, even after a
/// power failure.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_added_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&fresh, path));
    if replaced.is_err() {
        // The removal may fail, for example because no file was created.
        let _ = fs::remove_file(&fresh);
    }
    replaced
}

/// Returns `memory` in the text format of the file.
pub(super) fn print(memory: &RestartState) -> String {
    let mut text = format!("clock {}\n", memory.replay.clock_unix_ns);
    for (key, newest) in &memory.replay.newest {
        let source = u32::from_be_bytes(newest.source);
        text += &format!("newest {key} {} {source:08x}\n", newest.began_unix_ns);
    }
    for (key, path) in &memory.paths {
        let PathMemory {
            capacity_bytes_per_s,
            loss_floor,
        } = path;
        text += &format!("path {key} {capacity_bytes_per_s:.0} {loss_floor:.4}\n");
    }
    text + "end\n"
}

/// Parses the text of the file.
///
/// # Errors
/// Returns the number of the first line that cannot be parsed.
pub(super) fn parse(text: &str) -> Result<RestartState, usize> {
    let lines = text.lines().count();
    let body = text.strip_suffix("end\n").ok_or(lines)?;
    let mut memory = RestartState::default();
    for (index, line) in body.lines().enumerate() {
        parse_line(line, &mut memory).ok_or(index + 1)?;
    }
    Ok(memory)
}

fn parse_line(line: &str, memory: &mut RestartState) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["clock", unix_ns] => memory.replay.clock_unix_ns = unix_ns.parse().ok()?,
        ["newest", key, unix_ns, source] => {
            let key: PublicKey = key.parse().ok()?;
            let newest = NewestHandshake {
                began_unix_ns: unix_ns.parse().ok()?,
                source: u32::from_str_radix(source, 16).ok()?.to_be_bytes(),
            };
            memory.replay.newest.push((key, newest));
        }
        ["path", key, capacity, loss] => {
            let within = |text: &str, range: RangeInclusive<f64>| {
                text.parse().ok().filter(|value| range.contains(value))
            };
            let path = PathMemory {
                capacity_bytes_per_s: within(capacity, CAPACITIES_BYTES_PER_S)?,
                loss_floor: within(loss, LOSSES)?,
            };
            memory.paths.push((key.parse().ok()?, path));
        }
        _ => return None,
    }
    Some(())
}

/// Range of valid capacities in bytes per second, from 1 kbit/s to 1 Tbit/s. Any other value
/// indicates a damaged file.
const CAPACITIES_BYTES_PER_S: RangeInclusive<f64> = 125.0..=125e9;
const LOSSES: RangeInclusive<f64> = 0.0..=1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, ReplayMemory};

    fn memory() -> RestartState {
        let newest = |seed, began_unix_ns| {
            let newest = NewestHandshake {
                began_unix_ns,
                source: [0, seed, 2, 3],
            };
            (Identity::from_seed([seed; 32]).public_key(), newest)
        };
        let path = PathMemory {
            capacity_bytes_per_s: 37_500_000.0,
            loss_floor: 0.001,
        };
        RestartState {
            replay: ReplayMemory {
                clock_unix_ns: 1_795_264_200_000_000_000,
                newest: vec![newest(1, 5), newest(2, u64::MAX)],
            },
            paths: vec![(Identity::from_seed([1; 32]).public_key(), path)],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = std::env::temp_dir().join(format!("longhaul-replay-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder can be made");
        let open = || MemoryFile::open(folder.join("site.replay")).expect("a thread can be had");
        let (file, left) = open();
        assert_eq!(left, RestartState::default());
        file.write(RestartState::default());
        file.write(memory());
        drop(file);
        assert_eq!(open().1, memory());
        let files = fs::read_dir(&folder).expect("it can be listed").count();
        assert_eq!(files, 1, "nothing else is left behind");
        fs::remove_dir_all(folder).expect("the scratch folder can be removed");
    }

    #[test]
    fn a_damaged_file_names_its_line() {
        assert_eq!(parse("clock 1\nnewest nonsense 5 00\nend\n"), Err(2));
        assert_eq!(parse("clock -1\nend\n"), Err(1));
        let key = memory().paths[0].0;
        for path in ["0 0.1", "1e6 1.1", "1e6 NaN", "inf 0", "1e6", "-5 0"] {
            assert_eq!(
                parse(&format!("path {key} {path}\nend\n")),
                Err(1),
                "{path}"
            );
        }
        assert_eq!(parse(""), Err(0));
        assert_eq!(parse("clock 17952\n"), Err(1), "cut off");
        assert_eq!(parse("end\n"), Ok(RestartState::default()));
    }
}
