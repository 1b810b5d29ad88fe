//! Processes that connect to the admin socket. Only root and the gateway's own user may connect.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: accepts orders of programs on this machine"
)]

use std::time::Duration;

use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};
use tracing::warn;

use crate::process::{Process, may_give_orders, peer_process};

/// Returns the next connection of a process that has permission to give orders. Closes connections
/// of other users at once.
pub(super) async fn accept(listener: &UnixListener) -> (UnixStream, Process) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The process has no free descriptor.
                warn!(%error, "the admin socket accepts no connections");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match peer_process(&stream) {
            Ok(process) if may_give_orders(process) => return (stream, process),
            Ok(Process { pid, uid }) => {
                warn!(target: "audit", uid, pid, "another user is refused at the admin socket");
            }
            Err(error) => warn!(%error, "the user at the admin socket cannot be determined"),
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
