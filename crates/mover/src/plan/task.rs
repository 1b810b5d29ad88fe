//! Tasks of lanes, and the files and directories to which the tasks apply.

use std::fmt;

use ftp::{
    command::escape,
    listing::{ListingEntry, ModifiedTime},
};

use super::{limits::RESUME_LEAST, piece::Piece, version::FileVersion};

/// Path below a root, as a list of names. The list is empty for the root itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<Vec<u8>>);

impl RelativePath {
    /// Returns the path of the entry `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_vec());
        Self(names)
    }

    /// Returns the parent directory of this path, or `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Returns the names of the path, beginning below the root.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Returns the names, separated by slashes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.join(&b'/')
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.to_bytes()))
    }
}

/// A file to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Index of the root that contains the file. A root is a source that the user named.
    pub root: usize,
    /// Path below the root, at the source and at the destination. Empty if the root itself is a
    /// file.
    pub path: RelativePath,
    /// Size in bytes, as the source lists it. `None` if the source lists no size.
    pub size_bytes: Option<u64>,
    /// Modification time, as the source lists it. `None` if the source lists no time.
    pub modified: Option<ModifiedTime>,
    /// Target of the symbolic link that the job creates at the destination. `None` if the job
    /// copies a file instead.
    pub link: Option<Vec<u8>>,
}

impl File {
    /// Returns the version of the file according to the listing.
    pub fn version(&self) -> FileVersion {
        FileVersion {
            size_bytes: self.size_bytes,
            modified: self.modified,
        }
    }
}

/// A root or a directory below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Index of the root (a source that the user named).
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
}

/// A file or a directory below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath {
    /// Index of the root (a source that the user named).
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
}

/// Identifier of one attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// A task for a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Determine the kind of a root at the source, and whether its destination exists.
    Probe {
        /// Index of the root (a source that the user named).
        root: usize,
    },
    /// Create a directory at the destination. If the directory is a root, also create its parents.
    Make(Directory),
    /// Create a directory in place of a file. The file is deleted first.
    Replace(Directory),
    /// Create the destination directory for a root that is a file. Also create the parents of that
    /// directory.
    MakeParents {
        /// Index of the root (a source that the user named).
        root: usize,
        /// Path of the directory at the destination, as [`Task::Probe`] has reported it.
        path: Vec<u8>,
    },
    /// List a directory at the destination.
    ListDestination(Directory),
    /// List a destination directory that the source does not have.
    ListExtra(Directory),
    /// List a directory at the destination again, because the destination may have changed the
    /// names of moved files.
    ListAgain(Directory),
    /// Query whether the destination has a directory with this name. The destination has listed
    /// only a similar name.
    FindDirectory(Directory),
    /// Query whether the destination has an entry with this name in the directory. The destination
    /// has listed only a similar name.
    FindEntry(Directory, ListingEntry),
    /// List a directory at the source. The lane reports entries as they arrive.
    ListSource(Directory),
    /// Move a file. If the file must be moved in pieces, only determine the missing pieces.
    Move(File),
    /// Move a piece of a file.
    MovePiece(File, Piece),
    /// Help other lanes with a file that is moved in pieces. The helping lane moves the last bytes
    /// of another lane's piece.
    Help(File),
    /// Complete a file whose pieces have all arrived: compare it with the source, and rename it to
    /// its final name.
    Join(File),
    /// Compare the content of a file at the source and at the destination.
    Compare(File),
    /// Delete a file or a symbolic link at the destination.
    Delete(RootedPath),
    /// Remove an empty directory at the destination.
    RemoveDirectory(Directory),
    /// Query the present size and time of a file that the destination has listed before.
    LookAgain(File, ListingEntry),
    /// Remove a source file if it still has the version that the destination has received.
    RemoveSource(File, FileVersion),
}

impl Task {
    /// Returns whether the task is so short that other tasks may wait for its end. A task is short
    /// only if it moves a file that is too small to be resumed.
    pub fn is_quick(&self) -> bool {
        matches!(self, Self::Move(file) if file.size_bytes.is_some_and(|it| it < RESUME_LEAST.bytes()))
    }

    /// Returns whether the task is to help with this file.
    pub(super) fn is_help_with(&self, file: &File) -> bool {
        matches!(self, Self::Help(it) if (it.root, &it.path) == (file.root, &file.path))
    }

    /// Returns the number of the root and the path to which the task applies.
    pub fn place(&self) -> (usize, RelativePath) {
        match self {
            Self::Probe { root } => (*root, RelativePath::default()),
            Self::MakeParents { root, .. } => (*root, RelativePath::default()),
            Self::Make(it)
            | Self::Replace(it)
            | Self::ListDestination(it)
            | Self::ListExtra(it)
            | Self::ListSource(it)
            | Self::ListAgain(it)
            | Self::FindDirectory(it)
            | Self::RemoveDirectory(it) => (it.root, it.path.clone()),
            Self::FindEntry(it, entry) => (it.root, it.path.join(&entry.name)),
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
