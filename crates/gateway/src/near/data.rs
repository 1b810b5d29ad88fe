//! The data connection between the near gateway and the client: waits for the client, moves bytes
//! when the session orders it, and reports the end to the session.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: deadlines for clients"
)]

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use ftp::{
    command::Direction,
    session::{TransferId, near::Order},
};
use link::{RecvStream, SendStream, StreamError};
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info};

use crate::{
    intercept,
    relay::{self, PumpError},
    socket,
    status::Transfer,
    tls::{Acceptor, Kind, Leg, Reader, Writer},
    truncation::Truncation,
    wire::reset,
};

/// How a data connection fares, for the session.
#[derive(Debug)]
pub(super) enum Event {
    ClientEnded,
    Delivered,
    Failed(String),
    Expired,
    NotConnected(String),
}

/// How the client's data connection comes about.
pub(super) enum ClientLeg {
    /// The client connects to this listener.
    Accept(TcpListener),
    /// The client listens at this address.
    Dial(SocketAddr),
}

/// The orders given so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    /// The client knows where to connect.
    announced: bool,
    direction: Option<Direction>,
    released: bool,
    /// The final reply came; whether it was a failure.
    finished: Option<bool>,
    client_gone: bool,
    killed: bool,
}

impl Orders {
    pub(super) fn add(&mut self, order: Order) {
        match order {
            Order::Announced => self.announced = true,
            Order::Start(direction) => self.direction = direction,
            Order::Release => self.released = true,
            Order::Finish { failed } => self.finished = Some(failed),
            Order::ClientGone => self.client_gone = true,
            Order::Kill => self.killed = true,
        }
    }
}

/// The parts of one data connection.
pub(super) struct DataConnection {
    pub(super) id: TransferId,
    /// Taken when it is connected.
    pub(super) leg: Option<ClientLeg>,
    /// The TLS acceptor, if the data connection has TLS.
    pub(super) tls: Option<Arc<Acceptor>>,
    /// Where client and server both have TLS.
    pub(super) truncation: Option<Truncation>,
    pub(super) stall_timeout: Duration,
    /// The gateway's end of the client's control connection: clients compare.
    pub(super) local: IpAddr,
    /// That address is the server's.
    pub(super) transparent: bool,
    /// The only address that may connect: the client's.
    pub(super) client: IpAddr,
    pub(super) send: SendStream,
    pub(super) recv: RecvStream,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) events: mpsc::Sender<(TransferId, Event)>,
    pub(super) transfer: Arc<Transfer>,
}

impl DataConnection {
    pub(super) async fn run(mut self) {
        let mut given_up_orders = self.orders.clone();
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = given_up(&mut given_up_orders) => return self.reset(),
        };
        let leg = match connected {
            Ok(leg) => leg,
            Err(event) => {
                self.reset();
                return self.tell(event).await;
            }
        };
        let Self {
            id,
            orders,
            events,
            transfer,
            stall_timeout,
            truncation,
            mut send,
            mut recv,
            ..
        } = self;
        let tell = Teller { id, events };
        // A second descriptor: the two directions hold the first.
        let watched = leg.tcp().as_fd().try_clone_to_owned();
        let (mut reader, mut writer) = leg.into_split();
        let result = if let Ok(watched) = watched {
            let (up_end, up_ended) = oneshot::channel();
            let both = async {
                tokio::try_join!(
                    async {
                        let end = (&mut reader, &mut send);
                        up(end, orders.clone(), &truncation, &transfer, &tell).await?;
                        let _ = up_end.send(());
                        Ok(())
                    },
                    down(
                        (&mut recv, &mut writer),
                        uploaded(up_ended, orders.clone()),
                        orders.clone(),
                        &truncation,
                        &transfer,
                        &tell
                    ),
                )
            };
            let mut all_orders = orders.clone();
            tokio::select! {
                result = both => result.map(|_| ()),
                why = ended_early(&mut all_orders, watched.as_fd(), &transfer) => {
                    Err(why.to_owned())
                }
                () = super::stalled(&transfer, stall_timeout) => {
                    Err(format!("nothing has moved for {} s", stall_timeout.as_secs()))
                }
            }
        } else {
            Err("the gateway is out of descriptors".to_owned())
        };
        let (up_bytes, down_bytes) = (transfer.meters().0.bytes(), transfer.meters().1.bytes());
        match result {
            Ok(()) => {
                transfer.completed();
                info!(
                    transfer = id.0,
                    up_bytes, down_bytes, "data connection complete"
                );
            }
            Err(why) => {
                send.reset(reset::ABORTED);
                recv.stop(reset::ABORTED);
                socket::mark_abort(writer.leg().tcp());
                drop((reader, writer));
                info!(
                    transfer = id.0,
                    up_bytes, down_bytes, why, "data connection broken"
                );
                tell.tell(Event::Failed(why)).await;
            }
        }
    }

    /// The client's data connection, or the report to the session.
    async fn connect(&mut self) -> Result<Leg, Event> {
        let stream = match self.leg.take() {
            // One connection only: the kernel refuses a second one.
            Some(ClientLeg::Accept(listener)) => {
                let mut orders = self.orders.clone();
                tokio::select! {
                    stream = socket::accept_from(&listener, self.client) => stream,
                    () = expired(&mut orders) => return Err(Event::Expired),
                }
            }
            Some(ClientLeg::Dial(at)) => {
                // Not before the reply that announces it.
                let mut orders = self.orders.clone();
                ordered(&mut orders, |o| o.released || o.finished.is_some()).await;
                let connected = if self.transparent {
                    intercept::socket::connect_from(self.local, at, DIAL_PATIENCE).await
                } else {
                    socket::connect_from(self.local, at, DIAL_PATIENCE).await
                };
                connected.map_err(|error| Event::NotConnected(format!("{at}: {error}")))?
            }
            None => return Err(Event::Expired),
        };
        let tuned = socket::tune_data(&stream);
        if let Err(error) = tuned.and_then(|()| socket::bound_receive_buffer(&stream)) {
            debug!(%error, "socket options");
        }
        match &self.tls {
            None => Ok(Leg::plain(stream)),
            Some(tls) => tls
                .accept(stream, Kind::Data)
                .await
                .map_err(|error| Event::Failed(format!("no TLS: {error}"))),
        }
    }

    fn reset(&mut self) {
        self.send.reset(reset::ABORTED);
        self.recv.stop(reset::ABORTED);
    }

    async fn tell(&self, event: Event) {
        // The session may be gone; then nobody needs to know.
        let _ = self.events.send((self.id, event)).await;
    }
}

/// Tells the session about one data connection.
struct Teller {
    id: TransferId,
    events: mpsc::Sender<(TransferId, Event)>,
}

impl Teller {
    async fn tell(&self, event: Event) {
        // The session may be gone; then nobody needs to know.
        let _ = self.events.send((self.id, event)).await;
    }
}

/// Resolves when there is nothing more to wait for: killed, or the transfer refused. The data of a client that has
/// left may be there already.
async fn given_up(orders: &mut watch::Receiver<Orders>) {
    let mut all_orders = orders.clone();
    let over = ordered(orders, |o| o.killed || o.finished == Some(true));
    let left = async {
        let _ = all_orders.wait_for(|o| o.client_gone).await;
        sleep(QUIET_CHECK * QUIET_CHECKS).await;
    };
    tokio::select! {
        () = over => {}
        () = left => {}
    }
}

/// Resolves when a client that was told where to connect has not done so in time. The reply may have had to wait for
/// those to commands before it.
async fn expired(orders: &mut watch::Receiver<Orders>) {
    ordered(orders, |o| o.announced).await;
    sleep(EXPIRY).await;
}

/// From the client to the link. `Err` ends both directions with resets.
async fn up(
    (reader, send): (&mut Reader, &mut SendStream),
    orders: watch::Receiver<Orders>,
    truncation: &Option<Truncation>,
    transfer: &Transfer,
    tell: &Teller,
) -> Result<(), String> {
    // Clients may begin before the server does, and the far side tells how fast that takes what comes.
    send.await_bound(FIRST_BYTES);
    let result = tokio::select! {
        result = relay::to_link(reader, send, &transfer.meters().0) => result,
        () = refused(orders.clone()) => {
            send.reset(reset::SESSION_ENDED);
            drain(reader, orders).await;
            return Ok(());
        }
        () = lingered(orders.clone()) => return Ok(()),
    };
    match result {
        Ok(()) => {
            tell.tell(Event::ClientEnded).await;
            // To a download the client's end says nothing.
            let is_download = orders.borrow().direction == Some(Direction::Download);
            if let Some(truncation) = truncation.as_ref().filter(|_| !is_download) {
                truncation.tell(reader).await?;
            }
            send.finish();
            Ok(())
        }
        // The server takes no more: its reply says why, and the client must be able to read it.
        Err(PumpError::Stream(StreamError::Stopped { .. } | StreamError::Reset { .. })) => {
            drain(reader, orders).await;
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Resolves when the orders fulfil `condition`. The end of the session is no order: what the client
/// has sent whole goes on without it.
async fn ordered(orders: &mut watch::Receiver<Orders>, condition: impl FnMut(&Orders) -> bool) {
    if orders.wait_for(condition).await.is_err() {
        std::future::pending().await
    }
}

/// Resolves when the transfer must end now; why. What a client wrote before it closed everything
/// may still be in its kernel, the end behind it.
async fn ended_early(
    orders: &mut watch::Receiver<Orders>,
    socket: BorrowedFd<'_>,
    transfer: &Transfer,
) -> &'static str {
    ordered(orders, |o| o.killed || o.client_gone).await;
    let killed = async {
        ordered(orders, |o| o.killed).await;
        "given up"
    };
    let quiet = async {
        let mut bytes = 0;
        let mut quiet_checks = 0;
        while quiet_checks < QUIET_CHECKS {
            let now = transfer.meters().0.bytes();
            quiet_checks = if now != bytes || socket::has_unread(socket) {
                0
            } else {
                quiet_checks + 1
            };
            bytes = now;
            sleep(QUIET_CHECK).await;
        }
        "the client left"
    };
    tokio::select! {
        why = killed => why,
        why = quiet => why,
    }
}

/// The server has refused the upload, or the transfer never began.
async fn refused(mut orders: watch::Receiver<Orders>) {
    let over = |o: &Orders| o.finished == Some(true) && o.direction != Some(Direction::Download);
    ordered(&mut orders, over).await;
}

/// A client that keeps its side of a finished download open is not waited for.
async fn lingered(mut orders: watch::Receiver<Orders>) {
    let over = |o: &Orders| o.finished.is_some() && o.direction == Some(Direction::Download);
    ordered(&mut orders, over).await;
    sleep(LINGER).await;
}

/// Discards further bytes of the client, until [`LINGER`] after the final reply.
async fn drain(reader: &mut Reader, mut orders: watch::Receiver<Orders>) {
    let over = async {
        let _ = timeout(REPLY_PATIENCE, orders.wait_for(|o| o.finished.is_some())).await;
        sleep(LINGER).await;
    };
    let discard = async {
        let mut buffer = vec![0; DISCARD_BYTES];
        while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
    };
    tokio::select! {
        () = over => {}
        () = discard => {}
    }
}

/// Resolves when the server has answered for an upload that the client has sent whole: servers may close their end
/// of the data connection at any time after that.
async fn uploaded(up_ended: oneshot::Receiver<()>, mut orders: watch::Receiver<Orders>) {
    if up_ended.await.is_err() {
        return std::future::pending().await;
    }
    let over = |o: &Orders| o.finished == Some(false) && o.direction == Some(Direction::Upload);
    ordered(&mut orders, over).await;
    // Most clients have closed already, and their FIN is in flight.
    sleep(SERVER_END).await;
}

/// From the link to the client. `Err` ends both directions with resets.
async fn down(
    (recv, writer): (&mut RecvStream, &mut Writer),
    uploaded: impl Future<Output = ()>,
    mut orders: watch::Receiver<Orders>,
    truncation: &Option<Truncation>,
    transfer: &Transfer,
    tell: &Teller,
) -> Result<(), String> {
    // Not a byte, and not the end, before the reply that announces it.
    let announced = orders
        .wait_for(|o| o.released || o.finished.is_some())
        .await;
    let was_refused = |o: &Orders| o.finished == Some(true) && !o.released;
    if announced.is_ok_and(|o| was_refused(&o) && o.direction == Some(Direction::Download)) {
        return Err("the server has refused the transfer".to_owned());
    }
    let relayed = async {
        relay::from_link(recv, writer, &transfer.meters().1).await?;
        match truncation {
            Some(truncation) => truncation.end(writer).await?,
            None => socket::end_orderly(writer).await?,
        }
        Ok(())
    };
    let relayed = {
        tokio::pin!(relayed);
        tokio::select! {
            biased;
            relayed = &mut relayed => Some(relayed),
            () = uploaded => {
                tell.tell(Event::Delivered).await;
                let _ = timeout(LINGER, relayed).await;
                None
            }
        }
    };
    let Some(relayed) = relayed else {
        recv.stop(reset::ABORTED);
        // Nobody waits for what becomes of it.
        let _ = timeout(LINGER, socket::end_orderly(writer)).await;
        return Ok(());
    };
    let is_upload = orders.borrow().direction == Some(Direction::Upload);
    match relayed {
        // A client that has sent its file may be gone before the server's end can be told to it.
        Ok(()) | Err(PumpError::Tcp(_)) if is_upload => {}
        Ok(()) => match socket::acknowledged(writer.leg().tcp()).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                info!("the client's kernel acknowledges nothing; the final reply waits no longer");
            }
            Err(error) => return Err(format!("TCP connection: {error}")),
        },
        Err(PumpError::Stream(StreamError::Reset { .. })) if is_upload => {
            // The server dropped its data connection. Its reply decides.
            let _ = timeout(REPLY_PATIENCE, orders.wait_for(|o| o.finished.is_some())).await;
        }
        Err(error) => return Err(error.to_string()),
    }
    tell.tell(Event::Delivered).await;
    Ok(())
}

/// What an upload sends before the far side tells how fast the server takes it: as much as a server of
/// 1 Mbit/s takes in 2 s, and all of a small file.
const FIRST_BYTES: usize = 256 * 1024;

/// Time for the client to connect from the reply that says where, as long as vsftpd's accept_timeout.
const EXPIRY: Duration = Duration::from_secs(60);

/// Time for a client to accept a connection to the port that it named.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// Time in which a client reads a reply before its data connection is closed under it.
const LINGER: Duration = Duration::from_secs(5);

/// Time by which a server's final reply to an upload may precede the end of its data connection, on the link.
const SERVER_END: Duration = Duration::from_millis(100);

/// Time for a server's reply after it dropped its data connection.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// A client that left sends no more when this often in a row nothing has come: one second.
const QUIET_CHECKS: u32 = 10;
const QUIET_CHECK: Duration = Duration::from_millis(100);

const DISCARD_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_clients_time_to_connect_begins_with_the_reply_that_says_where() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (orders, mut ordered) = watch::channel(Orders::default());
            let waited = timeout(10 * EXPIRY, expired(&mut ordered)).await;
            assert!(waited.is_err(), "the reply waits for its turn");
            orders.send_modify(|orders| orders.add(Order::Announced));
            let announced = Instant::now();
            expired(&mut ordered).await;
            let elapsed = announced.elapsed();
            assert!(
                elapsed >= EXPIRY && elapsed < EXPIRY + Duration::from_secs(1),
                "{elapsed:?}"
            );
        });
    }
}
