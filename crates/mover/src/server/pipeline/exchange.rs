//! Exchange for one small file: its commands, its data connection, and the replies that have
//! arrived.

use ftp::{client::Reply, reply::ReplyClass};
use net::tls::Leg;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::{MEETING_TIMEOUT, ports::Port};
use crate::fence::FencedError;
use crate::server::{
    ServerError, Session, TransferVerb,
    control::PendingReply,
    data::{DataDial, DataOrigin, DataRequest},
    stat::{size_of, time_of},
};

/// A small file to upload to the server.
#[derive(Debug)]
pub struct SmallUpload {
    /// Path of the part (the incomplete file).
    pub part: Vec<u8>,
    /// Final path of the file.
    pub destination: Vec<u8>,
    /// Content of the file.
    pub content: Vec<u8>,
    /// Modification time to set, in seconds since 1970.
    pub modified_unix_s: Option<i64>,
}

/// Result of a completed file.
#[derive(Debug, PartialEq, Eq)]
pub enum CompletedFile {
    /// The upload is complete, and the file has its final name.
    Stored {
        /// Whether the modification time was set.
        has_time: bool,
    },
    /// The file has arrived from the server.
    Retrieved(DownloadedContent),
}

/// Content of a downloaded file.
#[derive(Debug, PartialEq, Eq)]
pub struct DownloadedContent {
    /// Bytes of the file.
    pub bytes: Vec<u8>,
    /// Size that the server reports after the download, in bytes.
    pub size_bytes: Option<u64>,
    /// Modification time that the server reports after the download, in seconds since 1970.
    pub modified_unix_s: Option<i64>,
}

/// Result of a data connection: the bytes that were read.
pub(super) type DataResult = Result<Vec<u8>, ServerError>;

/// Exchange for a file in progress.
pub(super) struct Exchange {
    id: u64,
    verb: TransferVerb,
    bytes: u64,
    /// The mover's listening port for the data connection. `None` in passive mode.
    ours: Option<Port>,
    /// The requested data connection. `None` once the server has named its port or the data
    /// connection has begun.
    asked: Option<DataRequest>,
    /// The command that requests or announces a port. `None` once the server has replied to it.
    port: Option<PendingReply>,
    transfer: CommandExchange,
    size: CommandExchange,
    time: Option<CommandExchange>,
    data: ExchangeData,
    content: Vec<u8>,
    names: Option<UploadNames>,
    /// State of the check before the rename of the uploaded file. The check shows whether another
    /// process has taken over the job.
    pub(super) clearance: Clearance,
    renaming: Option<[CommandExchange; 2]>,
}

/// State of the check before the rename of an uploaded file. The check shows whether another
/// process has taken over the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clearance {
    /// No check is needed, because no other process can take over the job.
    Unneeded,
    /// The upload is not complete, so the check has not begun.
    Missing,
    /// The upload is complete, and the check is to begin.
    Due,
    /// The check is in progress.
    Asked,
    Given,
    Refused,
}

/// Paths of an upload: the part file and the final path.
struct UploadNames {
    part: Vec<u8>,
    destination: Vec<u8>,
}

/// A command that was sent, and its final reply once the reply has arrived.
struct CommandExchange {
    sent: PendingReply,
    answer: Option<Reply>,
}

enum ExchangeData {
    /// The server has not named a port yet.
    Waiting,
    Moving(AbortHandle),
    Ended(DataResult),
}

impl Exchange {
    pub(super) async fn store(
        session: &mut Session,
        port: Option<Port>,
        id: u64,
        upload: SmallUpload,
    ) -> Result<Self, ServerError> {
        let SmallUpload {
            part,
            destination,
            content,
            modified_unix_s,
        } = upload;
        let mut exchange = Self::ask(session, port, id, TransferVerb::Store, &part).await?;
        exchange.time = match modified_unix_s {
            Some(unix_s) => session
                .ask_set_modified(&part, unix_s)?
                .map(CommandExchange::new),
            None => None,
        };
        exchange.bytes = content.len() as u64;
        exchange.content = content;
        exchange.names = (part != destination).then_some(UploadNames { part, destination });
        Ok(exchange)
    }

    pub(super) async fn retrieve(
        session: &mut Session,
        port: Option<Port>,
        id: u64,
        path: &[u8],
        size_bytes: u64,
    ) -> Result<Self, ServerError> {
        let mut exchange = Self::ask(session, port, id, TransferVerb::Retrieve, path).await?;
        exchange.time = Some(CommandExchange::new(session.control.send("MDTM", path)?));
        exchange.bytes = size_bytes;
        Ok(exchange)
    }

    async fn ask(
        session: &mut Session,
        port: Option<Port>,
        id: u64,
        verb: TransferVerb,
        path: &[u8],
    ) -> Result<Self, ServerError> {
        let asked = match &port {
            None => session.ask_for_passive()?,
            Some(port) => session.ask_for_active(port.clone())?,
        };
        Ok(Self {
            id,
            verb,
            bytes: 0,
            ours: port,
            port: Some(asked.sent()),
            asked: Some(asked),
            transfer: CommandExchange::new(session.control.send(verb.name(), path)?),
            size: CommandExchange::new(session.control.send("SIZE", path)?),
            time: None,
            data: ExchangeData::Waiting,
            content: Vec::new(),
            names: None,
            clearance: Clearance::Unneeded,
            renaming: None,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the mover's listening port, if the file used one.
    pub(super) fn into_port(self) -> Option<Port> {
        self.ours
    }

    /// Returns whether the transfer of the file is still in progress. The transfer has ended once
    /// the rename was requested, or once the check before the rename is due.
    pub(super) fn moves(&self) -> bool {
        let is_due = matches!(self.clearance, Clearance::Due | Clearance::Asked);
        self.renaming.is_none() && !is_due
    }

    /// Starts the data connection if it uses active mode, in which the server connects to the
    /// mover.
    pub(super) fn meet(&mut self, session: &Session, moving: &mut JoinSet<(u64, DataResult)>) {
        match self.asked.take() {
            Some(DataRequest::Active { listener, .. }) => {
                self.begin(session, DataOrigin::Here(listener), moving);
            }
            asked => self.asked = asked,
        }
    }

    fn begin(
        &mut self,
        session: &Session,
        meeting: DataOrigin,
        moving: &mut JoinSet<(u64, DataResult)>,
    ) {
        let dial = session.data_dial();
        let (id, bytes, verb) = (self.id, self.bytes, self.verb);
        let content = std::mem::take(&mut self.content);
        let task = moving.spawn(async move {
            let moved = match verb {
                TransferVerb::Store => give(dial, meeting, &content).await,
                _ => take(dial, meeting, bytes).await,
            };
            (id, moved)
        });
        self.data = ExchangeData::Moving(task);
    }

    pub(super) fn moved(&mut self, moved: DataResult) {
        self.data = ExchangeData::Ended(moved);
    }

    /// Processes the replies that have arrived. Returns the result for the file once the result is
    /// certain.
    pub(super) fn advance(
        &mut self,
        session: &mut Session,
        moving: &mut JoinSet<(u64, DataResult)>,
    ) -> Option<Result<CompletedFile, ServerError>> {
        if let Some(port) = self.port
            && let Some(reply) = session.control.arrived(port)
        {
            self.port = None;
            match self.asked.take() {
                Some(asked) => match session.meeting(asked, reply) {
                    Ok(meeting) => self.begin(session, meeting, moving),
                    Err(error) => self.data = ExchangeData::Ended(Err(error)),
                },
                None if reply.is_completed() => {}
                None => {
                    self.stop();
                    self.data = ExchangeData::Ended(Err(port.refused(reply)));
                }
            }
        }
        for question in [&mut self.transfer, &mut self.size]
            .into_iter()
            .chain(&mut self.time)
            .chain(self.renaming.iter_mut().flatten())
        {
            question.listen(session);
        }
        if let Some(renaming) = &self.renaming {
            return renamed(renaming, || self.has_time(session));
        }
        let is_refused = !self.transfer.answer.as_ref()?.is_completed();
        if is_refused {
            self.stop();
        }
        let size = size_of(self.size.answer.as_ref()?);
        let time = match &self.time {
            Some(question) => time_of(question.answer.as_ref()?),
            None => None,
        };
        let data = match &mut self.data {
            ExchangeData::Ended(moved) => std::mem::replace(moved, Ok(Vec::new())),
            ExchangeData::Waiting | ExchangeData::Moving(_) if is_refused => Ok(Vec::new()),
            ExchangeData::Waiting | ExchangeData::Moving(_) => return None,
        };
        let bytes = match data {
            // The server has refused the port, and therefore also the transfer that followed.
            Err(error @ ServerError::Refused { .. }) => return Some(Err(error)),
            // The server's reply explains a broken connection better than the mover's own error.
            _ if is_refused => {
                let reply = self.transfer.answer.clone().expect("it has come");
                return Some(Err(self.transfer.sent.refused(reply)));
            }
            Err(error) => return Some(Err(error)),
            Ok(bytes) => bytes,
        };
        session.tells_size |= size.is_some();
        if self.verb != TransferVerb::Store {
            return Some(Ok(CompletedFile::Retrieved(DownloadedContent {
                bytes,
                size_bytes: size,
                modified_unix_s: time.map(|it| it.unix_s),
            })));
        }
        if size.is_some_and(|it| it != self.bytes) || size.is_none() && session.tells_size {
            return Some(Err(ServerError::Short {
                got: size,
                expected: self.bytes,
            }));
        }
        let Some(names) = &self.names else {
            return Some(Ok(CompletedFile::Stored {
                has_time: self.has_time(session),
            }));
        };
        match self.clearance {
            Clearance::Unneeded | Clearance::Given => {}
            Clearance::Refused => return Some(Err(FencedError.into())),
            Clearance::Missing => {
                self.clearance = Clearance::Due;
                return None;
            }
            Clearance::Due | Clearance::Asked => return None,
        }
        let commands = [("RNFR", &names.part), ("RNTO", &names.destination)];
        let mut sent = Vec::new();
        for (verb, path) in commands {
            match session.control.send(verb, path) {
                Ok(it) => sent.push(CommandExchange::new(it)),
                Err(error) => return Some(Err(error)),
            }
        }
        self.renaming = sent.try_into().ok();
        None
    }

    /// Returns whether the server has set the modification time.
    fn has_time(&self, session: &mut Session) -> bool {
        let reply = self.time.as_ref().and_then(|it| it.answer.as_ref());
        reply.is_some_and(|reply| session.time_was_set(reply))
    }

    /// Stops the data connection of a transfer that the server has refused.
    fn stop(&mut self) {
        if let ExchangeData::Moving(task) = &self.data {
            task.abort();
        }
    }
}

impl CommandExchange {
    fn new(sent: PendingReply) -> Self {
        Self { sent, answer: None }
    }

    fn listen(&mut self, session: &mut Session) {
        while self.answer.is_none()
            && let Some(reply) = session.control.arrived(self.sent)
        {
            if reply.class() != ReplyClass::Preliminary {
                self.answer = Some(reply);
            }
        }
    }
}

/// Returns the result of a rename once the replies to both commands have arrived.
fn renamed(
    renaming: &[CommandExchange; 2],
    has_time: impl FnOnce() -> bool,
) -> Option<Result<CompletedFile, ServerError>> {
    let [from, to] = renaming;
    let (from_reply, to_reply) = (from.answer.as_ref()?, to.answer.as_ref()?);
    Some(match from_reply.class() {
        ReplyClass::Intermediate if to_reply.is_completed() => Ok(CompletedFile::Stored {
            has_time: has_time(),
        }),
        ReplyClass::Intermediate => Err(to.sent.refused(to_reply.clone())),
        _ => Err(from.sent.refused(from_reply.clone())),
    })
}

async fn give(dial: DataDial, meeting: DataOrigin, content: &[u8]) -> DataResult {
    let stall_max = dial.stall_max();
    let stalled = |_| ServerError::Stalled(stall_max);
    let mut leg = open(&dial, meeting).await?;
    for piece in content.chunks(STEP_BYTES) {
        let written = timeout(stall_max, leg.write_all(piece)).await;
        written.map_err(stalled)?.map_err(ServerError::Data)?;
    }
    let ended = timeout(stall_max, leg.shutdown()).await;
    ended.map_err(stalled)?.map_err(ServerError::Data)?;
    // The connection stays open until the server has closed it. If the mover closed it earlier, the
    // last message of a TLS server would cause a reset.
    let _ = timeout(stall_max, leg.read(&mut [0; 16])).await;
    Ok(Vec::new())
}

/// Reads a file of `expected_bytes` bytes. Stops after one additional byte, because the file has
/// then changed or is endless.
async fn take(dial: DataDial, meeting: DataOrigin, expected_bytes: u64) -> DataResult {
    let stall_max = dial.stall_max();
    let mut leg = open(&dial, meeting).await?;
    let bytes_max = usize::try_from(expected_bytes).unwrap_or(usize::MAX) + 1;
    let mut bytes = Vec::with_capacity(bytes_max);
    let mut buffer = vec![0; STEP_BYTES.min(bytes_max)];
    loop {
        let read = timeout(stall_max, leg.read(&mut buffer)).await;
        let count = read
            .map_err(|_| ServerError::Stalled(stall_max))?
            .map_err(ServerError::Data)?;
        if count == 0 {
            // With TLS, the server may wait until the mover has ended its side.
            let _ = timeout(stall_max, leg.shutdown()).await;
            return Ok(bytes);
        }
        bytes.extend_from_slice(&buffer[..count.min(bytes_max - bytes.len())]);
        if bytes.len() == bytes_max {
            return Err(ServerError::Endless(expected_bytes));
        }
    }
}

async fn open(dial: &DataDial, meeting: DataOrigin) -> Result<Leg, ServerError> {
    let is_ours = matches!(meeting, DataOrigin::Here(_)) && !dial.is_active();
    let opening = dial.open(meeting);
    if !is_ours {
        return opening.await;
    }
    let opened = timeout(MEETING_TIMEOUT, opening).await;
    opened.unwrap_or(Err(ServerError::Unreached))
}

const STEP_BYTES: usize = 64 * 1024;
