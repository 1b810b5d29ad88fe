//! Exchange of requests and answers over one SFTP channel. Several tasks may send requests at the
//! same time.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use sftp::{
    Rope,
    packet::{Greeting, GreetingSource, Request},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

use super::replies::{Answer, ArrivedAnswer, Expected, Replies, VERSION};
use crate::server::ServerError;

/// The direction of a channel from the mover to the server.
pub(super) trait ToServer: Send + 'static {
    /// Sends bytes. Waits until the server's window has room.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;
}

/// The direction of a channel from the server to the mover.
pub(super) trait FromServer: Send + 'static {
    /// Returns the next bytes, or the reason why the channel has ended. This method is cancel safe.
    fn receive(&mut self) -> impl Future<Output = Result<Bytes, ChannelEnd>> + Send;
}

/// Reason why the session has ended.
#[derive(Debug, Clone)]
pub(super) struct ChannelEnd {
    pub(super) kind: io::ErrorKind,
    pub(super) text: String,
}

/// Exchange of requests and answers. Clones share the channel.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    shared: Arc<ExchangeContext>,
    /// Dropping the last clone ends the tasks of the channel.
    _tasks: Arc<Tasks>,
}

#[derive(Debug)]
struct ExchangeContext {
    /// The server and the route to it, for display.
    peer: String,
    reply_timeout: Duration,
    /// Longest time for which a transfer may make no progress.
    stall_max: Duration,
    state: Mutex<State>,
    outgoing: mpsc::UnboundedSender<Rope>,
    places: Arc<Semaphore>,
    end: watch::Sender<Option<ChannelEnd>>,
}

#[derive(Debug, Default)]
struct State {
    replies: Replies,
    /// Time at which bytes of the server last arrived. `None` if no bytes have arrived.
    arrived_at: Option<Instant>,
    has_ended: bool,
}

#[derive(Debug)]
struct Tasks(Vec<AbortHandle>);

/// Answer that has not arrived yet.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    request: &'static str,
    receiver: oneshot::Receiver<ArrivedAnswer>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Exchange {
    /// Starts SFTP on a channel. Returns the server's greeting.
    ///
    /// # Errors
    /// [`ServerError`] if the server does not answer, or if its SFTP version is not 3.
    pub(super) async fn start(
        (to_server, from_server): (impl ToServer, impl FromServer),
        peer: String,
        (reply_timeout, stall_max): (Duration, Duration),
    ) -> Result<(Self, Greeting), ServerError> {
        let (outgoing, requests) = mpsc::unbounded_channel();
        let shared = Arc::new(ExchangeContext {
            peer,
            reply_timeout,
            stall_max,
            state: Mutex::default(),
            outgoing,
            places: Arc::new(Semaphore::new(REQUESTS_MAX)),
            end: watch::Sender::new(None),
        });
        let greeting = shared.lock().replies.expect_greeting();
        let init = Greeting {
            version: VERSION,
            extensions: Vec::new(),
        };
        // The receiver is part of this function, so the call cannot fail.
        let _ = shared.outgoing.send(init.encode(GreetingSource::Client));
        let writing = tokio::spawn(write(shared.clone(), to_server, requests));
        let reading = tokio::spawn(read(shared.clone(), from_server));
        let tasks = Tasks(vec![writing.abort_handle(), reading.abort_handle()]);
        let exchange = Self {
            shared,
            _tasks: Arc::new(tasks),
        };
        match timeout(reply_timeout, greeting).await {
            Ok(Ok(greeting)) => Ok((exchange, greeting)),
            Ok(Err(_)) => Err(exchange.lost()),
            Err(_) => Err(exchange.silent("INIT")),
        }
    }

    /// Sends a request. Waits only if too many requests are outstanding.
    ///
    /// # Errors
    /// [`ServerError`] if the session has ended, or if the server does not answer earlier requests
    /// in time.
    pub(super) async fn send(
        &self,
        request: &Request,
        expected: Expected,
    ) -> Result<PendingAnswer, ServerError> {
        let place = self.shared.places.clone().acquire_owned();
        let place = match self.within(self.shared.stall_max, place).await {
            Some(Ok(place)) => place,
            Some(Err(_)) => return Err(self.lost()),
            None => return Err(self.silent(name(request))),
        };
        let name = name(request);
        let (id, receiver) = {
            let mut state = self.shared.lock();
            if state.has_ended {
                drop(state);
                return Err(self.lost());
            }
            state.replies.register(name, expected, Some(place))
        };
        // If the task that sends has ended, this call fails. The receiver of the answer then ends,
        // too.
        let _ = self.shared.outgoing.send(request.encode(id));
        Ok(PendingAnswer {
            request: name,
            receiver,
        })
    }

    /// Closes a handle without waiting for the answer.
    pub(super) fn close_unawaited(&self, handle: Bytes) {
        self.shared.close_unawaited(handle);
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// [`ServerError`] if the session has ended, or if the server does not answer in time.
    pub(super) async fn answer(&self, pending: PendingAnswer) -> Result<Answer, ServerError> {
        let limit = self.shared.reply_timeout;
        match self.within(limit, pending.receiver).await {
            Some(Ok((answer, _))) => Ok(answer),
            Some(Err(_)) => Err(self.lost()),
            None => Err(self.silent(pending.request)),
        }
    }

    /// Waits for the answer to a request of a transfer. Returns the time of its arrival, too.
    ///
    /// # Errors
    /// [`ServerError`] if the session has ended, or if no bytes of the server arrive for the time
    /// `stall_max`.
    pub(super) async fn progress(
        &self,
        pending: &mut PendingAnswer,
    ) -> Result<ArrivedAnswer, ServerError> {
        let limit = self.shared.stall_max;
        match self.within(limit, &mut pending.receiver).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(self.lost()),
            None => {
                self.end(ChannelEnd {
                    kind: io::ErrorKind::TimedOut,
                    text: "a transfer made no progress".to_owned(),
                });
                Err(ServerError::Stalled(self.shared.stall_max))
            }
        }
    }

    /// Sends a request, and waits for its answer.
    ///
    /// # Errors
    /// [`ServerError`] if the session has ended, or if the server does not answer in time.
    pub(super) async fn request(
        &self,
        request: &Request,
        expected: Expected,
    ) -> Result<Answer, ServerError> {
        let pending = self.send(request, expected).await?;
        self.answer(pending).await
    }

    /// Waits for `future`. Returns `None` if no bytes of the server have arrived for `limit`. Bytes
    /// of other answers also count, because many other answers may precede the awaited answer.
    async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut deadline = Instant::now() + limit;
        loop {
            if let Ok(output) = timeout_at(deadline, &mut future).await {
                return Some(output);
            }
            let arrived_at = self.shared.lock().arrived_at;
            deadline = arrived_at.map(|it| it + limit)?;
            if deadline <= Instant::now() {
                return None;
            }
        }
    }

    /// Returns whether the session is still open.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.lock().has_ended
    }

    /// Waits until the session has ended.
    pub(super) async fn until_lost(&self) {
        let mut end = self.shared.end.subscribe();
        // The sender is part of this value, so the wait cannot fail.
        let _ = end.wait_for(Option::is_some).await;
    }

    /// Ends the session because the mover closes it.
    pub(super) fn hang_up(&self) {
        self.end(ChannelEnd {
            kind: io::ErrorKind::NotConnected,
            text: "the mover has closed the connection".to_owned(),
        });
    }

    /// Ends the session. All outstanding requests fail.
    fn end(&self, reason: ChannelEnd) {
        self.shared.end(reason);
    }

    /// Ends the session after the server has violated the protocol. Returns the error.
    pub(super) fn violated(&self, text: &str) -> ServerError {
        self.end(ChannelEnd {
            kind: io::ErrorKind::InvalidData,
            text: format!("the server violates SFTP: {text}"),
        });
        self.lost()
    }

    fn lost(&self) -> ServerError {
        let reason = self.shared.end.borrow().clone();
        let reason = reason.unwrap_or_else(|| ChannelEnd {
            kind: io::ErrorKind::UnexpectedEof,
            text: "the channel has ended".to_owned(),
        });
        ServerError::Lost {
            peer: self.shared.peer.clone(),
            source: io::Error::new(reason.kind, reason.text),
        }
    }

    /// Ends the session after the server has not answered in time. Returns the error.
    fn silent(&self, command: &'static str) -> ServerError {
        self.end(ChannelEnd {
            kind: io::ErrorKind::TimedOut,
            text: format!("{command} had no answer"),
        });
        ServerError::Silent {
            peer: self.shared.peer.clone(),
            command,
            reply_timeout: self.shared.reply_timeout,
        }
    }
}

impl PendingAnswer {
    /// Returns the answer if it has arrived. Returns `None` if it has not, or if the session has
    /// ended.
    pub(super) fn arrived(&mut self) -> Option<ArrivedAnswer> {
        self.receiver.try_recv().ok()
    }
}

impl ExchangeContext {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_unawaited(&self, handle: Bytes) {
        let id = {
            let mut state = self.lock();
            if state.has_ended {
                return;
            }
            state.replies.register_unawaited("CLOSE")
        };
        let _ = self.outgoing.send(Request::Close { handle }.encode(id));
    }

    fn end(&self, reason: ChannelEnd) {
        // The reason is stored before the receivers end.
        self.end.send_if_modified(|end| {
            let is_first = end.is_none();
            if is_first {
                *end = Some(reason);
            }
            is_first
        });
        let mut state = self.lock();
        state.has_ended = true;
        state.replies.clear();
        self.places.close();
    }
}

/// Sends the requests of the queue. Small requests are sent together.
async fn write(
    shared: Arc<ExchangeContext>,
    mut to_server: impl ToServer,
    mut requests: mpsc::UnboundedReceiver<Rope>,
) {
    let mut batch = BytesMut::new();
    while let Some(mut request) = requests.recv().await {
        let sent = async {
            loop {
                for piece in request {
                    if piece.len() < BATCH_BYTES {
                        batch.extend_from_slice(&piece);
                    }
                    if batch.len() >= BATCH_BYTES || piece.len() >= BATCH_BYTES {
                        to_server.send(batch.split().freeze()).await?;
                    }
                    if piece.len() >= BATCH_BYTES {
                        to_server.send(piece).await?;
                    }
                }
                match requests.try_recv() {
                    Ok(next) => request = next,
                    Err(_) => return to_server.send(batch.split().freeze()).await,
                }
            }
        };
        if let Err(error) = sent.await {
            // The other direction may report a better reason.
            tokio::time::sleep(REASON_DELAY).await;
            return shared.end(ChannelEnd {
                kind: error.kind(),
                text: error.to_string(),
            });
        }
    }
}

/// Passes the server's answers to their receivers. This task waits only for bytes of the server.
async fn read(shared: Arc<ExchangeContext>, mut from_server: impl FromServer) {
    let reason = loop {
        let bytes = match from_server.receive().await {
            Ok(bytes) => bytes,
            Err(reason) => break reason,
        };
        let received = {
            let mut state = shared.lock();
            state.arrived_at = Some(Instant::now());
            state.replies.receive(bytes, Instant::now())
        };
        match received {
            Ok(orphans) => {
                for handle in orphans {
                    shared.close_unawaited(handle);
                }
            }
            Err(violation) => {
                break ChannelEnd {
                    kind: io::ErrorKind::InvalidData,
                    text: format!("the server violates SFTP: {violation}"),
                };
            }
        }
    };
    shared.end(reason);
}

/// Returns the name of a request, for messages.
fn name(request: &Request) -> &'static str {
    match request {
        Request::Open { .. } => "OPEN",
        Request::Close { .. } => "CLOSE",
        Request::Read { .. } => "READ",
        Request::Write { .. } => "WRITE",
        Request::Lstat { .. } => "LSTAT",
        Request::Fstat { .. } => "FSTAT",
        Request::SetStat { .. } => "SETSTAT",
        Request::FsetStat { .. } => "FSETSTAT",
        Request::OpenDir { .. } => "OPENDIR",
        Request::ReadDir { .. } => "READDIR",
        Request::Remove { .. } => "REMOVE",
        Request::MakeDir { .. } => "MKDIR",
        Request::RemoveDir { .. } => "RMDIR",
        Request::RealPath { .. } => "REALPATH",
        Request::Stat { .. } => "STAT",
        Request::Rename { .. } => "RENAME",
        Request::ReadLink { .. } => "READLINK",
        Request::Symlink { .. } => "SYMLINK",
        Request::Extended(request) => match request {
            sftp::packet::ExtendedRequest::Limits => "limits@openssh.com",
            sftp::packet::ExtendedRequest::PosixRename { .. } => "posix-rename@openssh.com",
            _ => "EXTENDED",
        },
    }
}

/// Maximum number of requests without an answer on one channel. Each open file limits the bytes of
/// its own requests.
const REQUESTS_MAX: usize = 4096;

/// Minimum length of a piece of a request that is sent without a copy, in bytes.
const BATCH_BYTES: usize = 16 * 1024;

/// Maximum time that the mover waits for the reason after a write has failed.
const REASON_DELAY: Duration = Duration::from_millis(200);
