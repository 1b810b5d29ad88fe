//! Session with one server: the connection, the log-in, and the end.

use std::{sync::Arc, time::Duration};

use link::{PeerId, StreamKey};
use net::target::HostPort;
use relay::{
    CodedStreamId, Relay,
    optimise::{NegotiatedCoding, StreamCoding},
    service::ServiceStream,
};
use russh::{Disconnect, client::Handle};
use tokio::{sync::watch, time::timeout};
use tracing::{debug, info, warn};

use super::{
    Sessions,
    connection::{self, ConnectFailure, ServerHandler, ServerState},
    login::Login,
    near_half::NearHalf,
};
use crate::{
    backpressure::AbortOnDrop,
    settings::FarSsh,
    wire::{
        FrameReader, Token, WireError,
        session::{EndReason, ToFar, ToNear},
    },
};

/// Session with a server. The streams of its channels share this value.
#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) target: HostPort,
    pub(super) state: Arc<ServerState>,
    /// Number of the session at the near gateway.
    number: u64,
    /// Key of the session's stream.
    stream: StreamKey,
    /// Coding of the data of channels. `None` disables coding.
    coding: Option<NegotiatedCoding>,
    /// Handle of the connection. `None` until the server has accepted the log-in.
    pub(super) handle: watch::Sender<Option<SessionHandle>>,
}

impl ServerSession {
    /// Returns the coding of the data of a channel. `number` is the number of the channel. Returns
    /// `None` if the session has no coding.
    pub(super) fn channel_coding(
        &self,
        relay: &Relay,
        peer: PeerId,
        number: u32,
    ) -> Option<StreamCoding> {
        let stream = CodedStreamId {
            peer,
            is_near: false,
            session: self.number,
            number,
        };
        let coding = self.coding.as_ref()?;
        Some(relay.stream_coding(coding, stream, self.stream))
    }
}

/// Handle of a connection whose server has accepted the log-in.
#[derive(Clone)]
pub(super) struct SessionHandle(pub(super) Arc<Handle<ServerHandler>>);

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionHandle")
    }
}

/// Serves the stream of a session until the near half or the server ends it.
pub(super) async fn serve(
    settings: Arc<FarSsh>,
    sessions: Arc<Sessions>,
    stream: ServiceStream,
    relay: Relay,
) {
    let peer = stream.peer;
    let mut near = NearHalf {
        send: stream.send,
        frames: FrameReader::new(stream.recv, stream.first),
        early: None,
    };
    let (token, target, client, number, offer) = match timeout(OPEN_TIMEOUT, near.next()).await {
        Ok(Ok(Some(ToFar::Open {
            token,
            target,
            client,
            session,
            coding,
        }))) => (token, target, client, session, coding),
        Ok(Err(error @ WireError::Version(_))) => {
            return near.end(EndReason::Unavailable, error.to_string()).await;
        }
        other => return warn!(?other, "malformed start of a session"),
    };
    let _counted = relay.registry().session();
    let connected = tokio::select! {
        connected = connection::connect(&relay, peer, &target, &settings) => connected,
        left = near.wait_until_left() => return match left {
            Ok(()) | Err(WireError::Lost(_) | WireError::Truncated) => {
                debug!("the client left before the connection");
            }
            Err(error) => near.end(EndReason::Closed, error.to_string()).await,
        },
    };
    let connection = match connected {
        Ok(connection) => connection,
        Err(ConnectFailure { reason, text }) => {
            relay.registry().count_refusal();
            warn!(text, "no session");
            return near.end(reason, text).await;
        }
    };
    let state = connection.state.clone();
    let _abort = AbortOnDrop(state.backpressure.clone());
    let session = Arc::new(ServerSession {
        target: target.clone(),
        state: state.clone(),
        number,
        stream: near.send.key(),
        coding: offer.map(|offer| relay.accept_coding(peer, &offer)),
        handle: watch::Sender::new(None),
    });
    if !sessions.insert(peer, token, &session) {
        return warn!("a session with the number of another session");
    }
    let _registered = Registered {
        sessions,
        key: (peer, token),
    };
    let fingerprint = connection.fingerprint.clone();
    info!(%target, client = %client.escape_debug(), fingerprint, "connected");
    let server = ToNear::Server {
        fingerprint,
        cutting: session.coding.as_ref().and_then(NegotiatedCoding::cutting),
    };
    if near.send(&server).await.is_err() {
        return;
    }
    let login = Login {
        handle: connection.handle,
        banners: connection.banners,
        state: state.clone(),
        settings,
        client,
    };
    let handle = match login.run(&mut near).await {
        Ok(Some(handle)) => Arc::new(handle),
        Ok(None) => return,
        Err(text) => return near.end(EndReason::Closed, text).await,
    };
    session
        .handle
        .send_replace(Some(SessionHandle(handle.clone())));
    tokio::select! {
        text = state.wait_for_end() => near.end(EndReason::Closed, text).await,
        message = near.next() => {
            debug!(?message, "the client left");
            let disconnect = handle.disconnect(Disconnect::ByApplication, "", "");
            let _ = timeout(DISCONNECT_TIMEOUT, disconnect).await;
            let _ = timeout(DISCONNECT_TIMEOUT, state.wait_for_end()).await;
        }
    }
}

/// Entry in the table of open sessions. Dropping the value removes the entry.
struct Registered {
    sessions: Arc<Sessions>,
    key: (PeerId, Token),
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.remove(self.key.0, self.key.1);
    }
}

/// Time limit for the first message.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the server to close its side.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
