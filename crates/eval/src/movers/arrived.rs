//! Number of stored bytes at the receiver, and comparison of these bytes with the sent bytes.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::Context;
use bench_kit::content::hash_file;

/// Returns the number of stored bytes of a file whose parts arrive in any order. The length of such
/// a file would also include its holes.
pub(super) fn stored_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.blocks() * 512)
}

/// Returns the number of stored bytes of all files below a folder. The sum includes all names,
/// because movers may store incomplete files under temporary names.
pub(super) fn stored_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => stored_below(&entry.path()),
        Ok(_) => stored_bytes(&entry.path()),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

pub(super) fn compare(path: &Path, expected: u64) -> anyhow::Result<()> {
    let hash = hash_file(path).with_context(|| path.display().to_string())?;
    anyhow::ensure!(hash == expected, "the hashes differ");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Seek, SeekFrom, Write},
    };

    use super::*;

    #[test]
    fn holes_have_not_arrived() {
        let folder = bench_kit::scratch::folder_in_memory("arrived").expect("a folder");
        fs::create_dir(folder.join("below")).expect("a folder");
        let mut file = File::create(folder.join("below/a.part")).expect("a file");
        file.seek(SeekFrom::Start(1 << 30)).expect("a hole");
        file.write_all(&[1; 1 << 20]).expect("room");
        fs::write(folder.join("b"), [1; 1 << 20]).expect("room");
        let stored = stored_below(&folder);
        fs::remove_dir_all(&folder).expect("ours");
        assert!((2 << 20..3 << 20).contains(&stored), "{stored}");
    }
}
