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
use tracing::{info, warn};

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
    /// Coding of the data of channels. `None` disables coding.
    coding: Option<NegotiatedCoding>,
    /// Number of the session at this gateway.
    session: u64,
    /// Number of the next coded channel.
    next_coded: AtomicU32,
    send: AsyncMutex<SendStream>,
    replies: AsyncMutex<mpsc::Receiver<ToNear>>,
    end: watch::Receiver<Option<SessionEnd>>,
    banner: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl FarHalf {
    /// Opens a session with the server `target`. Returns when the far gateway has connected to the
    /// server and trusts its host key. The far half receives `request` together with the opening,
    /// which saves a round trip. [`first_reply`](Self::first_reply) then returns its reply.
    ///
    /// # Errors
    /// The reason why there is no session, as a sentence for the user.
    pub(super) async fn open(
        relay: &Relay,
        target: &HostPort,
        listener: &SshListener,
        (client, session): (SocketAddr, u64),
        request: Option<&ToFar>,
    ) -> Result<Self, SessionEnd> {
        let refused = |text: String| SessionEnd {
            reason: EndReason::Unavailable,
            text,
        };
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
            refused(format!("{target} cannot be reached: {error}"))
        })?;
        let mut token = Token::default();
        rand::fill(&mut token).map_err(|_| refused("no random numbers".to_owned()))?;
        let (offer, mut coding) = relay.offer_coding(peer, &listener.coding).unzip();
        let open = ToFar::Open {
            token,
            target: target.clone(),
            client: client.to_string(),
            session,
            coding: offer,
        };
        let mut frames = FrameReader::new(recv, Bytes::new());
        let mut start = open.encode().to_vec();
        if let Some(request) = request {
            start.extend_from_slice(&request.encode());
        }
        let first = async {
            let sent = send.write(start.into()).await;
            sent.map_err(|error| WireError::Lost(error.to_string()))?;
            next_message(&mut frames).await
        };
        let first = timeout(OPEN_TIMEOUT, first).await;
        let lost = |why: String| refused(format!("{target} cannot be reached: {why}"));
        match first {
            Ok(Ok(Some(ToNear::Server {
                fingerprint,
                cutting,
            }))) => {
                if let (Some(coding), Some(cutting)) = (&mut coding, &cutting) {
                    coding.set_peer_cutting(cutting);
                }
                info!(%target, peer = relay.peer_name(peer), fingerprint, "connected");
            }
            Ok(Ok(Some(ToNear::Ended { reason, text }))) => {
                relay.registry().count_refusal();
                warn!(%target, text, "no session");
                return Err(SessionEnd { reason, text });
            }
            Ok(Ok(Some(_))) => return Err(lost("unexpected reply of the far gateway".to_owned())),
            Ok(Ok(None)) => return Err(lost("the far gateway ended the stream".to_owned())),
            // A gateway without this service resets the stream.
            Ok(Err(error)) => {
                return Err(lost(format!("no SSH session through the link: {error}")));
            }
            Err(_) => return Err(lost("the far gateway does not answer in time".to_owned())),
        }
        let (replies, from_reader) = mpsc::channel(REPLIES_MAX);
        let (end, ended) = watch::channel(None);
        let banner = Arc::<Mutex<String>>::default();
        Ok(Self {
            peer,
            token,
            target: target.clone(),
            stream: send.key(),
            coding,
            session,
            next_coded: AtomicU32::new(0),
            send: AsyncMutex::new(send),
            replies: AsyncMutex::new(from_reader),
            end: ended,
            banner: banner.clone(),
            reader: tokio::spawn(async move {
                let ended = read(&mut frames, &replies, &banner).await;
                end.send_replace(Some(ended));
            }),
        })
    }

    /// Sends a request, and returns the reply.
    ///
    /// # Errors
    /// The reason why the session has ended.
    pub(super) async fn request(&self, request: &ToFar) -> Result<ToNear, SessionEnd> {
        let mut replies = self.replies.lock().await;
        self.in_time(async {
            self.send(request).await?;
            self.next_reply(&mut replies).await
        })
        .await
    }

    /// Returns the reply to the request that was sent with the opening.
    ///
    /// # Errors
    /// The reason why the session has ended.
    pub(super) async fn first_reply(&self) -> Result<ToNear, SessionEnd> {
        let mut replies = self.replies.lock().await;
        self.in_time(self.next_reply(&mut replies)).await
    }

    async fn next_reply(&self, replies: &mut mpsc::Receiver<ToNear>) -> Result<ToNear, SessionEnd> {
        tokio::select! {
            // If a reply and the end have both arrived, the reply is returned.
            biased;
            reply = replies.recv() => match reply {
                Some(reply) => Ok(reply),
                None => Err(self.wait_for_end().await),
            },
            end = self.wait_for_end() => Err(end),
        }
    }

    async fn in_time(
        &self,
        reply: impl Future<Output = Result<ToNear, SessionEnd>>,
    ) -> Result<ToNear, SessionEnd> {
        timeout(REPLY_TIMEOUT, reply).await.unwrap_or_else(|_| {
            Err(SessionEnd {
                reason: EndReason::Closed,
                text: format!("{} does not answer in time", self.target),
            })
        })
    }

    async fn send(&self, message: &ToFar) -> Result<(), SessionEnd> {
        let sent = self.send.lock().await.write(message.encode()).await;
        match sent {
            Ok(()) => Ok(()),
            Err(_) => Err(self.wait_for_end().await),
        }
    }

    /// Returns the number of a new coded channel, and the coding of its data. Returns `None` if the
    /// session has no coding.
    pub(super) fn code_channel(&self, relay: &Relay) -> Option<(u32, StreamCoding)> {
        let coding = self.coding.as_ref()?;
        let number = self.next_coded.fetch_add(1, Relaxed);
        let stream = CodedStreamId {
            peer: self.peer,
            is_near: true,
            session: self.session,
            number,
        };
        Some((number, relay.stream_coding(coding, stream, self.stream)))
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

/// Maximum number of replies in the queue. Each request has one reply, so more than one reply means
/// that an earlier request was abandoned.
const REPLIES_MAX: usize = 4;

/// Maximum length of the server's banner in bytes.
const BANNER_MAX: usize = 64 * 1024;
