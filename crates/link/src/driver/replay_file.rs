//! The file that keeps the replay memory over restarts.
//!
//! ```text
//! clock 1795264200000000000
//! newest 1k5bW… 1795264199000000000
//! ```
//!
//! Written anew, and put in the place of the old one, at each new connection. Without it a first
//! flight recorded before a restart would be answered once more; so what cannot be read or written
//! is a warning, not an end.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{PublicKey, ReplayMemory};

/// Where the replay memory is kept.
pub(super) struct ReplayFile {
    path: PathBuf,
}

impl ReplayFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// What the last run left. Nothing if there is no file.
    pub(super) fn read(&self) -> ReplayMemory {
        let path = self.path.display();
        match fs::read_to_string(&self.path) {
            Ok(text) => parse(&text).unwrap_or_else(|line| {
                tracing::warn!(%path, line, "replay memory not understood, begins anew");
                ReplayMemory::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%path, %error, "cannot read the replay memory, begins anew");
                }
                ReplayMemory::default()
            }
        }
    }

    pub(super) fn write(&self, memory: &ReplayMemory) {
        if let Err(error) = replace(&self.path, &print(memory)) {
            let path = self.path.display();
            tracing::warn!(
                %path, %error,
                "cannot write the replay memory: after a restart a recorded first flight may be answered"
            );
        }
    }
}

/// A reader sees the old text or the new one, never a part.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_added_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path)
}

fn print(memory: &ReplayMemory) -> String {
    let mut text = format!("clock {}\n", memory.clock_unix_ns);
    for (key, newest) in &memory.newest {
        text += &format!("newest {key} {newest}\n");
    }
    text
}

/// The number of the first line that makes no sense, if there is one.
fn parse(text: &str) -> Result<ReplayMemory, usize> {
    let mut memory = ReplayMemory::default();
    for (index, line) in text.lines().enumerate() {
        parse_line(line, &mut memory).ok_or(index + 1)?;
    }
    Ok(memory)
}

fn parse_line(line: &str, memory: &mut ReplayMemory) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["clock", unix_ns] => memory.clock_unix_ns = unix_ns.parse().ok()?,
        ["newest", key, unix_ns] => {
            let key: PublicKey = key.parse().ok()?;
            memory.newest.push((key, unix_ns.parse().ok()?));
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
        ReplayMemory {
            clock_unix_ns: 1_795_264_200_000_000_000,
            newest: vec![
                (Identity::from_seed([1; 32]).public_key(), 5),
                (Identity::from_seed([2; 32]).public_key(), u64::MAX),
            ],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = std::env::temp_dir().join(format!("longhaul-replay-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder can be made");
        let file = ReplayFile::new(folder.join("site.replay"));
        assert_eq!(file.read(), ReplayMemory::default());
        file.write(&ReplayMemory::default());
        file.write(&memory());
        assert_eq!(file.read(), memory());
        fs::remove_dir_all(folder).expect("the scratch folder can be removed");
    }

    #[test]
    fn a_damaged_file_names_its_line() {
        assert_eq!(parse("clock 1\nnewest nonsense 5\n"), Err(2));
        assert_eq!(parse("clock -1\n"), Err(1));
        assert_eq!(parse("\n"), Err(1));
        assert_eq!(parse(""), Ok(ReplayMemory::default()));
    }
}
