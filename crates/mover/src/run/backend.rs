//! Source or destination of a lane: the local disk, or a session with a server.

use std::{io::ErrorKind, sync::Arc};

use ftp::listing::{EntryKind, ListingEntry};
use tokio::task::spawn_blocking;

use super::{
    blocking::on_disk,
    failure::TaskError,
    local::{LocalEnd, LocalReader, LocalWriter},
};
use crate::{
    disk::{LocalFiles, Stamp},
    job::JobSite,
    names::{local, shown},
    server::{
        Algorithm, RunningTransfer, ServerError, Session, SessionPool, Stat, TransferResult,
        TransferVerb,
    },
    sftp::{SftpReader, SftpSession, SftpWriter},
    web::{Body, WebSession},
};

/// Source or destination of a lane.
pub(super) enum Backend {
    Local(LocalEnd),
    Remote(Box<Session>),
    /// A session with a web server. A web server can only be a source.
    Web(Box<WebSession>),
    Sftp(SftpSession),
}

/// A file that is being read.
pub(super) enum FileReader<'a> {
    Local(LocalReader),
    Remote(RunningTransfer<'a>),
    Web(Body<'a>),
    Sftp(Box<SftpReader>),
}

/// A file that is being written.
pub(super) enum FileWriter<'a> {
    Local(LocalWriter),
    Remote(RunningTransfer<'a>),
    Sftp(Box<SftpWriter>),
}

impl Backend {
    /// Opens a backend for `site`: connects to the server, or takes a session from the pool. If the
    /// site is this machine, the backend uses `files`.
    pub(super) async fn open(
        site: &JobSite,
        files: &Arc<LocalFiles>,
        session_pool: Option<&SessionPool>,
    ) -> Result<Self, ServerError> {
        let session = match (site, session_pool) {
            (JobSite::Local, _) => return Ok(Self::Local(LocalEnd::new(files.clone()))),
            (JobSite::Web(dial), _) => {
                return Ok(Self::Web(Box::new(WebSession::open(dial).await?)));
            }
            (JobSite::Sftp(dial), _) => return Ok(Self::Sftp(SftpSession::open(dial).await?)),
            (JobSite::Server(dial), Some(session_pool)) => session_pool.open(dial).await?,
            (JobSite::Server(dial), None) => Session::open(dial).await?,
        };
        Ok(Self::Remote(Box::new(session)))
    }

    /// Closes the connection to a server, and then opens another connection. The old connection is
    /// closed first because a server may permit only one connection per user.
    pub(super) async fn reopen(
        &mut self,
        site: &JobSite,
        files: &Arc<LocalFiles>,
    ) -> Result<(), ServerError> {
        self.hang_up().await;
        *self = Self::open(site, files, None).await?;
        Ok(())
    }

    /// Closes the connection to a server. Waits until the server has closed its side, or until a
    /// timeout has passed.
    pub(super) async fn hang_up(&mut self) {
        match self {
            Self::Local(_) | Self::Web(_) => {}
            Self::Remote(session) => session.hang_up().await,
            Self::Sftp(session) => session.hang_up().await,
        }
    }

    /// Returns the entry of a path, or `None` if the path does not exist.
    pub(super) async fn look(&mut self, path: &[u8]) -> Result<Option<ListingEntry>, TaskError> {
        Ok(self.look_at(&[path]).await?.swap_remove(0))
    }

    /// Returns the entry of each path, or `None` for each path that does not exist. On most
    /// servers, all queries together take one round trip.
    pub(super) async fn look_at(
        &mut self,
        paths: &[&[u8]],
    ) -> Result<Vec<Option<ListingEntry>>, TaskError> {
        let mut found = Vec::new();
        match self {
            Self::Remote(session) => return Ok(session.look(paths).await?),
            Self::Sftp(session) => return Ok(session.look(paths).await?),
            Self::Web(session) => {
                for path in paths {
                    found.push(session.look(path).await?);
                }
            }
            Self::Local(disk) => {
                for path in paths {
                    let what = format!("looking for {}", shown(&local(path)));
                    let (files, path) = (disk.files.clone(), path.to_vec());
                    found.push(on_disk(move || files.look(&path), what).await?);
                }
            }
        }
        Ok(found)
    }

    /// Returns the entry of a path if the path is a file. On a server, the query takes one round
    /// trip.
    pub(super) async fn look_for_file(
        &mut self,
        path: &[u8],
    ) -> Result<Option<ListingEntry>, TaskError> {
        match self {
            Self::Local(_) | Self::Sftp(_) => Ok(Box::pin(self.look(path))
                .await?
                .filter(|it| it.kind == EntryKind::File)),
            Self::Remote(session) => Ok(session.stat(path).await?.entry()),
            Self::Web(session) => Ok(session.look(path).await?),
        }
    }

    /// Returns a file's attributes as the source reports them. If the server refuses temporarily,
    /// the function returns an error.
    pub(super) async fn recorded_stat(&mut self, path: &[u8]) -> Result<Stat, TaskError> {
        if let Self::Remote(session) = self {
            return Ok(session.recorded_stat(path).await?);
        }
        let found = self.look_for_file(path).await?;
        Ok(found.as_ref().map(Stat::of).unwrap_or_default())
    }

    /// Creates a directory. If `with_parents` is true, also creates missing parent directories.
    pub(super) async fn make_directory(
        &mut self,
        path: &[u8],
        with_parents: bool,
    ) -> Result<(), TaskError> {
        match self {
            Self::Local(disk) => {
                let what = format!("making the directory {}", shown(&local(path)));
                let (files, path) = (disk.files.clone(), path.to_vec());
                on_disk(move || files.make_folder(&path), what).await
            }
            Self::Remote(_) | Self::Sftp(_) => {
                let above: Vec<_> = match with_parents {
                    true => directories_above(path).collect(),
                    false => Vec::new(),
                };
                // The parent usually exists. A request for each parent would take a round trip.
                match self.make_missing_directory(path).await {
                    Err(error) if error.is_refusal() && !above.is_empty() => {}
                    made => return Ok(made?),
                }
                for above in above {
                    // A refusal is ignored, because the directory may exist. If it does not exist,
                    // the creation of the next directory fails.
                    let _ = ignore_refusal(self.request_directory(above).await)?;
                }
                Ok(self.make_missing_directory(path).await?)
            }
            Self::Web(_) => Err(ServerError::SourceAlone.into()),
        }
    }

    /// Creates a directory on a server, unless the directory exists already.
    async fn make_missing_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        let Err(refusal) = self.request_directory(path).await else {
            return Ok(());
        };
        if !refusal.is_refusal() {
            return Err(refusal);
        }
        // An earlier attempt may have made the directory.
        let is_there = match self {
            Self::Remote(session) => session.is_directory(path).await,
            Self::Sftp(session) => session.look(&[path]).await.map(|mut found| {
                let found = found.pop().flatten();
                found.is_some_and(|it| it.kind == EntryKind::Directory)
            }),
            Self::Local(_) | Self::Web(_) => Ok(false),
        };
        match is_there {
            Ok(true) => Ok(()),
            Err(error) if !error.is_refusal() => Err(error),
            // The first refusal is the more precise one.
            Ok(false) | Err(_) => Err(refusal),
        }
    }

    /// Requests that a server creates a directory.
    async fn request_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        match self {
            Self::Remote(session) => session.make_directory(path).await,
            Self::Sftp(session) => session.make_directory(path).await,
            Self::Local(_) | Self::Web(_) => Err(ServerError::SourceAlone),
        }
    }

    /// Prepares a read that will follow soon. A server receives the request for a data port
    /// together with the next query.
    pub(super) fn prepare_read(&mut self) -> Result<(), TaskError> {
        match self {
            Self::Remote(session) => Ok(session.ask_ahead_for_data()?),
            Self::Local(_) | Self::Web(_) | Self::Sftp(_) => Ok(()),
        }
    }

    /// Opens a file for reading at `offset_bytes`.
    pub(super) async fn read(
        &mut self,
        path: &[u8],
        offset_bytes: u64,
    ) -> Result<FileReader<'_>, TaskError> {
        match self {
            Self::Local(disk) => Ok(FileReader::Local(disk.read(path, offset_bytes).await?)),
            Self::Remote(session) => {
                let transfer = session
                    .transfer(TransferVerb::Retrieve, path, offset_bytes, false)
                    .await?;
                Ok(FileReader::Remote(transfer))
            }
            Self::Web(session) => Ok(FileReader::Web(session.get(path, offset_bytes).await?)),
            Self::Sftp(session) => {
                let reader = session.read(path, offset_bytes).await?;
                Ok(FileReader::Sftp(Box::new(reader)))
            }
        }
    }

    /// Opens the part of a file (its incomplete copy) for writing at `offset_bytes`.
    ///
    /// If `is_kept` is true, a later run can resume the part, and an existing file at a server is
    /// removed first.
    pub(super) async fn write(
        &mut self,
        (part, path): (&[u8], &[u8]),
        offset_bytes: u64,
        is_kept: bool,
    ) -> Result<FileWriter<'_>, TaskError> {
        match self {
            Self::Local(disk) => {
                let is_kept = is_kept || offset_bytes > 0;
                let writer = disk.write((part, path), offset_bytes, is_kept).await?;
                Ok(FileWriter::Local(writer))
            }
            Self::Remote(session) => {
                let transfer = session
                    .transfer(TransferVerb::Store, part, offset_bytes, is_kept)
                    .await?;
                Ok(FileWriter::Remote(transfer))
            }
            Self::Sftp(session) => {
                let writer = session.write(part, offset_bytes, is_kept).await?;
                Ok(FileWriter::Sftp(Box::new(writer)))
            }
            Self::Web(_) => Err(ServerError::SourceAlone.into()),
        }
    }

    /// Removes a file. If the file does not exist, the function returns `Ok`.
    pub(super) async fn remove(&mut self, path: &[u8]) -> Result<(), TaskError> {
        match self {
            Self::Local(disk) => {
                let what = format!("removing {}", shown(&local(path)));
                let (files, path) = (disk.files.clone(), path.to_vec());
                let remove = move || match files.remove(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    result => result,
                };
                on_disk(remove, what).await
            }
            Self::Remote(session) => {
                // A server that refuses to delete an existing file will also refuse to overwrite
                // the file.
                ignore_refusal(session.delete(path).await)?;
                Ok(())
            }
            Self::Sftp(session) => {
                ignore_refusal(session.delete(path).await)?;
                Ok(())
            }
            Self::Web(_) => Err(ServerError::SourceAlone.into()),
        }
    }

    /// Sets the modification time of a complete local part file and syncs it, so that its content
    /// survives a power cut. At a server this function does nothing, because the server syncs files
    /// itself.
    pub(super) async fn complete(
        &mut self,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> Result<(), TaskError> {
        match self {
            Self::Local(disk) => disk.complete(part, path, modified_unix_s).await,
            Self::Remote(_) | Self::Web(_) | Self::Sftp(_) => Ok(()),
        }
    }

    /// Renames a complete file to its final name, and sets the modification time of a file at a
    /// server. Returns whether the file has that time.
    pub(super) async fn name(
        &mut self,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> Result<bool, TaskError> {
        match self {
            Self::Local(disk) => {
                disk.name(part, path).await?;
                Ok(modified_unix_s.is_some())
            }
            Self::Remote(session) => Ok(session.name(part, path, modified_unix_s).await?),
            Self::Sftp(session) => Ok(session.name(part, path, modified_unix_s).await?),
            Self::Web(_) => Err(ServerError::SourceAlone.into()),
        }
    }

    /// Returns the version of a local file. Returns `None` for servers.
    pub(super) async fn stamp(&self, path: &[u8]) -> Option<Stamp> {
        let Self::Local(disk) = self else {
            return None;
        };
        let (files, path) = (disk.files.clone(), path.to_vec());
        let stamp = spawn_blocking(move || files.stamp(&path));
        stamp.await.expect("disk work does not panic")
    }

    /// Returns the largest useful number of small files in progress at the same time. The disk has
    /// no such limit.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Local(_) => usize::MAX,
            Self::Remote(session) => session.depth(),
            Self::Web(_) => 1,
            Self::Sftp(_) => FILES_OVER_SFTP_MAX,
        }
    }

    /// Returns whether this backend can compute hashes by `algorithm`.
    pub(super) fn makes(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(session) => session.makes(algorithm),
            // SFTP version 3 has no common request for hashes.
            Self::Web(_) | Self::Sftp(_) => false,
        }
    }

    /// Returns the hash of a file, or `None` if this backend cannot compute it.
    pub(super) async fn hash(
        &mut self,
        path: &[u8],
        algorithm: Algorithm,
    ) -> Result<Option<Vec<u8>>, TaskError> {
        match self {
            Self::Local(disk) => {
                let what = format!("reading {}", shown(&local(path)));
                let (files, path) = (disk.files.clone(), path.to_vec());
                let hash = move || {
                    let file = files.open(&path)?;
                    algorithm.of_content(|bytes, at| file.read_at(bytes, at))
                };
                on_disk(hash, what).await.map(Some)
            }
            Self::Remote(session) => Ok(session.hash(path, algorithm).await?),
            Self::Web(_) | Self::Sftp(_) => Ok(None),
        }
    }

    /// Returns whether this backend reports file sizes on request.
    pub(super) fn tells_size(&self) -> bool {
        match self {
            Self::Local(_) | Self::Sftp(_) => true,
            Self::Remote(session) => session.tells_size(),
            // A web server reports no size of content that it generates while sending.
            Self::Web(_) => false,
        }
    }

    /// Returns whether this backend accepts further requests. It does if the server is still
    /// connected and no transfer was aborted. A session with a web server is always ready, because
    /// it reconnects when necessary.
    pub(super) async fn is_ready(&mut self) -> bool {
        match self {
            Self::Local(_) | Self::Web(_) => true,
            Self::Remote(session) => session.is_usable() && session.is_alive(false).await,
            // A read that ends early leaves the session usable.
            Self::Sftp(session) => session.is_usable(),
        }
    }

    /// Returns whether this backend accepts further requests. Returns false if a transfer was
    /// aborted.
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::Local(_) | Self::Web(_) => true,
            Self::Remote(session) => session.is_usable(),
            Self::Sftp(session) => session.is_usable(),
        }
    }

    /// Waits until the server closes the connection. For the disk and for web servers, the function
    /// waits forever.
    pub(super) async fn until_lost(&mut self) {
        match self {
            Self::Local(_) | Self::Web(_) => std::future::pending().await,
            Self::Remote(session) => session.until_lost().await,
            Self::Sftp(session) => session.until_lost().await,
        }
    }

    /// Closes the session with the server, or returns the session to the pool.
    pub(super) async fn close(self, session_pool: Option<&SessionPool>) {
        match (self, session_pool) {
            (Self::Local(_) | Self::Web(_), _) => {}
            (Self::Sftp(session), _) => session.close().await,
            (Self::Remote(session), Some(session_pool)) => session_pool.keep(*session).await,
            (Self::Remote(session), None) => session.close().await,
        }
    }
}

impl FileReader<'_> {
    pub(super) async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TaskError> {
        match self {
            Self::Local(reader) => reader.read(bytes).await,
            Self::Remote(transfer) => Ok(transfer.read(bytes).await?),
            Self::Web(body) => Ok(body.read(bytes).await?),
            Self::Sftp(reader) => Ok(reader.read(bytes).await?),
        }
    }

    /// Returns whether the attributes that a web server sent with the file match the given
    /// attributes. Returns true for other sources, which send no attributes with a file.
    pub(super) fn is_of(&self, size_bytes: Option<u64>, modified_unix_s: Option<i64>) -> bool {
        let Self::Web(body) = self else {
            return true;
        };
        let now = body.stated();
        let modified_now = now.modified.map(|it| it.unix_s);
        let is_same_size = size_bytes.zip(now.size_bytes).is_none_or(|(a, b)| a == b);
        let is_same_time = modified_unix_s
            .zip(modified_now)
            .is_none_or(|(a, b)| a == b);
        is_same_size && is_same_time
    }

    /// Aborts the transfer without reading the remaining bytes.
    pub(super) async fn abandon(self) {
        match self {
            Self::Local(_) | Self::Web(_) => {}
            Self::Remote(transfer) => transfer.abandon().await,
            Self::Sftp(reader) => reader.abandon().await,
        }
    }

    /// Ends the read after the last byte. For a server, waits for the final reply.
    pub(super) async fn finish(self) -> Result<TransferResult, TaskError> {
        match self {
            Self::Local(..) => Ok(TransferResult {
                is_sure: true,
                stat: None,
            }),
            Self::Remote(transfer) => Ok(transfer.finish().await?),
            Self::Web(body) => Ok(body.finish()),
            // The attributes of the reader are from the start of the read, and the file may have
            // changed since then.
            Self::Sftp(reader) => Ok(TransferResult {
                stat: None,
                ..reader.finish().await?
            }),
        }
    }
}

impl FileWriter<'_> {
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), TaskError> {
        match self {
            Self::Local(writer) => writer.write(bytes).await,
            Self::Remote(transfer) => Ok(transfer.write(bytes).await?),
            Self::Sftp(writer) => Ok(writer.write(bytes).await?),
        }
    }

    /// Syncs the written bytes, so that they survive a power cut. Returns false for a server,
    /// because the server syncs files itself.
    pub(super) async fn sync(&mut self) -> Result<bool, TaskError> {
        let Self::Local(writer) = self else {
            return Ok(false);
        };
        writer.sync().await?;
        Ok(true)
    }

    /// Waits until all bytes are written. Returns the file's attributes as the server reports them,
    /// if they were requested before the upload ended.
    pub(super) async fn finish(self) -> Result<Option<Stat>, TaskError> {
        match self {
            Self::Local(mut writer) => {
                writer.finish().await?;
                Ok(None)
            }
            Self::Remote(transfer) => Ok(transfer.finish().await?.stat),
            Self::Sftp(writer) => Ok(writer.finish().await?),
        }
    }

    /// Returns whether the server has confirmed the start of the upload. Returns false for the
    /// disk.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Local(..) => false,
            Self::Remote(transfer) => transfer.has_begun(),
            // The server has opened the file.
            Self::Sftp(_) => true,
        }
    }

    /// Returns whether the server has confirmed that the old file, which the upload replaces, is
    /// gone.
    pub(super) async fn is_on_clear_ground(&mut self) -> Result<bool, TaskError> {
        match self {
            Self::Local(..) => Ok(false),
            Self::Remote(transfer) => Ok(transfer.is_on_clear_ground().await?),
            // The server has removed or truncated the old file.
            Self::Sftp(_) => Ok(true),
        }
    }

    /// Ends the data, and waits for the server's first reply. Returns whether that reply confirms
    /// the start of the upload.
    pub(super) async fn end(&mut self) -> Result<bool, TaskError> {
        match self {
            Self::Local(..) => Ok(false),
            Self::Remote(transfer) => Ok(transfer.end().await?),
            Self::Sftp(_) => Ok(true),
        }
    }

    /// Waits until a server has confirmed the start of an upload.
    pub(super) async fn begun(&mut self) -> Result<(), TaskError> {
        match self {
            Self::Local(..) | Self::Sftp(_) => Ok(()),
            Self::Remote(transfer) => Ok(transfer.begun().await?),
        }
    }

    /// Completes an upload whose bytes the gateway reads from its spool (a file with one upload for
    /// several servers). The server determines how long the upload takes.
    pub(super) async fn finish_from_spool(self) -> Result<Option<Stat>, TaskError> {
        match self {
            Self::Local(..) | Self::Sftp(_) => self.finish().await,
            Self::Remote(transfer) => Ok(transfer.finish_from_spool().await?.stat),
        }
    }
}

/// Compares two files by hashes that both backends compute. Returns `None` if no common hash is
/// available. Also returns `None` for two local files, because the mover reads both anyway.
pub(super) async fn compare_hashes(
    (source, destination): (&mut Backend, &mut Backend),
    (ours, theirs): (&[u8], &[u8]),
) -> Result<Option<bool>, TaskError> {
    if matches!(
        (&source, &destination),
        (Backend::Local(_), Backend::Local(_))
    ) {
        return Ok(None);
    }
    let both_make = |it: &Algorithm| source.makes(*it) && destination.makes(*it);
    let Some(algorithm) = Algorithm::ALL.into_iter().find(both_make) else {
        return Ok(None);
    };
    let (ours, theirs) = tokio::try_join!(
        source.hash(ours, algorithm),
        destination.hash(theirs, algorithm)
    )?;
    Ok(ours.zip(theirs).map(|(ours, theirs)| ours == theirs))
}

/// Returns true if the command succeeded and false if the server refused it. Other errors are
/// returned.
fn ignore_refusal(result: Result<(), ServerError>) -> Result<bool, ServerError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is_refusal() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns all directories above a path, the outermost first.
fn directories_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate();
    let slashes = slashes.filter(|(at, it)| **it == b'/' && *at > 0);
    slashes.map(|(at, _)| &path[..at])
}

/// Maximum number of small files that are in progress on one SFTP session. A file takes about six
/// round trips, so one session moves 200 files per second at a round-trip time of 200 ms. Servers
/// permit at least this number of open files.
pub(super) const FILES_OVER_SFTP_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use fake_ftp::{Behaviour, FakeServer};

    use super::*;
    use crate::server::Dial;

    /// Reaction of a test server to `QUIT`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum AtQuit {
        /// The server replies and closes the connection.
        Leaves,
        /// The server replies and waits until the client closes its side.
        WaitsForEnd,
        /// The server does not reply.
        Ignores,
    }

    /// Creates a server that permits one connection at a time and does not reply to `NOOP`. After a
    /// connection has ended, the server needs some time to release it.
    fn site_of_one_connection(at_quit: AtQuit) -> JobSite {
        let mut replies = BTreeMap::from([("NOOP", "")]);
        match at_quit {
            AtQuit::Leaves => {}
            AtQuit::WaitsForEnd => drop(replies.insert("QUIT", "221 bye")),
            AtQuit::Ignores => drop(replies.insert("QUIT", "")),
        }
        let server = FakeServer::start(Behaviour {
            replies,
            connections_max: Some(1),
            close_delay: Duration::from_millis(50),
            ..Behaviour::default()
        });
        JobSite::Server(Box::new(Dial::for_tests(server.address())))
    }

    #[tokio::test]
    async fn a_connection_ends_before_its_successor_is_opened() {
        for at_quit in [AtQuit::Leaves, AtQuit::WaitsForEnd, AtQuit::Ignores] {
            let site = site_of_one_connection(at_quit);
            let files = LocalFiles::without_roots();
            let mut backend = Backend::open(&site, &files, None).await.expect("a session");
            for _ in 0..2 {
                let reopened = backend.reopen(&site, &files).await;
                reopened.unwrap_or_else(|error| panic!("{at_quit:?}: {error}"));
            }
            assert!(backend.is_usable());
        }
    }

    #[tokio::test]
    async fn parents_are_created_only_if_they_are_missing() {
        let server = FakeServer::start(Behaviour::default());
        server.state().directories.insert("in".to_owned());
        let site = JobSite::Server(Box::new(Dial::for_tests(server.address())));
        let files = LocalFiles::without_roots();
        let mut backend = Backend::open(&site, &files, None).await.expect("a session");
        // Path, whether parents may be created, whether the directory exists afterwards, and the
        // number of requests to create a directory.
        for (path, with_parents, is_there, requests) in [
            ("in/day", true, true, 1),
            ("in/day", true, true, 1),
            ("a/b/c", false, false, 1),
            ("a/b/c", true, true, 4),
        ] {
            server.state().verbs.clear();
            let made = backend.make_directory(path.as_bytes(), with_parents).await;
            assert_eq!(made.is_ok(), is_there, "{path}: {made:?}");
            let state = server.state();
            assert_eq!(state.directories.contains(path), is_there, "{path}");
            let sent = state.verbs.iter().filter(|verb| *verb == "MKD").count();
            assert_eq!(sent, requests, "{path}");
        }
    }

    #[tokio::test]
    async fn a_refused_check_does_not_stop_the_creation_of_parents() {
        let server = FakeServer::start(Behaviour {
            replies: BTreeMap::from([("CWD", "450 not now")]),
            ..Behaviour::default()
        });
        let site = JobSite::Server(Box::new(Dial::for_tests(server.address())));
        let files = LocalFiles::without_roots();
        let mut backend = Backend::open(&site, &files, None).await.expect("a session");
        backend.make_directory(b"a/b", true).await.expect("made");
        assert!(server.state().directories.contains("a/b"));
    }

    #[tokio::test]
    async fn a_connection_with_an_unanswered_command_ends_before_its_successor_is_opened() {
        let site = site_of_one_connection(AtQuit::Leaves);
        let files = LocalFiles::without_roots();
        let mut backend = Backend::open(&site, &files, None).await.expect("a session");
        let Backend::Remote(session) = &mut backend else {
            unreachable!("the site is a server");
        };
        let answered = tokio::time::timeout(Duration::from_millis(50), session.is_alive(true));
        answered.await.expect_err("the command has no answer");
        backend.reopen(&site, &files).await.expect("there is room");
    }
}
