//! Requests of the client.

use bytes::Bytes;

use super::{
    HANDLES_MAX, Phase, ServerLimits, SftpNear,
    answers::outcome,
    file_ahead::ReadPart,
    handle::Access,
    kind_of,
    listings::ForecastKind,
    outbox::{Opening, PendingRequest, Retry},
};
use crate::{
    EarlyReplies, FileDirection, Rope, SftpError, ToFar, TransferEvent,
    packet::{FieldReader, OpenFlags, PacketError, Status, StatusCode, extension, kind, split_id},
};

impl SftpNear {
    pub(super) fn receive_init(&mut self, mut packet: Rope) -> Result<(), SftpError> {
        let mut head = [0; 5];
        if !packet.peek(&mut head) || head[0] != kind::INIT {
            return Err(SftpError::NoInit(kind_of(&packet)));
        }
        let [_, version @ ..] = head;
        if u32::from_be_bytes(version) < VERSION {
            return Err(SftpError::NoInit(kind::INIT));
        }
        // A client of a later version accepts version 3, which the server then selects.
        packet.advance(head.len());
        let mut init = vec![kind::INIT];
        init.extend_from_slice(&VERSION.to_be_bytes());
        let mut init = Rope::from(init);
        init.append(packet);
        self.phase = Phase::BeforeVersion;
        self.outbox.send(ToFar::Init {
            is_early: self.settings.early != EarlyReplies::Off,
            packet: init,
        });
        Ok(())
    }

    pub(super) fn receive_request(&mut self, packet: Rope) -> Result<(), SftpError> {
        let whole = packet.clone();
        let (kind, id, body) = split_id(packet)?;
        self.note_first_request(kind, &body);
        let fields = FieldReader::new(kind, body);
        let handled = match kind {
            kind::OPEN => self.open(id, fields),
            kind::OPENDIR => self.open_folder(id, fields),
            kind::CLOSE => self.close(id, fields),
            kind::READ => self.read(id, fields),
            kind::WRITE => self.write(id, fields),
            kind::READDIR => self.read_folder(id, fields),
            kind::EXTENDED => self.extended(id, fields),
            kind::SETSTAT | kind::FSETSTAT | kind::RENAME => Ok(Handling::RelayChange),
            kind::REMOVE | kind::MKDIR | kind::RMDIR | kind::SYMLINK => {
                Ok(Handling::RelayPathChange)
            }
            kind::STAT => stat(ForecastKind::Stat, fields),
            kind::LSTAT => stat(ForecastKind::Lstat, fields),
            kind::FSTAT..=kind::SYMLINK => Ok(Handling::Relay),
            kind::INIT => return Err(SftpError::NoInit(kind)),
            _ => {
                let text = "the gateway does not know this request";
                let status = Status::new(StatusCode::OP_UNSUPPORTED, text);
                self.outbox.reply_status(id, &status);
                Ok(Handling::Done)
            }
        };
        match handled {
            Ok(Handling::Done) => {}
            Ok(Handling::Relay) => {
                self.pass_on(PendingRequest::Relayed { id }, without_id(whole));
            }
            Ok(Handling::RelayChange) => {
                self.begin_change();
                self.pass_on(PendingRequest::Relayed { id }, without_id(whole));
            }
            Ok(Handling::RelayPathChange) => {
                self.begin_path_change();
                self.outbox.relay(id, without_id(whole));
            }
            Ok(Handling::Stat(kind, path)) => {
                if !self.answer_prepared(id, kind, &path) {
                    self.outbox.relay(id, without_id(whole));
                }
                self.prepare_next(kind, &path);
            }
            Ok(Handling::Open(opening)) => {
                let path = match &opening {
                    Opening::File { path, flags, .. } if *flags == OpenFlags::READ => {
                        Some(path.clone())
                    }
                    _ => None,
                };
                self.send_open(id, opening, without_id(whole));
                if let Some(path) = path {
                    self.prepare_next(ForecastKind::Open, &path);
                }
            }
            Ok(Handling::OpenEarly(path)) => self.open_early(id, &path, without_id(whole)),
            Ok(Handling::Limits) => {
                let pending = PendingRequest::Limits { id };
                self.outbox.request(pending, without_id(whole));
            }
            Ok(Handling::Fsync(handle)) => {
                let pending = PendingRequest::Fsync { id, handle };
                self.pass_on(pending, without_id(whole));
            }
            Err(_) => {
                let status = Status::new(StatusCode::BAD_MESSAGE, "malformed request");
                self.outbox.reply_status(id, &status);
            }
        }
        Ok(())
    }

    /// Refuses a further handle if there are too many.
    fn admits_handle(&mut self, id: u32) -> bool {
        let is_admitted = self.handles.len() + self.opens < HANDLES_MAX;
        if !is_admitted {
            let status = Status::new(StatusCode::FAILURE, "too many open files");
            self.outbox.reply_status(id, &status);
        }
        is_admitted
    }

    fn open(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let path = fields.string()?;
        let flags = OpenFlags(fields.u32()?);
        if flags == OpenFlags::READ {
            let kind = ForecastKind::Open;
            if self.answer_prepared(id, kind, &path) {
                self.prepare_next(kind, &path);
                return Ok(Handling::Done);
            }
        }
        if !self.admits_handle(id) {
            return Ok(Handling::Done);
        }
        if self.handles.len() + self.opens >= CLOSING_HANDLES_MAX {
            // The server may have no handle for a further file.
            self.send_waiting_closes();
        }
        let window_bytes = self.begin_open(&path, flags);
        Ok(if self.opens_early(&path, flags) {
            Handling::OpenEarly(path)
        } else {
            Handling::Open(self.opening(&path, flags, window_bytes))
        })
    }

    /// Prepares the next request, which opens a file. Returns the window for the file's read-ahead
    /// in bytes, or 0 if no read-ahead may start with the OPEN.
    pub(super) fn begin_open(&mut self, path: &[u8], flags: OpenFlags) -> u64 {
        if flags.is_read_only() {
            let path = self.shared_files.path_hash(path);
            return match self.ranged_files.range_bytes(path) {
                Some(_) => 0,
                None => self.file_window_bytes(),
            };
        }
        if flags.contains(OpenFlags::TRUNCATE) {
            self.begin_change();
        } else {
            self.begin_path_change();
        }
        0
    }

    /// Returns the values of an OPEN.
    pub(super) fn opening(&self, path: &[u8], flags: OpenFlags, window_bytes: u64) -> Opening {
        let path_hash = self.shared_files.path_hash(path);
        let registration = flags
            .is_read_only()
            .then(|| self.shared_files.open(path_hash));
        Opening::File {
            registration,
            // Without the copy, the path would keep the whole packet in memory.
            path: Bytes::copy_from_slice(path),
            direction: if flags.contains(OpenFlags::WRITE) {
                FileDirection::Upload
            } else {
                FileDirection::Download
            },
            flags,
            changes: self.changes,
            window_bytes,
        }
    }

    /// Sends an OPEN or OPENDIR to the far half.
    pub(super) fn send_open(&mut self, id: u32, opening: Opening, packet: Rope) {
        let window_bytes = opening.window_bytes();
        self.opens += 1;
        self.opening_bytes += window_bytes;
        let retry = match packet.len() <= RETRY_MAX && self.has_prepared_files() {
            true => Retry::WithMoreHandles(packet.clone()),
            false => Retry::Never,
        };
        let credit_bytes = opening.first_credit_bytes();
        let request = self
            .outbox
            .register(PendingRequest::Open { id, opening, retry });
        self.outbox.send(ToFar::Open {
            request,
            credit_bytes,
            is_early: false,
            packet,
        });
    }

    fn open_folder(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let path = Bytes::copy_from_slice(&fields.string()?);
        if !self.admits_handle(id) {
            return Ok(Handling::Done);
        }
        let window_bytes = self.folder_window_bytes();
        Ok(Handling::Open(Opening::Folder { path, window_bytes }))
    }

    pub(super) fn folder_window_bytes(&self) -> u64 {
        self.window_bytes().min(FOLDER_WINDOW_MAX)
    }

    fn close(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let name = fields.handle()?;
        let Some(handle) = self.names.remove(&name) else {
            // The client may close a handle again. The server may reuse the handle after CLOSE.
            self.send_waiting_closes();
            return Ok(Handling::Relay);
        };
        if self.writes(handle).is_some() {
            // Some servers make written bytes visible only at CLOSE.
            self.begin_change();
        }
        let Self {
            handles,
            outbox,
            ranged_files,
            ..
        } = self;
        let open = handles.get_mut(&handle).expect("each name has a handle");
        let is_early = self.settings.early != EarlyReplies::Off;
        let mut is_waiting = false;
        let is_read_only = match &mut open.access {
            Access::File(file) => {
                match file.close() {
                    Some((path, ReadPart::Range { bytes })) => ranged_files.record(path, bytes),
                    Some((path, ReadPart::Start { bytes })) => {
                        ranged_files.read_from_start(path, bytes);
                    }
                    None => {}
                }
                is_waiting = file.waiting() > 0;
                if is_waiting && !is_early {
                    // The waiting READs are passed on, so that the server answers them before
                    // CLOSE.
                    file.stop(outbox);
                }
                true
            }
            Access::Folder(folder) => {
                for id in folder.take_waiting() {
                    outbox.relay(id, read_folder_packet(&name));
                }
                true
            }
            Access::Relayed => true,
            Access::Writable(_) => false,
        };
        if !is_read_only || !is_early {
            self.send_close(handle, Some(id));
            return Ok(Handling::Done);
        }
        self.outbox.reply_status(id, &Status::ok());
        if is_waiting {
            // The bytes of the READs are in flight. CLOSE follows when they have arrived.
            self.closing.insert(handle);
        } else {
            self.send_close(handle, None);
        }
        Ok(Handling::Done)
    }

    /// Passes on a CLOSE. `id` is `None` if the client already has the answer.
    pub(super) fn send_close(&mut self, handle: u64, id: Option<u32>) {
        self.read_ahead.remove(&handle);
        let pending = PendingRequest::Close { id, handle };
        let request = self.outbox.register(pending);
        self.outbox.send(ToFar::Close { request, handle });
        if id.is_none()
            && let Some(open) = self.handles.remove(&handle)
            && open.is_transfer()
        {
            let outcome = match open.failure() {
                Some(packet) => outcome(packet),
                None => Ok(()),
            };
            let finished = TransferEvent::Finished { handle, outcome };
            self.outbox.report(finished);
        }
    }

    fn read(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let name = fields.handle()?;
        let offset = fields.u64()?;
        let length = fields.u32()?;
        let Some(&handle) = self.names.get(&name) else {
            return Ok(Handling::Relay);
        };
        let open = self.handles.get_mut(&handle);
        let Access::File(file) = &mut open.expect("each name has a handle").access else {
            return Ok(Handling::Relay);
        };
        file.expire(self.now, &mut self.outbox);
        let window_bytes = if file.is_stopped() {
            self.file_window_bytes()
        } else {
            0
        };
        let Self {
            handles, outbox, ..
        } = self;
        let open = handles.get_mut(&handle).expect("each name has a handle");
        if let Access::File(file) = &mut open.access {
            file.read(id, offset, length, window_bytes, self.now, outbox);
            if !file.is_stopped() {
                self.read_ahead.insert(handle);
            }
        }
        Ok(Handling::Done)
    }

    fn read_folder(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let name = fields.handle()?;
        let Self {
            handles,
            outbox,
            names,
            ..
        } = self;
        let handle = names.get(&name);
        match handle.and_then(|handle| handles.get_mut(handle)) {
            Some(open) => match &mut open.access {
                Access::Folder(folder) => folder.read(id, outbox),
                _ => return Ok(Handling::Relay),
            },
            None => return Ok(Handling::Relay),
        }
        Ok(Handling::Done)
    }

    fn write(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let name = fields.handle()?;
        let offset = fields.u64()?;
        let data = fields.data()?;
        let handle = self.names.get(&name).copied().unwrap_or(u64::MAX);
        if self.writes(handle).is_none() {
            return Ok(Handling::RelayChange);
        }
        if let Some(failure) = self.reported_failure(handle) {
            self.outbox.reply(id, failure);
            return Ok(Handling::Done);
        }
        self.begin_change();
        let writes = self.writes(handle).expect("the client writes to the file");
        let (answer, id) = writes.sent(id);
        let outbox = &mut self.outbox;
        let bytes = data.len() as u64;
        self.unconfirmed_bytes += bytes;
        let pending = PendingRequest::Write { id, handle, bytes };
        let request = outbox.register(pending);
        outbox.send(ToFar::Write {
            request,
            handle,
            offset,
            data,
        });
        if let Some(answer) = answer {
            outbox.reply_write(answer);
        }
        Ok(Handling::Done)
    }

    fn extended(&mut self, id: u32, mut fields: FieldReader) -> Result<Handling, PacketError> {
        let extension = fields.string()?;
        match &extension[..] {
            extension::LIMITS => match &mut self.limits {
                ServerLimits::Known(packet) => {
                    self.outbox.reply(id, packet.clone());
                    Ok(Handling::Done)
                }
                ServerLimits::Awaited(ids) if ids.len() < LIMITS_WAITING_MAX => {
                    ids.push(id);
                    Ok(Handling::Done)
                }
                _ => Ok(Handling::Limits),
            },
            extension::FSYNC => {
                let name = fields.handle()?;
                let Some(&handle) = self.names.get(&name) else {
                    return Ok(Handling::Relay);
                };
                if let Some(failure) = self.reported_failure(handle) {
                    self.outbox.reply(id, failure);
                    return Ok(Handling::Done);
                }
                Ok(Handling::Fsync(handle))
            }
            extension::HARDLINK => Ok(Handling::RelayPathChange),
            name if extension::keeps_files(name) => Ok(Handling::Relay),
            _ => Ok(Handling::RelayChange),
        }
    }
}

/// Next step for a request.
#[derive(Debug)]
enum Handling {
    /// The request has an answer, or waits for one.
    Done,
    /// The far half passes on the request, and passes back the answer.
    Relay,
    /// The far half relays a request that may change a file.
    RelayChange,
    /// The far half relays a request that may change a path, but no bytes of a file.
    RelayPathChange,
    /// The near half may have the answer, or may prepare the next requests.
    Stat(ForecastKind, Bytes),
    /// The far half opens a file or folder.
    Open(Opening),
    /// The near half answers, and the far half opens the file at this path.
    OpenEarly(Bytes),
    /// The far half passes on the `limits@openssh.com`.
    Limits,
    /// The far half passes on the `fsync@openssh.com` of this handle.
    Fsync(u64),
}

fn stat(kind: ForecastKind, mut fields: FieldReader) -> Result<Handling, PacketError> {
    Ok(match fields.string() {
        Ok(path) => Handling::Stat(kind, path),
        // A malformed packet is passed on, so that the server states the fault.
        Err(_) => Handling::Relay,
    })
}

/// Returns a packet without its request id.
fn without_id(mut packet: Rope) -> Rope {
    let kind = packet.split_to_bytes(1);
    packet.advance(4);
    if packet.len() <= JOINED_MAX {
        let mut joined = vec![kind[0]];
        packet
            .pieces()
            .for_each(|piece| joined.extend_from_slice(piece));
        return joined.into();
    }
    packet.push_front(kind);
    packet
}

fn read_folder_packet(name: &[u8]) -> Rope {
    let mut packet = vec![kind::READDIR];
    crate::packet::put_string(&mut packet, name);
    packet.into()
}

/// Version of SFTP.
const VERSION: u32 = 3;

/// Number of open handles above which an OPEN does not overtake a CLOSE.
const CLOSING_HANDLES_MAX: usize = 32;

/// Maximum window of a folder's read-ahead in bytes: about 30,000 entries.
const FOLDER_WINDOW_MAX: u64 = 4 << 20;

/// Maximum number of `limits@openssh.com` requests that wait for the same answer.
const LIMITS_WAITING_MAX: usize = 16;

/// Maximum length in bytes of an OPEN that the near half may repeat.
const RETRY_MAX: usize = 8 * 1024;

/// Length in bytes up to which a packet is copied into one piece.
const JOINED_MAX: usize = 1024;
