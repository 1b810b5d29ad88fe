//! Requests that the near half sends before the client does. Many clients use the files of a folder
//! one by one, and wait for each answer. The near half therefore sends OPEN, STAT and LSTAT for the
//! next files, and keeps the answers of the server for a short time.
//!
//! Any request that may change a file or a path drops all these answers. A failure of such a
//! request is never passed on: the client's own request then goes to the server.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    AHEAD_AGE_MAX, HANDLES_MAX, SftpNear,
    file_ahead::FileReadAhead,
    first_credit::SIBLING_CREDIT_MAX,
    handle::OpenHandle,
    is_status, kind_of,
    listings::{ForecastKind, KINDS, Usage},
    outbox::{PendingRequest, Retry},
};
use crate::{
    FileDirection, Rope, SftpError, ToFar, TransferEvent,
    packet::{FieldReader, OpenFlags, kind, put_string},
};

/// Requests that the near half has sent before the client.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Requests by their numbers.
    requests: HashMap<u64, PreparedRequest>,
    numbers: HashMap<(ForecastKind, Bytes), u64>,
    counts: [usize; KINDS],
    /// Times and numbers of the requests, in order. Some of these requests have been taken or
    /// dropped.
    in_order: VecDeque<(Duration, u64)>,
    /// For each kind, the maximum number of requests ahead of the client. Zero means that the
    /// client does not use files in order.
    depths: [usize; KINDS],
    /// Sum of the sizes of the files to open, according to the listing.
    file_bytes: u64,
    /// Number of OPENs that were dropped before their answers arrived.
    dropped_opens: usize,
    /// Maximum number of open handles, as the server states it.
    handles_max: Option<u64>,
    /// Whether the server has refused to open a file while other files were open ahead of the
    /// client.
    is_short_of_handles: bool,
}

#[derive(Debug)]
struct PreparedRequest {
    kind: ForecastKind,
    path: Bytes,
    sent_at: Duration,
    /// Size of the file according to the listing, for OPEN.
    file_bytes: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    InFlight,
    Answered {
        at: Duration,
        packet: Rope,
    },
    /// The server has refused the request.
    Failed,
}

/// Answer for a request of the client.
#[derive(Debug)]
pub(super) enum PreparedAnswer {
    /// The answer is in flight. The request has this number.
    InFlight(u64),
    /// Number of the request, and packet of the server.
    Answered(u64, Rope),
}

impl Prepared {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.requests.len() * (REQUEST_COST + PATH_MAX) + self.in_order.len() * TIME_COST
    }

    pub(super) fn set_handles_max(&mut self, handles_max: u64) {
        self.handles_max = Some(handles_max);
    }

    fn insert(&mut self, number: u64, request: PreparedRequest) {
        self.in_order.push_back((request.sent_at, number));
        self.counts[request.kind as usize] += 1;
        self.file_bytes += request.file_bytes;
        let key = (request.kind, request.path.clone());
        self.numbers.insert(key, number);
        self.requests.insert(number, request);
    }

    fn remove(&mut self, number: u64) -> Option<PreparedRequest> {
        let removed = self.requests.remove(&number)?;
        self.counts[removed.kind as usize] -= 1;
        self.file_bytes -= removed.file_bytes;
        self.numbers.remove(&(removed.kind, removed.path.clone()));
        Some(removed)
    }
}

impl SftpNear {
    /// Returns the time at which the caller must call [`SftpNear::set_time`] again, so that the
    /// half closes files that the client does not open.
    pub fn next_due(&self) -> Option<Duration> {
        let (sent_at, ..) = self.prepared.in_order.front()?;
        Some(*sent_at + AHEAD_AGE_MAX)
    }

    /// Drops the answers that are too old.
    pub(super) fn expire_prepared(&mut self) {
        while let Some(&(sent_at, number)) = self.prepared.in_order.front()
            && self.now.saturating_sub(sent_at) >= AHEAD_AGE_MAX
        {
            self.prepared.in_order.pop_front();
            if let Some(request) = self.prepared.requests.get(&number) {
                self.prepared.depths[request.kind as usize] /= 2;
                self.drop_request(number);
            }
        }
    }

    /// Drops all answers, because the client changes a file or a path.
    pub(super) fn drop_prepared(&mut self) {
        let in_order = std::mem::take(&mut self.prepared.in_order);
        for (_, number) in in_order {
            self.drop_request(number);
        }
    }

    /// Returns whether the server has opened, or will open, files that the client has not opened.
    pub(super) fn has_prepared_files(&self) -> bool {
        self.prepared.counts[ForecastKind::Open as usize] > 0 || self.prepared.dropped_opens > 0
    }

    /// Closes the files that the server has opened before the client requested them, and opens no
    /// others. The server may have too few handles.
    pub(super) fn free_handles(&mut self) {
        self.prepared.is_short_of_handles = true;
        self.drop_prepared();
    }

    fn drop_request(&mut self, number: u64) {
        let Some(request) = self.prepared.remove(number) else {
            return;
        };
        match (request.kind, request.state) {
            (ForecastKind::Open, State::Answered { .. }) => {
                self.handles.remove(&number);
                self.close_prepared(number);
            }
            (ForecastKind::Open, State::InFlight) => self.prepared.dropped_opens += 1,
            _ => {}
        }
    }

    fn close_prepared(&mut self, handle: u64) {
        let pending = PendingRequest::Close { id: None, handle };
        let request = self.outbox.register(pending);
        self.outbox.send(ToFar::Close { request, handle });
    }

    /// Removes and returns the answer for a request of the client.
    fn take_prepared(&mut self, kind: ForecastKind, path: &Bytes) -> Option<PreparedAnswer> {
        let number = *self.prepared.numbers.get(&(kind, path.clone()))?;
        let request = self.prepared.remove(number)?;
        let (taken, waited) = match request.state {
            State::InFlight => (PreparedAnswer::InFlight(number), Duration::ZERO),
            State::Answered { at, packet } => {
                let waited = self.now.saturating_sub(at);
                (PreparedAnswer::Answered(number, packet), waited)
            }
            State::Failed => return None,
        };
        let depth = &mut self.prepared.depths[kind as usize];
        if waited < WAIT_SHORT {
            *depth = (*depth * 2).min(DEPTH_MAX);
        } else if waited > WAIT_LONG {
            *depth = (*depth / 2).max(DEPTH_FIRST);
        }
        Some(taken)
    }

    /// Accepts the path of a request, and sends the next requests of its kind.
    pub(super) fn prepare_next(&mut self, kind: ForecastKind, path: &[u8]) {
        let usage = self.listings.used(kind, path);
        let depth = &mut self.prepared.depths[kind as usize];
        match usage {
            Usage::InOrder | Usage::First { is_start: true } => *depth = (*depth).max(DEPTH_FIRST),
            Usage::OutOfOrder | Usage::First { is_start: false } => *depth = 0,
            Usage::Unlisted => return,
            Usage::Repeated => {}
        }
        let depth = *depth;
        if depth == 0 || !self.may_prepare() {
            return;
        }
        for next in self.listings.after(kind, path, depth) {
            let is_open = kind == ForecastKind::Open;
            let key = (kind, next.path);
            let is_left_out = key.1.len() > PATH_MAX || (is_open && next.size_bytes > FILE_MAX);
            if is_left_out || self.prepared.numbers.contains_key(&key) {
                continue;
            }
            let file_bytes = if is_open { next.size_bytes } else { 0 };
            let count = self.prepared.counts[kind as usize];
            if count >= DEPTH_MAX || (is_open && !self.may_open(file_bytes)) {
                break;
            }
            let (kind, path) = key;
            let number = self.send_prepared(kind, &path);
            let request = PreparedRequest {
                kind,
                path,
                sent_at: self.now,
                file_bytes,
                state: State::InFlight,
            };
            self.prepared.insert(number, request);
        }
    }

    /// Returns whether the near half may send requests before the client. While a change is
    /// outstanding, the answers could be older than the change.
    fn may_prepare(&self) -> bool {
        self.settings.read_ahead_max > 0
            && !self.outbox.has_changes()
            && !self.outbox.has_path_changes()
            && self.prepared.in_order.len() < IN_ORDER_MAX
    }

    /// Returns whether there are enough handles and memory to open a file of this size before the
    /// client requests it.
    fn may_open(&self, file_bytes: u64) -> bool {
        let handles_max = match self.prepared.handles_max {
            None => HANDLES_UNSTATED_MAX,
            // Zero means that the server states no limit.
            Some(0) => HANDLES_MAX,
            Some(stated) => usize::try_from(stated / 2).unwrap_or(usize::MAX),
        };
        let window_max = self.settings.read_ahead_max / 4 * 3;
        !self.prepared.is_short_of_handles
            && self.handles.len() + self.opens < handles_max.min(HANDLES_MAX / 2)
            && self.prepared.file_bytes + file_bytes <= FILES_MAX
            && self.used_window_bytes() + PREPARED_WINDOW <= window_max
    }

    fn send_prepared(&mut self, kind: ForecastKind, path: &[u8]) -> u64 {
        let request = self.outbox.register(PendingRequest::Prepared { kind });
        let packet = request_packet(kind, path);
        self.outbox.send(match kind {
            ForecastKind::Open => {
                self.opens += 1;
                self.opening_bytes += PREPARED_WINDOW;
                ToFar::Open {
                    request,
                    credit_bytes: PREPARED_WINDOW,
                    is_early: false,
                    packet,
                }
            }
            ForecastKind::Stat | ForecastKind::Lstat => ToFar::Request { request, packet },
        });
        request
    }

    /// Accepts the answer to a request that the near half has sent before the client.
    pub(super) fn prepared_answered(
        &mut self,
        number: u64,
        kind: ForecastKind,
        packet: Rope,
    ) -> Result<(), SftpError> {
        let expected = match kind {
            ForecastKind::Open => {
                self.opens -= 1;
                self.opening_bytes -= PREPARED_WINDOW;
                kind::HANDLE
            }
            ForecastKind::Stat | ForecastKind::Lstat => kind::ATTRS,
        };
        let request = self.prepared.requests.get_mut(&number);
        if request.is_none() && kind == ForecastKind::Open {
            self.prepared.dropped_opens -= 1;
        }
        if kind_of(&packet) != expected {
            if !is_status(&packet) {
                return Err(SftpError::AnswerType(kind_of(&packet)));
            }
            if let Some(request) = request {
                request.state = State::Failed;
            }
            return Ok(());
        }
        let name = match kind {
            ForecastKind::Open => Some(handle_name(&packet)?),
            ForecastKind::Stat | ForecastKind::Lstat => None,
        };
        let Some(request) = request else {
            if name.is_some() {
                self.close_prepared(number);
            }
            return Ok(());
        };
        request.state = State::Answered {
            at: self.now,
            packet,
        };
        if let Some(name) = name {
            let file = FileReadAhead::new(number, name, PREPARED_WINDOW, request.sent_at);
            self.handles.insert(number, OpenHandle::prepared(file));
        }
        Ok(())
    }

    /// Answers a request of the client if the near half has already sent the same request. Returns
    /// false if the caller must send the request.
    pub(super) fn answer_prepared(&mut self, id: u32, kind: ForecastKind, path: &Bytes) -> bool {
        match (kind, self.take_prepared(kind, path)) {
            (_, None) => return false,
            (ForecastKind::Open, Some(PreparedAnswer::InFlight(number))) => {
                let pending = PendingRequest::Open {
                    id,
                    opening: self.opening(path, OpenFlags::READ, PREPARED_WINDOW),
                    retry: Retry::Always(request_packet(kind, path)),
                };
                self.outbox.replace(number, pending);
            }
            (_, Some(PreparedAnswer::InFlight(number))) => {
                let retry = request_packet(kind, path);
                self.outbox
                    .replace(number, PendingRequest::Stat { id, retry });
            }
            (ForecastKind::Open, Some(PreparedAnswer::Answered(number, packet))) => {
                return self.open_prepared(id, number, path, packet);
            }
            (_, Some(PreparedAnswer::Answered(_, packet))) => self.outbox.reply(id, packet),
        }
        true
    }

    /// Gives the client a file that the server has opened. Returns whether this is possible.
    fn open_prepared(&mut self, id: u32, number: u64, path: &[u8], packet: Rope) -> bool {
        let name = handle_name(&packet).unwrap_or_default();
        let open = self.handles.get_mut(&number);
        let open = open.filter(|_| !self.names.contains_key(&name));
        let Some(open) = open else {
            // The server has returned the same handle for another open file.
            self.handles.remove(&number);
            self.close_prepared(number);
            return false;
        };
        open.is_reported = true;
        self.names.insert(name, number);
        self.read_ahead.insert(number);
        self.outbox.report(TransferEvent::Started {
            handle: number,
            path: path.to_vec(),
            direction: FileDirection::Download,
        });
        self.outbox.reply(id, packet);
        true
    }
}

/// Returns the packet of a request.
fn request_packet(kind: ForecastKind, path: &[u8]) -> Rope {
    let mut packet = vec![match kind {
        ForecastKind::Open => kind::OPEN,
        ForecastKind::Stat => kind::STAT,
        ForecastKind::Lstat => kind::LSTAT,
    }];
    put_string(&mut packet, path);
    if kind == ForecastKind::Open {
        packet.extend_from_slice(&OpenFlags::READ.0.to_be_bytes());
        // The request has no attributes.
        packet.extend_from_slice(&0u32.to_be_bytes());
    }
    packet.into()
}

/// Returns the handle in a HANDLE packet.
pub(super) fn handle_name(packet: &Rope) -> Result<Bytes, SftpError> {
    let mut body = packet.clone();
    body.advance(1);
    let name = FieldReader::new(kind::HANDLE, body).handle();
    let name = name.map_err(|_| SftpError::MalformedPacket(kind::HANDLE))?;
    // Without the copy, the handle would keep the whole packet in memory.
    Ok(Bytes::copy_from_slice(&name))
}

/// Maximum size in bytes of a file that is opened before the client requests it.
const FILE_MAX: u64 = 256 * 1024;

/// Maximum total size, in bytes, of the files that are opened before the client requests them. This
/// size fills a path of 300 Mbit/s and 200 ms.
const FILES_MAX: u64 = 8 << 20;

/// Window of a file that is opened before the client requests it, in bytes. The window exceeds the
/// maximum size, so that the end of the file arrives, too.
const PREPARED_WINDOW: u64 = FILE_MAX + 64 * 1024;
// The far half gets credit for the whole window. The near half must count the same credit, even if
// the handle has siblings.
const _: () = assert!(PREPARED_WINDOW <= SIBLING_CREDIT_MAX);

/// Number of requests ahead of the client at the start. Each request that the client then sends
/// doubles the number.
const DEPTH_FIRST: usize = 4;

/// Maximum number of requests ahead of the client, for each kind of request.
const DEPTH_MAX: usize = 128;

/// Maximum number of handles at a server that states no limit.
const HANDLES_UNSTATED_MAX: usize = 48;

/// Threshold for the time between an answer and the client's request. If this time is shorter, the
/// near half sends more requests ahead.
const WAIT_SHORT: Duration = Duration::from_millis(250);

/// Threshold for the time between an answer and the client's request. If this time is longer, the
/// near half sends fewer requests ahead.
const WAIT_LONG: Duration = Duration::from_millis(750);

/// Maximum number of entries in `in_order`.
const IN_ORDER_MAX: usize = 16 * 1024;

/// Maximum length, in bytes, of the path in a request that the near half sends before the client.
const PATH_MAX: usize = 4096;

/// Memory, in bytes, of a request that the near half sends before the client. The path needs
/// further memory.
const REQUEST_COST: usize = 512;

/// Memory in bytes of an entry in `in_order`.
const TIME_COST: usize = 32;
