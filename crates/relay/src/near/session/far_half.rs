//! Link stream between a session and the far gateway: opening, messages and close.

use std::time::Duration;

use ftp::{
    logon::Logon,
    session::{CommandId, MessageToFar, MessageToNear, ServerRequest, near::NearInput},
};
use link::{PeerId, RecvStream, SendStream, StreamClass, StreamError};
use tokio::time::{Instant, Interval, interval_at, timeout};
use tracing::{debug, info, warn};

use super::Session;
use crate::{
    gateway_context::{GatewayContext, ReachError},
    limits::RefusalKind,
    optimise::NegotiatedCoding,
    truncation::{KnownSession, SessionKey},
    wire::{
        FarMessage, MessageDecoder, NearMessage, Service, Version, WireError, encode_in,
        version_of_refusal,
    },
};
use net::target::{Host, HostPort};

/// The far gateway's half of a session. The near gateway reaches it over a stream.
pub(super) struct FarHalf {
    pub(super) peer: PeerId,
    /// Protocol version of the messages on the stream.
    pub(super) version: Version,
    /// Number and line of the `USER` command in the first message.
    logon: Option<(CommandId, Vec<u8>)>,
    /// Commands sent before the first message from the far gateway. `None` once the session can no
    /// longer be restarted.
    early_commands: Option<Vec<MessageToFar>>,
    pub(super) coding: Option<NegotiatedCoding>,
    pub(super) session: u64,
    pub(super) target: HostPort,
    pub(super) send: SendStream,
    pub(super) recv: RecvStream,
    pub(super) decoder: MessageDecoder,
    _known: KnownSession,
}

/// Reason for which the stream to the far gateway ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FarHalfEnd {
    #[error("the link to peer {peer} was lost: {error}")]
    Link { peer: String, error: StreamError },
    #[error("peer {peer} broke the protocol: {error}")]
    Protocol { peer: String, error: WireError },
    #[error("ended")]
    Orderly,
}

impl FarHalf {
    /// Stores a command that a restarted session must send again.
    fn record_early(&mut self, message: &NearMessage) {
        let Some(commands) = &mut self.early_commands else {
            return;
        };
        match message {
            NearMessage::Session(
                command @ MessageToFar::Request(ServerRequest::Command { .. }),
            ) if commands.len() < EARLY_COMMANDS_MAX => {
                commands.push(command.clone());
            }
            _ => self.early_commands = None,
        }
    }
}

impl Session {
    /// Checks whether the peer is up. A peer may have failed shortly before the session opened a
    /// stream to it.
    pub(super) fn check_silence(&mut self, peer: PeerId) {
        if let Some(error) = self.shared.silence(peer) {
            self.far = None;
            self.silence_check = None;
            self.shared.registry.count_refusal();
            warn!(%error, "the far gateway does not answer");
            self.handle_unreachable(&error);
        }
    }

    /// Handles an unreachable peer. The gateway can relay a client of a transparent listener
    /// directly to its server, if the client has not sent any bytes yet.
    pub(super) fn handle_unreachable(&mut self, error: &ReachError) {
        let is_down = matches!(
            error,
            ReachError::PeerDown { .. } | ReachError::Dismissed { .. } | ReachError::NotAtOnce(_)
        );
        if is_down && self.listener.config.transparent && !self.has_spoken && !self.control.is_tls()
        {
            self.is_passing = true;
        } else {
            self.near.handle(NearInput::NotReached {
                code: 421,
                text: &error.to_string(),
            });
        }
    }

    pub(super) async fn handle_far_message(&mut self, message: Result<FarMessage, FarHalfEnd>) {
        self.silence_check = None;
        if let Ok(FarMessage::Session(message)) = &message
            && self.restart_session(message).await
        {
            return;
        }
        if let Some(far) = &mut self.far {
            far.early_commands = None;
        }
        match message {
            Ok(FarMessage::Session(message)) => self.handle_session_message(message),
            Err(FarHalfEnd::Orderly) => self.handle_session_message(MessageToNear::ServerClosed),
            Ok(FarMessage::Store(cutting)) => {
                let far = self.far.as_mut();
                if let Some(negotiated) = far.and_then(|far| far.coding.as_mut()) {
                    negotiated.set_peer_cutting(&cutting);
                }
            }
            Ok(FarMessage::Waiting(transfer, limit)) => {
                let data = self.data.get(&transfer);
                if let Some(open) = data.and_then(|data| data.transfer.as_ref()) {
                    open.record_peer_bottleneck(limit);
                }
            }
            Ok(FarMessage::Granted(transfer, grant)) => {
                if let Some(grants) = self.grants.get(&transfer) {
                    grants.send_replace(grant);
                }
            }
            Ok(FarMessage::FirstBudget(bytes)) => self.first_budget_bytes = bytes,
            // A session with this message uses protocol version 5, in which uploads have no budget.
            Ok(FarMessage::Delivered(..)) => {}
            Err(end) => {
                warn!(%end, "session lost");
                self.far = None;
                self.near.handle(NearInput::LinkLost(&end.to_string()));
            }
        }
    }

    /// Restarts the session in the older protocol version that the far gateway has named in its
    /// refusal. Repeats the commands already sent. Does not restart a session that has requested a
    /// data connection. The next session always starts with the older version. Returns whether a
    /// restart was attempted. If so, the caller must ignore `message`.
    async fn restart_session(&mut self, message: &MessageToNear) -> bool {
        let (MessageToNear::Refused { text, .. }, Some(far)) = (message, &mut self.far) else {
            return false;
        };
        let Some(version) = version_of_refusal(text).filter(|it| *it < far.version) else {
            return false;
        };
        info!(?version, "the far gateway speaks an older version");
        let versions = &self.shared.peer_versions;
        versions.learn(far.peer, version, Instant::now());
        let Some(commands) = far.early_commands.take() else {
            return false;
        };
        let (target, logon) = (far.target.clone(), far.logon.take());
        self.far = None;
        if let Err(error) = self.connect(target, logon).await {
            self.handle_unreachable(&error);
            return true;
        }
        for command in commands {
            self.send_to_far(&NearMessage::Session(command)).await;
        }
        true
    }

    fn handle_session_message(&mut self, message: MessageToNear) {
        let message = match message {
            MessageToNear::Refused { code, text } => {
                self.shared.registry.count_refusal();
                let peer = self.far.take().map(|far| far.peer);
                let peer = peer.map_or("?", |peer| self.shared.peer_name(peer));
                warn!(peer, code, text, "refused");
                let text = format!("{text} (reported by peer {peer})");
                MessageToNear::Refused { code, text }
            }
            MessageToNear::ServerClosed => {
                self.leave_server();
                MessageToNear::ServerClosed
            }
            other => other,
        };
        self.near.handle(NearInput::Received(message));
    }

    pub(super) async fn log_on(&mut self, id: CommandId, logon: Logon) {
        self.leave_server();
        self.logon_since = Instant::now();
        let mut line = b"USER ".to_vec();
        line.extend_from_slice(&logon.user);
        let Ok(host) = Host::parse(&logon.server.host) else {
            self.shared.registry.count_refusal();
            let text = format!(
                "{} is not allowed: neither an address in its standard form nor a name",
                ftp::command::escape(logon.server.host.as_bytes())
            );
            return self.near.handle(NearInput::NotReached {
                code: 530,
                text: &text,
            });
        };
        let target = HostPort {
            host,
            port: logon.server.port,
        };
        if !self.listener.config.may_name(&target) {
            self.shared.registry.count_refusal();
            let usage = &self.shared.usage;
            if usage.should_log(self.client.ip(), RefusalKind::Server) {
                info!(%target, "server not allowed at this listener; further refusals are not logged for a minute");
            }
            let text = &format!("{target} is not allowed at this listener");
            return self.near.handle(NearInput::NotReached { code: 530, text });
        }
        if let Err(error) = self.connect(target, Some((id, line))).await {
            let code = if matches!(error, ReachError::NoPeer(_)) {
                530
            } else {
                421
            };
            self.near.handle(NearInput::NotReached {
                code,
                text: &error.to_string(),
            });
        }
    }

    pub(super) async fn connect(
        &mut self,
        target: HostPort,
        logon: Option<(CommandId, Vec<u8>)>,
    ) -> Result<(), ReachError> {
        let session = self.shared.session_number();
        let service = |peer| {
            let (coding, negotiated) = self
                .shared
                .offer(peer, &self.listener.config.coding)
                .unzip();
            let version = self.shared.peer_versions.version_of(peer, Instant::now());
            let service = Service::FtpSession {
                version,
                session,
                target: target.clone(),
                logon: logon.clone(),
                mode: self.listener.config.mode,
                server_data: self.listener.config.server_data,
                tls: self.listener.config.server_tls.clone(),
                coding,
            };
            (service, (version, negotiated))
        };
        let reach = self.shared.reach(
            &target.host,
            self.listener.config.via,
            StreamClass::Control,
            service,
        );
        let reached = if self.listener.config.transparent {
            let late = |_| Err(ReachError::NotAtOnce(target.host.clone()));
            timeout(PASS_TIMEOUT, reach).await.unwrap_or_else(late)
        } else {
            reach.await
        };
        let (peer, (version, coding), send, recv) = reached.inspect_err(|error| {
            self.shared.registry.count_refusal();
            warn!(%target, %error, "not reached");
        })?;
        info!(%target, peer = self.shared.peer_name(peer), "client connected");
        let mut decoder = MessageDecoder::default();
        decoder.set_version(version);
        self.silence_check = Some((
            peer,
            if self.listener.config.transparent {
                interval_at(Instant::now() + PASS_CHECK, PASS_CHECK)
            } else {
                interval_at(Instant::now() + SILENCE_MIN, SILENCE_CHECK)
            },
        ));
        let key = SessionKey {
            peer,
            is_near: true,
            session,
        };
        self.far = Some(FarHalf {
            peer,
            version,
            logon,
            early_commands: Some(Vec::new()),
            coding,
            session,
            target,
            send,
            recv,
            decoder,
            _known: KnownSession::new(self.shared.truncations.clone(), key),
        });
        Ok(())
    }

    /// Sends the far gateway the present bottleneck of each transfer of this session.
    pub(super) async fn report_limits(&mut self) {
        let transfers = self.data.iter();
        let limits =
            transfers.filter_map(|(&id, data)| Some((id, data.transfer.as_ref()?.bottleneck()?)));
        let limits: Vec<_> = limits.collect();
        for (id, limit) in limits {
            self.send_to_far(&NearMessage::Waiting(id, limit)).await;
        }
    }

    pub(super) async fn send_to_far(&mut self, message: &NearMessage) {
        let Some(far) = &mut self.far else { return };
        far.record_early(message);
        let Some(bytes) = encode_in(far.version, message) else {
            return;
        };
        if let Err(error) = far.send.write(bytes).await {
            // The receiving half reports the same error, and handles it.
            debug!(%error, "cannot send to the far gateway");
        }
    }

    /// Closes the stream to the far gateway without a reset. Messages in flight still arrive.
    pub(super) fn leave_server(&mut self) {
        let Some(mut far) = self.far.take() else {
            return;
        };
        far.send.finish();
        let drain_guard = self.shared.drain_guard.upgrade();
        tokio::spawn(async move {
            let rest = async { while matches!(far.recv.read().await, Ok(Some(_))) {} };
            let _ = timeout(LEAVE_TIMEOUT, rest).await;
            drop(drain_guard);
        });
    }
}

/// Waits until the next check of the peer is due. Returns the peer. After the first message from
/// the far gateway, the future never resolves.
pub(super) async fn next_silence_check(silence_check: &mut Option<(PeerId, Interval)>) -> PeerId {
    match silence_check {
        Some((peer, ticks)) => {
            ticks.tick().await;
            *peer
        }
        None => std::future::pending().await,
    }
}

/// Returns the next message from the far gateway. If the session has no stream to a far gateway,
/// the future never resolves.
pub(super) async fn next_message(
    far: &mut Option<FarHalf>,
    shared: &GatewayContext,
) -> Result<FarMessage, FarHalfEnd> {
    let Some(far) = far else {
        return std::future::pending().await;
    };
    let peer = || shared.peer_name(far.peer).to_owned();
    loop {
        match far.decoder.next_message() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(error) => {
                return Err(FarHalfEnd::Protocol {
                    peer: peer(),
                    error,
                });
            }
        }
        match far.recv.read().await {
            Ok(Some(bytes)) => far.decoder.push(&bytes),
            Ok(None) if far.decoder.is_empty() => return Err(FarHalfEnd::Orderly),
            Ok(None) => {
                return Err(FarHalfEnd::Protocol {
                    peer: peer(),
                    error: WireError::Truncated,
                });
            }
            Err(error) => {
                return Err(FarHalfEnd::Link {
                    peer: peer(),
                    error,
                });
            }
        }
    }
}

/// Interval at which the near gateway reports the bottleneck of each transfer to the far gateway.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of commands stored for a restart. Clients send fewer commands before the
/// greeting.
const EARLY_COMMANDS_MAX: usize = 64;

/// Time without a message from the far gateway until the near gateway checks the peer for the first
/// time. The next constant is the interval between checks. A peer that is not up at a check counts
/// as down.
const SILENCE_MIN: Duration = Duration::from_secs(3);
const SILENCE_CHECK: Duration = Duration::from_secs(1);

/// Time limit for opening a stream to a peer, for a client of a transparent listener. After this
/// time, the near gateway relays the client directly to its server.
const PASS_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval between two checks of the peer, for a client of a transparent listener.
const PASS_CHECK: Duration = Duration::from_millis(20);

/// Time limit for the far gateway to close the stream after the client has disconnected. The limit
/// is long because the server may still have to accept a long upload.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3600);
