//! Files that several lanes move, a piece each.

use std::collections::HashMap;

use super::task::{File, RelativePath};

/// Files of which pieces are missing.
#[derive(Debug, Default)]
pub(super) struct Pieces(HashMap<(usize, RelativePath), Missing>);

#[derive(Debug)]
struct Missing {
    pieces: usize,
    /// One of them does not come.
    has_failed: bool,
}

impl Pieces {
    /// A file is moved in so many pieces.
    pub(super) fn split(&mut self, file: &File, pieces: usize) {
        let has_failed = false;
        self.0.insert(key(file), Missing { pieces, has_failed });
    }

    /// A piece is there. Returns whether all are.
    pub(super) fn arrived(&mut self, file: &File) -> bool {
        self.ended(file).is_some_and(|it| !it.has_failed)
    }

    /// A piece does not come. Returns whether it is the first of its file.
    pub(super) fn lost(&mut self, file: &File) -> bool {
        let first = match self.0.get_mut(&key(file)) {
            Some(missing) => !std::mem::replace(&mut missing.has_failed, true),
            None => false,
        };
        self.ended(file);
        first
    }

    /// One piece less is missing. Returns what is known of the file, if that was the last.
    fn ended(&mut self, file: &File) -> Option<Missing> {
        let key = key(file);
        let missing = self.0.get_mut(&key)?;
        missing.pieces -= 1;
        match missing.pieces {
            0 => self.0.remove(&key),
            _ => None,
        }
    }
}

fn key(file: &File) -> (usize, RelativePath) {
    (file.root, file.path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File {
            root: 0,
            path: RelativePath::default(),
            size_bytes: None,
            modified: None,
            link: None,
        }
    }

    #[test]
    fn a_file_is_there_when_all_its_pieces_are() {
        let mut pieces = Pieces::default();
        pieces.split(&file(), 3);
        assert!(!pieces.arrived(&file()));
        assert!(!pieces.arrived(&file()));
        assert!(pieces.arrived(&file()));
        assert!(pieces.0.is_empty());
    }

    #[test]
    fn a_file_fails_once_however_many_of_its_pieces_do() {
        let mut pieces = Pieces::default();
        pieces.split(&file(), 3);
        assert!(pieces.lost(&file()));
        assert!(!pieces.lost(&file()));
        assert!(!pieces.arrived(&file()));
        assert!(pieces.0.is_empty());
    }
}
