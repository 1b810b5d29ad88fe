//! Connection of one client, from the first byte to the disconnect.

use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};

use net::{socket, tls::Leg};
use relay::{Relay, service::ServiceClient};
use russh::server;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{debug, info};

use super::{
    SshNear,
    client::Client,
    far_half::{FarHalf, SessionEnd},
    greeting::GreetedStream,
    handler::ClientHandler,
    refusal,
};
use crate::{
    backpressure::{AbortOnDrop, PausableStream},
    wire::session::EndReason,
};

/// Serves a client until it disconnects.
pub(super) async fn serve(service: Arc<SshNear>, accepted: ServiceClient, relay: Relay) {
    let ServiceClient {
        connection,
        address,
        session,
    } = accepted;
    if let Err(error) = socket::tune_control(&connection, false) {
        return debug!(%error, "socket options");
    }
    let listener = service.listener.clone();
    let limits = relay.limits();
    let login_deadline = Instant::now() + limits.login_timeout;
    let greeted = GreetedStream::send_identification(Leg::plain(connection)).await;
    let Ok(mut greeted) = greeted else {
        return debug!("the client left at once");
    };
    // The server limits the number of connections that have not logged in. The gateway therefore
    // connects to the server only after the client has shown that it speaks SSH.
    let begun = async {
        greeted.read_identification().await?;
        // If the client leaves, `read_list` fails, and `try_join!` drops the other future.
        tokio::try_join!(
            async { Ok(open(&service, &relay, (address, session)).await) },
            greeted.read_list()
        )
    };
    let begun = tokio::select! {
        begun = timeout_at(login_deadline, begun) => begun,
        () = relay.wait_for_abort() => return,
    };
    let (permit, opened) = match begun {
        Ok(Ok((opened, ()))) => opened,
        Ok(Err(error)) => return debug!(%error, "no SSH client"),
        Err(_) => {
            let text = "the log-in could not start in time";
            return refusal::send(greeted.into_inner(), text).await;
        }
    };
    let far = match opened {
        Ok(far) => far.map(Arc::new),
        Err(end) => return refusal::send(greeted.into_inner(), &end.text).await,
    };
    let config = match greeted.has_gcm {
        true => &service.configs.gcm,
        false => &service.configs.others,
    };
    let client = Arc::new(Client::new(
        listener,
        relay,
        (service.memory.clone(), service.files.clone()),
        (address, session),
        far,
    ));
    let backpressure = client.backpressure.clone();
    let _abort = AbortOnDrop(backpressure.clone());
    let stream = PausableStream::new(greeted, backpressure);
    let handler = ClientHandler::new(client.clone());
    let started = server::run_stream(config.clone(), stream, handler);
    let mut running = match timeout_at(login_deadline, started).await {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => return debug!(%error, "no SSH client"),
        Err(_) => return debug!("the client sent no identification in time"),
    };
    let handle = running.handle();
    // The client's first request follows the key exchange.
    let _ = client.handle.set(handle.clone());
    let own_end = |text: &str| SessionEnd {
        reason: EndReason::Closed,
        text: text.to_owned(),
    };
    let log_in = async {
        client.wait_for_login().await;
        drop(permit);
        pending().await
    };
    let end = tokio::select! {
        end = log_in => end,
        ended = &mut running => {
            match ended {
                Ok(()) => info!("client gone"),
                Err(error) => info!(%error, "client gone"),
            }
            return;
        }
        end = client.wait_for_refusal() => end,
        end = client.wait_for_far_end() => end,
        () = client.wait_for_login_timeout(login_deadline) => own_end("no log-in in time"),
        () = client.wait_for_idleness(limits.idle_timeout) => own_end("no channel for too long"),
        () = client.relay.wait_for_abort() => own_end("this gateway is shutting down"),
    };
    info!(text = end.text, "disconnecting the client");
    let has_message = client.refused().is_some();
    let disconnect = async {
        let text = end.text.clone();
        if !has_message {
            // The client may be gone.
            let _ = handle.disconnect(end.code(), text, String::new()).await;
        }
        let _ = running.await;
    };
    tokio::select! {
        _ = timeout(DISCONNECT_TIMEOUT, disconnect) => {}
        () = async { client.relay.wait_for_abort().await; sleep(ABORT_TIMEOUT).await } => {}
    }
}

/// Opens the session with the server of the listener as soon as the client may log in. Returns
/// `None` if the client names its server. The caller drops the permit after the log-in.
async fn open(
    service: &SshNear,
    relay: &Relay,
    (address, session): (SocketAddr, u64),
) -> (OwnedSemaphorePermit, Result<Option<FarHalf>, SessionEnd>) {
    let permit = service.logins.wait(address.ip()).await;
    let listener = &service.listener;
    let opened = async {
        let Some(target) = &listener.target else {
            return Ok(None);
        };
        let far = FarHalf::open(relay, target, listener, (address, session)).await?;
        // All clients show the reason of a refusal before the key exchange.
        far.wait_for_server().await?;
        Ok(Some(far))
    };
    let opened = opened.await;
    (permit, opened)
}

/// Time limit for the client to read the disconnect message.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the disconnect message during a shutdown.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);
