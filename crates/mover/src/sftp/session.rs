//! Session with an SFTP server.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use ftp::listing::{EntryKind, ListingEntry};
use sftp::packet::{
    Attrs, DATA_MAX, ExtendedRequest, Greeting, Limits, OpenFlags, Request, StatusCode,
};

use super::{
    SftpDial, SftpListing, SftpReader, SftpWriter, attributes,
    connection::SshConnection,
    exchange::{Exchange, PendingAnswer},
    file_handle::FileHandle,
    replies::{Answer, Expected},
};
use crate::{
    names::{join, parent, printable},
    part_name::{part_path, random_digits},
    server::{ServerError, SftpRefusal, Stat},
};

/// Session with an SFTP server. Clones share the connection, and may send requests at the same
/// time. When the last clone is dropped, the connection ends, and open files fail.
#[derive(Debug, Clone)]
pub struct SftpSession {
    exchange: Exchange,
    shared: Arc<SessionContext>,
}

#[derive(Debug)]
struct SessionContext {
    /// `None` for tests without SSH.
    connection: Option<SshConnection>,
    has_posix_rename: bool,
    limits: Mutex<LimitsState>,
}

/// Limits that the server reports on request.
#[derive(Debug)]
enum LimitsState {
    Known(DataLimits),
    /// The request for the limits was sent at the start of the session.
    Requested(PendingAnswer),
}

/// Maximum number of bytes in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DataLimits {
    read_bytes: u32,
    write_bytes: u32,
}

impl SftpSession {
    /// Connects to the server, logs in, and starts SFTP.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached, if its host key is not trusted, or if it
    /// refuses the log-in.
    pub async fn open(dial: &SftpDial) -> Result<Self, ServerError> {
        let (connection, channel) = SshConnection::open(dial).await?;
        let times = (dial.reply_timeout, dial.stall_max);
        let (exchange, greeting) = Exchange::start(channel, dial.describe(), times).await?;
        Self::start(exchange, &greeting, Some(connection)).await
    }

    /// Starts a session on an open channel.
    pub(super) async fn start(
        exchange: Exchange,
        greeting: &Greeting,
        connection: Option<SshConnection>,
    ) -> Result<Self, ServerError> {
        let limits = match greeting.has_extension(b"limits@openssh.com") {
            false => LimitsState::Known(DataLimits::DEFAULT),
            true => {
                let request = Request::Extended(ExtendedRequest::Limits);
                LimitsState::Requested(exchange.send(&request, Expected::Limits).await?)
            }
        };
        Ok(Self {
            exchange,
            shared: Arc::new(SessionContext {
                connection,
                has_posix_rename: greeting.has_extension(b"posix-rename@openssh.com"),
                limits: Mutex::new(limits),
            }),
        })
    }

    /// Returns the entry of each path, or `None` for each path that does not exist. All queries
    /// together take one round trip. Links are followed.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses a query, or if the connection is lost.
    pub async fn look(&self, paths: &[&[u8]]) -> Result<Vec<Option<ListingEntry>>, ServerError> {
        let mut found = Vec::with_capacity(paths.len());
        for paths in paths.chunks(QUERIES_AT_ONCE) {
            let mut sent = Vec::with_capacity(paths.len());
            for path in paths {
                let request = Request::Stat {
                    path: sent_path(path),
                };
                sent.push(self.exchange.send(&request, Expected::Attrs).await?);
            }
            for pending in sent {
                found.push(match self.exchange.answer(pending).await? {
                    Answer::Attrs(attrs) => Some(attributes::entry(&attrs)),
                    Answer::Refused(refusal) if refusal.is_absence() => None,
                    other => return Err(other.into_error()),
                });
            }
        }
        Ok(found)
    }

    /// Returns the attributes of a file. Returns no attributes if the path does not exist, or if it
    /// leads to something other than a file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the query, or if the connection is lost.
    pub async fn stat(&self, path: &[u8]) -> Result<Stat, ServerError> {
        let found = self.look(&[path]).await?.swap_remove(0);
        let file = found.filter(|it| it.kind == EntryKind::File);
        Ok(file.as_ref().map(Stat::of).unwrap_or_default())
    }

    /// Starts the listing of a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the listing.
    pub async fn list(&self, path: &[u8]) -> Result<SftpListing, ServerError> {
        let request = Request::OpenDir {
            path: sent_path(path),
        };
        let pending = self.exchange.send(&request, Expected::Handle).await?;
        SftpListing::start(FileHandle::opened(&self.exchange, pending).await?).await
    }

    /// Replaces the entry of a link by the attributes of its target. The entry stays unchanged if
    /// the target does not exist, or if the target is a directory that contains the link.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn follow(
        &self,
        directory: &[u8],
        link: &mut ListingEntry,
    ) -> Result<(), ServerError> {
        let path = join(directory, &link.name);
        let target = match self.look(&[&path]).await {
            Ok(mut found) => found.swap_remove(0),
            // The server refuses to read the attributes of the target, so the target cannot be
            // copied.
            Err(ServerError::SftpRefused(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(target) = target else {
            return Ok(());
        };
        if target.kind == EntryKind::Directory && self.may_contain_itself(directory, link).await? {
            return Ok(());
        }
        *link = ListingEntry {
            name: std::mem::take(&mut link.name),
            ..target
        };
        Ok(())
    }

    /// Returns whether the target of a link may be a directory that contains the link.
    async fn may_contain_itself(
        &self,
        directory: &[u8],
        link: &ListingEntry,
    ) -> Result<bool, ServerError> {
        let Some(place) = self.place_of(&join(directory, &link.name)).await? else {
            return Ok(true);
        };
        let as_directory = |it: &[u8]| [it.strip_suffix(b"/").unwrap_or(it), b"/"].concat();
        let mut above = directory;
        loop {
            let Some(there) = self.place_of(above).await? else {
                return Ok(true);
            };
            // Some servers do not resolve links.
            let is_resolved = above != directory || place != join(&there, &link.name);
            if !is_resolved || as_directory(&there).starts_with(&as_directory(&place)) {
                return Ok(true);
            }
            // The check covers all directories above the link, including directories that were
            // reached through another link.
            match parent(above) {
                Some(next) => above = next,
                None => return Ok(false),
            }
        }
    }

    /// Returns the path to which a link points.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, ServerError> {
        let request = Request::ReadLink {
            path: sent_path(path),
        };
        self.one_name(&request).await
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory exists.
    pub async fn make_directory(&self, path: &[u8]) -> Result<(), ServerError> {
        self.run(&Request::MakeDir {
            path: sent_path(path),
            attrs: Attrs::default(),
        })
        .await
    }

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory is not empty.
    pub async fn remove_directory(&self, path: &[u8]) -> Result<(), ServerError> {
        self.run(&Request::RemoveDir {
            path: sent_path(path),
        })
        .await
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the deletion.
    pub async fn delete(&self, path: &[u8]) -> Result<(), ServerError> {
        self.run(&Request::Remove {
            path: sent_path(path),
        })
        .await
    }

    /// Renames a part file to its final name, and replaces a file of that name. The new file gets
    /// the permissions of the replaced file. Also sets the modification time. Returns whether the
    /// file has that time.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the name, or if the connection is lost.
    pub async fn name(
        &self,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> Result<bool, ServerError> {
        let mut attrs = modified_unix_s.and_then(attributes::of_modified);
        let has_time = attrs.is_some();
        if part != path {
            let permissions = self.permissions(path).await?;
            if permissions.is_some() {
                attrs.get_or_insert_default().permissions = permissions;
            }
        }
        let setting = match attrs {
            None => None,
            Some(attrs) => {
                let request = Request::SetStat {
                    path: sent_path(part),
                    attrs,
                };
                Some(self.exchange.send(&request, Expected::Status).await?)
            }
        };
        let renaming = match part == path {
            true => None,
            false => {
                let request = self.renaming(part, path);
                Some(self.exchange.send(&request, Expected::Status).await?)
            }
        };
        let is_set = match setting {
            None => false,
            Some(setting) => self.exchange.answer(setting).await? == Answer::Done,
        };
        if let Some(renaming) = renaming {
            match self.exchange.answer(renaming).await? {
                Answer::Done => {}
                Answer::Refused(refusal) if refusal.code == StatusCode::FAILURE => {
                    self.replace(part, path, refusal).await?;
                }
                other => return Err(other.into_error()),
            }
        }
        Ok(is_set && has_time)
    }

    /// Returns the permissions of an existing file. Returns `None` if the path does not exist, or
    /// if the server does not report permissions.
    async fn permissions(&self, path: &[u8]) -> Result<Option<u32>, ServerError> {
        let request = Request::Stat {
            path: sent_path(path),
        };
        Ok(
            match self.exchange.request(&request, Expected::Attrs).await? {
                Answer::Attrs(attrs) if attributes::entry(&attrs).kind == EntryKind::File => {
                    attributes::permissions(&attrs)
                }
                _ => None,
            },
        )
    }

    fn renaming(&self, from: &[u8], to: &[u8]) -> Request {
        let (from, to) = (sent_path(from), sent_path(to));
        match self.shared.has_posix_rename {
            true => Request::Extended(ExtendedRequest::PosixRename { from, to }),
            false => Request::Rename { from, to },
        }
    }

    /// Replaces a file on a server that does not replace files by a rename. The old file is deleted
    /// only after the new file has its name.
    async fn replace(
        &self,
        part: &[u8],
        path: &[u8],
        refusal: SftpRefusal,
    ) -> Result<(), ServerError> {
        let aside = part_path(path, random_digits(), ASIDE);
        match self.run(&self.renaming(path, &aside)).await {
            Ok(()) => {}
            // The server also refuses to rename the old file, so the first refusal had another
            // reason.
            Err(ServerError::SftpRefused(_)) => return Err(ServerError::SftpRefused(refusal)),
            Err(error) => return Err(error),
        }
        match self.run(&self.renaming(part, path)).await {
            Ok(()) => match self.delete(&aside).await {
                Err(ServerError::SftpRefused(reason)) => {
                    let aside = printable(&aside);
                    tracing::warn!(aside, %reason, "the file that was replaced stays under this name");
                    Ok(())
                }
                deleted => deleted,
            },
            Err(error) => {
                if let Err(reason) = self.run(&self.renaming(&aside, path)).await {
                    let (path, aside) = (printable(path), printable(&aside));
                    tracing::warn!(path, aside, %reason, "the file is under another name now");
                }
                Err(error)
            }
        }
    }

    /// Returns the absolute path of a directory or file, as the server resolves it. Returns `None`
    /// if the path does not exist.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn place_of(&self, path: &[u8]) -> Result<Option<Vec<u8>>, ServerError> {
        let request = Request::RealPath {
            path: sent_path(path),
        };
        match self.one_name(&request).await {
            Ok(place) => Ok(Some(place)),
            Err(ServerError::SftpRefused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading at `offset_bytes`.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn read(&self, path: &[u8], offset_bytes: u64) -> Result<SftpReader, ServerError> {
        self.read_range(path, (offset_bytes, None)).await
    }

    /// Opens a file for reading. `range` contains the start offset and the end offset. Requests no
    /// byte behind the range.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn read_range(
        &self,
        path: &[u8],
        range: (u64, Option<u64>),
    ) -> Result<SftpReader, ServerError> {
        let file = self.open_file(path, OpenFlags::READ).await?;
        let limits = self.limits().await?;
        SftpReader::start(file, range, limits.read_bytes).await
    }

    /// Opens the part of a file (its incomplete copy) for writing at `offset_bytes`.
    ///
    /// If `offset_bytes` is zero, an existing file is truncated. If `is_kept` is also true, the
    /// existing file is removed first, so that a link in its place is not followed. With any other
    /// offset, the bytes of an existing file stay.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn write(
        &self,
        part: &[u8],
        offset_bytes: u64,
        is_kept: bool,
    ) -> Result<SftpWriter, ServerError> {
        if offset_bytes > 0 {
            return self.write_range(part, offset_bytes).await;
        }
        let removing = match is_kept {
            false => None,
            true => {
                let request = Request::Remove {
                    path: sent_path(part),
                };
                Some(self.exchange.send(&request, Expected::Status).await?)
            }
        };
        let flags = OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::TRUNCATE.0);
        let file = self.open_file(part, flags).await?;
        if let Some(removing) = removing {
            // A refusal is usual, since the part rarely exists.
            self.exchange.answer(removing).await?;
        }
        let limits = self.limits().await?;
        Ok(SftpWriter::new(file, 0, limits.write_bytes as usize))
    }

    /// Opens a file for writing at `offset_bytes`, and keeps all its bytes. Creates the file if it
    /// does not exist. Several sessions can write to ranges of one file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, or if the connection is lost.
    pub async fn write_range(
        &self,
        path: &[u8],
        offset_bytes: u64,
    ) -> Result<SftpWriter, ServerError> {
        let flags = OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0);
        let file = self.open_file(path, flags).await?;
        let limits = self.limits().await?;
        Ok(SftpWriter::new(
            file,
            offset_bytes,
            limits.write_bytes as usize,
        ))
    }

    /// Returns whether further requests can be sent. This method sends nothing.
    pub fn is_usable(&self) -> bool {
        self.exchange.is_open()
    }

    /// Returns whether the server answers a request. The answer takes a round trip.
    pub async fn is_alive(&self) -> bool {
        self.is_usable() && self.place_of(b"").await.is_ok()
    }

    /// Waits until the connection is lost. This method is cancel safe.
    pub async fn until_lost(&self) {
        self.exchange.until_lost().await;
    }

    /// Closes the connection in an orderly way, so that the server can accept another one. The
    /// session is unusable afterwards.
    pub async fn hang_up(&self) {
        if let Some(connection) = &self.shared.connection {
            connection.disconnect().await;
            // The disconnect message has been sent.
            connection.ended(LEAVE_TIMEOUT).await;
        }
        self.exchange.hang_up();
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.hang_up().await;
    }

    async fn open_file(&self, path: &[u8], flags: OpenFlags) -> Result<FileHandle, ServerError> {
        let request = Request::Open {
            path: sent_path(path),
            flags,
            attrs: Attrs::default(),
        };
        let pending = self.exchange.send(&request, Expected::Handle).await?;
        FileHandle::opened(&self.exchange, pending).await
    }

    /// Returns the limits of the server. Waits for them if they have not arrived.
    async fn limits(&self) -> Result<DataLimits, ServerError> {
        let taken = {
            let mut state = self.lock_limits();
            match &mut *state {
                LimitsState::Known(limits) => return Ok(*limits),
                LimitsState::Requested(_) => {
                    // Until this task has read the answer, other tasks use the default limits.
                    std::mem::replace(&mut *state, LimitsState::Known(DataLimits::DEFAULT))
                }
            }
        };
        let LimitsState::Requested(pending) = taken else {
            return Ok(DataLimits::DEFAULT);
        };
        let limits = match self.exchange.answer(pending).await? {
            Answer::Limits(limits) => DataLimits::of(limits),
            _ => DataLimits::DEFAULT,
        };
        *self.lock_limits() = LimitsState::Known(limits);
        Ok(limits)
    }

    fn lock_limits(&self) -> std::sync::MutexGuard<'_, LimitsState> {
        let limits = &self.shared.limits;
        limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, request: &Request) -> Result<(), ServerError> {
        match self.exchange.request(request, Expected::Status).await? {
            Answer::Done => Ok(()),
            other => Err(other.into_error()),
        }
    }

    async fn one_name(&self, request: &Request) -> Result<Vec<u8>, ServerError> {
        match self.exchange.request(request, Expected::Names).await? {
            Answer::Names(names) => match names.first() {
                Some(name) => Ok(name.name.to_vec()),
                None => Err(self.exchange.violated("an answer has no name")),
            },
            other => Err(other.into_error()),
        }
    }
}

impl DataLimits {
    /// Limits of a server that does not report any. All servers support these lengths.
    const DEFAULT: Self = Self {
        read_bytes: 32 * 1024,
        write_bytes: 32 * 1024,
    };

    fn of(limits: Limits) -> Self {
        let bounded = |limit: u64, default: u32| match limit {
            0 => default,
            limit => u32::try_from(limit.min(DATA_MAX as u64)).unwrap_or(default),
        };
        Self {
            read_bytes: bounded(limits.read_max_bytes, Self::DEFAULT.read_bytes),
            write_bytes: bounded(limits.write_max_bytes, Self::DEFAULT.write_bytes),
        }
    }
}

/// Returns a path in the form in which the server receives it. An empty path is the folder of the
/// log-in.
fn sent_path(path: &[u8]) -> Bytes {
    match path {
        b"" => Bytes::from_static(b"."),
        path => Bytes::copy_from_slice(path),
    }
}

/// Suffix of the temporary name that an old file has while a new file replaces it.
const ASIDE: &[u8] = b".old";

/// Maximum number of queries in flight.
const QUERIES_AT_ONCE: usize = 1024;

/// Longest time to wait until the disconnect message is sent.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
