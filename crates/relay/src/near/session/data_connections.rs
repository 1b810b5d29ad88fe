//! Data connections of a session. The module opens and ends data connections, and sends orders to
//! them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use ftp::session::{
    SessionMode, TransferId,
    data::near::{NearData, NearDataEvent, NearDataOrder, NearDataSetup},
    near::NearInput,
};
use link::StreamClass;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{Instrument, debug, info, warn};

use super::{Session, transfers::RequestedTransfer};
use crate::{
    near::data::{self, ClientLeg, DataClient},
    optimise::{FlushDelay, ReferenceKey},
    pairing::StreamHalves,
    pump::{self, Grants, PumpParts, StreamSource},
    settings::FtpListener,
    status::OpenTransfer,
    truncation::{SessionKey, Truncation},
    wire::{Grant, Service, StreamHello, Version, encode, reset},
};
use net::{Listener, pipe::PipeNetwork, socket, transparent};

pub(super) struct DataConnection {
    pub(super) orders: mpsc::UnboundedSender<NearDataOrder>,
    pub(super) task: JoinHandle<()>,
    /// Record of the transfer. `None` after the session has recorded the outcome.
    pub(super) transfer: Option<Arc<OpenTransfer>>,
    pub(super) has_tls: bool,
    /// Transfer command that uses the data connection. `None` before the command arrives.
    pub(super) commanded: Option<RequestedTransfer>,
}

impl Session {
    pub(super) fn handle_data_event(&mut self, id: TransferId, event: NearDataEvent) {
        self.near.handle(NearInput::Data(id, event));
    }

    pub(super) async fn open_data(&mut self, transfer: TransferId) -> bool {
        let Some(far) = &self.far else { return false };
        if self.shared.registry.client_transfers_open() >= self.shared.settings.limits.transfers_max
        {
            warn!("too many transfers");
            return false;
        }
        let service = Service::FtpData {
            session: far.session,
            transfer,
        };
        let control = far.send.key();
        let has_grants = far.version >= Version::V6;
        match self
            .shared
            .open_beside(far.peer, control, StreamClass::Bulk)
            .await
        {
            Ok((mut send, recv)) => {
                let hello = encode(&StreamHello { service });
                let written = send.write(hello).await.is_ok();
                self.streams.insert(transfer, (send, recv));
                if has_grants {
                    // Clients may send bytes before the far gateway's first grant arrives.
                    let first = Grant {
                        accepted_bytes: 0,
                        budget_bytes: self.first_budget_bytes,
                    };
                    self.grants.insert(transfer, watch::channel(first).0);
                }
                written
            }
            Err(error) => {
                warn!(%error, "no stream for a data connection");
                false
            }
        }
    }

    pub(super) fn listen(&mut self, id: TransferId, is_private: bool) {
        let bound = bind(
            self.local.ip(),
            &self.listener.config,
            self.network.as_ref(),
        );
        let (listener, port) = match bound.and_then(|l| Ok((l.local_addr()?.port(), l))) {
            Ok((port, listener)) => (listener, port),
            Err(error) => {
                warn!(%error, "no port for a data connection");
                return self.near.handle(NearInput::NoData(id));
            }
        };
        self.start_data(id, ClientLeg::Accept(listener), is_private);
        let ip = self
            .listener
            .config
            .external_address
            .unwrap_or(self.local.ip());
        self.near.handle(NearInput::Listening {
            transfer: id,
            at: SocketAddr::new(ip, port),
        });
    }

    pub(super) fn start_data(&mut self, id: TransferId, leg: ClientLeg, is_private: bool) {
        let (Some((send, recv)), Some(far)) = (self.streams.remove(&id), &self.far) else {
            return self.near.handle(NearInput::NoData(id));
        };
        let transfer = self.register(far);
        let has_tls_throughout = is_private && self.listener.config.server_tls.is_some();
        let session = SessionKey {
            peer: far.peer,
            is_near: true,
            session: far.session,
        };
        let key = ReferenceKey {
            session,
            transfer: id,
        };
        let stream_coding = self
            .shared
            .stream_coding(far.coding.as_ref(), key, far.send.key());
        let truncation = has_tls_throughout.then(|| {
            let (truncations, link) = (self.shared.truncations.clone(), self.shared.link.clone());
            Arc::new(Truncation::new(truncations, link, session, send.key(), id))
        });
        let client = DataClient {
            local: self.local.ip(),
            is_transparent: self.listener.config.transparent,
            address: self.client.ip(),
            network: self.network.clone(),
        };
        let tls = self.listener.tls.clone().filter(|_| is_private);
        let setup = NearDataSetup {
            has_tls: tls.is_some(),
            opening: leg.opening(),
            dials_early: self.listener.config.mode == SessionMode::Fast,
            reports_truncation: has_tls_throughout,
            stall_timeout: self.shared.settings.limits.stall_timeout,
        };
        let (orders, ordered) = mpsc::unbounded_channel();
        let events = self.events.clone();
        let parts = PumpParts {
            machine: NearData::new(setup),
            connect: Box::pin(data::connect(leg, client)),
            secure: tls.map(data::secure),
            stream: StreamSource::Open(StreamHalves {
                send,
                recv,
                first: Bytes::new(),
            }),
            stream_coding,
            flush_delay: FlushDelay::File,
            spool: None,
            orders: ordered,
            // The session may have ended. The event is then not needed.
            on_event: Box::new(move |event| {
                let _ = events.send((id, event));
            }),
            truncation,
            transfer: transfer.clone(),
            grants: Grants {
                to_link: self.grants.get(&id).map(watch::Sender::subscribe),
                from_link: None,
            },
        };
        let open = transfer.clone();
        let drain_guard = self.shared.drain_guard.upgrade();
        let run = async move {
            let result = pump::run(parts).await;
            let (up_bytes, down_bytes) = (open.meters().0.bytes(), open.meters().1.bytes());
            match result {
                Ok(()) => debug!(
                    transfer = id.0,
                    up_bytes, down_bytes, "data connection complete"
                ),
                Err(why) => info!(
                    transfer = id.0,
                    up_bytes, down_bytes, why, "data connection broken"
                ),
            }
            drop((open, drain_guard));
        };
        let task = tokio::spawn(run.in_current_span());
        self.data
            .retain(|_, data| data.transfer.is_some() || !data.task.is_finished());
        let (streams, data) = (&self.streams, &self.data);
        self.grants.retain(|other, _| {
            *other >= id || streams.contains_key(other) || data.contains_key(other)
        });
        self.data.insert(
            id,
            DataConnection {
                orders,
                task,
                transfer: Some(transfer),
                has_tls: is_private,
                commanded: None,
            },
        );
    }

    pub(super) async fn order(&mut self, id: TransferId, order: NearDataOrder) {
        if order == NearDataOrder::Kill {
            if let Some((mut send, mut recv)) = self.streams.remove(&id) {
                send.reset(reset::ABORTED);
                recv.stop(reset::ABORTED);
            }
            if let Some(data) = self.data.remove(&id) {
                let _ = data.orders.send(order);
                // The data connection must be reset before the client receives the reply that
                // reports the reset.
                let _ = timeout(KILL_TIMEOUT, data.task).await;
            }
        } else if let Some(data) = self.data.get(&id) {
            let _ = data.orders.send(order);
        }
    }
}

/// Opens a listening socket for one data connection. The socket has the local address of the
/// control connection.
fn bind(ip: IpAddr, listener: &FtpListener, network: Option<&PipeNetwork>) -> io::Result<Listener> {
    if let Some(network) = network {
        return network.listen().map(Listener::from);
    }
    if listener.transparent {
        return transparent::listen_for_data(ip).map(Listener::from);
    }
    let listen = |port| socket::listen(ip, port).map(Listener::from);
    match &listener.passive_ports {
        None => listen(0),
        Some(ports) => {
            // The search starts at a random port, so that the next port cannot be guessed.
            let count = ports.len();
            let start = std::collections::hash_map::RandomState::new();
            let start = std::hash::BuildHasher::hash_one(&start, count) as usize % count;
            let mut last = Err(io::ErrorKind::AddrInUse.into());
            for offset in 0..count {
                let port = ports.start() + ((start + offset) % count) as u16;
                last = listen(port);
                if last.is_ok() {
                    break;
                }
            }
            last
        }
    }
}

/// Time limit for the task of an aborted data connection to reset its socket.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
