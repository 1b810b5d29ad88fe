//! Files that several lanes move, a piece each.

use std::collections::HashMap;

use super::task::{File, RelativePath};

/// Files of which pieces are missing.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    missing: HashMap<Key, Missing>,
    /// How often files have begun anew.
    anew: HashMap<Key, u32>,
}

type Key = (usize, RelativePath);

#[derive(Debug)]
struct Missing {
    pieces: usize,
    fate: Fate,
}

/// What is to become of a file once all its pieces have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// All are there.
    Whole,
    /// One of them does not come, which has been told.
    Lost,
    /// They are of no use: the file begins anew.
    Anew,
}

impl Pieces {
    /// A file is moved in so many pieces.
    pub(super) fn split(&mut self, file: &File, pieces: usize) {
        let fate = Fate::Whole;
        self.missing.insert(key(file), Missing { pieces, fate });
    }

    /// A piece is there. Returns the fate of the file, if that was the last.
    pub(super) fn arrived(&mut self, file: &File) -> Option<Fate> {
        self.ended(file)
    }

    /// A piece does not come. Returns whether it is the first of its file, and the fate of the file if it was the last.
    pub(super) fn lost(&mut self, file: &File) -> (bool, Option<Fate>) {
        let first = self.doom(file, Fate::Lost);
        (first, self.ended(file))
    }

    /// A piece shows that none is of use. Returns the fate of the file, if it was the last.
    pub(super) fn spoiled(&mut self, file: &File) -> Option<Fate> {
        self.doom(file, Fate::Anew);
        self.ended(file)
    }

    /// Whether the pieces of a file are of no use.
    pub(super) fn is_spoiled(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == Fate::Anew)
    }

    /// Whether pieces of a file are missing, and are to come.
    pub(super) fn is_any_to_come(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == Fate::Whole)
    }

    /// A file begins anew. Returns how often it has.
    pub(super) fn begin_anew(&mut self, file: &File) -> u32 {
        let count = self.anew.entry(key(file)).or_default();
        *count += 1;
        *count
    }

    /// Nothing more is to be known of a file.
    pub(super) fn forget(&mut self, file: &File) {
        self.anew.remove(&key(file));
    }

    /// Returns whether the file was to become whole.
    fn doom(&mut self, file: &File, fate: Fate) -> bool {
        match self.missing.get_mut(&key(file)) {
            Some(missing) if missing.fate == Fate::Whole => {
                missing.fate = fate;
                true
            }
            _ => false,
        }
    }

    /// One piece less is missing. Returns the fate of the file, if that was the last.
    fn ended(&mut self, file: &File) -> Option<Fate> {
        let key = key(file);
        let missing = self.missing.get_mut(&key)?;
        missing.pieces -= 1;
        match missing.pieces {
            0 => self.missing.remove(&key).map(|it| it.fate),
            _ => None,
        }
    }
}

fn key(file: &File) -> Key {
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
        assert_eq!(pieces.arrived(&file()), None);
        assert_eq!(pieces.arrived(&file()), None);
        assert_eq!(pieces.arrived(&file()), Some(Fate::Whole));
        assert!(pieces.missing.is_empty());
    }

    #[test]
    fn a_file_fails_once_however_many_of_its_pieces_do() {
        let mut pieces = Pieces::default();
        pieces.split(&file(), 4);
        assert_eq!(pieces.lost(&file()), (true, None));
        assert_eq!(pieces.lost(&file()), (false, None));
        assert_eq!(pieces.spoiled(&file()), None);
        assert_eq!(pieces.arrived(&file()), Some(Fate::Lost));
        assert!(pieces.missing.is_empty());
    }

    #[test]
    fn a_file_begins_anew_when_its_last_piece_has_ended() {
        let mut pieces = Pieces::default();
        pieces.split(&file(), 3);
        assert_eq!(pieces.spoiled(&file()), None);
        assert!(pieces.is_spoiled(&file()));
        assert_eq!(pieces.lost(&file()), (false, None));
        assert_eq!(pieces.arrived(&file()), Some(Fate::Anew));
        assert!(!pieces.is_spoiled(&file()));
        assert_eq!(pieces.begin_anew(&file()), 1);
        assert_eq!(pieces.begin_anew(&file()), 2);
        pieces.forget(&file());
        assert_eq!(pieces.begin_anew(&file()), 1);
    }
}
