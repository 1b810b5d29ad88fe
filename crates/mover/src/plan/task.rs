//! Tasks of lanes, and the files and directories that they concern.

use std::fmt;

use ftp::{
    command::escape,
    listing::{ListingEntry, ModifiedTime},
};

use super::{limits::RESUME_LEAST, piece::Piece, version::FileVersion};

/// Path below a root: names from the top to the bottom. The root itself has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<Vec<u8>>);

impl RelativePath {
    /// Returns the path of an entry in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_vec());
        Self(names)
    }

    /// Returns the directory above this path. `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Returns the names from the top to the bottom.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Returns the names with slashes in between.
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
    /// Number of the root above the file.
    pub root: usize,
    /// Path below the root, at the source and at the destination. Empty if the root itself is a
    /// file.
    pub path: RelativePath,
    /// Size, as the source lists it. `None` if the source lists none.
    pub size_bytes: Option<u64>,
    /// Time of the source's last change.
    pub modified: Option<ModifiedTime>,
    /// Target of a symbolic link that is to be made as a link.
    pub link: Option<Vec<u8>>,
}

impl File {
    /// Returns the version from the listing.
    pub fn version(&self) -> FileVersion {
        FileVersion {
            size_bytes: self.size_bytes,
            modified: self.modified,
        }
    }
}

/// A directory of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Number of the root.
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
}

/// A file or a directory below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath {
    /// Number of the root.
    pub root: usize,
    /// Path below the root.
    pub path: RelativePath,
}

/// Id of one attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// Work for a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Determine the kind of a root at the source, and whether its destination exists.
    Probe {
        /// Number of the root.
        root: usize,
    },
    /// Make a directory at the destination. For a root its parents are made, too.
    Make(Directory),
    /// Make a directory in place of a file, which is deleted first.
    Replace(Directory),
    /// Make the destination's directory into which a root goes that is a file, with its parents.
    MakeParents {
        /// Number of the root.
        root: usize,
        /// The directory, as the probe has reported it.
        path: Vec<u8>,
    },
    /// List a directory at the destination.
    ListDestination(Directory),
    /// List a directory at the destination that the source lacks.
    ListExtra(Directory),
    /// List a directory at the destination once more, since it may have changed the names of moved
    /// files.
    ListAgain(Directory),
    /// Query whether the destination has a directory that it lists under another name.
    FindDirectory(Directory),
    /// Query whether the destination has an entry in a directory that it does not list under its
    /// name.
    FindEntry(Directory, ListingEntry),
    /// List a directory at the source. Entries are reported as they arrive.
    ListSource(Directory),
    /// Move a file, or determine the pieces in which it is to be moved.
    Move(File),
    /// Move a piece of a file.
    MovePiece(File, Piece),
    /// Take over bytes from the pieces of a file that other lanes move.
    Help(File),
    /// Compare a file whose pieces have all arrived, and give it its name.
    Join(File),
    /// Compare the content of a file at both ends.
    Compare(File),
    /// Delete a file or a link at the destination.
    Delete(RootedPath),
    /// Remove an empty directory at the destination.
    RemoveDirectory(Directory),
    /// Query the present state of a file that the destination has listed.
    LookAgain(File, ListingEntry),
    /// Remove a file at the source, if it still has the version that the destination has.
    RemoveSource(File, FileVersion),
}

impl Task {
    /// Whether the task is so short that another task may wait for its end: the move of a file too
    /// small to be resumed.
    pub fn is_quick(&self) -> bool {
        matches!(self, Self::Move(file) if file.size_bytes.is_some_and(|it| it < RESUME_LEAST.bytes()))
    }

    /// Whether the task is help with this file.
    pub(super) fn is_help_with(&self, file: &File) -> bool {
        matches!(self, Self::Help(it) if (it.root, &it.path) == (file.root, &file.path))
    }

    /// Returns the root and the path that the task concerns.
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
