//! The data connections of a session: opens, orders and ends them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use ftp::session::{
    TransferId,
    near::{DataEvent, Input, Order},
};
use link::Class;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tracing::{Instrument, warn};

use super::Session;
use crate::{
    config::FtpDoor,
    intercept,
    near::data::{ClientLeg, DataConnection, Event, Orders},
    socket,
    status::Transfer,
    truncation::{SessionKey, Truncation},
    wire::{Hello, NearMessage, Service, encode, reset},
};

pub(super) struct Data {
    pub(super) orders: watch::Sender<Orders>,
    pub(super) task: JoinHandle<()>,
    /// The connection itself keeps it, so that its end counts.
    pub(super) transfer: Weak<Transfer>,
}

impl Session {
    pub(super) fn data_said(&mut self, id: TransferId, event: Event) {
        let event = match &event {
            Event::ClientEnded => DataEvent::ClientEnded,
            Event::Delivered => DataEvent::Delivered,
            Event::Failed(why) => DataEvent::Failed(why),
            Event::Expired => DataEvent::Expired,
            Event::NotConnected(why) => DataEvent::NotConnected(why),
        };
        self.near.handle(Input::Data(id, event));
    }

    pub(super) async fn open_data(&mut self, transfer: TransferId) -> bool {
        let Some(far) = &self.far else { return false };
        if self.shared.registry.door_transfers_open() >= self.shared.config.limits.transfers_max {
            warn!("too many transfers");
            return false;
        }
        let service = Service::FtpData {
            session: far.session,
            transfer,
        };
        match self.shared.open(far.peer, Class::Bulk).await {
            Ok((mut send, recv)) => {
                let hello = encode(&Hello { service });
                let written = send.write(hello).await.is_ok();
                self.streams.insert(transfer, (send, recv));
                written
            }
            Err(error) => {
                warn!(%error, "no stream for a data connection");
                false
            }
        }
    }

    pub(super) fn listen(&mut self, id: TransferId, is_private: bool) {
        let bound = bind(self.local.ip(), &self.door.config);
        let (listener, port) = match bound.and_then(|l| Ok((l.local_addr()?.port(), l))) {
            Ok((port, listener)) => (listener, port),
            Err(error) => {
                warn!(%error, "no port for a data connection");
                return self.near.handle(Input::NoData(id));
            }
        };
        self.start_data(id, ClientLeg::Accept(listener), is_private);
        let ip = self.door.config.external_address.unwrap_or(self.local.ip());
        self.near.handle(Input::Listening {
            transfer: id,
            at: SocketAddr::new(ip, port),
        });
    }

    pub(super) fn start_data(&mut self, id: TransferId, leg: ClientLeg, is_private: bool) {
        let (Some((send, recv)), Some(far)) = (self.streams.remove(&id), &self.far) else {
            return self.near.handle(Input::NoData(id));
        };
        let transfer = self.shared.registry.transfer(
            "ftp",
            true,
            self.number,
            self.shared.peer_name(far.peer),
            &self.client.to_string(),
            &far.target.to_string(),
        );
        let has_tls_throughout = is_private && self.door.config.server_tls.is_some();
        let (orders, ordered) = watch::channel(Orders::default());
        let open = Arc::downgrade(&transfer);
        let connection = DataConnection {
            id,
            leg: Some(leg),
            tls: self.door.tls.clone().filter(|_| is_private),
            truncation: has_tls_throughout.then(|| {
                Truncation::new(
                    self.shared.clone(),
                    SessionKey {
                        peer: far.peer,
                        is_near: true,
                        session: far.session,
                    },
                    id,
                )
            }),
            stall_timeout: self.shared.config.limits.stall_timeout,
            local: self.local.ip(),
            transparent: self.door.config.transparent,
            client: self.client.ip(),
            send,
            recv,
            orders: ordered,
            events: self.events.clone(),
            transfer,
        };
        let alive = self.shared.alive.upgrade();
        let run = async move {
            connection.run().await;
            drop(alive);
        };
        let task = tokio::spawn(run.in_current_span());
        self.data.retain(|_, data| !data.task.is_finished());
        self.data.insert(
            id,
            Data {
                orders,
                task,
                transfer: open,
            },
        );
    }

    pub(super) async fn order(&mut self, id: TransferId, order: Order) {
        if order == Order::Kill {
            if let Some((mut send, mut recv)) = self.streams.remove(&id) {
                send.reset(reset::ABORTED);
                recv.stop(reset::ABORTED);
            }
            if let Some(data) = self.data.remove(&id) {
                data.orders.send_modify(|orders| orders.add(order));
                // The reset must be out before the reply that tells of it.
                let _ = timeout(KILL_PATIENCE, data.task).await;
            }
            self.tell_far(&NearMessage::Abandon(id)).await;
        } else if let Some(data) = self.data.get(&id) {
            data.orders.send_modify(|orders| orders.add(order));
        }
    }
}

/// A listener for one data connection, on the address that the client knows.
fn bind(ip: IpAddr, door: &FtpDoor) -> io::Result<TcpListener> {
    if door.transparent {
        return intercept::socket::listen_for_data(ip);
    }
    let listen = |port| socket::listen(ip, port);
    match &door.passive_ports {
        None => listen(0),
        Some(ports) => {
            // Starting anywhere keeps the next port from being guessed.
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

/// A killed data connection resets its socket at once.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
