//! Files that several lanes move, one piece each.

use std::collections::HashMap;

use super::task::{File, RelativePath};

/// Files with missing pieces.
#[derive(Debug, Default)]
pub(super) struct MissingPiecesTable {
    missing: HashMap<Key, MissingPieces>,
    /// Number of new starts of each file.
    anew: HashMap<Key, u32>,
}

type Key = (usize, RelativePath);

#[derive(Debug)]
struct MissingPieces {
    pieces: usize,
    fate: NextStep,
}

/// Next step for a file once all its pieces have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// All pieces have arrived.
    Whole,
    /// A piece has failed, and its failure was recorded.
    Lost,
    /// The pieces are unusable, and the file starts again.
    Anew,
}

impl MissingPiecesTable {
    /// Records that a file is moved in `pieces` pieces.
    pub(super) fn split(&mut self, file: &File, pieces: usize) {
        let fate = NextStep::Whole;
        self.missing
            .insert(key(file), MissingPieces { pieces, fate });
    }

    /// Records that a piece has arrived. Returns the fate of the file after the last piece.
    pub(super) fn arrived(&mut self, file: &File) -> Option<NextStep> {
        self.ended(file)
    }

    /// Records that a piece has failed. Returns whether it is the file's first failure, and the
    /// fate of the file after the last piece.
    pub(super) fn lost(&mut self, file: &File) -> (bool, Option<NextStep>) {
        let first = self.doom(file, NextStep::Lost);
        (first, self.ended(file))
    }

    /// Records that a piece has shown all pieces to be unusable. Returns the fate of the file after
    /// the last piece.
    pub(super) fn spoiled(&mut self, file: &File) -> Option<NextStep> {
        self.doom(file, NextStep::Anew);
        self.ended(file)
    }

    /// Whether the pieces of a file are unusable.
    pub(super) fn is_spoiled(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == NextStep::Anew)
    }

    /// Whether pieces of a file are missing and still expected.
    pub(super) fn is_any_to_come(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == NextStep::Whole)
    }

    /// Records that a file starts again. Returns how often it has done so.
    pub(super) fn begin_anew(&mut self, file: &File) -> u32 {
        let count = self.anew.entry(key(file)).or_default();
        *count += 1;
        *count
    }

    /// Forgets a file whose transfer has ended.
    pub(super) fn forget(&mut self, file: &File) {
        self.anew.remove(&key(file));
    }

    /// Sets the fate of a file. Returns whether the file was expected to become complete.
    fn doom(&mut self, file: &File, fate: NextStep) -> bool {
        match self.missing.get_mut(&key(file)) {
            Some(missing) if missing.fate == NextStep::Whole => {
                missing.fate = fate;
                true
            }
            _ => false,
        }
    }

    /// Records that a piece has ended. Returns the fate of the file after the last piece.
    fn ended(&mut self, file: &File) -> Option<NextStep> {
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
        let mut pieces = MissingPiecesTable::default();
        pieces.split(&file(), 3);
        assert_eq!(pieces.arrived(&file()), None);
        assert_eq!(pieces.arrived(&file()), None);
        assert_eq!(pieces.arrived(&file()), Some(NextStep::Whole));
        assert!(pieces.missing.is_empty());
    }

    #[test]
    fn a_file_fails_once_however_many_of_its_pieces_do() {
        let mut pieces = MissingPiecesTable::default();
        pieces.split(&file(), 4);
        assert_eq!(pieces.lost(&file()), (true, None));
        assert_eq!(pieces.lost(&file()), (false, None));
        assert_eq!(pieces.spoiled(&file()), None);
        assert_eq!(pieces.arrived(&file()), Some(NextStep::Lost));
        assert!(pieces.missing.is_empty());
    }

    #[test]
    fn a_file_begins_anew_when_its_last_piece_has_ended() {
        let mut pieces = MissingPiecesTable::default();
        pieces.split(&file(), 3);
        assert_eq!(pieces.spoiled(&file()), None);
        assert!(pieces.is_spoiled(&file()));
        assert_eq!(pieces.lost(&file()), (false, None));
        assert_eq!(pieces.arrived(&file()), Some(NextStep::Anew));
        assert!(!pieces.is_spoiled(&file()));
        assert_eq!(pieces.begin_anew(&file()), 1);
        assert_eq!(pieces.begin_anew(&file()), 2);
        pieces.forget(&file());
        assert_eq!(pieces.begin_anew(&file()), 1);
    }
}
