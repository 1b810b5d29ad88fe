//! The far gateway: accepts streams that peers open, and connects to servers on their behalf.

mod connect;
mod data;
mod forward;
mod opened_session;
mod session;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use ftp::session::MessageToNear;
use futures_util::future::BoxFuture;
use link::{IncomingStream, Link, PublicKey, RecvStream, SendStream};
use tokio::{sync::watch, time::timeout};
use tracing::{Instrument, debug, info_span, warn};

use opened_session::OpenedSession;

use crate::{
    gateway_context::GatewayContext,
    optimise::{ReferenceKey, chunk_server},
    pairing::{DataStream, StreamHalves},
    relay::Relay,
    service::{FarService, ServiceStream},
    settings::PeerOrigin,
    truncation::{KnownSession, SessionKey},
    wire::{
        FarMessage, MessageDecoder, Service, StreamHello, TOKEN_BYTES, WireError, encode, reset,
    },
};

/// A gateway that presents an invite in order to become a peer.
#[derive(Debug)]
pub struct Candidate {
    /// Secret token of the invite.
    pub token: [u8; TOKEN_BYTES],
    /// Public key of the candidate gateway.
    pub public_key: PublicKey,
    /// Name that the candidate gateway suggests for itself.
    pub name: String,
}

/// Component of a gateway that enrols candidates as peers.
pub trait Enroller: Send + Sync {
    /// Enrols the candidate as a peer, and sends the reply on the candidate's stream.
    fn enrol(&self, candidate: Candidate, send: SendStream) -> BoxFuture<'static, ()>;
}

/// Serves the streams that peers open, until the link shuts down.
///
/// Each session keeps the settings that `current` has when the session starts. `enrolments` enrols
/// gateways that present an invite. If `enrolments` is `None`, the gateway refuses them. `services`
/// are further services that peers request by their names.
pub async fn serve(
    current: watch::Receiver<Relay>,
    enrolments: Option<Arc<dyn Enroller>>,
    services: impl IntoIterator<Item = Arc<dyn FarService>>,
) {
    let relay = current.borrow().clone();
    let services = services.into_iter().map(|it| (it.name(), it));
    let ends = Arc::new(FarServices {
        enrolments,
        services: services.collect(),
    });
    tokio::select! {
        () = accept(relay.link(), current, ends) => {}
        () = relay.run_maintenance() => {}
    }
}

/// Services of the far gateway other than FTP and forwards.
struct FarServices {
    enrolments: Option<Arc<dyn Enroller>>,
    services: HashMap<&'static str, Arc<dyn FarService>>,
}

async fn accept(link: &Link, current: watch::Receiver<Relay>, ends: Arc<FarServices>) {
    while let Some(incoming) = link.accept().await {
        let Relay(shared) = current.borrow().clone();
        let Some(drain_guard) = shared.drain_guard.upgrade() else {
            return;
        };
        let span = info_span!("far", peer = shared.peer_name(incoming.peer));
        let ends = ends.clone();
        let serve = async move {
            serve_stream(incoming, &shared, &ends).await;
            drop(drain_guard);
        };
        tokio::spawn(serve.instrument(span));
    }
}

async fn serve_stream(incoming: IncomingStream, shared: &Arc<GatewayContext>, ends: &FarServices) {
    let IncomingStream {
        peer,
        mut send,
        mut recv,
        ..
    } = incoming;
    let mut decoder = MessageDecoder::default();
    let hello = match timeout(HELLO_TIMEOUT, read_hello(&mut recv, &mut decoder)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => {
            warn!(%error, "malformed start of a stream");
            // A peer that expects raw bytes would treat a message as data.
            if matches!(
                error,
                WireError::Version {
                    is_session: true,
                    ..
                }
            ) {
                let refused = FarMessage::Session(MessageToNear::Refused {
                    code: 421,
                    text: error.to_string(),
                });
                let _ = send.write(encode(&refused)).await;
                return send.finish();
            }
            return send.reset(reset::PROTOCOL);
        }
        Err(_) => return send.reset(reset::PROTOCOL),
    };
    let Some(of_config) = shared.settings.peer(peer) else {
        // The peer was removed a moment ago.
        return send.reset(reset::NOT_ALLOWED);
    };
    let may_enrol =
        of_config.origin == PeerOrigin::Invite && matches!(hello.service, Service::Enrol { .. });
    if of_config.is_guest() && !may_enrol {
        warn!("a gateway with an invite opened a stream other than enrolment");
        return send.reset(reset::NOT_ALLOWED);
    }
    let is_of_session = match &hello.service {
        Service::FtpData { .. } | Service::Truncated { .. } | Service::Chunks { .. } => true,
        Service::Named(name) => {
            let service = ends.services.get(name.as_str());
            service.is_some_and(|it| it.continues_sessions())
        }
        _ => false,
    };
    if shared.is_retired.load(Relaxed) && !is_of_session {
        // This process has outdated settings for peers and their allow lists.
        warn!("stream refused: another process has replaced this one");
        return send.reset(reset::SESSION_ENDED);
    }
    match hello.service {
        Service::Enrol {
            token,
            public_key,
            name,
        } => {
            let candidate = Candidate {
                token,
                public_key,
                name,
            };
            match &ends.enrolments {
                Some(enrolments) => enrolments.enrol(candidate, send).await,
                None => send.reset(reset::NOT_ALLOWED),
            }
        }
        Service::Forward { target, coding } => {
            let stream = StreamHalves {
                send,
                recv,
                first: decoder.into_rest(),
            };
            forward::serve(shared, peer, target, stream, coding).await;
        }
        Service::Named(name) => {
            let Some(service) = ends.services.get(name.as_str()) else {
                let name = ftp::command::escape(name.as_bytes());
                warn!(
                    name,
                    "a stream for a service that this gateway does not have"
                );
                return send.reset(reset::NOT_ALLOWED);
            };
            let stream = ServiceStream {
                peer,
                send,
                recv,
                first: decoder.into_rest(),
            };
            let served = service.clone().serve(stream, Relay(shared.clone()));
            tokio::select! {
                () = served => {}
                () = shared.wait_for_abort() => {}
            }
        }
        Service::FtpSession {
            version,
            session,
            target,
            logon,
            mode,
            server_data,
            tls,
            coding,
        } => {
            let span = info_span!("ftp", session, %target);
            let _open = shared.registry.session();
            let streams = shared.pairing.enter((peer, session));
            let key = SessionKey {
                peer,
                is_near: false,
                session,
            };
            let _known = KnownSession::new(shared.truncations.clone(), key);
            decoder.set_version(version);
            let opened = OpenedSession {
                peer,
                version,
                session,
                target,
                logon,
                mode,
                server_data,
                tls,
                coding: coding.map(|offer| shared.agree(peer, &offer)),
                send,
                recv,
                decoder,
                streams,
            };
            session::serve(opened, shared).instrument(span).await;
            shared.pairing.leave((peer, session));
        }
        Service::Chunks {
            session,
            transfer,
            of_near,
        } => {
            let session = SessionKey {
                peer,
                is_near: of_near,
                session,
            };
            let key = ReferenceKey { session, transfer };
            chunk_server::serve(&shared.references, key, send, recv, decoder).await;
        }
        Service::Truncated {
            session,
            transfer,
            by_client,
        } => {
            let key = SessionKey {
                peer,
                is_near: !by_client,
                session,
            };
            if shared.truncations.record(key, transfer) {
                send.finish();
            } else {
                debug!(session, "a truncation in no session");
                send.reset(reset::SESSION_ENDED);
            }
        }
        Service::FtpData { session, transfer } => {
            match timeout(PAIRING_TIMEOUT, shared.pairing.find((peer, session))).await {
                Ok(sender) => {
                    // If the session has ended, the stream is dropped, and thereby reset.
                    let first = decoder.into_rest();
                    let stream = StreamHalves { send, recv, first };
                    let _ = sender.send(DataStream { transfer, stream }).await;
                }
                Err(_) => {
                    debug!(session, "a data connection of no session");
                    send.reset(reset::SESSION_ENDED);
                }
            }
        }
    }
}

async fn read_hello(
    recv: &mut RecvStream,
    decoder: &mut MessageDecoder,
) -> Result<StreamHello, WireError> {
    loop {
        if let Some(hello) = decoder.next_message()? {
            return Ok(hello);
        }
        match recv.read().await {
            Ok(Some(bytes)) => decoder.push(&bytes),
            Ok(None) | Err(_) => return Err(WireError::Truncated),
        }
    }
}

/// Time limit for the first message of a stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which the stream of a data connection waits for its session to start.
const PAIRING_TIMEOUT: Duration = Duration::from_secs(10);
