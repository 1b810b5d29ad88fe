//! Directories above roots that are files. Each is made before the first file that goes into it.

use std::collections::HashMap;

use super::{task::File, tree::Presence};

/// Directories of the destination into which roots go, by their paths.
#[derive(Debug, Default)]
pub(super) struct ParentDirs {
    directories: HashMap<Vec<u8>, ParentDir>,
}

#[derive(Debug)]
struct ParentDir {
    presence: Presence,
    files: Vec<File>,
    /// Reason why it could not be made.
    failure: String,
}

/// Next step for a file that requires its directory.
#[derive(Debug)]
pub(super) enum ParentState {
    /// The file waits, and the directory is to be made now.
    ToMake,
    /// The file waits for a directory that is being made.
    Waits,
    /// The file can be moved.
    Ready(File),
    /// The file cannot be moved, for this reason.
    Lost(File, String),
}

impl ParentDirs {
    /// Requests a directory that may be missing, for a file.
    pub(super) fn request(&mut self, path: &[u8], file: File) -> ParentState {
        let Some(waiting) = self.directories.get_mut(path) else {
            let waiting = ParentDir {
                presence: Presence::Making,
                files: vec![file],
                failure: String::new(),
            };
            self.directories.insert(path.to_vec(), waiting);
            return ParentState::ToMake;
        };
        match waiting.presence {
            Presence::There => ParentState::Ready(file),
            Presence::Failed => ParentState::Lost(file, waiting.failure.clone()),
            Presence::Missing | Presence::Making => {
                waiting.files.push(file);
                ParentState::Waits
            }
        }
    }

    /// Records that a directory was made. Returns the files that waited for it.
    pub(super) fn mark_made(&mut self, path: &[u8]) -> Vec<File> {
        self.end(path, Presence::There, "")
    }

    /// Records that a directory cannot be made. Returns the files that waited for it.
    pub(super) fn mark_failed(&mut self, path: &[u8], reason: &str) -> Vec<File> {
        self.end(path, Presence::Failed, reason)
    }

    fn end(&mut self, path: &[u8], presence: Presence, failure: &str) -> Vec<File> {
        let waiting = self.directories.get_mut(path).expect("it was wanted");
        waiting.presence = presence;
        failure.clone_into(&mut waiting.failure);
        std::mem::take(&mut waiting.files)
    }
}
