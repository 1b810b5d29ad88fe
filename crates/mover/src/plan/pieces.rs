//! Files that several lanes move in pieces (byte ranges).

use std::collections::HashMap;

use super::task::{File, RelativePath};

/// Number of missing pieces of each file, and the next step for the file.
#[derive(Debug, Default)]
pub(super) struct MissingPiecesTable {
    missing: HashMap<Key, MissingPieces>,
    /// For each file, the number of times that its transfer has started again.
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
    /// All pieces have arrived, so the file can be completed.
    Whole,
    /// The file has failed. The failure of a piece was already recorded.
    Lost,
    /// The pieces are unusable, so the transfer of the file starts again.
    Anew,
}

impl MissingPiecesTable {
    /// Records that a file is being moved in `pieces` pieces.
    pub(super) fn split(&mut self, file: &File, pieces: usize) {
        let fate = NextStep::Whole;
        self.missing
            .insert(key(file), MissingPieces { pieces, fate });
    }

    /// Records that a piece has arrived. If the piece was the last one, returns the next step for
    /// the file.
    pub(super) fn arrived(&mut self, file: &File) -> Option<NextStep> {
        self.ended(file)
    }

    /// Records that a piece has failed. Returns whether this is the file's first failure. If the
    /// piece was the last one, also returns the next step for the file.
    pub(super) fn lost(&mut self, file: &File) -> (bool, Option<NextStep>) {
        let first = self.doom(file, NextStep::Lost);
        (first, self.ended(file))
    }

    /// Records that a piece has failed, and that all pieces of its file are unusable. If the piece
    /// was the last one, returns the next step for the file.
    pub(super) fn spoiled(&mut self, file: &File) -> Option<NextStep> {
        self.doom(file, NextStep::Anew);
        self.ended(file)
    }

    /// Returns whether the pieces of a file are unusable.
    pub(super) fn is_spoiled(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == NextStep::Anew)
    }

    /// Returns whether pieces of a file are missing and can still arrive.
    pub(super) fn is_any_to_come(&self, file: &File) -> bool {
        let missing = self.missing.get(&key(file));
        missing.is_some_and(|it| it.fate == NextStep::Whole)
    }

    /// Records that the transfer of a file starts again. Returns the number of times that it has
    /// started again.
    pub(super) fn begin_anew(&mut self, file: &File) -> u32 {
        let count = self.anew.entry(key(file)).or_default();
        *count += 1;
        *count
    }

    /// Removes a file from the table after the file's transfer has ended.
    pub(super) fn forget(&mut self, file: &File) {
        self.anew.remove(&key(file));
    }

    /// Sets the next step for a file. Returns whether the replaced step was [`NextStep::Whole`].
    fn doom(&mut self, file: &File, fate: NextStep) -> bool {
        match self.missing.get_mut(&key(file)) {
            Some(missing) if missing.fate == NextStep::Whole => {
                missing.fate = fate;
                true
            }
            _ => false,
        }
    }

    /// Records that a piece has ended. If the piece was the last one, returns the next step for the
    /// file.
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
