//! Far half of a session, as the near half sees it: requests and replies on the session's stream.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use aws_lc_rs::rand;
use bytes::Bytes;
use link::{PeerId, SendStream, StreamClass, StreamKey};
use net::target::HostPort;
use relay::{
    CodedStreamId, Relay,
    optimise::{NegotiatedCoding, StreamCoding},
};
use russh::Disconnect;
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{Instrument as _, info, warn};

use crate::{
    settings::SshListener,
    wire::{
        self, FrameReader, Token, WireError,
        session::{EndReason, ToFar, ToNear},
    },
};

/// End of a session, or the reason why it could not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionEnd {
    pub(super) reason: EndReason,
    /// Sentence for the user.
    pub(super) text: String,
}

impl SessionEnd {
    /// Returns the code of a disconnect message.
    pub(super) fn code(&self) -> Disconnect {
        match self.reason {
            EndReason::Unavailable => Disconnect::ServiceNotAvailable,
            EndReason::HostKey => Disconnect::HostKeyNotVerifiable,
            EndReason::Closed => Disconnect::ByApplication,
        }
    }
}

/// Far half of a session.
#[derive(Debug)]
pub(super) struct FarHalf {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) target: HostPort,
    /// Key of the session's stream. The near half opens the streams of channels beside this stream,
    /// so that they reach the same process of the peer.
    pub(super) stream: StreamKey,
    /// Server of the session. `None` until the far gateway trusts its host key.
    server: watch::Receiver<Option<ConnectedServer>>,
    /// Number of the session at this gateway.
    session: u64,
    /// Number of the next coded channel.
    next_coded: AtomicU32,
    send: AsyncMutex<SendStream>,
    replies: AsyncMutex<Replies>,
    end: watch::Receiver<Option<SessionEnd>>,
    banner: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// Server to which the far gateway has connected.
#[derive(Debug)]
struct ConnectedServer {
    /// Coding of the data of channels. `None` disables coding.
    coding: Option<NegotiatedCoding>,
}

/// Replies of the far half, in the order of the requests.
#[derive(Debug)]
struct Replies {
    received: mpsc::Receiver<ToNear>,
    /// Number of requests whose replies have not been read yet.
    unread: usize,
}

impl FarHalf {
    /// Opens a session with the server `target`. The far gateway then connects to the server. A
    /// request can follow at once, and reaches the far half together with the opening. If the far
    /// gateway does not connect, each request fails with the reason.
    ///
    /// # Errors
    /// The reason why no far gateway can be reached, as a sentence for the user.
    pub(super) async fn open(
        relay: &Relay,
        target: &HostPort,
        listener: &SshListener,
        (client, session): (SocketAddr, u64),
    ) -> Result<Self, SessionEnd> {
        let opened = relay
            .open(
                wire::SESSION,
                &target.host,
                listener.via,
                StreamClass::Control,
            )
            .await;
        let (peer, mut send, recv) = opened.map_err(|error| {
            relay.registry().count_refusal();
            warn!(%target, %error, "no session");
            cannot_reach(target, &error.to_string())
        })?;
        let mut token = Token::default();
        rand::fill(&mut token).map_err(|_| unavailable("no random numbers".to_owned()))?;
        let (offer, coding) = relay.offer_coding(peer, &listener.coding).unzip();
        let open = ToFar::Open {
            token,
            target: target.clone(),
            client: client.to_string(),
            session,
            coding: offer,
        };
        match timeout(OPEN_TIMEOUT, send.write(open.encode())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(no_stream(target, &error.to_string())),
            Err(_) => return Err(cannot_reach(target, NO_ANSWER)),
        }
        let (replies, received) = mpsc::channel(REPLIES_MAX);
        let (server, connected) = watch::channel(None);
        let (end, ended) = watch::channel(None);
        let banner = Arc::<Mutex<String>>::default();
        let stream = send.key();
        let reader = {
            let (relay, target) = (relay.clone(), target.clone());
            let banner = banner.clone();
            let mut frames = FrameReader::new(recv, Bytes::new());
            async move {
                let ended = match connect(&mut frames, &target, coding).await {
                    Ok((fingerprint, connected)) => {
                        let peer = relay.peer_name(peer);
                        info!(%target, peer, fingerprint, "connected");
                        server.send_replace(Some(connected));
                        read(&mut frames, &replies, &banner).await
                    }
                    Err(failed) => {
                        relay.registry().count_refusal();
                        warn!(%target, failed.text, "no session");
                        failed
                    }
                };
                end.send_replace(Some(ended));
            }
        };
        Ok(Self {
            peer,
            token,
            target: target.clone(),
            stream,
            server: connected,
            session,
            next_coded: AtomicU32::new(0),
            send: AsyncMutex::new(send),
            replies: AsyncMutex::new(Replies {
                received,
                unread: 0,
            }),
            end: ended,
            banner,
            reader: tokio::spawn(reader.in_current_span()),
        })
    }

    /// Waits until the far gateway has connected to the server and trusts its host key.
    ///
    /// # Errors
    /// The reason why there is no session, as a sentence for the user.
    pub(super) async fn wait_for_server(&self) -> Result<(), SessionEnd> {
        let mut server = self.server.clone();
        tokio::select! {
            biased;
            Ok(_) = server.wait_for(Option::is_some) => Ok(()),
            end = self.wait_for_end() => Err(end),
        }
    }

    /// Sends a request, and returns the reply. Discards the unread replies to earlier requests.
    ///
    /// # Errors
    /// The reason why the session has ended.
    pub(super) async fn request(&self, request: &ToFar) -> Result<ToNear, SessionEnd> {
        let mut replies = self.replies.lock().await;
        self.in_time(async {
            self.send(request, &mut replies).await?;
            loop {
                let reply = self.next_reply(&mut replies).await?;
                if replies.unread == 0 {
                    return Ok(reply);
                }
            }
        })
        .await
    }

    /// Sends a request. [`reply`](Self::reply) returns its reply.
    ///
    /// # Errors
    /// The reason why the session has ended.
    pub(super) async fn send_request(&self, request: &ToFar) -> Result<(), SessionEnd> {
        let mut replies = self.replies.lock().await;
        self.in_time(self.send(request, &mut replies)).await
    }

    /// Returns whether the far gateway has connected to the server, and all replies have been read.
    pub(super) async fn is_idle(&self) -> bool {
        let is_connected = self.server.borrow().is_some();
        is_connected && self.replies.lock().await.unread == 0
    }

    /// Returns the reply to the oldest request whose reply has not been read.
    ///
    /// # Errors
    /// The reason why the session has ended, or why there is no reply.
    pub(super) async fn reply(&self) -> Result<ToNear, SessionEnd> {
        let mut replies = self.replies.lock().await;
        if replies.unread == 0 {
            return Err(lost("no request awaits a reply"));
        }
        self.in_time(self.next_reply(&mut replies)).await
    }

    async fn next_reply(&self, replies: &mut Replies) -> Result<ToNear, SessionEnd> {
        tokio::select! {
            // If a reply and the end have both arrived, the reply is returned.
            biased;
            reply = replies.received.recv() => match reply {
                Some(reply) => {
                    replies.unread = replies.unread.saturating_sub(1);
                    Ok(reply)
                }
                None => Err(self.wait_for_end().await),
            },
            end = self.wait_for_end() => Err(end),
        }
    }

    async fn in_time<T>(
        &self,
        reply: impl Future<Output = Result<T, SessionEnd>>,
    ) -> Result<T, SessionEnd> {
        timeout(REPLY_TIMEOUT, reply).await.unwrap_or_else(|_| {
            Err(SessionEnd {
                reason: EndReason::Closed,
                text: format!("{} does not answer in time", self.target),
            })
        })
    }

    async fn send(&self, request: &ToFar, replies: &mut Replies) -> Result<(), SessionEnd> {
        let sent = self.send.lock().await.write(request.encode()).await;
        match sent {
            Ok(()) => {
                replies.unread += 1;
                Ok(())
            }
            Err(_) => Err(self.wait_for_end().await),
        }
    }

    /// Returns the number of a new coded channel, and the coding of its data. Returns `None` if the
    /// session has no coding, or if the far gateway has not connected to the server yet.
    pub(super) fn code_channel(&self, relay: &Relay) -> Option<(u32, StreamCoding)> {
        let server = self.server.borrow();
        let coding = server.as_ref()?.coding.as_ref()?;
        let number = self.next_coded.fetch_add(1, Relaxed);
        let stream = CodedStreamId {
            peer: self.peer,
            is_near: true,
            session: self.session,
            number,
        };
        Some((number, relay.stream_coding(coding, stream, self.stream)))
    }

    /// Returns the reason why the session has ended. Returns `None` if it has not ended.
    pub(super) fn ended(&self) -> Option<SessionEnd> {
        self.end.borrow().clone()
    }

    /// Waits until the session has ended. Returns the reason.
    pub(super) async fn wait_for_end(&self) -> SessionEnd {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|it| it.clone());
        ended.unwrap_or_else(|| lost("the session has ended"))
    }

    /// Returns the server's banner if the client has not received it yet, and forgets the banner.
    ///
    /// The gateway does not store banners for later sessions, because servers send texts for one
    /// user as banners.
    pub(super) fn take_banner(&self) -> String {
        std::mem::take(&mut *lock(&self.banner))
    }
}

impl Drop for FarHalf {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Waits until the far gateway has connected to the server. `coding` is the coding that the near
/// half has offered. Returns the fingerprint of the server's host key, too.
///
/// # Errors
/// The reason why there is no session, as a sentence for the user.
async fn connect(
    frames: &mut FrameReader,
    target: &HostPort,
    mut coding: Option<NegotiatedCoding>,
) -> Result<(String, ConnectedServer), SessionEnd> {
    match timeout(OPEN_TIMEOUT, next_message(frames)).await {
        Ok(Ok(Some(ToNear::Server {
            fingerprint,
            cutting,
        }))) => {
            if let (Some(coding), Some(cutting)) = (&mut coding, &cutting) {
                coding.set_peer_cutting(cutting);
            }
            Ok((fingerprint, ConnectedServer { coding }))
        }
        Ok(Ok(Some(ToNear::Ended { reason, text }))) => Err(SessionEnd { reason, text }),
        Ok(Ok(Some(_))) => Err(cannot_reach(target, "unexpected reply of the far gateway")),
        Ok(Ok(None)) => Err(cannot_reach(target, "the far gateway ended the stream")),
        // A gateway without this service resets the stream.
        Ok(Err(error)) => Err(no_stream(target, &error.to_string())),
        Err(_) => Err(cannot_reach(target, NO_ANSWER)),
    }
}

/// Reads messages until the session ends. Returns the reason.
async fn read(
    frames: &mut FrameReader,
    replies: &mpsc::Sender<ToNear>,
    banner: &Mutex<String>,
) -> SessionEnd {
    loop {
        match next_message(frames).await {
            Ok(Some(ToNear::Ended { reason, text })) => return SessionEnd { reason, text },
            Ok(Some(ToNear::Banner { text })) => {
                let mut banner = lock(banner);
                if banner.len() + text.len() <= BANNER_MAX {
                    banner.push_str(&text);
                }
            }
            Ok(Some(reply)) => {
                if replies.try_send(reply).is_err() {
                    return lost("unexpected reply of the far gateway");
                }
            }
            Ok(None) => return lost("the far gateway has ended the session"),
            Err(error) => return lost(&format!("the link was lost: {error}")),
        }
    }
}

async fn next_message(frames: &mut FrameReader) -> Result<Option<ToNear>, WireError> {
    match frames.next_whole().await? {
        Some((kind, body)) => Ok(Some(ToNear::decode(kind, body)?)),
        None => Ok(None),
    }
}

fn unavailable(text: String) -> SessionEnd {
    SessionEnd {
        reason: EndReason::Unavailable,
        text,
    }
}

fn cannot_reach(target: &HostPort, why: &str) -> SessionEnd {
    unavailable(format!("{target} cannot be reached: {why}"))
}

fn no_stream(target: &HostPort, error: &str) -> SessionEnd {
    let why = format!("no SSH session through the link: {error}");
    cannot_reach(target, &why)
}

fn lost(text: &str) -> SessionEnd {
    SessionEnd {
        reason: EndReason::Closed,
        text: text.to_owned(),
    }
}

/// Locks the mutex. The value is valid even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time limit for the connection to the server and its key exchange.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for a reply of the server. Servers delay replies to wrong passwords, and second
/// factors wait for people.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);

/// Reason of a session whose far gateway does not answer.
const NO_ANSWER: &str = "the far gateway does not answer in time";

/// Maximum number of replies in the queue. Each request has one reply, and at most two requests
/// await a reply. More replies are a fault of the far half.
const REPLIES_MAX: usize = 4;

/// Maximum length of the server's banner in bytes.
const BANNER_MAX: usize = 64 * 1024;
