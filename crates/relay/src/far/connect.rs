//! Control connections to servers, with implicit TLS if the configuration requires it. If a server
//! supports only TLS 1.3, the gateway connects a second time. The session itself negotiates
//! explicit TLS on the first connection.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use ftp::{
    command::escape,
    line::{REPLY_MAX, SplitLine},
    reply::{ReplyClass, ReplyTracker},
};
use tokio::time::{Instant, timeout};
use tracing::info;

use super::opened_session::OpenedSession;
use crate::{
    control_connection::ControlConnection, gateway_context::GatewayContext,
    known_servers::ServerTrait,
};
use net::{
    Connection,
    dial::{self, DialError},
    socket,
    tls::{self, ConnectionKind, Connector, Leg},
};

/// Connects to the server of a session. Returns the connection, and the TLS connector for further
/// connections to the same server.
///
/// # Errors
/// The reply for the client: its code and its text.
pub(super) async fn connect(
    opened: &OpenedSession,
    shared: &GatewayContext,
) -> Result<(Leg, Option<Arc<Connector>>), (u16, String)> {
    let stream = shared.dial(opened.peer, &opened.target).await;
    let stream = stream.map_err(|error| (reply_code(&error), error.to_string()))?;
    let Some(tls) = &opened.tls else {
        return Ok((Leg::plain(stream), None));
    };
    let known = &shared.known_servers;
    let connector = match known.has(&opened.target, ServerTrait::LacksTls12, Instant::now()) {
        true => Connector::new(tls),
        false => Connector::new_tls12(tls),
    };
    let connector = connector.map_err(|error| (530, format!("no TLS with the server: {error}")))?;
    if tls.mode == tls::TlsStart::Explicit {
        return Ok((Leg::plain(stream), Some(Arc::new(connector))));
    }
    let name = opened.target.host.to_string();
    let server = stream
        .peer_addr()
        .map_err(|error| unreachable_refusal(&error))?;
    let error = match connector
        .connect(stream, &name, ConnectionKind::Control)
        .await
    {
        Ok(leg) => return Ok((leg, Some(Arc::new(connector)))),
        Err(error) => error,
    };
    let Some(connector) = connector.fallback_for_tls12(&error) else {
        return Err(tls_refusal(&error));
    };
    info!(%server, "connecting again: the server does not accept TLS 1.2");
    let stream = dial::connect(server).await;
    let stream = stream.map_err(|error| unreachable_refusal(&error))?;
    let leg = connector
        .connect(stream, &name, ConnectionKind::Control)
        .await;
    let leg = leg.map_err(|error| tls_refusal(&error))?;
    if leg.is_tls13() {
        known.learn(&opened.target, ServerTrait::LacksTls12, Instant::now());
    }
    Ok((leg, Some(Arc::new(connector))))
}

/// Connects again to a server, reads its greeting, sends `AUTH TLS`, and performs the TLS
/// handshake.
///
/// # Errors
/// The reply for the client: its code and its text.
pub(super) async fn connect_again(
    server: SocketAddr,
    tls: &Connector,
    name: &str,
) -> Result<ControlConnection, (u16, String)> {
    let greeted = async {
        let stream = Connection::from(dial::connect(server).await?);
        socket::tune_control(&stream, false)?;
        let mut control = ControlConnection::new(Leg::plain(stream), REPLY_MAX);
        expect_success(&mut control).await?;
        control.write(b"AUTH TLS\r\n").await?;
        expect_success(&mut control).await?;
        Ok(control)
    };
    let in_time = timeout(GREETING_TIMEOUT, greeted).await;
    let greeted = in_time.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut control = greeted.map_err(|error| unreachable_refusal(&error))?;
    let handshake = async |tcp| tls.connect(tcp, name, ConnectionKind::Control).await;
    let begun = control.begin_tls(handshake).await;
    begun.map_err(|error| tls_refusal(&error))?;
    Ok(control)
}

/// Connects again to the server of a running session. If `tls` is given, the connection uses
/// implicit TLS.
///
/// # Errors
/// The errors of the connection and of the handshake.
pub(super) async fn reconnect(
    server: SocketAddr,
    tls: Option<&Connector>,
    name: &str,
) -> io::Result<Leg> {
    let connected = async {
        let stream = Connection::from(dial::connect(server).await?);
        socket::tune_control(&stream, false)?;
        match tls {
            Some(tls) => tls.connect(stream, name, ConnectionKind::Control).await,
            None => Ok(Leg::plain(stream)),
        }
    };
    let in_time = timeout(GREETING_TIMEOUT, connected).await;
    in_time.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Reads one final reply. Returns an error unless the reply is a success.
async fn expect_success(control: &mut ControlConnection) -> io::Result<()> {
    let mut tracker = ReplyTracker::default();
    loop {
        while let Some(line) = control.next_line() {
            let SplitLine::Complete(line) = line else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let position = tracker.locate(&line);
            match position
                .code
                .filter(|_| position.last)
                .map(|code| code.class())
            {
                Some(ReplyClass::Completed) => return Ok(()),
                None | Some(ReplyClass::Preliminary) => {}
                Some(_) => return Err(io::Error::other(escape(&line))),
            }
        }
        if !control.read().await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the reply to a client if the TLS handshake with its server failed.
pub(super) fn tls_refusal(error: &io::Error) -> (u16, String) {
    (530, format!("no TLS with the server: {error}"))
}

/// Returns the code of the reply to a client whose server cannot be reached. The client lftp treats
/// a 5yz reply as temporary if its text mentions a name server. No reply of this gateway mentions a
/// name server.
fn reply_code(error: &DialError) -> u16 {
    if error.is_refusal() { 530 } else { 421 }
}

fn unreachable_refusal(error: &io::Error) -> (u16, String) {
    let text =
        format!("the server, which does not accept TLS 1.2, cannot be connected again: {error}");
    (421, text)
}

/// Time limit for another connection to a server that has already replied once in this session.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
