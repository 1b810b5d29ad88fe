//! The files of the demonstration.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use units::ByteCount;

use super::DemoConfig;
use crate::ftp::TrialDirection;
use bench_kit::{
    content::{Content, hash_file},
    scratch,
};

/// A temporary folder with the files of the demonstration. Drop removes the folder.
#[derive(Debug)]
pub(super) struct DemoFiles {
    folder: PathBuf,
    content: Content,
}

impl DemoFiles {
    /// Creates the folder, and the files that clients download.
    pub(super) fn new(config: &DemoConfig) -> anyhow::Result<Self> {
        let folder = scratch::folder("files")?;
        let content = Content::generate();
        let files = Self { folder, content };
        for (size, name) in [
            (config.warm_up, files.warm_up_name(TrialDirection::Down)),
            (config.size, files.measured_name(TrialDirection::Down)),
        ] {
            let path = files.folder.join(name);
            let written = files.content.write(&path, size);
            written.with_context(|| path.display().to_string())?;
        }
        Ok(files)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the content of the demonstration's transfers.
    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn measured_name(&self, direction: TrialDirection) -> String {
        format!("{direction}.bin")
    }

    pub(super) fn warm_up_name(&self, direction: TrialDirection) -> String {
        format!("{direction}-warm-up.bin")
    }

    /// Returns how many bytes of the measured upload are on the server's disk.
    pub(super) fn uploaded_bytes(&self) -> io::Result<ByteCount> {
        let path = self.folder.join(self.measured_name(TrialDirection::Up));
        fs::metadata(path).map(|metadata| ByteCount::new(metadata.len()))
    }

    /// Returns the hash of an uploaded file, as stored on the server's disk.
    pub(super) fn uploaded_hash(&self, is_measured: bool) -> io::Result<u64> {
        let name = if is_measured {
            self.measured_name(TrialDirection::Up)
        } else {
            self.warm_up_name(TrialDirection::Up)
        };
        hash_file(&self.folder.join(name))
    }
}

impl Drop for DemoFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
