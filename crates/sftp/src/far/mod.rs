//! The far half of an SFTP session: the end at the server.
//!
//! Inputs are messages of the near half and bytes of the server. Outputs are bytes for the server
//! and messages for the near half. After each input, the caller takes as many outputs as its
//! channels have room for.
//!
//! The caller may pass messages only while [`SftpFar::wants_near_messages`] is true, and bytes of
//! the server only while [`SftpFar::wants_server_bytes`] is true.
//!
//! The near half may have answered WRITEs that the server has not confirmed yet. For the client,
//! these WRITEs are complete. Any other request therefore waits until the server has confirmed all
//! earlier WRITEs.

mod ahead;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use self::ahead::{FileReadAhead, ReadAhead, ReadOrder};
use crate::{
    Rope, SftpError, ToFar, ToNear,
    packet::{
        FieldReader, Greeting, GreetingSource, Limits, PacketSplitter, Status, StatusCode,
        extension, kind, put_string, split_id,
    },
    queue::PacketQueue,
};

/// Settings of a far half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarSettings {
    /// Maximum number of bytes in READs that the server has not answered, and in answers that the
    /// caller has not taken yet. The number must be large enough to fill the path to the server.
    pub reads_max: u64,
}

impl Default for FarSettings {
    fn default() -> Self {
        Self { reads_max: 8 << 20 }
    }
}

/// Output of a far half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SftpFarOutput {
    /// Bytes for the server. A packet may consist of several outputs.
    ToServer(Bytes),
    /// Message for the near half.
    ToNear(ToNear),
}

/// Progress of the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The near half has sent no INIT yet.
    BeforeInit,
    /// The server has sent no VERSION yet.
    BeforeVersion,
    Ready,
}

/// Request that the server has not answered yet.
#[derive(Debug)]
enum SentRequest {
    Limits,
    Relayed {
        request: u64,
    },
    Open {
        request: u64,
        credit_bytes: u64,
        is_folder: bool,
        is_early: bool,
    },
    Write {
        request: u64,
    },
    ReadAhead {
        handle: u64,
        run: u32,
        order: ReadOrder,
    },
    FolderReadAhead {
        handle: u64,
        run: u32,
    },
}

/// Message in a queue for the near half.
#[derive(Debug)]
struct Queued {
    /// Number of the message, in the order of arrival at the queues.
    number: u64,
    message: ToNear,
}

/// Open file or folder at the server.
#[derive(Debug)]
struct OpenHandle {
    /// Handle of the server.
    handle: Bytes,
    read_ahead: Option<ReadAhead>,
    /// Number of the last read-ahead that the near half has stopped.
    stopped_run: Option<u32>,
}

/// The far half of an SFTP session.
#[derive(Debug)]
pub struct SftpFar {
    settings: FarSettings,
    phase: Phase,
    splitter: PacketSplitter,
    /// Whether requests other than WRITE and CLOSE wait for earlier WRITEs. CLOSE always waits for
    /// them.
    is_early: bool,
    to_server: PacketQueue,
    /// Messages that overtake the read-ahead of files, because the client may wait for them before
    /// it reads.
    answers: VecDeque<Queued>,
    /// Read-ahead of files, and its ends.
    ahead: VecDeque<Queued>,
    /// Bytes of answers that have overtaken read-ahead, less the read-ahead that has passed since.
    overtaken_bytes: usize,
    /// Number of messages for the near half since the start of the session.
    queued: u64,
    /// Number of bytes in both queues for the near half.
    to_near_bytes: usize,
    sent: HashMap<u32, SentRequest>,
    next_id: u32,
    handles: HashMap<u64, OpenHandle>,
    /// OPENs that the near half has already answered, but the server has not.
    opening: HashSet<u64>,
    /// STATUS packets of OPENs that the near half has answered and that have failed at the server.
    /// The key is the number of the handle.
    failed: HashMap<u64, Rope>,
    /// Handles with a read-ahead, in the order of their turns.
    turns: VecDeque<u64>,
    /// WRITEs that the server has not confirmed yet.
    unconfirmed_writes: usize,
    /// Messages that wait for the confirmation of earlier WRITEs, and all messages after them.
    delayed: VecDeque<ToFar>,
    delayed_bytes: usize,
    /// Bytes in outstanding READs of read-ahead.
    read_bytes: u64,
    /// Maximum length of a READ in bytes.
    read_max: u32,
}

impl SftpFar {
    /// Creates the half for a server whose subsystem has just started.
    pub fn new(settings: FarSettings) -> Self {
        Self {
            settings,
            phase: Phase::BeforeInit,
            splitter: PacketSplitter::default(),
            is_early: false,
            to_server: PacketQueue::default(),
            answers: VecDeque::new(),
            ahead: VecDeque::new(),
            overtaken_bytes: 0,
            queued: 0,
            to_near_bytes: 0,
            sent: HashMap::new(),
            next_id: 0,
            handles: HashMap::new(),
            opening: HashSet::new(),
            failed: HashMap::new(),
            turns: VecDeque::new(),
            unconfirmed_writes: 0,
            delayed: VecDeque::new(),
            delayed_bytes: 0,
            read_bytes: 0,
            read_max: READ_DEFAULT,
        }
    }

    /// Accepts a message of the near half.
    ///
    /// # Errors
    /// [`SftpError`] if the near half violates the protocol. The session must end then.
    pub fn receive_from_near(&mut self, message: ToFar) -> Result<(), SftpError> {
        let is_init = matches!(message, ToFar::Init { .. });
        if is_init != (self.phase == Phase::BeforeInit) {
            return Err(SftpError::UnexpectedMessage("INIT must be first"));
        }
        match message {
            ToFar::Init { is_early, packet } => {
                self.is_early = is_early;
                self.phase = Phase::BeforeVersion;
                self.to_server.put(&(packet.len() as u32).to_be_bytes());
                self.to_server.put_rope(packet);
            }
            ToFar::Credit {
                handle,
                run,
                credit_bytes,
            } if !self.delays_start(handle, run) => self.add_credit(handle, run, credit_bytes),
            ToFar::StopReadAhead { handle, run } => self.stop(handle, run),
            message if self.delayed.is_empty() && !self.waits(&message) => self.execute(message)?,
            message => {
                self.delayed_bytes += message.cost();
                self.delayed.push_back(message);
            }
        }
        self.read_more()
    }

    /// Accepts bytes of the server. The cuts between calls do not matter.
    ///
    /// # Errors
    /// [`SftpError`] if the server violates the protocol. The session must end then.
    pub fn receive_from_server(&mut self, bytes: Bytes) -> Result<(), SftpError> {
        self.splitter.push(bytes);
        while let Some(packet) = self.splitter.next_packet()? {
            match self.phase {
                Phase::BeforeInit => return Err(SftpError::NoVersion),
                Phase::BeforeVersion => self.greet(packet)?,
                Phase::Ready => self.receive_answer(packet)?,
            }
        }
        self.read_more()
    }

    /// Returns the next output of any kind.
    pub fn next_output(&mut self) -> Option<SftpFarOutput> {
        if let Some(message) = self.next_near_message() {
            return Some(SftpFarOutput::ToNear(message));
        }
        self.next_server_bytes().map(SftpFarOutput::ToServer)
    }

    /// Returns the next bytes for the server.
    pub fn next_server_bytes(&mut self) -> Option<Bytes> {
        self.to_server.pop()
    }

    /// Returns the next message for the near half.
    pub fn next_near_message(&mut self) -> Option<ToNear> {
        let is_ahead_next = match (self.answers.front(), self.ahead.front()) {
            (Some(answer), Some(ahead)) => {
                self.overtaken_bytes >= OVERTAKEN_MAX && ahead.number < answer.number
            }
            (answer, _) => answer.is_none(),
        };
        let message = if is_ahead_next {
            let message = self.ahead.pop_front()?.message;
            self.overtaken_bytes = self.overtaken_bytes.saturating_sub(message.cost());
            message
        } else {
            let answer = self.answers.pop_front()?;
            if self
                .ahead
                .front()
                .is_some_and(|it| it.number < answer.number)
            {
                self.overtaken_bytes += answer.message.cost();
            }
            answer.message
        };
        self.to_near_bytes -= message.cost();
        // The ids of READs cannot run out here, because `read_more` keeps a reserve.
        let _ = self.read_more();
        Some(message)
    }

    /// Returns whether the caller may pass messages of the near half. The result is false while too
    /// many bytes wait for the server, or for its confirmation of earlier requests.
    pub fn wants_near_messages(&self) -> bool {
        self.to_server.len() < SERVER_QUEUE_MAX && self.delayed_bytes < DELAYED_MAX
    }

    /// Returns whether the caller may pass bytes of the server. The result is false while the near
    /// half does not take its messages.
    pub fn wants_server_bytes(&self) -> bool {
        let queue_max = self.settings.reads_max.saturating_mul(2);
        (self.to_near_bytes as u64) < queue_max.max(NEAR_QUEUE_MIN)
    }

    /// Returns whether the server has received all requests and confirmed all WRITEs. If the client
    /// ends its session, the caller waits for this condition, because the client may already have
    /// answers to these requests.
    pub fn is_flushed(&self) -> bool {
        self.delayed.is_empty()
            && self.unconfirmed_writes == 0
            && self.opening.is_empty()
            && self.to_server.len() == 0
    }

    /// Returns the number of bytes in all queues.
    pub fn queued_bytes(&self) -> usize {
        let buffered = self.splitter.buffered_bytes();
        self.to_server.len() + self.to_near_bytes + self.delayed_bytes + buffered
    }

    fn send(&mut self, message: ToNear) {
        let queued = self.count(message);
        self.answers.push_back(queued);
    }

    /// Sends a message of the read-ahead of a file. Answers overtake the message.
    fn send_ahead(&mut self, message: ToNear) {
        if self.ahead.is_empty() {
            self.overtaken_bytes = 0;
        }
        let queued = self.count(message);
        self.ahead.push_back(queued);
    }

    /// Counts a message for the near half.
    fn count(&mut self, message: ToNear) -> Queued {
        self.to_near_bytes += message.cost();
        self.queued += 1;
        Queued {
            number: self.queued,
            message,
        }
    }

    /// Returns a free request id, and stores the request.
    fn register(&mut self, request: SentRequest) -> Result<u32, SftpError> {
        if self.sent.len() >= SENT_MAX {
            return Err(SftpError::LimitExceeded("outstanding requests"));
        }
        while self.sent.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.sent.insert(id, request);
        Ok(id)
    }

    /// Returns whether a message must wait until the server has confirmed all WRITEs and OPENs that
    /// the near half has answered.
    fn waits(&self, message: &ToFar) -> bool {
        let is_ordered = match message {
            ToFar::Write { .. } => false,
            ToFar::Close { .. } => true,
            _ => self.is_early,
        };
        let is_opening = match message {
            ToFar::Write { handle, .. } => self.opening.contains(handle),
            _ => !self.opening.is_empty(),
        };
        is_opening || (is_ordered && self.unconfirmed_writes > 0)
    }

    /// Returns whether the start of a read-ahead is among the delayed messages.
    fn delays_start(&self, number: u64, number_of_run: u32) -> bool {
        self.delayed.iter().any(|message| {
            matches!(
                message,
                ToFar::ReadAhead { handle, run, .. }
                    if *handle == number && *run == number_of_run
            )
        })
    }

    /// Executes delayed messages in order. Stops at the first message that must still wait for the
    /// server.
    fn execute_delayed(&mut self) -> Result<(), SftpError> {
        while let Some(message) = self.delayed.front() {
            if self.waits(message) {
                break;
            }
            self.delayed_bytes -= message.cost();
            let message = self.delayed.pop_front().expect("the queue has a message");
            self.execute(message)?;
        }
        Ok(())
    }

    fn execute(&mut self, message: ToFar) -> Result<(), SftpError> {
        match message {
            ToFar::Request { request, packet } => {
                self.relay(packet, SentRequest::Relayed { request })
            }
            ToFar::Open {
                request,
                credit_bytes,
                is_early,
                packet,
            } => {
                let mut first = [0];
                packet.peek(&mut first);
                let is_folder = first == [kind::OPENDIR];
                let open = SentRequest::Open {
                    request,
                    credit_bytes,
                    is_folder,
                    is_early,
                };
                if is_early {
                    self.opening.insert(request);
                }
                self.relay(packet, open)
            }
            ToFar::HandleRequest {
                request,
                handle,
                at,
                mut packet,
            } => {
                if self.answers_failed(request, handle) {
                    return Ok(());
                }
                let at = at as usize;
                if at == 0 || at > packet.len() {
                    return Err(SftpError::UnexpectedMessage("no place for a handle"));
                }
                let mut name = Vec::new();
                put_string(&mut name, &self.handle(handle)?.handle);
                let mut whole = packet.split_to(at);
                whole.push(name.into());
                whole.append(packet);
                self.relay(whole, SentRequest::Relayed { request })
            }
            ToFar::Write {
                request,
                handle,
                offset,
                data,
            } => {
                if self.answers_failed(request, handle) {
                    return Ok(());
                }
                let name = self.handle(handle)?.handle.clone();
                let id = self.register(SentRequest::Write { request })?;
                self.unconfirmed_writes += 1;
                let length = 4 + name.len() + 8 + 4 + data.len();
                self.to_server.put_head(kind::WRITE, id, length);
                self.to_server.put_string(&name);
                self.to_server.put(&offset.to_be_bytes());
                self.to_server.put(&(data.len() as u32).to_be_bytes());
                self.to_server.put_rope(data);
                Ok(())
            }
            ToFar::Close { request, handle } => {
                if self.answers_failed(request, handle) {
                    self.failed.remove(&handle);
                    return Ok(());
                }
                let name = self.handle(handle)?.handle.clone();
                self.drop_read_ahead(handle);
                self.handles.remove(&handle);
                let id = self.register(SentRequest::Relayed { request })?;
                self.to_server.put_head(kind::CLOSE, id, 4 + name.len());
                self.to_server.put_string(&name);
                Ok(())
            }
            ToFar::ReadAhead {
                handle,
                run,
                offset,
                credit_bytes,
            } => {
                if self.handle(handle)?.stopped_run < Some(run) {
                    self.drop_read_ahead(handle);
                    let read_ahead = FileReadAhead::new(run, offset, credit_bytes);
                    self.start(handle, ReadAhead::File(read_ahead));
                }
                Ok(())
            }
            ToFar::Credit {
                handle,
                run,
                credit_bytes,
            } => {
                self.add_credit(handle, run, credit_bytes);
                Ok(())
            }
            ToFar::Init { .. } | ToFar::StopReadAhead { .. } => {
                unreachable!("these messages never wait")
            }
        }
    }

    /// Answers a request that contains a handle, if the OPEN of this handle has failed. Returns
    /// whether the OPEN has failed.
    fn answers_failed(&mut self, request: u64, handle: u64) -> bool {
        let packet = self.failed.get(&handle).cloned();
        let has_failed = packet.is_some();
        if let Some(packet) = packet {
            self.send(ToNear::Reply { request, packet });
        }
        has_failed
    }

    fn handle(&mut self, number: u64) -> Result<&mut OpenHandle, SftpError> {
        let unknown = SftpError::UnexpectedMessage("unknown handle");
        self.handles.get_mut(&number).ok_or(unknown)
    }

    fn relay(&mut self, mut packet: Rope, request: SentRequest) -> Result<(), SftpError> {
        let mut kind = [0];
        if !packet.peek(&mut kind) {
            return Err(SftpError::UnexpectedMessage("empty packet"));
        }
        packet.advance(1);
        let id = self.register(request)?;
        self.to_server.put_head(kind[0], id, packet.len());
        self.to_server.put_rope(packet);
        Ok(())
    }

    /// Stores the failure of an OPEN that the near half has answered.
    fn open_failed(&mut self, handle: u64, kind: u8, body: Rope) -> Result<(), SftpError> {
        if self.failed.len() >= FAILED_MAX {
            return Err(SftpError::LimitExceeded("failed OPENs"));
        }
        let code = FieldReader::new(kind, body.clone()).u32();
        let packet = match (kind, code) {
            // A successful OPEN returns a handle, so a STATUS of success is a violation.
            (kind::STATUS, Ok(code)) if code == StatusCode::OK.0 => {
                return Err(SftpError::AnswerType(kind));
            }
            (kind::STATUS, Ok(_)) if body.len() < FAILED_PACKET_MAX => joined(kind, body),
            (kind::STATUS, Ok(code)) => status_packet(code),
            _ => return Err(SftpError::AnswerType(kind)),
        };
        self.failed.insert(handle, packet);
        Ok(())
    }

    fn greet(&mut self, packet: Rope) -> Result<(), SftpError> {
        let greeting = Greeting::decode(GreetingSource::Server, packet.clone());
        let greeting = greeting.map_err(|_| SftpError::NoVersion)?;
        if greeting.version != 3 {
            return Err(SftpError::NoVersion);
        }
        self.phase = Phase::Ready;
        self.send(ToNear::Version { packet });
        if greeting.has_extension(extension::LIMITS) {
            let id = self.register(SentRequest::Limits)?;
            let length = 4 + extension::LIMITS.len();
            self.to_server.put_head(kind::EXTENDED, id, length);
            self.to_server.put_string(extension::LIMITS);
        }
        Ok(())
    }

    fn receive_answer(&mut self, packet: Rope) -> Result<(), SftpError> {
        let (kind, id, body) = split_id(packet)?;
        let request = self.sent.remove(&id);
        match request.ok_or(SftpError::UnknownRequest(id))? {
            SentRequest::Limits => {
                if let (kind::EXTENDED_REPLY, Ok(limits)) = (kind, Limits::decode(body.clone()))
                    && limits.read_max_bytes > 0
                {
                    let read_max = limits.read_max_bytes.min(READ_MAX.into()) as u32;
                    self.read_max = read_max.max(READ_MIN);
                }
                self.send(ToNear::Limits {
                    packet: joined(kind, body),
                });
            }
            SentRequest::Relayed { request } => self.send(ToNear::Reply {
                request,
                packet: joined(kind, body),
            }),
            SentRequest::Write { request } => {
                self.unconfirmed_writes -= 1;
                let code = FieldReader::new(kind, body.clone()).u32();
                self.send(match (kind, code) {
                    (kind::STATUS, Ok(code)) if code == StatusCode::OK.0 => {
                        ToNear::Written { request }
                    }
                    (kind::STATUS, Ok(_)) => ToNear::Reply {
                        request,
                        packet: joined(kind, body),
                    },
                    _ => return Err(SftpError::AnswerType(kind)),
                });
                self.execute_delayed()?;
            }
            SentRequest::Open {
                request,
                credit_bytes,
                is_folder,
                is_early,
            } => {
                let handle = (kind == kind::HANDLE).then(|| body.clone());
                if is_early && handle.is_none() {
                    self.open_failed(request, kind, body.clone())?;
                }
                self.send(ToNear::Reply {
                    request,
                    packet: joined(kind, body),
                });
                if let Some(body) = handle {
                    self.opened(request, body, credit_bytes, is_folder)?;
                }
                if is_early {
                    self.opening.remove(&request);
                    self.execute_delayed()?;
                }
            }
            SentRequest::ReadAhead { handle, run, order } => {
                self.read_bytes -= u64::from(order.length);
                self.read_answered(handle, run, order.number, kind, body)?;
            }
            SentRequest::FolderReadAhead { handle, run } => {
                self.folder_answered(handle, run, kind, body)?;
            }
        }
        Ok(())
    }
}

/// Returns a STATUS packet with a code, and without a text.
fn status_packet(code: u32) -> Rope {
    let mut packet = vec![kind::STATUS];
    Status::new(StatusCode(code), "").put(&mut packet);
    packet.into()
}

/// Returns a packet of type `kind` without a request id.
fn joined(kind: u8, body: Rope) -> Rope {
    if body.len() <= JOINED_MAX {
        let mut packet = vec![kind];
        body.pieces()
            .for_each(|piece| packet.extend_from_slice(piece));
        return packet.into();
    }
    let mut packet = Rope::from(Bytes::copy_from_slice(&[kind]));
    packet.append(body);
    packet
}

/// Length, in bytes, of a READ at a server that states no limit. Every server permits this length,
/// because packets may have 34,000 bytes (section 3 of the draft).
const READ_DEFAULT: u32 = 32 * 1024;

/// Maximum length of a READ in bytes: OpenSSH's limit.
const READ_MAX: u32 = 255 * 1024;

/// Minimum length of a READ in bytes. It replaces absurdly low limits of servers.
const READ_MIN: u32 = 1024;

/// Length in bytes up to which a packet is copied into one piece.
const JOINED_MAX: usize = 1024;

/// Maximum number of OPENs that failed at the server after the near half had answered them.
const FAILED_MAX: usize = 4096;

/// Maximum length in bytes of the STATUS packet that is stored for a failed OPEN.
const FAILED_PACKET_MAX: usize = 1024;

/// Limit for the queued bytes to the server. Above this limit, the half takes no messages.
const SERVER_QUEUE_MAX: usize = 4 << 20;

/// Length of the queue for the near half in bytes. Up to this length, the far half always takes
/// bytes of the server.
const NEAR_QUEUE_MIN: u64 = 1 << 20;

/// Number of bytes of answers after which read-ahead passes. Without this limit, a client with many
/// outstanding READs could stop the read-ahead of another file.
const OVERTAKEN_MAX: usize = 256 << 10;

/// Limit for the bytes in delayed messages. Above this limit, the half takes no messages.
const DELAYED_MAX: usize = 4 << 20;

/// Maximum number of outstanding requests. The near half has fewer.
const SENT_MAX: usize = 1 << 17;
