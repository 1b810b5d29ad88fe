//! Paths as bytes, at servers and on this machine alike.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use ftp::command::escape;

/// A path in a directory. The empty directory is where the server put us.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() || directory.ends_with(b"/") {
        [directory, name].concat()
    } else {
        [directory, b"/", name].concat()
    }
}

/// The directory that a path is in. `None` for the root, and for a name alone, which is where the server put us.
pub fn parent(path: &[u8]) -> Option<&[u8]> {
    let name_ends = path.len() - path.iter().rev().take_while(|it| **it == b'/').count();
    let slash = path[..name_ends].iter().rposition(|it| *it == b'/')?;
    Some(if slash == 0 { b"/" } else { &path[..slash] })
}

/// The name that a file has, whatever is in front of it.
pub fn last_name(path: &[u8]) -> Vec<u8> {
    let mut names = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
    names.next_back().unwrap_or_default().to_vec()
}

/// A path of this machine.
pub fn local(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// Bytes of a path as text of one line that stands for no other bytes: UTF-8 where they are, `\xNN` where not; control
/// characters and backslashes escaped. Nothing is cut.
pub fn printable(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for it in chunk.valid().chars() {
            if it.is_control() || it == '\\' {
                text.extend(it.escape_default());
            } else {
                text.push(it);
            }
        }
        text.extend(chunk.invalid().iter().map(|it| format!("\\x{it:02x}")));
    }
    text
}

/// A path of this machine, safe to print: servers choose names.
pub(crate) fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_a_directory() {
        let cases: [(&[u8], Option<&[u8]>); 6] = [
            (b"a/b", Some(b"a")),
            (b"/a", Some(b"/")),
            (b"/a/b/", Some(b"/a")),
            (b"a", None),
            (b"/", None),
            (b"", None),
        ];
        for (path, above) in cases {
            assert_eq!(parent(path), above);
        }
    }

    #[test]
    fn a_printed_name_stands_for_no_other() {
        let cases: [(&[u8], &str); 4] = [
            ("ümlaut a".as_bytes(), "ümlaut a"),
            (b"caf\xe9", "caf\\xe9"),
            (b"caf\\xe9", "caf\\\\xe9"),
            (b"a\n\x1b[1m", "a\\n\\u{1b}[1m"),
        ];
        for (bytes, text) in cases {
            assert_eq!(printable(bytes), text);
        }
        assert_eq!(printable(&[b'a'; 5_000]).len(), 5_000);
    }
}
