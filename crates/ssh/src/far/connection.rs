//! Connection to a server: key exchange, and the check of the host key.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use link::PeerId;
use net::{
    Connection,
    dial::DialError,
    socket,
    target::{DialRefusal, HostPort},
    tls::Leg,
};
use relay::Relay;
use russh::{
    ChannelId, Names, Sig,
    client::{self, DisconnectReason, Handle, Session},
    keys::{Algorithm, HashAlg, PublicKey, PublicKeyOrCertificate},
};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tracing::{info, warn};

use crate::{
    algorithms,
    backpressure::{Backpressure, HeldBytes, PausableStream},
    host_key_check,
    known_hosts::{self, ServerKeys, Verdict},
    settings::FarSsh,
    signals::signal_name,
    wire::session::EndReason,
};

/// State that the tasks of a connection to a server share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) backpressure: Arc<Backpressure>,
    /// Bytes that each channel has received from the server.
    held: Mutex<HashMap<ChannelId, Arc<HeldBytes>>>,
    /// Reason why the connection has ended. `None` while it is open.
    pub(super) end: watch::Sender<Option<String>>,
    /// Whether the server has sent a disconnect message.
    has_disconnected: AtomicBool,
}

/// Reason why there is no connection to a server.
#[derive(Debug)]
pub(super) struct ConnectFailure {
    pub(super) reason: EndReason,
    /// Sentence for the user.
    pub(super) text: String,
}

/// An open connection to a server whose host key is trusted.
pub(super) struct ServerConnection {
    pub(super) handle: Handle<ServerHandler>,
    pub(super) state: Arc<ServerState>,
    pub(super) fingerprint: String,
    /// Banners that the server sends during the log-in.
    pub(super) banners: mpsc::Receiver<String>,
}

/// Handler of the messages of one server.
pub(super) struct ServerHandler {
    state: Arc<ServerState>,
    settings: Arc<FarSsh>,
    target: HostPort,
    banners: mpsc::Sender<String>,
    banner_bytes: usize,
    /// Host key of the connection, or the reason why it is not trusted.
    host_key: Arc<Mutex<Option<Result<PublicKey, String>>>>,
}

impl ServerState {
    /// Starts counting the bytes of a channel.
    pub(super) fn hold_channel(&self, channel: ChannelId, held: Arc<HeldBytes>) {
        lock(&self.held).insert(channel, held);
    }

    /// Stops counting the bytes of a channel.
    pub(super) fn release_channel(&self, channel: ChannelId) {
        if let Some(held) = lock(&self.held).remove(&channel) {
            held.discard();
        }
    }

    fn add(&self, channel: ChannelId, bytes: usize) {
        let held = lock(&self.held).get(&channel).cloned();
        if let Some(held) = held {
            held.add(bytes);
        }
    }

    /// Counts a message that the queue of a channel keeps.
    fn count_request(&self, channel: ChannelId, field_bytes: usize) -> Result<(), russh::Error> {
        match lock(&self.held).get(&channel) {
            Some(held) => Ok(held.count_request(field_bytes)?),
            None => Ok(()),
        }
    }

    /// Returns the reason why the connection has ended. The caller has already seen the end of a
    /// channel, which may precede the reason by a short time.
    pub(super) async fn end_text(&self) -> String {
        let text = timeout(END_TIMEOUT, self.wait_for_end()).await;
        text.unwrap_or_else(|_| "the connection to the server has ended".to_owned())
    }

    /// Whether the server has ended the connection with a disconnect message.
    pub(super) fn has_disconnected(&self) -> bool {
        self.has_disconnected.load(Ordering::Relaxed)
    }

    /// Waits until the connection has ended. Returns the reason.
    pub(super) async fn wait_for_end(&self) -> String {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|it| it.clone());
        ended.unwrap_or_else(|| "the connection to the server has ended".to_owned())
    }
}

/// Connects to a server that `peer` has requested, exchanges keys, and checks the host key.
///
/// # Errors
/// The reason why there is no connection. After an error, no credential has left this gateway.
pub(super) async fn connect(
    relay: &Relay,
    peer: PeerId,
    target: &HostPort,
    settings: &Arc<FarSsh>,
) -> Result<ServerConnection, ConnectFailure> {
    let mut failure: Option<ConnectFailure> = None;
    for algorithms in key_algorithms(settings, target).await? {
        match connect_with(relay, peer, target, settings, algorithms).await {
            // A server may have several host keys, and the pinned key may belong to another
            // algorithm.
            Err(error) if error.is_of_key => {
                // If an earlier attempt failed because of an untrusted key, that reason is more
                // precise.
                let of_key = failure.filter(|it| it.reason == EndReason::HostKey);
                failure = of_key.or(Some(error.failure));
            }
            Err(error) => return Err(failure.unwrap_or(error.failure)),
            Ok(connection) => return Ok(connection),
        }
    }
    Err(failure.unwrap_or_else(|| unavailable("no host key is permitted".to_owned())))
}

/// Failure of one attempt to connect.
struct AttemptFailure {
    failure: ConnectFailure,
    /// Whether another host key of the server could be trusted.
    is_of_key: bool,
}

async fn connect_with(
    relay: &Relay,
    peer: PeerId,
    target: &HostPort,
    settings: &Arc<FarSsh>,
    algorithms: Vec<Algorithm>,
) -> Result<ServerConnection, AttemptFailure> {
    let failed = |text: String| AttemptFailure {
        failure: unavailable(text),
        is_of_key: false,
    };
    let stream = relay.dial(peer, target).await;
    let stream = stream.map_err(|error| {
        // The error texts name the server.
        failed(match &error {
            DialError::Denied {
                denied: DialRefusal::NotListed,
                ..
            } => format!("{error}: add \"{target}\" to allow of the far gateway"),
            _ => error.to_string(),
        })
    })?;
    let connection = Connection::from(stream);
    let tuned = socket::tune_control(&connection, false);
    tuned.map_err(|error| failed(format!("{target}: {error}")))?;
    let state = Arc::new(ServerState {
        backpressure: Arc::new(Backpressure::new(relay.session_memory().clone())),
        held: Mutex::default(),
        end: watch::Sender::new(None),
        has_disconnected: AtomicBool::new(false),
    });
    let (banners, from_server) = mpsc::channel(BANNERS_MAX);
    let host_key = Arc::default();
    let handler = ServerHandler {
        state: state.clone(),
        settings: settings.clone(),
        target: target.clone(),
        banners,
        banner_bytes: 0,
        host_key: Arc::clone(&host_key),
    };
    let stream = PausableStream::new(Leg::plain(connection), state.backpressure.clone());
    let connected = client::connect_stream(config(algorithms), stream, handler);
    let connected = timeout(KEY_EXCHANGE_TIMEOUT, connected).await;
    let key = lock(&host_key).take();
    let handle = match (connected, key) {
        (Ok(Ok(handle)), Some(Ok(key))) => {
            return Ok(ServerConnection {
                handle,
                state,
                fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
                banners: from_server,
            });
        }
        (_, Some(Err(text))) => {
            state.backpressure.abort();
            warn!(%target, text, "the host key is not trusted");
            return Err(AttemptFailure {
                failure: ConnectFailure {
                    reason: EndReason::HostKey,
                    text,
                },
                is_of_key: true,
            });
        }
        (connected, _) => connected,
    };
    state.backpressure.abort();
    let text = match handle {
        Ok(Ok(_)) => "the server has presented no host key".to_owned(),
        Ok(Err(russh::Error::NoCommonAlgo { kind, theirs, .. })) => {
            let theirs = theirs.join(", ");
            let is_of_key = matches!(kind, russh::AlgorithmKind::Key);
            return Err(AttemptFailure {
                failure: unavailable(format!(
                    "{target}: no common algorithm for {kind:?}; the server offers {}",
                    theirs.escape_debug()
                )),
                is_of_key,
            });
        }
        Ok(Err(error)) => format!("{target}: no SSH connection: {error}"),
        Err(_) => format!("{target}: the server does not answer in time"),
    };
    Err(failed(text))
}

/// Returns the sets of host key algorithms that the gateway offers, one set for each attempt.
///
/// If `known_hosts` has keys of the server, only their algorithms are offered. Otherwise, a server
/// with an additional key would look like a changed host key.
async fn key_algorithms(
    settings: &Arc<FarSsh>,
    target: &HostPort,
) -> Result<Vec<Vec<Algorithm>>, ConnectFailure> {
    let is_pinned = settings.host_key.is_some();
    let keys = match is_pinned {
        true => ServerKeys::default(),
        false => read_keys(settings, target).await.map_err(unavailable)?,
    };
    Ok(host_key_check::offers(is_pinned, &keys))
}

/// Reads the entries of `known_hosts` for a server.
async fn read_keys(settings: &Arc<FarSsh>, target: &HostPort) -> Result<ServerKeys, String> {
    let Some(path) = settings.known_hosts.clone() else {
        return Ok(ServerKeys::default());
    };
    let target = target.clone();
    let read = tokio::task::spawn_blocking(move || {
        let keys = ServerKeys::read(&path, &target);
        keys.map_err(|error| format!("known_hosts of the far gateway cannot be read: {error}"))
    });
    read.await.map_err(|error| error.to_string())?
}

fn config(key: Vec<Algorithm>) -> Arc<client::Config> {
    Arc::new(client::Config {
        window_size: algorithms::WINDOW_BYTES,
        channel_buffer_size: algorithms::CHANNEL_BUFFER,
        ..algorithms::client_config(key)
    })
}

impl ServerHandler {
    /// Checks the host key of the server.
    ///
    /// # Errors
    /// The reason why the key is not trusted, as a sentence for the user.
    async fn check(&self, key: &PublicKey) -> Result<(), String> {
        let target = &self.target;
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        if let Some(pinned) = &self.settings.host_key {
            return match *pinned == fingerprint {
                true => Ok(()),
                false => Err(format!(
                    "the host key of {target} is {fingerprint}, and host_key of the far gateway \
                     permits only {pinned}"
                )),
            };
        }
        let Some(path) = self.settings.known_hosts.clone() else {
            return Err(format!(
                "the far gateway knows no host keys: set known_hosts or host_key there; \
                 {target} presents {fingerprint}"
            ));
        };
        let keys = read_keys(&self.settings, target).await?;
        let mut verdict = keys.check(key);
        if verdict == Verdict::Unknown && self.settings.trust_on_first_use {
            let (server, key) = (target.clone(), key.clone());
            let appended =
                tokio::task::spawn_blocking(move || known_hosts::append(&path, &server, &key));
            verdict = match appended.await {
                Ok(Ok(verdict)) => verdict,
                Ok(Err(error)) => {
                    return Err(format!(
                        "the host key of {target} cannot be added to known_hosts of the far \
                         gateway: {error}"
                    ));
                }
                Err(error) => return Err(error.to_string()),
            };
            if verdict == Verdict::Known {
                warn!(%target, fingerprint, "trusting the host key on first use");
            }
        }
        match verdict {
            Verdict::Known => Ok(()),
            Verdict::Unknown => Err(format!(
                "known_hosts of the far gateway has no host key of {target}, which presents \
                 {fingerprint}; add the key there if it is right"
            )),
            Verdict::Changed(line) => Err(format!(
                "the host key of {target} has changed to {fingerprint}: line {line} of known_hosts \
                 of the far gateway has another key; someone may intercept the connection"
            )),
            Verdict::Revoked(line) => Err(format!(
                "the host key of {target} ({fingerprint}) is revoked by line {line} of known_hosts \
                 of the far gateway"
            )),
        }
    }
}

impl client::Handler for ServerHandler {
    type Error = russh::Error;

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), Self::Error> {
        self.banner_bytes = self.banner_bytes.saturating_add(banner.len());
        if self.banner_bytes <= BANNER_MAX {
            // Further banners are lost if the queue is full.
            let _ = self.banners.try_send(banner.to_owned());
        }
        Ok(())
    }

    async fn check_server_key(
        &mut self,
        presented: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = presented else {
            // The gateway offers no algorithms with certificates.
            return Ok(false);
        };
        let checked = self.check(key).await;
        let is_trusted = checked.is_ok();
        *lock(&self.host_key) = Some(checked.map(|()| key.clone()));
        Ok(is_trusted)
    }

    async fn kex_done(
        &mut self,
        _: Option<&[u8]>,
        names: &Names,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        // The key must be of the negotiated algorithm (GHSA-66vf-xq4p-pg7q).
        let key = lock(&self.host_key);
        match &*key {
            Some(Ok(key)) if !host_key_check::is_same_kind(&key.algorithm(), &names.key) => {
                Err(russh::Error::WrongServerSig)
            }
            _ => Ok(()),
        }
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.add(channel, data.len());
        Ok(())
    }

    async fn extended_data(
        &mut self,
        channel: ChannelId,
        _: u32,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.add(channel, data.len());
        Ok(())
    }

    async fn window_adjusted(
        &mut self,
        channel: ChannelId,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.add(channel, 0);
        Ok(())
    }

    async fn channel_success(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.count_request(channel, 0)
    }

    async fn channel_failure(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.count_request(channel, 0)
    }

    async fn channel_eof(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.count_request(channel, 0)
    }

    async fn xon_xoff(
        &mut self,
        channel: ChannelId,
        _: bool,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.count_request(channel, 0)
    }

    async fn exit_status(
        &mut self,
        channel: ChannelId,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.state.count_request(channel, 0)
    }

    async fn exit_signal(
        &mut self,
        channel: ChannelId,
        signal: Sig,
        _: bool,
        text: &str,
        language: &str,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        let field_bytes = signal_name(&signal).len() + text.len() + language.len();
        self.state.count_request(channel, field_bytes)
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        let target = &self.target;
        let (text, result) = match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.state.has_disconnected.store(true, Ordering::Relaxed);
                let message = info.message.escape_debug();
                (format!("{target} has disconnected: {message}"), Ok(()))
            }
            DisconnectReason::Error(error) => (
                format!("{target} has closed the connection: {error}"),
                Err(error),
            ),
        };
        info!(text, "server gone");
        self.state.end.send_replace(Some(text));
        result
    }
}

fn unavailable(text: String) -> ConnectFailure {
    ConnectFailure {
        reason: EndReason::Unavailable,
        text,
    }
}

/// Locks the mutex. The value is valid even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time limit for the key exchange with a server.
const KEY_EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the library to report why the connection has ended. The time starts when a
/// channel ends.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of banners that wait for the near half.
const BANNERS_MAX: usize = 16;

/// Maximum length of all banners of a server in bytes.
const BANNER_MAX: usize = 64 * 1024;
