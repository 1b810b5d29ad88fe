//! The near half of an SFTP session: the end at the client.
//!
//! Inputs are bytes of the client and messages of the far half. Outputs are bytes for the client,
//! messages for the far half, and events of transfers. After each input, the caller takes as many
//! outputs as its channels have room for.
//!
//! The caller may pass client bytes only while [`SftpNear::wants_client_bytes`] is true, and
//! messages only while [`SftpNear::wants_far_messages`] is true.

mod answers;
mod early_opens;
mod file_ahead;
mod first_credit;
mod folder_ahead;
mod handle;
mod listings;
mod outbox;
mod prepared;
mod ranged_files;
mod requests;
mod shared_files;
#[cfg(test)]
mod tests;
mod writes;

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

pub use self::shared_files::SharedFiles;
use self::{
    early_opens::EarlyOpens,
    file_ahead::WINDOW_MIN,
    handle::{Access, OpenHandle},
    listings::Listings,
    outbox::Outbox,
    prepared::Prepared,
    ranged_files::RangedFiles,
};
use crate::{
    EarlyReplies, Rope, SftpError, ToFar, ToNear, TransferEvent,
    packet::{PacketSplitter, kind},
};

/// Settings of a near half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearSettings {
    /// Rule by which WRITEs are answered before the server has confirmed them.
    pub early: EarlyReplies,
    /// Maximum number of bytes that are read ahead for all handles together. Zero disables
    /// read-ahead.
    pub read_ahead_max: u64,
    /// Maximum number of bytes that are read ahead for one handle. Data behind a lost packet wait
    /// one more round trip. Full rate therefore needs two bandwidth-delay products: 50 MB at
    /// 1 Gbit/s and 200 ms.
    pub read_ahead_handle_max: u64,
    /// Maximum number of bytes in WRITEs that the server has not confirmed yet.
    pub write_ahead_max: u64,
    /// Whether the client's SSH identification is that of OpenSSH.
    pub is_openssh: bool,
}

impl Default for NearSettings {
    fn default() -> Self {
        Self {
            early: EarlyReplies::default(),
            read_ahead_max: 128 << 20,
            read_ahead_handle_max: 64 << 20,
            write_ahead_max: 64 << 20,
            is_openssh: false,
        }
    }
}

/// Output of a near half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SftpNearOutput {
    /// Bytes for the client. A packet may consist of several outputs.
    ToClient(Bytes),
    /// Message for the far half.
    ToFar(ToFar),
    /// Event of a transfer.
    Transfer(TransferEvent),
}

/// Progress of the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client has sent no INIT yet.
    BeforeInit,
    /// The server's VERSION has not arrived yet.
    BeforeVersion,
    Ready,
}

/// The near half of an SFTP session.
#[derive(Debug)]
pub struct SftpNear {
    settings: NearSettings,
    phase: Phase,
    splitter: PacketSplitter,
    outbox: Outbox,
    /// Open files and folders, by their numbers.
    handles: HashMap<u64, OpenHandle>,
    /// Numbers of the handles that the client may use. The key is the server's handle.
    names: HashMap<Bytes, u64>,
    /// Number of unanswered requests that open a file or folder.
    opens: usize,
    /// Bytes of read-ahead for these requests.
    opening_bytes: u64,
    /// Bytes in WRITEs that the server has not confirmed yet.
    unconfirmed_bytes: u64,
    /// Number of requests that may change a file, counted from the start of the session.
    changes: u64,
    /// Files that may have a read-ahead, by the numbers of their handles.
    read_ahead: BTreeSet<u64>,
    /// Files that the client has closed while READs wait for read-ahead, by the numbers of their
    /// handles. The client already has the answers to CLOSE.
    closing: BTreeSet<u64>,
    listings: Listings,
    prepared: Prepared,
    early_opens: EarlyOpens,
    ranged_files: RangedFiles,
    shared_files: SharedFiles,
    /// Time that the caller has stated.
    now: Duration,
    limits: ServerLimits,
}

/// State of the server's answer to `limits@openssh.com`, which the far half requests by itself.
#[derive(Debug)]
enum ServerLimits {
    /// The server does not offer the extension, or VERSION has not arrived yet.
    NotOffered,
    /// The answer is in flight. These requests of the client wait for it.
    Awaited(Vec<u32>),
    Known(Rope),
}

impl SftpNear {
    /// Creates the half for a client that has just started the subsystem.
    pub fn new(settings: NearSettings) -> Self {
        Self {
            settings,
            phase: Phase::BeforeInit,
            splitter: PacketSplitter::default(),
            outbox: Outbox::default(),
            handles: HashMap::new(),
            names: HashMap::new(),
            opens: 0,
            opening_bytes: 0,
            unconfirmed_bytes: 0,
            changes: 0,
            read_ahead: BTreeSet::new(),
            closing: BTreeSet::new(),
            listings: Listings::default(),
            prepared: Prepared::default(),
            early_opens: EarlyOpens::default(),
            ranged_files: RangedFiles::default(),
            shared_files: SharedFiles::default(),
            now: Duration::ZERO,
            limits: ServerLimits::NotOffered,
        }
    }

    /// Sets the registry of open files that the sessions of an account share. The call must precede
    /// the first input. Without the call, the session has its own registry.
    pub fn set_shared_files(&mut self, files: SharedFiles) {
        self.shared_files = files;
    }

    /// Accepts the time since any fixed moment. The caller states the time before each input, and
    /// when [`SftpNear::next_due`] is due. If the caller never states the time, the age of
    /// read-ahead has no limit.
    pub fn set_time(&mut self, now: Duration) {
        self.now = now;
        self.expire_prepared();
    }

    /// Accepts bytes of the client. The cuts between calls do not matter.
    ///
    /// # Errors
    /// [`SftpError`] if the client violates the protocol. The session must end then.
    pub fn receive_from_client(&mut self, bytes: Bytes) -> Result<(), SftpError> {
        self.splitter.push(bytes);
        while let Some(packet) = self.splitter.next_packet()? {
            match self.phase {
                Phase::BeforeInit => self.receive_init(packet)?,
                _ => self.receive_request(packet)?,
            }
        }
        Ok(())
    }

    /// Accepts a message of the far half.
    ///
    /// # Errors
    /// [`SftpError`] if the far half or the server violates the protocol. The session must end
    /// then.
    pub fn receive_from_far(&mut self, message: ToNear) -> Result<(), SftpError> {
        let is_version = matches!(message, ToNear::Version { .. });
        if is_version != (self.phase == Phase::BeforeVersion) {
            return Err(SftpError::UnexpectedMessage("VERSION must be first"));
        }
        match message {
            ToNear::Version { packet } => self.receive_version(packet),
            ToNear::Limits { packet } => {
                self.receive_limits(packet);
                Ok(())
            }
            ToNear::Reply { request, packet } => self.receive_answer(request, packet),
            ToNear::Written { request } => self.receive_written(request),
            ToNear::ReadAhead { handle, run, data } => {
                let Self {
                    handles,
                    listings,
                    outbox,
                    ..
                } = self;
                let received = match handles.get_mut(&handle).map(|open| &mut open.access) {
                    Some(Access::File(file)) => file.arrived(run, data, outbox),
                    Some(Access::Folder(folder)) => {
                        listings.add(handle, &data);
                        folder.arrived(data, outbox)
                    }
                    // The client has closed the handle in the meantime.
                    _ => Ok(()),
                };
                self.close_if_read(handle);
                received
            }
            ToNear::ReadAheadEnd {
                handle,
                run,
                packet,
            } => {
                let received = self.receive_end(handle, run, packet);
                self.close_if_read(handle);
                received
            }
        }
    }

    /// Returns the next output of any kind.
    pub fn next_output(&mut self) -> Option<SftpNearOutput> {
        if let Some(bytes) = self.next_client_bytes() {
            return Some(SftpNearOutput::ToClient(bytes));
        }
        if let Some(message) = self.next_far_message() {
            return Some(SftpNearOutput::ToFar(message));
        }
        self.next_event().map(SftpNearOutput::Transfer)
    }

    /// Returns the next bytes for the client.
    pub fn next_client_bytes(&mut self) -> Option<Bytes> {
        self.outbox.to_client.pop()
    }

    /// Returns the next message for the far half.
    pub fn next_far_message(&mut self) -> Option<ToFar> {
        self.outbox.next_far_message()
    }

    /// Returns the next event of a transfer.
    pub fn next_event(&mut self) -> Option<TransferEvent> {
        self.outbox.next_event()
    }

    /// Returns whether the caller may pass client bytes. The result is false while a queue is full.
    pub fn wants_client_bytes(&self) -> bool {
        self.unconfirmed_bytes < self.settings.write_ahead_max.max(1)
            && self.outbox.pending() < PENDING_MAX
            && self.outbox.to_far_bytes() < FAR_QUEUE_MAX
            && self.outbox.to_client.len() < CLIENT_QUEUE_MAX
            && self.outbox.event_count() < EVENTS_MAX
            && self.waiting() < PENDING_MAX
    }

    /// Returns whether the caller may pass messages of the far half. The result is false while the
    /// client does not take its bytes.
    pub fn wants_far_messages(&self) -> bool {
        self.outbox.to_client.len() < CLIENT_QUEUE_MAX && self.outbox.event_count() < EVENTS_MAX
    }

    /// Returns whether the client has open files or folders, or has requested to open one.
    pub fn has_handles(&self) -> bool {
        !self.handles.is_empty() || self.opens > 0
    }

    /// Changes the maximum number of bytes that are read ahead. Existing windows stay as they are.
    pub fn set_read_ahead_max(&mut self, bytes: u64) {
        self.settings.read_ahead_max = bytes;
    }

    /// Returns whether a request of the client waits for the far half or for the read-ahead.
    pub fn awaits_far(&self) -> bool {
        self.outbox.pending() > 0 || self.waiting() > 0
    }

    /// Returns whether READs or READDIRs wait for read-ahead. The end of the client's requests must
    /// not reach the server before that, because requests of the near half can follow.
    pub fn has_waiting_reads(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns whether the server owes the client nothing. Each request of the client has an
    /// answer, and no file is open for writing. The result is false before VERSION.
    pub fn is_settled(&self) -> bool {
        let awaits_limits =
            matches!(&self.limits, ServerLimits::Awaited(waiting) if !waiting.is_empty());
        let mut handles = self.handles.values();
        let may_write = handles.any(|it| matches!(it.access, Access::Writable(_)));
        self.phase == Phase::Ready
            && self.outbox.is_settled()
            && self.waiting() == 0
            && !awaits_limits
            && !may_write
    }

    /// Ends the session, and reports the end of all open transfers.
    pub fn end(&mut self, reason: &str) {
        self.names.clear();
        let mut numbers: Vec<u64> = self
            .handles
            .drain()
            .filter_map(|(number, open)| open.is_transfer().then_some(number))
            .collect();
        numbers.sort_unstable();
        for handle in numbers {
            let outcome = Err(reason.to_owned());
            self.outbox
                .report(TransferEvent::Finished { handle, outcome });
        }
    }

    /// Returns the number of bytes in all queues, with the bytes of read-ahead.
    pub fn queued_bytes(&self) -> u64 {
        let queued = self.outbox.to_client.len() + self.outbox.to_far_bytes();
        let buffered = self.splitter.buffered_bytes();
        let held = self.handles.values().map(OpenHandle::held_bytes);
        let ahead = self.listings.bytes() + self.prepared.bytes();
        (queued + buffered + ahead) as u64 + held.sum::<u64>()
    }

    /// Prepares the next request, which may change any file. A later READ must not return older
    /// bytes, and two paths may name one file. All read-ahead of files therefore stops. READs are
    /// passed on until the server has answered the request.
    fn begin_change(&mut self) {
        self.drop_prepared();
        self.changes += 1;
        for handle in std::mem::take(&mut self.read_ahead) {
            if let Some(open) = self.handles.get_mut(&handle)
                && let Access::File(file) = &mut open.access
                && !file.is_stopped()
            {
                file.stop(&mut self.outbox);
            }
        }
        self.send_waiting_closes();
        self.outbox.mark_change();
    }

    /// Prepares the next request, which may change a path, but no bytes of a file.
    fn begin_path_change(&mut self) {
        self.drop_prepared();
        // Some servers refuse to change the path of an open file.
        self.send_waiting_closes();
        self.outbox.mark_path_change();
    }

    /// Passes on each CLOSE that waits for READs. The READs precede it.
    fn send_waiting_closes(&mut self) {
        for handle in std::mem::take(&mut self.closing) {
            if let Some(open) = self.handles.get_mut(&handle)
                && let Access::File(file) = &mut open.access
                && file.waiting() > 0
            {
                file.stop(&mut self.outbox);
            }
            self.send_close(handle, None);
        }
    }

    /// Passes on the CLOSE of a file that the client has closed, if no READ waits any more.
    fn close_if_read(&mut self, handle: u64) {
        let open = self.handles.get(&handle);
        if open.is_some_and(|open| open.waiting() == 0) && self.closing.remove(&handle) {
            self.send_close(handle, None);
        }
    }

    /// Returns the window for a new read-ahead of a file, or 0 if no read-ahead may start.
    fn file_window_bytes(&self) -> u64 {
        if self.outbox.has_changes() {
            return 0;
        }
        self.window_bytes()
    }

    /// Returns the number of requests that wait for bytes of the read-ahead.
    fn waiting(&self) -> usize {
        self.handles.values().map(OpenHandle::waiting).sum()
    }

    /// Returns the memory in bytes of all windows.
    fn used_window_bytes(&self) -> u64 {
        let reserved = self.handles.values().map(OpenHandle::reserved_bytes);
        reserved.sum::<u64>() + self.opening_bytes
    }

    /// Returns the window of a new read-ahead in bytes, or 0 if there is no memory for one. The
    /// first read-ahead gets up to two thirds of the memory, and each further one half of the rest.
    fn window_bytes(&self) -> u64 {
        let used_bytes = self.used_window_bytes();
        let free_bytes = self.settings.read_ahead_max.saturating_sub(used_bytes);
        let share_bytes = match used_bytes {
            0 => free_bytes / 3 * 2,
            _ => free_bytes / 2,
        };
        let window_bytes = self
            .settings
            .read_ahead_handle_max
            .min(share_bytes.max(WINDOW_MIN));
        if window_bytes < WINDOW_MIN || window_bytes > free_bytes {
            return 0;
        }
        window_bytes
    }
}

/// Returns the packet type of a packet, or 0 if it is empty.
fn kind_of(packet: &Rope) -> u8 {
    let mut kind = [0];
    packet.peek(&mut kind);
    kind[0]
}

/// Returns whether a packet is a STATUS.
fn is_status(packet: &Rope) -> bool {
    kind_of(packet) == kind::STATUS
}

/// Time without a READ after which the near half drops the bytes of a read-ahead.
const AHEAD_AGE_MAX: Duration = Duration::from_secs(2);

/// Time after which the server is asked again about the end of a file.
const END_AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum number of requests that await an answer. Clients may send all READs of a file at once.
/// The READs above this number wait in the channel of the client.
const PENDING_MAX: usize = 16 * 1024;

/// Memory limit for the queued messages to the far half, in bytes. Above this limit, the near half
/// takes no client bytes.
const FAR_QUEUE_MAX: usize = 4 << 20;

/// Limit for the queued bytes to the client. Above this limit, the half takes no input.
const CLIENT_QUEUE_MAX: usize = 4 << 20;

/// Limit for the number of queued events. Above this limit, the half takes no input.
const EVENTS_MAX: usize = 16 * 1024;

/// Maximum number of open files and folders. OpenSSH's server has fewer.
const HANDLES_MAX: usize = 4096;
