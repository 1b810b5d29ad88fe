//! What lanes are given to do, and what they answer.

use std::fmt;

use ftp::{
    command::escape,
    listing::{Entry, Modified},
};

use super::{limits::RESUME_LEAST, piece::Piece, version::Version};

/// A path below a root: names from the top to the bottom. The root itself has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<Vec<u8>>);

impl RelativePath {
    /// The path of an entry in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_vec());
        Self(names)
    }

    /// The directory that this is in; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Names from the top to the bottom.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// The names with slashes in between.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.join(&b'/')
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.to_bytes()))
    }
}

/// A file to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Which of the job's roots it is below.
    pub root: usize,
    /// Its path below the root, at the source and at the destination. Empty where the root itself is a file.
    pub path: RelativePath,
    /// Bytes, as the source lists them; `None` where it does not.
    pub size_bytes: Option<u64>,
    /// Time of the source's last change.
    pub modified: Option<Modified>,
    /// Of a symbolic link that is to be made as one: what it leads to.
    pub link: Option<Vec<u8>>,
}

impl File {
    /// The version that the listing tells.
    pub fn version(&self) -> Version {
        Version {
            size_bytes: self.size_bytes,
            modified: self.modified,
        }
    }
}

/// A directory of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Which of the job's roots.
    pub root: usize,
    /// Its path below the root.
    pub path: RelativePath,
}

/// Something below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which of the job's roots.
    pub root: usize,
    /// Its path below the root.
    pub path: RelativePath,
}

/// Names one attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// Work for a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Find out what a root is at the source, and whether its destination is there.
    Probe {
        /// Which root.
        root: usize,
    },
    /// Make a directory at the destination, with its parents where it is a root.
    Make(Directory),
    /// The same, in the place of a file, which is deleted first.
    Replace(Directory),
    /// Make the destination's directory in which a root goes that is a file, with its parents.
    MakeAbove {
        /// Which root.
        root: usize,
        /// The directory, as the probe has told it.
        path: Vec<u8>,
    },
    /// List a directory at the destination.
    ListDestination(Directory),
    /// List a directory at the destination that the source does not have.
    ListSurplus(Directory),
    /// List a directory at the destination once more, since names in it may not be what they were given.
    ListAgain(Directory),
    /// Look whether the destination has a directory, whose name it lists otherwise.
    LookForDirectory(Directory),
    /// Look whether the destination has something in a directory that it does not list under its name.
    LookForTwin(Directory, Entry),
    /// List a directory at the source. Entries are reported as they arrive.
    ListSource(Directory),
    /// Move a file, or say in which pieces it is to be moved.
    Move(File),
    /// Move a piece of a file.
    MovePiece(File, Piece),
    /// Fetch from the pieces of a file that other lanes move.
    Help(File),
    /// All pieces of a file are there: compare, and give it its name.
    Join(File),
    /// Compare the content of a file at both ends.
    Compare(File),
    /// Delete what is no directory, at the destination.
    Delete(Place),
    /// Remove an empty directory, at the destination.
    RemoveDirectory(Directory),
    /// Look what the destination has now of a file, which it has listed so.
    LookAgain(File, Entry),
    /// Remove a file at the source, if it is still the version that the destination has.
    RemoveSource(File, Version),
}

impl Task {
    /// Whether it takes so little time that another one may wait behind it: the move of a file that is not worth
    /// resuming.
    pub fn is_quick(&self) -> bool {
        matches!(self, Self::Move(file) if file.size_bytes.is_some_and(|it| it < RESUME_LEAST.bytes()))
    }

    /// Whether it is help with this file.
    pub(super) fn is_help_with(&self, file: &File) -> bool {
        matches!(self, Self::Help(it) if (it.root, &it.path) == (file.root, &file.path))
    }

    /// What it is about.
    pub fn place(&self) -> (usize, RelativePath) {
        match self {
            Self::Probe { root } => (*root, RelativePath::default()),
            Self::MakeAbove { root, .. } => (*root, RelativePath::default()),
            Self::Make(it)
            | Self::Replace(it)
            | Self::ListDestination(it)
            | Self::ListSurplus(it)
            | Self::ListSource(it)
            | Self::ListAgain(it)
            | Self::LookForDirectory(it)
            | Self::RemoveDirectory(it) => (it.root, it.path.clone()),
            Self::LookForTwin(it, entry) => (it.root, it.path.join(&entry.name)),
            Self::Move(file)
            | Self::MovePiece(file, _)
            | Self::Help(file)
            | Self::Join(file)
            | Self::Compare(file)
            | Self::LookAgain(file, _)
            | Self::RemoveSource(file, _) => (file.root, file.path.clone()),
            Self::Delete(it) => (it.root, it.path.clone()),
        }
    }
}
