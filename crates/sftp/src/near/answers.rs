//! Answers of the server, as the far half passes them on.

use super::{
    Phase, ServerLimits, SftpNear,
    file_ahead::FileReadAhead,
    folder_ahead::FolderReadAhead,
    handle::{Access, OpenHandle},
    is_status, kind_of,
    outbox::{Opening, PendingRequest, Retry},
    prepared::handle_name,
    writes::{WriteAnswer, Writes},
};
use crate::{
    Rope, SftpError, TransferEvent,
    packet::{FieldReader, Greeting, GreetingSource, Limits, Status, StatusCode, extension, kind},
};

impl SftpNear {
    pub(super) fn receive_version(&mut self, packet: Rope) -> Result<(), SftpError> {
        let greeting = Greeting::decode(GreetingSource::Server, packet.clone());
        let greeting = greeting.map_err(|_| SftpError::NoVersion)?;
        if greeting.has_extension(extension::LIMITS) {
            self.limits = ServerLimits::Awaited(Vec::new());
        }
        self.phase = Phase::Ready;
        let to_client = &mut self.outbox.to_client;
        to_client.put(&(packet.len() as u32).to_be_bytes());
        to_client.put_rope(packet);
        Ok(())
    }

    pub(super) fn receive_limits(&mut self, packet: Rope) {
        let mut body = packet.clone();
        body.advance(1.min(body.len()));
        if let Ok(limits) = Limits::decode(body) {
            self.prepared.set_handles_max(limits.handles_max);
        }
        let packet = limits(packet);
        let known = ServerLimits::Known(packet.clone());
        if let ServerLimits::Awaited(ids) = std::mem::replace(&mut self.limits, known) {
            for id in ids {
                self.outbox.reply(id, packet.clone());
            }
        }
    }

    pub(super) fn receive_end(
        &mut self,
        handle: u64,
        run: u32,
        packet: Rope,
    ) -> Result<(), SftpError> {
        if !is_status(&packet) {
            return Err(SftpError::AnswerType(kind_of(&packet)));
        }
        let Self {
            handles,
            listings,
            outbox,
            now,
            ..
        } = self;
        match handles.get_mut(&handle).map(|open| &mut open.access) {
            Some(Access::File(file)) => {
                let is_end_of_file = code(&packet) == Some(StatusCode::EOF);
                file.ended(run, is_end_of_file, *now, outbox);
            }
            Some(Access::Folder(folder)) => {
                listings.complete(handle);
                folder.ended(packet, outbox);
            }
            // The client has closed the handle in the meantime.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn receive_written(&mut self, request: u64) -> Result<(), SftpError> {
        let Some(PendingRequest::Write { id, handle, bytes }) = self.outbox.answered(request)
        else {
            return Err(SftpError::UnexpectedMessage("no WRITE is outstanding"));
        };
        self.unconfirmed_bytes -= bytes;
        self.outbox.moved(handle, bytes);
        let answer = match self.writes(handle) {
            Some(writes) => writes.confirmed(id),
            // The server has answered the CLOSE before it confirmed the WRITE.
            None => id.map(WriteAnswer::success),
        };
        if let Some(answer) = answer {
            self.outbox.reply_write(answer);
        }
        Ok(())
    }

    pub(super) fn receive_answer(&mut self, request: u64, packet: Rope) -> Result<(), SftpError> {
        let pending = self.outbox.answered(request);
        match pending.ok_or(SftpError::UnexpectedMessage("no request is outstanding"))? {
            PendingRequest::Relayed { id } => self.outbox.reply(id, packet),
            PendingRequest::Open { id, opening, retry } => {
                self.opened(request, (id, retry), opening, packet)?
            }
            PendingRequest::EarlyOpen { path } => {
                self.early_open_answered(request, path, packet)?;
            }
            PendingRequest::Stat { id, retry } => match kind_of(&packet) {
                kind::ATTRS => self.outbox.reply(id, packet),
                _ => self.outbox.relay(id, retry),
            },
            PendingRequest::Prepared { kind } => self.prepared_answered(request, kind, packet)?,
            PendingRequest::Read { id, handle } => {
                if kind_of(&packet) == kind::DATA {
                    self.outbox
                        .moved(handle, packet.len().saturating_sub(5) as u64);
                } else if let Some(open) = self.handles.get_mut(&handle)
                    && code(&packet) != Some(StatusCode::EOF)
                {
                    open.read_failed(&packet);
                }
                self.outbox.reply(id, packet);
            }
            PendingRequest::Write { id, handle, bytes } => {
                if !is_status(&packet) {
                    return Err(SftpError::AnswerType(kind_of(&packet)));
                }
                self.unconfirmed_bytes -= bytes;
                let answer = match self.writes(handle) {
                    Some(writes) => writes.failed(id, packet),
                    None => id.map(|id| WriteAnswer::failure(id, packet)),
                };
                if let Some(answer) = answer {
                    self.outbox.reply_write(answer);
                }
            }
            PendingRequest::Limits { id } => self.outbox.reply(id, limits(packet)),
            PendingRequest::Fsync { id, handle } => {
                let failure = self.reported_failure(handle);
                self.outbox.reply(id, failure.unwrap_or(packet));
            }
            PendingRequest::Close { id, handle } => self.closed(id, handle, packet),
        }
        Ok(())
    }

    fn opened(
        &mut self,
        number: u64,
        (id, retry): (u32, Retry),
        opening: Opening,
        packet: Rope,
    ) -> Result<(), SftpError> {
        let (Opening::File { window_bytes, .. } | Opening::Folder { window_bytes, .. }) = opening;
        self.opens -= 1;
        self.opening_bytes -= window_bytes;
        match kind_of(&packet) {
            kind::STATUS => {
                self.refused((id, retry), opening, packet);
                return Ok(());
            }
            kind::HANDLE => {}
            kind => return Err(SftpError::AnswerType(kind)),
        }
        let name = handle_name(&packet)?;
        if self.names.insert(name.clone(), number).is_some() {
            return Err(SftpError::DuplicateHandle);
        }
        let access = match opening {
            Opening::File {
                path,
                registration,
                direction,
                flags,
                changes,
                window_bytes,
            } => {
                self.upload_opened(&path, flags);
                self.outbox.report(TransferEvent::Started {
                    handle: number,
                    path: path.into(),
                    direction,
                });
                if flags.is_read_only() {
                    let mut file = FileReadAhead::new(number, name.clone(), window_bytes, self.now);
                    if let Some(registration) = registration {
                        let range_bytes = self.ranged_files.range_bytes(registration.path());
                        file.set_registration(registration, range_bytes);
                    }
                    if changes != self.changes && !file.is_stopped() {
                        // The far half may have read ahead before the change.
                        file.stop(&mut self.outbox);
                    }
                    if !file.is_stopped() {
                        self.read_ahead.insert(number);
                    }
                    Access::File(file)
                } else {
                    Access::Writable(Writes::new(self.settings.early))
                }
            }
            Opening::Folder {
                window_bytes: 0, ..
            } => Access::Relayed,
            Opening::Folder { path, window_bytes } => {
                self.listings.begin(number, &path);
                Access::Folder(FolderReadAhead::new(number, window_bytes))
            }
        };
        self.handles.insert(number, OpenHandle::new(access));
        self.outbox.reply(id, packet);
        Ok(())
    }

    /// Accepts the failure of an OPEN or OPENDIR. Repeats the request if the near half sent it
    /// before the client did. Also repeats the request if files that were opened ahead of the
    /// client may have used the handles.
    fn refused(&mut self, (id, retry): (u32, Retry), opening: Opening, packet: Rope) {
        let retry = match retry {
            Retry::Always(retry) => Some(retry),
            Retry::WithMoreHandles(retry) if code(&packet) == Some(StatusCode::FAILURE) => {
                self.free_handles();
                Some(retry)
            }
            _ => None,
        };
        let Some(retry) = retry else {
            return self.outbox.reply(id, packet);
        };
        let opening = match opening {
            Opening::File {
                path,
                registration,
                flags,
                ..
            } => {
                drop(registration);
                let window_bytes = self.begin_open(&path, flags);
                self.opening(&path, flags, window_bytes)
            }
            Opening::Folder { path, .. } => {
                let window_bytes = self.folder_window_bytes();
                Opening::Folder { path, window_bytes }
            }
        };
        self.send_open(id, opening, retry);
    }

    fn closed(&mut self, id: Option<u32>, handle: u64, packet: Rope) {
        let packet = self.reported_failure(handle).unwrap_or(packet);
        if let Some(open) = self.handles.remove(&handle) {
            if open.is_early {
                self.early_open_closed();
            }
            if open.is_transfer() {
                let outcome = outcome(open.failure().unwrap_or(&packet));
                self.outbox
                    .report(TransferEvent::Finished { handle, outcome });
            }
        }
        if let Some(id) = id {
            self.outbox.reply(id, packet);
        }
    }

    pub(super) fn writes(&mut self, handle: u64) -> Option<&mut Writes> {
        match self.handles.get_mut(&handle).map(|open| &mut open.access) {
            Some(Access::Writable(writes)) => Some(writes),
            _ => None,
        }
    }

    /// Returns the STATUS packet of a failed WRITE, if the answers to later requests must report
    /// this failure.
    pub(super) fn reported_failure(&mut self, handle: u64) -> Option<Rope> {
        self.writes(handle)?.reported_failure().cloned()
    }
}

/// Returns the answer to `limits@openssh.com`. Each limit is the lesser of the server's limit and
/// the near half's limit. If a packet exceeds the near half's limit, the near half ends the
/// session.
fn limits(packet: Rope) -> Rope {
    let mut body = packet.clone();
    body.advance(1.min(body.len()));
    match Limits::decode(body) {
        Ok(limits) if kind_of(&packet) == kind::EXTENDED_REPLY => {
            let mut answer = Rope::from(vec![kind::EXTENDED_REPLY]);
            answer.append(limits.through_gateways().encode());
            answer
        }
        _ => packet,
    }
}

/// Returns the outcome that a STATUS packet states.
pub(super) fn outcome(packet: &Rope) -> Result<(), String> {
    let mut body = packet.clone();
    body.advance(1.min(body.len()));
    match Status::read(FieldReader::new(kind_of(packet), body)) {
        Ok(status) if status.is_ok() => Ok(()),
        Ok(status) => Err(status.text()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the code of a STATUS packet.
fn code(packet: &Rope) -> Option<StatusCode> {
    let mut head = [0; 5];
    let [kind, code @ ..] = packet.peek(&mut head).then_some(head)?;
    (kind == kind::STATUS).then(|| StatusCode(u32::from_be_bytes(code)))
}
