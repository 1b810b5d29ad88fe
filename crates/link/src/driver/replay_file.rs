//! The file that keeps the replay memory across restarts.
//!
//! ```text
//! clock 1795264200000000000
//! newest 1k5bW… 1795264199000000000 a1a2a3a4
//! end
//! ```
//!
//! Each new connection replaces the file by a new one. A thread of its own writes it, since disks
//! are slow. Without the file, a first flight that was recorded before a restart would be answered
//! once more. A file that cannot be read or written is therefore a warning, not a fatal error.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
};

use crate::{Newest, PublicKey, ReplayMemory};

/// Writes the replay memory.
pub(super) struct ReplayFile {
    memories: Option<mpsc::Sender<ReplayMemory>>,
    writer: Option<JoinHandle<()>>,
}

impl ReplayFile {
    /// The file, and what the last run left in it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn open(path: PathBuf) -> io::Result<(Self, ReplayMemory)> {
        let left = read(&path);
        let (memories, queue) = mpsc::channel::<ReplayMemory>();
        let writer = std::thread::Builder::new()
            .name("longhaul-replay".into())
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

    pub(super) fn write(&self, memory: ReplayMemory) {
        if let Some(memories) = &self.memories {
            // The writer ends after us.
            let _ = memories.send(memory);
        }
    }
}

impl Drop for ReplayFile {
    fn drop(&mut self) {
        self.memories = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn read(path: &Path) -> ReplayMemory {
    let name = path.display();
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).unwrap_or_else(|line| {
            tracing::warn!(path = %name, line, "replay memory not understood, begins anew");
            ReplayMemory::default()
        }),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %name, %error, "cannot read the replay memory, begins anew");
            }
            ReplayMemory::default()
        }
    }
}

fn write(path: &Path, memory: &ReplayMemory) {
    if let Err(error) = replace(path, &print(memory)) {
        let path = path.display();
        tracing::warn!(
            %path, %error,
            "cannot write the replay memory: after a restart a recorded first flight may be answered"
        );
    }
}

/// A reader sees the old text or the new one, never a part, also after a loss of power.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_added_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&fresh, path));
    if replaced.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&fresh);
    }
    replaced
}

fn print(memory: &ReplayMemory) -> String {
    let mut text = format!("clock {}\n", memory.clock_unix_ns);
    for (key, newest) in &memory.newest {
        let source = u32::from_be_bytes(newest.source);
        text += &format!("newest {key} {} {source:08x}\n", newest.began_unix_ns);
    }
    text + "end\n"
}

/// The number of the first line that makes no sense, if there is one.
fn parse(text: &str) -> Result<ReplayMemory, usize> {
    let lines = text.lines().count();
    let body = text.strip_suffix("end\n").ok_or(lines)?;
    let mut memory = ReplayMemory::default();
    for (index, line) in body.lines().enumerate() {
        parse_line(line, &mut memory).ok_or(index + 1)?;
    }
    Ok(memory)
}

fn parse_line(line: &str, memory: &mut ReplayMemory) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["clock", unix_ns] => memory.clock_unix_ns = unix_ns.parse().ok()?,
        ["newest", key, unix_ns, source] => {
            let key: PublicKey = key.parse().ok()?;
            let newest = Newest {
                began_unix_ns: unix_ns.parse().ok()?,
                source: u32::from_str_radix(source, 16).ok()?.to_be_bytes(),
            };
            memory.newest.push((key, newest));
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    fn memory() -> ReplayMemory {
        let newest = |seed, began_unix_ns| {
            let newest = Newest {
                began_unix_ns,
                source: [0, seed, 2, 3],
            };
            (Identity::from_seed([seed; 32]).public_key(), newest)
        };
        ReplayMemory {
            clock_unix_ns: 1_795_264_200_000_000_000,
            newest: vec![newest(1, 5), newest(2, u64::MAX)],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = std::env::temp_dir().join(format!("longhaul-replay-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder can be made");
        let open = || ReplayFile::open(folder.join("site.replay")).expect("a thread can be had");
        let (file, left) = open();
        assert_eq!(left, ReplayMemory::default());
        file.write(ReplayMemory::default());
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
        assert_eq!(parse(""), Err(0));
        assert_eq!(parse("clock 17952\n"), Err(1), "cut off");
        assert_eq!(parse("end\n"), Ok(ReplayMemory::default()));
    }
}
