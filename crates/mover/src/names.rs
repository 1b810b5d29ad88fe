//! Functions for paths as bytes. They apply to paths on servers and to local paths.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use ftp::command::escape;

/// Joins a directory and a name. An empty directory means the login directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() || directory.ends_with(b"/") {
        [directory, name].concat()
    } else {
        [directory, b"/", name].concat()
    }
}

/// Returns the directory that contains a path. Returns `None` for the root, and for a name without
/// a directory.
pub fn parent(path: &[u8]) -> Option<&[u8]> {
    let name_ends = path.len() - path.iter().rev().take_while(|it| **it == b'/').count();
    let slash = path[..name_ends].iter().rposition(|it| *it == b'/')?;
    Some(if slash == 0 { b"/" } else { &path[..slash] })
}

/// Returns the last name of a path.
pub fn last_name(path: &[u8]) -> Vec<u8> {
    let mut names = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
    names.next_back().unwrap_or_default().to_vec()
}

/// Converts bytes to a local path.
pub fn local(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// Converts the bytes of a path to printable text on one line.
///
/// Different paths give different texts. Bytes that are not valid UTF-8 become `\xNN`. Control
/// characters and backslashes are escaped. The text is not shortened.
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

/// Returns a local path in printable form. Escapes are needed because a server may have chosen
/// names in the path.
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
