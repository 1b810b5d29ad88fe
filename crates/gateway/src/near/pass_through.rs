//! FTPS that the gateway does not read: the control connection and each data connection are forwards, the
//! data connections by the server's own port numbers.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use link::Class;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tracing::{Instrument, info, info_span};

use super::{accept, relay_forward};
use crate::{
    config::{Forward, PassThrough},
    limits::{Place, Reached},
    shared::Shared,
    socket,
    target::Endpoint,
};

/// A door, and the clients that have a control connection through it: nobody else gets at the server's
/// data ports.
struct Door {
    config: PassThrough,
    shared: Arc<Shared>,
    present: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts a control connection while it is held.
struct Present {
    door: Arc<Door>,
    client: IpAddr,
}

/// Accepts clients, and their data connections, until the task is dropped.
pub(crate) async fn serve_pass_through(
    control: TcpListener,
    data: Vec<TcpListener>,
    config: PassThrough,
    shared: Arc<Shared>,
) {
    let door = Arc::new(Door {
        config,
        shared,
        present: Mutex::default(),
    });
    let mut listening = JoinSet::new();
    for listener in data {
        let door = door.clone();
        listening.spawn(async move {
            let Ok(at) = listener.local_addr() else {
                return;
            };
            accept(listener, |stream, client| {
                door.data(stream, client, at.port())
            })
            .await;
        });
    }
    accept(control, |stream, client| door.control(stream, client)).await;
}

impl Door {
    fn control(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) {
        let (place, present) = match self.admit(client.ip()) {
            Ok(admitted) => admitted,
            Err(reached) => {
                self.shared.registry.refused();
                info!(%client, %reached, "a client was turned away");
                // Whether the client expects TLS at once is not known, so nothing can be said.
                return socket::abort(stream);
            }
        };
        let port = self.config.target.port;
        let kind = ("forward", Class::Control);
        self.relay(stream, client, port, kind, (place, present));
    }

    fn data(self: &Arc<Self>, stream: TcpStream, client: SocketAddr, port: u16) {
        let is_present = self.lock().contains_key(&client.ip());
        let open = self.shared.registry.door_transfers_open();
        if !is_present || open >= self.shared.config.limits.transfers_max {
            self.shared.registry.refused();
            info!(%client, port, is_present, "a data connection was turned away");
            return socket::abort(stream);
        }
        self.relay(stream, client, port, ("ftp", Class::Bulk), ());
    }

    /// Forwards to `port` of the server, and holds `held` meanwhile.
    fn relay(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        port: u16,
        kind: (&'static str, Class),
        held: impl Send + 'static,
    ) {
        let Some(alive) = self.shared.alive.upgrade() else {
            return;
        };
        let forward = Forward {
            listen: self.config.listen,
            target: Endpoint {
                host: self.config.target.host.clone(),
                port,
            },
            via: self.config.via,
        };
        let number = self.shared.session_number();
        let span = info_span!("pass-through", session = number, %client, port);
        let shared = self.shared.clone();
        let serve = async move {
            let _held = (alive, held);
            let _open = (kind.1 == Class::Control).then(|| shared.registry.session());
            relay_forward(stream, client, number, kind, &forward, &shared).await;
        };
        tokio::spawn(serve.instrument(span));
    }

    fn admit(self: &Arc<Self>, client: IpAddr) -> Result<(Place, Present), Reached> {
        if !self.config.admits(client) {
            return Err(Reached::Stranger);
        }
        let place = self.shared.usage.admit(client)?;
        *self.lock().entry(client).or_default() += 1;
        let door = self.clone();
        Ok((place, Present { door, client }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut present = self.door.lock();
        if let Some(count) = present.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                present.remove(&self.client);
            }
        }
    }
}
