//! Read-ahead of open files and folders, driven by the credit of the near half.

use bytes::Bytes;

use super::{
    OpenHandle, Queued, SENT_MAX, SentRequest, SftpFar,
    ahead::{AheadStep, FileReadAhead, FolderReadAhead, ReadAhead, ReadAnswer, ReadOrder},
    joined,
};
use crate::{
    Rope, SftpError, ToNear,
    packet::{FieldReader, Status, StatusCode, kind},
};

impl SftpFar {
    pub(super) fn opened(
        &mut self,
        number: u64,
        body: Rope,
        credit_bytes: u64,
        is_folder: bool,
    ) -> Result<(), SftpError> {
        let malformed = SftpError::MalformedPacket(kind::HANDLE);
        let handle = FieldReader::new(kind::HANDLE, body).handle();
        let open = OpenHandle {
            // Without the copy, the handle would keep the whole packet in memory.
            handle: Bytes::copy_from_slice(&handle.map_err(|_| malformed)?),
            read_ahead: None,
            stopped_run: None,
        };
        self.handles.insert(number, open);
        if credit_bytes > 0 {
            self.start(
                number,
                if is_folder {
                    ReadAhead::Folder(FolderReadAhead::new(0, credit_bytes))
                } else {
                    ReadAhead::File(FileReadAhead::new(0, 0, credit_bytes))
                },
            );
        }
        Ok(())
    }

    pub(super) fn start(&mut self, number: u64, read_ahead: ReadAhead) {
        if let Some(open) = self.handles.get_mut(&number) {
            open.read_ahead = Some(read_ahead);
            self.turns.push_back(number);
        }
    }

    pub(super) fn add_credit(&mut self, number: u64, run: u32, credit_bytes: u64) {
        let open = self.handles.get_mut(&number);
        match open.and_then(|open| open.read_ahead.as_mut()) {
            Some(ReadAhead::File(file)) if file.run == run => file.add_credit(credit_bytes),
            Some(ReadAhead::Folder(folder)) if folder.run == run => folder.add_credit(credit_bytes),
            // The read-ahead has ended in the meantime.
            _ => {}
        }
    }

    pub(super) fn stop(&mut self, number: u64, run: u32) {
        let Some(open) = self.handles.get_mut(&number) else {
            return;
        };
        open.stopped_run = open.stopped_run.max(Some(run));
        let present = match &open.read_ahead {
            Some(ReadAhead::File(file)) => Some(file.run),
            Some(ReadAhead::Folder(folder)) => Some(folder.run),
            None => None,
        };
        if present.is_some_and(|present| present <= run) {
            self.drop_read_ahead(number);
        }
    }

    /// Ends the read-ahead of a handle, and removes its bytes from the queue.
    pub(super) fn drop_read_ahead(&mut self, number: u64) {
        self.turns.retain(|other| *other != number);
        if let Some(open) = self.handles.get_mut(&number) {
            open.read_ahead = None;
        }
        let mut removed = 0;
        for queue in [&mut self.answers, &mut self.ahead] {
            queue.retain(|Queued { message, .. }| {
                let is_dropped = matches!(
                    message,
                    ToNear::ReadAhead { handle, .. } | ToNear::ReadAheadEnd { handle, .. }
                        if *handle == number
                );
                removed += if is_dropped { message.cost() } else { 0 };
                !is_dropped
            });
        }
        self.to_near_bytes -= removed;
    }

    pub(super) fn read_answered(
        &mut self,
        handle: u64,
        run: u32,
        number: u64,
        kind: u8,
        body: Rope,
    ) -> Result<(), SftpError> {
        let answer = match kind {
            kind::DATA => {
                let data = FieldReader::new(kind, body).data();
                match data.map_err(|_| SftpError::MalformedPacket(kind))? {
                    // An empty answer ends the read-ahead. The near half then requests these bytes
                    // itself.
                    data if data.is_empty() => ReadAnswer::End(no_data()),
                    data => ReadAnswer::Data(data),
                }
            }
            kind::STATUS => ReadAnswer::End(joined(kind, body)),
            _ => return Err(SftpError::AnswerType(kind)),
        };
        let open = self.handles.get_mut(&handle);
        let Some(ReadAhead::File(file)) = open.and_then(|open| open.read_ahead.as_mut()) else {
            return Ok(());
        };
        if file.run != run {
            return Ok(());
        }
        if !file.answered(number, answer) {
            return Err(SftpError::MalformedPacket(kind::DATA));
        }
        let mut steps = Vec::new();
        while let Some(step) = file.next_step() {
            let is_last = !matches!(step, AheadStep::Data(_));
            steps.push(step);
            if is_last {
                break;
            }
        }
        for step in steps {
            match step {
                AheadStep::Data(data) => self.send_ahead(ToNear::ReadAhead { handle, run, data }),
                AheadStep::Read(order) => self.read(handle, run, order)?,
                AheadStep::End(packet) => {
                    self.turns.retain(|other| *other != handle);
                    self.handle(handle)?.read_ahead = None;
                    self.send_ahead(ToNear::ReadAheadEnd {
                        handle,
                        run,
                        packet,
                    });
                }
            }
        }
        Ok(())
    }

    pub(super) fn folder_answered(
        &mut self,
        handle: u64,
        run: u32,
        kind: u8,
        body: Rope,
    ) -> Result<(), SftpError> {
        if kind != kind::NAME && kind != kind::STATUS {
            return Err(SftpError::AnswerType(kind));
        }
        let Some(open) = self.handles.get_mut(&handle) else {
            return Ok(());
        };
        let Some(ReadAhead::Folder(folder)) = &mut open.read_ahead else {
            return Ok(());
        };
        if folder.run != run {
            return Ok(());
        }
        let packet = joined(kind, body);
        if kind == kind::NAME {
            folder.answered(packet.len());
            self.send(ToNear::ReadAhead {
                handle,
                run,
                data: packet,
            });
        } else {
            open.read_ahead = None;
            self.turns.retain(|other| *other != handle);
            self.send(ToNear::ReadAheadEnd {
                handle,
                run,
                packet,
            });
        }
        Ok(())
    }

    /// Sends READs and READDIRs ahead of the client, in turns.
    pub(super) fn read_more(&mut self) -> Result<(), SftpError> {
        let mut idle_turns = 0;
        while idle_turns < self.turns.len() && self.sent.len() < AHEAD_SENT_MAX {
            let used_bytes = self.read_bytes + self.to_near_bytes as u64;
            let is_full = used_bytes + u64::from(self.read_max) > self.settings.reads_max;
            if is_full && used_bytes > 0 {
                break;
            }
            let number = self.turns.pop_front().expect("the queue is not empty");
            self.turns.push_back(number);
            let open = self.handles.get_mut(&number);
            idle_turns += 1;
            match open.and_then(|open| open.read_ahead.as_mut()) {
                Some(ReadAhead::File(file)) => {
                    let run = file.run;
                    if let Some(order) = file.next_read(self.read_max) {
                        self.read(number, run, order)?;
                        idle_turns = 0;
                    }
                }
                Some(ReadAhead::Folder(folder)) => {
                    let run = folder.run;
                    if !folder.takes_turn() {
                        continue;
                    }
                    let name = self.handle(number)?.handle.clone();
                    let handle = number;
                    let id = self.register(SentRequest::FolderReadAhead { handle, run })?;
                    self.to_server.put_head(kind::READDIR, id, 4 + name.len());
                    self.to_server.put_string(&name);
                    idle_turns = 0;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn read(&mut self, handle: u64, run: u32, order: ReadOrder) -> Result<(), SftpError> {
        let name = self.handle(handle)?.handle.clone();
        self.read_bytes += u64::from(order.length);
        let id = self.register(SentRequest::ReadAhead { handle, run, order })?;
        self.to_server.put_head(kind::READ, id, 4 + name.len() + 12);
        self.to_server.put_string(&name);
        self.to_server.put(&order.offset.to_be_bytes());
        self.to_server.put(&order.length.to_be_bytes());
        Ok(())
    }
}

/// Returns a STATUS packet for an answer without data.
fn no_data() -> Rope {
    let mut packet = vec![kind::STATUS];
    Status::new(StatusCode::FAILURE, "the server returned no data").put(&mut packet);
    packet.into()
}

/// Limit for the number of outstanding requests. Above this limit, read-ahead pauses.
const AHEAD_SENT_MAX: usize = SENT_MAX / 2;
