//! Destination directories for roots that are files. Each directory is created before the first
//! file is moved into it.

use std::collections::HashMap;

use super::{task::File, tree::Presence};

/// Destination directories into which roots are copied, by path.
#[derive(Debug, Default)]
pub(super) struct ParentDirs {
    directories: HashMap<Vec<u8>, ParentDir>,
}

#[derive(Debug)]
struct ParentDir {
    presence: Presence,
    files: Vec<File>,
    /// Reason why the directory could not be created.
    failure: String,
}

/// Next step for a file whose destination directory may be missing.
#[derive(Debug)]
pub(super) enum ParentState {
    /// The file waits, and the caller must now create the directory.
    ToMake,
    /// The file waits, because another request is already creating the directory.
    Waits,
    /// The file can be moved.
    Ready(File),
    /// The file cannot be moved. The text is the reason.
    Lost(File, String),
}

impl ParentDirs {
    /// Requests the directory `path` for a file that is to be moved into it.
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

    /// Records that a directory was created. Returns the files that were waiting for it.
    pub(super) fn mark_made(&mut self, path: &[u8]) -> Vec<File> {
        self.end(path, Presence::There, "")
    }

    /// Records that a directory cannot be created. Returns the files that were waiting for it.
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
