//! Files that the client opens for an upload. The near half answers the OPEN of such a file before
//! the server does.
//!
//! The answer to CLOSE reports a failure of such an OPEN and of all its WRITEs. The near half
//! answers an OPEN early only if all WRITEs have early answers, and only for clients that check the
//! answer to CLOSE. OpenSSH's `sftp` and `scp` do so, except for `scp -3` between two servers.
//! Other programs use OpenSSH's `ssh` as their transport, and some of them ignore the answer to
//! CLOSE. The near half recognises `sftp` and `scp` by their first request, `limits@openssh.com`.
//!
//! Only the second and later uploads into a folder have early answers. If a client has no right to
//! write to the folder, the answer to its first OPEN therefore reports the failure.

use bytes::Bytes;

use super::{
    SftpNear,
    answers::outcome,
    handle::{Access, OpenHandle},
    is_status, kind_of,
    outbox::PendingRequest,
    writes::Writes,
};
use crate::{
    EarlyReplies, FileDirection, Rope, SftpError, ToFar, TransferEvent,
    packet::{FieldReader, OpenFlags, extension, kind, put_string},
};

/// State of early answers to OPEN.
#[derive(Debug, Default)]
pub(super) struct EarlyOpens {
    /// Whether the client checks the answers to CLOSE. `None` before the client's first request.
    checks_close: Option<bool>,
    /// Path of the folder of the last upload that the server has opened.
    folder: Option<Bytes>,
    /// Number of open handles that the near half has created.
    handles: usize,
}

impl SftpNear {
    /// Accepts the first request of the client.
    pub(super) fn note_first_request(&mut self, kind: u8, body: &Rope) {
        if self.early_opens.checks_close.is_none() {
            let extension = FieldReader::new(kind, body.clone()).string();
            let is_limits = kind == kind::EXTENDED
                && extension.is_ok_and(|name| name[..] == *extension::LIMITS);
            self.early_opens.checks_close = Some(self.settings.is_openssh && is_limits);
        }
    }

    /// Accepts the path of an upload that the server has opened.
    pub(super) fn upload_opened(&mut self, path: &[u8], flags: OpenFlags) {
        if flags == UPLOAD {
            self.early_opens.folder = folder(path);
        }
    }

    /// Returns whether an OPEN may have an answer before the answer of the server.
    pub(super) fn opens_early(&self, path: &[u8], flags: OpenFlags) -> bool {
        let folder = folder(path);
        flags == UPLOAD
            && self.settings.early == EarlyReplies::All
            && self.early_opens.checks_close == Some(true)
            && folder.is_some()
            && folder == self.early_opens.folder
            // While files are open ahead of the client, the server may have too few handles.
            && !self.has_prepared_files()
            // The server may already have returned a handle with the same bytes.
            && !self.names.contains_key(&early_name(self.outbox.next_number()))
    }

    /// Answers an OPEN before the server does, and sends the OPEN to the far half.
    pub(super) fn open_early(&mut self, id: u32, path: &[u8], packet: Rope) {
        let path = Bytes::copy_from_slice(path);
        let handle = self.outbox.register(PendingRequest::EarlyOpen { path });
        self.outbox.send(ToFar::Open {
            request: handle,
            credit_bytes: 0,
            is_early: true,
            packet,
        });
        let writes = Writes::new(EarlyReplies::All);
        let open = OpenHandle::early(Access::Writable(writes));
        self.handles.insert(handle, open);
        self.early_opens.handles += 1;
        let name = early_name(handle);
        let mut answer = vec![kind::HANDLE];
        put_string(&mut answer, &name);
        self.names.insert(name, handle);
        self.outbox.reply(id, answer.into());
    }

    /// Accepts the answer of the server to an OPEN that the near half has already answered.
    pub(super) fn early_open_answered(
        &mut self,
        handle: u64,
        path: Bytes,
        packet: Rope,
    ) -> Result<(), SftpError> {
        let open = self.handles.get_mut(&handle);
        if kind_of(&packet) == kind::HANDLE {
            if let Some(open) = open {
                open.is_reported = true;
                self.outbox.report(TransferEvent::Started {
                    handle,
                    path: path.into(),
                    direction: FileDirection::Upload,
                });
            }
            return Ok(());
        }
        // A successful OPEN returns a handle, so a STATUS of success is a violation.
        if !is_status(&packet) || outcome(&packet).is_ok() {
            return Err(SftpError::AnswerType(kind_of(&packet)));
        }
        self.early_opens.folder = None;
        if let Some(OpenHandle {
            access: Access::Writable(writes),
            ..
        }) = open
        {
            writes.open_failed(packet);
        }
        Ok(())
    }

    /// Records that a handle of the near half has been closed.
    pub(super) fn early_open_closed(&mut self) {
        self.early_opens.handles -= 1;
    }

    /// Passes on a request. If the near half has created the handle in the request, the far half
    /// replaces it by the handle of the server.
    pub(super) fn pass_on(&mut self, pending: PendingRequest, packet: Rope) {
        match self.split_early_handle(&packet) {
            Some((handle, at, packet)) => {
                let request = self.outbox.register(pending);
                self.outbox.send(ToFar::HandleRequest {
                    request,
                    handle,
                    at,
                    packet,
                });
            }
            None => self.outbox.request(pending, packet),
        }
    }

    /// Returns the number of the handle in a packet, the position of the handle, and the packet
    /// without the handle. Returns `None` if the handle is from the server.
    fn split_early_handle(&self, packet: &Rope) -> Option<(u64, u32, Rope)> {
        if self.early_opens.handles == 0 {
            return None;
        }
        let (at, name) = handle_field(packet.clone())?;
        let handle = *self.names.get(&name)?;
        if !self.handles.get(&handle)?.is_early {
            return None;
        }
        let mut rest = packet.clone();
        let mut without = rest.split_to(at);
        rest.advance(4 + name.len());
        without.append(rest);
        Some((handle, at as u32, without))
    }
}

/// Returns the position of the handle in a packet, and the handle. Returns `None` if the packet has
/// no handle. Also returns `None` if the answer to the packet does not depend on a file that is
/// open only for writing.
fn handle_field(packet: Rope) -> Option<(usize, Bytes)> {
    let mut fields = FieldReader::new(0, packet);
    let kind = fields.u8().ok()?;
    let mut at = 1;
    match kind {
        kind::READ | kind::FSTAT | kind::FSETSTAT | kind::READDIR => {}
        kind::EXTENDED => {
            let name = fields.string().ok()?;
            at += 4 + name.len();
            match &name[..] {
                extension::FSYNC | extension::FSTATVFS => {}
                extension::COPY_DATA => {
                    let from = fields.handle().ok()?;
                    fields.u64().ok()?;
                    fields.u64().ok()?;
                    at += 4 + from.len() + 16;
                }
                _ => return None,
            }
        }
        _ => return None,
    }
    let handle = fields.handle().ok()?;
    Some((at, handle))
}

/// Returns the part of a path before its last slash.
fn folder(path: &[u8]) -> Option<Bytes> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    Some(Bytes::copy_from_slice(&path[..slash]))
}

/// Returns the handle that the near half makes for a number.
fn early_name(number: u64) -> Bytes {
    format!("longhaul-{number:016x}").into()
}

/// Flags of an upload by OpenSSH.
const UPLOAD: OpenFlags =
    OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREATE.0 | OpenFlags::TRUNCATE.0);
