//! Table of the files that a session has stored. The session uses the table to check the files that
//! it retrieves.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use xxhash_rust::xxh3::xxh3_64;

use crate::Payload;

#[derive(Debug, Default)]
pub(super) struct SessionFiles {
    folder: Vec<String>,
    /// Sizes of the files whose content is known. The key is the path, from which the content can
    /// be computed.
    sizes: HashMap<String, u64>,
    renamed: HashMap<String, String>,
}

/// Files that existed on the server before the run. All sessions must receive the same content of
/// each file.
#[derive(Debug, Clone, Default)]
pub(super) struct ForeignFiles(Rc<RefCell<HashMap<String, (u64, u64)>>>);

impl SessionFiles {
    /// Returns the path on the server for a name that the session uses.
    pub(super) fn path(&self, name: &str) -> String {
        let mut parts = self.folder.clone();
        walk(&mut parts, name);
        parts.join("/")
    }

    pub(super) fn enter(&mut self, folder: &str) {
        walk(&mut self.folder, folder);
    }

    pub(super) fn stored(&mut self, path: String, size: u64) {
        self.renamed.remove(&path);
        self.sizes.insert(path, size);
    }

    /// Removes a file from the table, because the file no longer exists or its content is no longer
    /// known.
    pub(super) fn forget(&mut self, path: &str) {
        self.sizes.remove(path);
        self.renamed.remove(path);
    }

    pub(super) fn rename(&mut self, from: &str, to: String) {
        let Some(size) = self.sizes.remove(from) else {
            return;
        };
        let first = self.renamed.remove(from).unwrap_or_else(|| from.to_owned());
        self.sizes.insert(to.clone(), size);
        self.renamed.insert(to, first);
    }

    /// Returns the size of a file of this session, and the path from which its content is computed.
    pub(super) fn get(&self, path: &str) -> Option<(u64, &str)> {
        let (path, size) = self.sizes.get_key_value(path)?;
        Some((*size, self.renamed.get(path).unwrap_or(path)))
    }

    /// Returns the names of this session's files in the current folder.
    pub(super) fn names_here(&self) -> Vec<&str> {
        let here = self.folder.join("/");
        let split = |path: &'_ String| path.rfind('/').map(|at| at + 1);
        let names = self.sizes.keys().filter_map(|path| {
            let name = split(path).unwrap_or_default();
            (path[..name].trim_end_matches('/') == here).then_some(&path[name..])
        });
        names.collect()
    }
}

impl ForeignFiles {
    /// Returns whether the content equals the content that the first session received from this
    /// path.
    pub(super) fn is_same(&self, path: String, content: &[u8]) -> bool {
        let seen = (content.len() as u64, xxh3_64(content));
        *self.0.borrow_mut().entry(path).or_insert(seen) == seen
    }
}

/// Returns the content of a file in pieces. The names of session and file determine the bytes.
/// `from` is the offset of the first byte.
pub(super) fn content(
    payload: Payload,
    session: &str,
    name: &str,
    from: u64,
    size: u64,
) -> impl Iterator<Item = Vec<u8>> + use<> {
    let id = xxh3_64(format!("{session}\n{name}").as_bytes());
    let mut at = from;
    std::iter::from_fn(move || {
        let count = size.saturating_sub(at).min(STEP_BYTES);
        let mut piece = vec![0; count as usize];
        payload.fill(id, at, &mut piece);
        at += count;
        (count > 0).then_some(piece)
    })
}

/// Returns whether `bytes` equals the concatenation of `pieces`.
pub(super) fn is_content(bytes: &[u8], pieces: impl Iterator<Item = Vec<u8>>) -> bool {
    let mut rest = bytes;
    for piece in pieces {
        match rest.strip_prefix(&piece[..]) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Number of bytes in one write to a data connection. The time of the first byte is recorded after
/// the first write.
const STEP_BYTES: u64 = 64 * 1024;

/// Applies a path to the folder. A folder with an absolute path has an empty first element.
fn walk(folder: &mut Vec<String>, path: &str) {
    if path.starts_with('/') {
        *folder = vec![String::new()];
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if folder.len() > 1 || folder.first().is_some_and(|part| !part.is_empty()) {
                    folder.pop();
                }
            }
            name => folder.push(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_folder() {
        let mut files = SessionFiles::default();
        assert_eq!(files.path("a"), "a");
        files.enter("x/./y");
        assert_eq!(files.path("a"), "x/y/a");
        files.enter("..");
        assert_eq!(files.path("/b"), "/b");
        files.enter("/srv");
        assert_eq!(files.path("../../c"), "/c");
    }

    #[test]
    fn a_renamed_file_keeps_its_content() {
        let mut files = SessionFiles::default();
        files.enter("d");
        files.stored("d/one".into(), 5);
        files.rename("d/one", "d/two".into());
        files.rename("d/two", "d/three".into());
        assert_eq!(files.get("d/one"), None);
        assert_eq!(files.get("d/three"), Some((5, "d/one")));
        assert_eq!(files.names_here(), ["three"]);
        files.stored("d/three".into(), 6);
        assert_eq!(files.get("d/three"), Some((6, "d/three")));
    }

    #[test]
    fn content_is_of_one_session_and_name() {
        let all = Payload::Random;
        let of = |session, name, from| {
            let pieces = content(all, session, name, from, 1000);
            pieces.flatten().collect::<Vec<u8>>()
        };
        let bytes = of("s", "one", 0);
        assert_eq!(bytes.len(), 1000);
        assert!(is_content(&bytes, content(all, "s", "one", 0, 1000)));
        assert!(is_content(
            &bytes[300..],
            content(all, "s", "one", 300, 1000)
        ));
        assert!(!is_content(&bytes[1..], content(all, "s", "one", 0, 1000)));
        assert!(!is_content(&bytes, content(all, "s", "one", 0, 999)));
        assert_ne!(bytes, of("t", "one", 0));
        assert_ne!(bytes, of("s", "two", 0));
    }

    #[test]
    fn the_first_session_that_sees_a_strangers_file_decides() {
        let strangers = ForeignFiles::default();
        assert!(strangers.is_same("a".into(), b"x"));
        assert!(strangers.is_same("a".into(), b"x"));
        assert!(!strangers.is_same("a".into(), b"y"));
    }
}
