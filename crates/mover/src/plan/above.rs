//! Directories above roots that are files: made before the first file that goes into one.

use std::collections::HashMap;

use super::{task::File, tree::Presence};

/// The directories of the destination in which roots go, by their paths.
#[derive(Debug, Default)]
pub(super) struct Above {
    directories: HashMap<Vec<u8>, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    presence: Presence,
    files: Vec<File>,
    /// Why it could not be made.
    failure: String,
}

/// What becomes of a file that wants its directory.
#[derive(Debug)]
pub(super) enum Wanted {
    /// It waits; the directory is to be made now.
    ToMake,
    /// It waits for a directory that is being made.
    Waits,
    /// It can be moved.
    Ready(File),
    /// It cannot: the reason.
    Lost(File, String),
}

impl Above {
    /// A file is to go into a directory that may be missing.
    pub(super) fn want(&mut self, path: &[u8], file: File) -> Wanted {
        let Some(waiting) = self.directories.get_mut(path) else {
            let waiting = Waiting {
                presence: Presence::Making,
                files: vec![file],
                failure: String::new(),
            };
            self.directories.insert(path.to_vec(), waiting);
            return Wanted::ToMake;
        };
        match waiting.presence {
            Presence::There => Wanted::Ready(file),
            Presence::Failed => Wanted::Lost(file, waiting.failure.clone()),
            Presence::Missing | Presence::Making => {
                waiting.files.push(file);
                Wanted::Waits
            }
        }
    }

    /// A directory was made. Returns the files that waited for it.
    pub(super) fn made(&mut self, path: &[u8]) -> Vec<File> {
        self.end(path, Presence::There, "")
    }

    /// A directory cannot be made. Returns the files that waited for it.
    pub(super) fn failed(&mut self, path: &[u8], reason: &str) -> Vec<File> {
        self.end(path, Presence::Failed, reason)
    }

    fn end(&mut self, path: &[u8], presence: Presence, failure: &str) -> Vec<File> {
        let waiting = self.directories.get_mut(path).expect("it was wanted");
        waiting.presence = presence;
        failure.clone_into(&mut waiting.failure);
        std::mem::take(&mut waiting.files)
    }
}
