//! Directories of a job: their state at the destination, and the files that wait until a directory
//! exists.

use std::collections::{HashMap, HashSet};

use super::{
    name_matching::{DestinationListing, NameForms},
    shift::Shifts,
    task::{Directory, File, RelativePath},
};

/// State of a directory at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// The directory is missing, and no file requires it yet.
    Missing,
    /// A lane is creating the directory, or the directory's parent must be created first.
    Making,
    /// The directory exists.
    There,
    /// The directory could not be created, so no file below it can be moved.
    Failed,
}

/// A directory of the job, with the state of its listings.
#[derive(Debug)]
pub(super) struct DirectoryNode {
    pub(super) presence: Presence,
    /// The destination's entries. The entries are stored until the source's listing has ended.
    pub(super) there: DestinationListing,
    /// Forms of the names in the source's listing. Similar names have the same form.
    pub(super) forms: NameForms,
    /// Names that the source has listed. If the listing is interrupted and starts again, these
    /// names are ignored.
    pub(super) seen: HashSet<Vec<u8>>,
    /// Whether the source's listing has exceeded a limit.
    pub(super) is_overfull: bool,
    /// Source files whose modification times have shifted by quarter hours.
    pub(super) shifts: Shifts,
    /// Whether the destination has a file with the directory's name. The file is deleted first.
    pub(super) is_replacement: bool,
    waiting_files: Vec<File>,
    waiting_children: Vec<RelativePath>,
}

/// All directories of a job.
#[derive(Debug, Default)]
pub(super) struct DirectoryTree {
    nodes: HashMap<(usize, RelativePath), DirectoryNode>,
    /// Number of files that wait for directories.
    held: usize,
    /// Total length of the paths of all directories, in bytes.
    paths_bytes: usize,
}

/// Files and directories that can be processed after the state of a directory has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadyEntries {
    pub(super) files: Vec<File>,
    /// Directories that can be created now.
    pub(super) to_make: Vec<Directory>,
}

impl DirectoryTree {
    pub(super) fn enter(&mut self, directory: &Directory, presence: Presence) {
        let node = DirectoryNode {
            presence,
            there: DestinationListing::default(),
            forms: NameForms::default(),
            seen: HashSet::new(),
            is_overfull: false,
            shifts: Shifts::default(),
            is_replacement: false,
            waiting_files: Vec::new(),
            waiting_children: Vec::new(),
        };
        let key = (directory.root, directory.path.clone());
        self.paths_bytes += key.1.names().iter().map(Vec::len).sum::<usize>();
        self.nodes.insert(key, node);
    }

    /// Returns the total length of the paths of all directories, in bytes.
    pub(super) fn paths_bytes(&self) -> usize {
        self.paths_bytes
    }

    pub(super) fn has(&self, directory: &Directory) -> bool {
        let key = (directory.root, directory.path.clone());
        self.nodes.contains_key(&key)
    }

    pub(super) fn node(&mut self, directory: &Directory) -> &mut DirectoryNode {
        let key = (directory.root, directory.path.clone());
        self.nodes.get_mut(&key).expect("it was entered")
    }

    /// Returns the number of files that wait for directories.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Requests the creation of a directory and its parents. Returns the directory that must be
    /// created first. Returns `None` if the directory exists, was already requested, or cannot be
    /// created.
    pub(super) fn want(&mut self, directory: &Directory) -> Option<Directory> {
        let node = self.node(directory);
        if node.presence != Presence::Missing {
            return None;
        }
        node.presence = Presence::Making;
        let Some(parent) = directory.path.parent() else {
            return Some(directory.clone());
        };
        let parent = Directory {
            root: directory.root,
            path: parent,
        };
        match self.node(&parent).presence {
            Presence::There => Some(directory.clone()),
            Presence::Failed => {
                self.node(directory).presence = Presence::Failed;
                None
            }
            Presence::Missing | Presence::Making => {
                let first = self.want(&parent);
                if self.node(&parent).presence == Presence::Failed {
                    self.node(directory).presence = Presence::Failed;
                } else {
                    let child = directory.path.clone();
                    self.node(&parent).waiting_children.push(child);
                }
                first
            }
        }
    }

    /// Makes a file wait until its directory exists. Returns the file if the directory already
    /// exists or cannot be created.
    pub(super) fn wait(
        &mut self,
        directory: &Directory,
        file: File,
    ) -> Result<(), (File, Presence)> {
        let node = self.node(directory);
        match node.presence {
            Presence::Making | Presence::Missing => {
                node.waiting_files.push(file);
                self.held += 1;
                Ok(())
            }
            presence => Err((file, presence)),
        }
    }

    /// Records that a directory was created. Returns the files and directories that waited for it.
    pub(super) fn made(&mut self, directory: &Directory) -> ReadyEntries {
        let node = self.node(directory);
        node.presence = Presence::There;
        let children = std::mem::take(&mut node.waiting_children);
        let files = std::mem::take(&mut node.waiting_files);
        self.held -= files.len();
        ReadyEntries {
            files,
            to_make: children
                .into_iter()
                .map(|path| Directory {
                    root: directory.root,
                    path,
                })
                .collect(),
        }
    }

    /// Records that a directory cannot be created. Returns the files that waited for it or for
    /// directories below it.
    pub(super) fn failed(&mut self, directory: &Directory) -> Vec<File> {
        let node = self.node(directory);
        node.presence = Presence::Failed;
        let mut files = std::mem::take(&mut node.waiting_files);
        let children = std::mem::take(&mut node.waiting_children);
        self.held -= files.len();
        for path in children {
            let child = Directory {
                root: directory.root,
                path,
            };
            files.extend(self.failed(&child));
        }
        files
    }
}
