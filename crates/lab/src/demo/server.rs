//! The embedded FTP server and the files that it serves.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use bytes::Bytes;
use libunftp::ServerBuilder;
use unftp_sbe_fs::Filesystem;
use units::ByteCount;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{DemoConfig, client::Direction};
use crate::scratch;

/// A scratch folder with the files of the demonstration; removed when dropped.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    content: Bytes,
}

impl Files {
    /// Makes the folder and the files to be downloaded.
    pub(super) fn new(config: &DemoConfig) -> anyhow::Result<Self> {
        let folder = scratch::folder("files")?;
        let content = Bytes::from(random_bytes(config.size.max(config.warm_up)));
        let files = Self { folder, content };
        for (size, name) in [
            (config.warm_up, files.warm_up_name(Direction::Download)),
            (config.size, files.measured_name(Direction::Download)),
        ] {
            let path = files.folder.join(name);
            fs::write(&path, files.content(size)).with_context(|| path.display().to_string())?;
        }
        Ok(files)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The first `size` bytes of what the demonstration moves.
    pub(super) fn content(&self, size: ByteCount) -> Bytes {
        self.content.slice(..size.bytes() as usize)
    }

    pub(super) fn hash(&self, size: ByteCount) -> u64 {
        xxh3_64(&self.content(size))
    }

    pub(super) fn measured_name(&self, direction: Direction) -> String {
        format!("{direction}.bin")
    }

    pub(super) fn warm_up_name(&self, direction: Direction) -> String {
        format!("{direction}-warm-up.bin")
    }

    /// How much of the measured upload has reached the server's disk.
    pub(super) fn uploaded_bytes(&self) -> io::Result<ByteCount> {
        let path = self.folder.join(self.measured_name(Direction::Upload));
        fs::metadata(path).map(|metadata| ByteCount::new(metadata.len()))
    }

    /// The hash of an uploaded file as it lies on the server's disk.
    pub(super) fn uploaded_hash(&self, is_measured: bool) -> io::Result<u64> {
        let name = if is_measured {
            self.measured_name(Direction::Upload)
        } else {
            self.warm_up_name(Direction::Upload)
        };
        let mut hash = Xxh3::new();
        hash.update(&fs::read(self.folder.join(name))?);
        Ok(hash.digest())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Serves `folder` at `address` for as long as the process lives. The calling thread's network
/// namespace is the server's.
pub(super) fn serve(folder: PathBuf, address: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let server = ServerBuilder::new(Box::new(move || {
        Filesystem::new(folder.clone()).expect("the folder exists while the demonstration runs")
    }))
    .greeting("Longhaul demonstration")
    .passive_ports(30_000..=49_999)
    .build()
    .context("the embedded FTP server")?;
    runtime
        .block_on(server.listen(address.to_string()))
        .context("the embedded FTP server")
}

/// Bytes that do not compress; the same on every run.
fn random_bytes(size: ByteCount) -> Vec<u8> {
    let mut bytes = vec![0; size.bytes() as usize];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}
