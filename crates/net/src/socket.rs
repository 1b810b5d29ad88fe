//! Options of the connections that a gateway relays, with the reason for each. Pipes have no kernel options.
#![allow(clippy::disallowed_methods, reason = "drives sockets: bounds a wait")]

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout},
    sys::socket::{setsockopt, sockopt},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::{TcpListener, TcpSocket, TcpStream},
};

use tracing::info;

use crate::{Connection, Listener, pipe::Pipe, tls::Writer};

/// The call that counts bytes that the other end has not acknowledged.
mod queue {
    #![allow(
        missing_docs,
        reason = "the macro makes a public function without text"
    )]
    nix::ioctl_read_bad!(outq, nix::libc::TIOCOUTQ, nix::libc::c_int);
}

/// Options of a control connection: no delay, since a line is one write; keep-alive, since it
/// idles while data moves and NATs forget it. With `client`, urgent bytes stay in the stream: some
/// clients send the whole of `ABOR` as urgent data.
pub fn tune_control(connection: &Connection, client: bool) -> io::Result<()> {
    let Some(tcp) = connection.tcp() else {
        return Ok(());
    };
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket)?;
    match client {
        true => keep_urgent_bytes(tcp),
        false => Ok(()),
    }
}

/// Options of a connection that carries bulk data: what is queued unsent in the kernel stays small,
/// so that what the link counts as accepted is close to what the other end has. Until an orderly
/// end is known ([`end_orderly`]), closing it in whatever way is a reset: also when this process is
/// killed.
pub fn tune_data(connection: &Connection) -> io::Result<()> {
    let tcp = match connection {
        Connection::Tcp(tcp) => tcp,
        Connection::Pipe(pipe) => {
            pipe.mark_abort();
            return Ok(());
        }
    };
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket)?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX_BYTES)?;
    socket.set_linger(Some(Duration::ZERO))
}

/// Options of a connection that is forwarded: those of bulk data, and urgent bytes stay in the stream. Without that, the
/// kernel takes an urgent byte out of the stream, and it is lost: Telnet and Oracle's clients send some.
pub fn tune_forward(connection: &Connection) -> io::Result<()> {
    if let Some(tcp) = connection.tcp() {
        keep_urgent_bytes(tcp)?;
    }
    tune_data(connection)
}

/// Has urgent bytes read where they stand in the stream.
pub fn keep_urgent_bytes(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_out_of_band_inline(true)
}

/// A listener for one data connection; port 0 is any.
///
/// A port on which earlier connections still end (TIME_WAIT, one minute) can be had again; one on which somebody
/// listens cannot: the kernel refuses the second `listen`, or `bind` if the first one listens already.
///
/// # Errors
/// The error of the system call.
pub fn listen(ip: IpAddr, port: u16) -> io::Result<TcpListener> {
    let address = SocketAddr::new(ip, port);
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.nonblocking(),
        None,
    )?;
    // Among all its ports the system finds one that nobody has.
    socket.set_reuse_address(port != 0)?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    TcpListener::from_std(socket.into())
}

/// Connects for data from `local`, which the other end compares with the control connection's address. A connection that is
/// given up while it comes about is reset: the other end would take an orderly end for an empty file.
///
/// # Errors
/// The error of the system call; [`io::ErrorKind::TimedOut`] after `patience`.
pub async fn connect_from(
    local: IpAddr,
    to: SocketAddr,
    patience: Duration,
) -> io::Result<TcpStream> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A listener for both families gives IPv4 clients as mapped addresses.
    let local = match to {
        SocketAddr::V4(_) => local.to_canonical(),
        SocketAddr::V6(_) => local,
    };
    choose_port_late(&socket);
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    socket.bind(SocketAddr::new(local, 0))?;
    tokio::time::timeout(patience, socket.connect(to))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Has the kernel choose the port when the socket connects. A port is free then that no connection *to the same address*
/// has. A bind looks for one that nothing has: after tens of thousands of connections, which keep their ports for a minute,
/// the search takes longer than a small file.
pub fn choose_port_late(socket: &TcpSocket) {
    // Without it, all is only slower.
    let _ = setsockopt(socket, sockopt::IpBindAddressNoPort, &true);
}

/// Accepts the first connection from `peer`; all others are reset.
pub async fn accept_from(listener: &Listener, peer: IpAddr) -> Connection {
    loop {
        match listener.accept().await {
            Ok((connection, from)) if from.ip().to_canonical() == peer.to_canonical() => {
                return connection;
            }
            Ok((connection, from)) => {
                info!(%from, "a stranger at the data port");
                abort(connection);
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Bounds what the kernel takes from a client ahead of the gateway: it counts against the time in
/// which an upload must drain. A grant changes it ([`KernelBuffer`]).
pub fn bound_receive_buffer(connection: &Connection) -> io::Result<()> {
    match connection.tcp() {
        Some(tcp) => SockRef::from(tcp).set_recv_buffer_size(CLIENT_RECEIVE_BYTES),
        None => Ok(()),
    }
}

/// A buffer of the kernel's at one end of an upload, in proportion to the upload's drain budget.
#[derive(Debug)]
pub struct KernelBuffer {
    bytes: usize,
}

impl KernelBuffer {
    /// For what the kernel takes ahead of the gateway, as [`bound_receive_buffer`] has left it. Made smaller at
    /// the start, only to grow soon after, it teaches a client on the same machine segments that do not fill it,
    /// and its kernel then waits for 200 ms again and again.
    pub fn unread() -> Self {
        Self {
            bytes: CLIENT_RECEIVE_BYTES,
        }
    }

    /// For what the kernel has not sent, as [`tune_data`] has left it.
    pub fn unsent() -> Self {
        Self {
            bytes: UNSENT_MAX_BYTES as usize,
        }
    }

    /// Bounds the bytes that the kernel receives ahead of the gateway.
    pub fn bound_unread(&mut self, connection: &Connection, queue_bytes: usize) -> io::Result<()> {
        let size = self.fit(queue_bytes, CLIENT_RECEIVE_BYTES_MAX);
        match size.zip(connection.tcp()) {
            Some((bytes, tcp)) => SockRef::from(tcp).set_recv_buffer_size(bytes),
            None => Ok(()),
        }
    }

    /// Bounds the bytes that the kernel has from the gateway and has not sent.
    pub fn bound_unsent(&mut self, connection: &Connection, queue_bytes: usize) -> io::Result<()> {
        let size = self.fit(queue_bytes, UNSENT_MAX_BYTES as usize);
        match size.zip(connection.tcp()) {
            Some((bytes, tcp)) => SockRef::from(tcp).set_tcp_notsent_lowat(bytes as u32),
            None => Ok(()),
        }
    }

    /// The new size, if it is another: a system call for each small change would cost more than it gains.
    fn fit(&mut self, queue_bytes: usize, bytes_max: usize) -> Option<usize> {
        let bytes = (2 * queue_bytes).clamp(PACED_BYTES_MIN, bytes_max);
        let is_near = bytes < 2 * self.bytes && 2 * bytes > self.bytes;
        let is_reached = bytes == bytes_max && self.bytes != bytes;
        (!is_near || is_reached).then(|| {
            self.bytes = bytes;
            bytes
        })
    }
}

fn keep_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)
}

/// Closes with a reset, so that the other end never takes a part for the whole.
pub fn abort(connection: impl Into<Connection>) {
    let connection = connection.into();
    mark_abort(&connection);
    drop(connection);
}

/// Everything has been written and may be said to be complete: sends the FIN.
pub async fn end_orderly(writer: &mut Writer) -> io::Result<()> {
    mark_orderly(writer.leg().connection())?;
    writer.shutdown().await
}

/// Sends the FIN without the close_notify that TLS has for a complete end; all is flushed.
pub fn end_without_notify(writer: &Writer) -> io::Result<()> {
    let connection = writer.leg().connection();
    mark_orderly(connection)?;
    connection.finish()
}

/// Turns the next close into a reset.
pub fn mark_abort(connection: &Connection) {
    match connection {
        Connection::Tcp(tcp) => {
            // Fails only on a socket that is gone already.
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
        Connection::Pipe(pipe) => pipe.mark_abort(),
    }
}

/// Turns the next close into an orderly end.
fn mark_orderly(connection: &Connection) -> io::Result<()> {
    match connection {
        Connection::Tcp(tcp) => SockRef::from(tcp).set_linger(None),
        Connection::Pipe(pipe) => {
            pipe.mark_orderly();
            Ok(())
        }
    }
}

/// Acknowledges what has been read, once: a server that sends two small replies without TCP_NODELAY keeps
/// the second until the first is acknowledged, which the kernel puts off for 40 ms.
pub fn acknowledge_now(connection: &Connection) {
    if let Some(tcp) = connection.tcp() {
        // Without it, all is only slower.
        let _ = SockRef::from(tcp).set_tcp_quickack(true);
    }
}

/// Waits until the other end's kernel has acknowledged everything written, the FIN included. The other end of a pipe
/// acknowledges by reading.
///
/// # Errors
/// The connection's error if it broke with data unacknowledged; [`io::ErrorKind::TimedOut`] after
/// 30 s without progress.
pub async fn acknowledged(connection: &Connection) -> io::Result<()> {
    match connection {
        Connection::Tcp(tcp) => tcp_acknowledged(tcp).await,
        Connection::Pipe(pipe) => pipe_acknowledged(pipe).await,
    }
}

async fn pipe_acknowledged(pipe: &Pipe) -> io::Result<()> {
    let mut least_bytes = usize::MAX;
    loop {
        let unacknowledged_bytes = pipe.unacknowledged_bytes();
        if unacknowledged_bytes == least_bytes {
            return Err(io::ErrorKind::TimedOut.into());
        }
        least_bytes = unacknowledged_bytes;
        if let Ok(result) = tokio::time::timeout(STALLED, pipe.acknowledged()).await {
            return result;
        }
    }
}

/// No event tells of that, so it is asked for now and then; but most clients close when they have read the
/// end, and the FIN that comes then acknowledges it.
async fn tcp_acknowledged(stream: &TcpStream) -> io::Result<()> {
    let begun = Instant::now();
    let mut least = i32::MAX;
    let mut since = begun;
    let mut is_open = true;
    loop {
        let unacknowledged = unacknowledged(stream)?;
        if unacknowledged == 0 {
            return Ok(());
        }
        if let Some(error) = stream.take_error()? {
            // Only the FIN is open: the other end had everything when it closed.
            return if unacknowledged <= 1 {
                Ok(())
            } else {
                Err(error)
            };
        }
        if unacknowledged < least {
            least = unacknowledged;
            since = Instant::now();
        } else if since.elapsed() > STALLED {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pause = (begun.elapsed() / 8).clamp(PAUSE_MIN, PAUSE_MAX);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = closed(stream), if is_open => is_open = false,
        }
    }
}

/// Resolves when the other end has said that it sends no more.
async fn closed(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {
                // The bytes before it are read elsewhere.
                tokio::time::sleep(PAUSE_MIN).await;
            }
            _ => return,
        }
    }
}

#[allow(
    unsafe_code,
    reason = "an ioctl that writes one integer; no crate wraps it safely"
)]
fn unacknowledged(stream: &TcpStream) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, as `stream` is borrowed, and `bytes` outlives the call.
    unsafe { queue::outq(stream.as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// Resolves when the other end has ended the connection, also with bytes left to read, because of which the runtime
/// says at once that there is something.
pub async fn ended(connection: &Connection) -> io::Result<()> {
    let tcp = match connection {
        Connection::Tcp(tcp) => tcp,
        Connection::Pipe(pipe) => return pipe.ended().await,
    };
    while !tcp.ready(Interest::READABLE).await?.is_read_closed() {
        tokio::time::sleep(END_CHECK).await;
    }
    Ok(())
}

/// Waits for an error of the connection, which is a reset in most cases. An orderly end is none.
pub async fn until_error(connection: &Connection) -> io::Error {
    match connection {
        Connection::Tcp(tcp) => match tcp.ready(Interest::ERROR).await {
            Ok(_) => io::ErrorKind::ConnectionReset.into(),
            Err(error) => error,
        },
        Connection::Pipe(pipe) => pipe.until_error().await,
    }
}

/// Whether the connection has bytes to read, or has got the other end's end.
pub fn has_unread(connection: &Connection) -> bool {
    let tcp = match connection {
        Connection::Tcp(tcp) => tcp,
        Connection::Pipe(pipe) => return pipe.has_unread(),
    };
    let mut polled = [PollFd::new(tcp.as_fd(), PollFlags::POLLIN)];
    nix::poll::poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0].revents().is_some_and(|events| {
            events.contains(PollFlags::POLLIN) && !events.contains(PollFlags::POLLERR)
        })
}

/// Sends Telnet's interrupt and Synch, as tnftp and lftp do: interrupt process, then the data mark as urgent data. A pipe
/// has no urgent data, and gets nothing.
///
/// # Errors
/// Those of the socket.
pub fn send_synch(connection: &Connection) -> io::Result<()> {
    let Some(tcp) = connection.tcp() else {
        return Ok(());
    };
    let socket = SockRef::from(tcp);
    socket.send(TELNET_INTERRUPT)?;
    socket.send_out_of_band(TELNET_DATA_MARK)?;
    Ok(())
}

/// Interval of checks for acknowledgements.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// How soon an end behind unread bytes is noticed.
const END_CHECK: Duration = Duration::from_millis(100);

/// Time without progress after which a final reply no longer waits for acknowledgements.
const STALLED: Duration = Duration::from_secs(30);

/// Out of descriptors, most likely: others may close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Unsent bytes that the kernel takes from the gateway: a few milliseconds at 1 Gbit/s.
const UNSENT_MAX_BYTES: u32 = 512 * 1024;

/// A client's upload ahead of the gateway, until more is known; the kernel doubles it. 1 s at 1 Mbit/s.
const CLIENT_RECEIVE_BYTES: usize = 64 * 1024;

/// As much as an unprivileged process gets by default: 1 Gbit/s over 1.7 ms.
const CLIENT_RECEIVE_BYTES_MAX: usize = 208 * 1024;

/// What a kernel buffer holds however slow its stream is: some segments, one of the loopback interface
/// less than a whole.
const PACED_BYTES_MIN: usize = 16 * 1024;

/// NATs forget idle connections after 300 s and more.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(45);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// RFC 854: IAC IP, and the first byte of IAC DM.
const TELNET_INTERRUPT: &[u8] = &[0xff, 0xf4, 0xff];

/// RFC 854: DM, sent as urgent data to make a Synch.
const TELNET_DATA_MARK: &[u8] = &[0xf2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pipe::PipeNetwork, tls::Leg};

    /// An upload that is reset while the gateway connects to the server is no empty file.
    #[tokio::test]
    async fn a_data_connection_that_is_given_up_while_it_comes_about_is_reset() {
        use std::io::Read as _;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let connecting = connect_from(at.ip(), at, Duration::from_secs(10));
        // The kernel connects; nobody hears of it.
        let given_up = tokio::select! {
            biased;
            connected = connecting => connected.is_err(),
            () = std::future::ready(()) => true,
        };
        assert!(given_up, "it was connected at once");
        let (mut accepted, _) = listener.accept().expect("a connection");
        let read = accepted.read(&mut [0]);
        assert_eq!(
            read.expect_err("no orderly end").kind(),
            io::ErrorKind::ConnectionReset
        );
    }

    #[tokio::test]
    async fn an_urgent_byte_of_a_forward_keeps_its_place() {
        use tokio::io::AsyncReadExt;

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let mut sender = TcpStream::connect(at).await.expect("connected");
        let (receiver, _) = listener.accept().await.expect("accepted");
        let receiver = Connection::from(receiver);
        tune_forward(&receiver).expect("a socket");
        let mut receiver = receiver.into_tcp().expect("TCP");
        sender.write_all(b"before\xff").await.expect("written");
        let urgent = SockRef::from(&sender).send_out_of_band(b"\xf2");
        assert_eq!(urgent.expect("sent"), 1);
        sender.write_all(b"behind").await.expect("written");
        drop(sender);
        let mut read = Vec::new();
        receiver.read_to_end(&mut read).await.expect("read");
        assert_eq!(read, b"before\xff\xf2behind");
    }

    #[tokio::test]
    async fn a_data_connection_resets_unless_its_orderly_end_is_known() {
        use tokio::io::AsyncReadExt;

        for is_pipe in [true, false] {
            for is_orderly in [true, false] {
                let (sender, receiver) = connected(is_pipe).await;
                tune_data(&sender).expect("open");
                let (reader, mut writer) = Leg::plain(sender).into_split();
                writer.write_all(b"a file").await.expect("open");
                let mut receiver = Leg::plain(receiver);
                receiver.read_exact(&mut [0; 6]).await.expect("open");
                if is_orderly {
                    end_orderly(&mut writer).await.expect("open");
                    ended(receiver.connection()).await.expect("orderly");
                    assert_eq!(receiver.read(&mut [0]).await.expect("orderly"), 0);
                    acknowledged(writer.leg().connection()).await.expect("read");
                }
                drop((reader, writer));
                if !is_orderly {
                    let error = until_error(receiver.connection()).await;
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                }
            }
        }
    }

    #[tokio::test]
    async fn bytes_and_an_end_are_unread_and_a_reset_is_not() {
        for is_pipe in [true, false] {
            let (sender, receiver) = connected(is_pipe).await;
            assert!(!has_unread(&receiver));
            let mut sender = Leg::plain(sender);
            sender.write_all(b"x").await.expect("open");
            while !has_unread(&receiver) {
                tokio::time::sleep(PAUSE_MIN).await;
            }
            abort(sender.into_plain().expect("no TLS"));
            until_error(&receiver).await;
            assert!(!has_unread(&receiver));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_move_is_waited_for_no_longer_than_half_a_minute() {
        let (sender, receiver) = connected(true).await;
        let mut sender = Leg::plain(sender);
        sender.write_all(b"x").await.expect("open");
        let begun = tokio::time::Instant::now();
        let error = acknowledged(sender.connection()).await.expect_err("unread");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), STALLED);
        drop(receiver);
    }

    #[tokio::test]
    async fn a_data_port_within_the_process_takes_the_first_connection() {
        let network = PipeNetwork::new();
        let listener = Listener::from(network.listen().expect("a port"));
        let at = listener.local_addr().expect("a port");
        let connected = network.connect(at).expect("a listener");
        let accepted = accept_from(&listener, at.ip()).await;
        let peer = accepted.peer_addr().expect("a pipe");
        assert_eq!(peer, connected.local_addr());
    }

    /// Both ends of a connection.
    async fn connected(is_pipe: bool) -> (Connection, Connection) {
        if is_pipe {
            let (one, other) = Pipe::pair();
            return (one.into(), other.into());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let one = TcpStream::connect(at).await.expect("connected");
        let (other, _) = listener.accept().await.expect("accepted");
        (one.into(), other.into())
    }

    #[test]
    fn of_many_that_ask_for_one_port_at_once_one_gets_it() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let ip = IpAddr::from([127, 0, 0, 1]);
        let mut listening = 0;
        for _ in 0..200 {
            let port = {
                let _runtime = runtime.enter();
                let free = listen(ip, 0).and_then(|listener| listener.local_addr());
                free.expect("a port").port()
            };
            let barrier = std::sync::Barrier::new(4);
            let listeners: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let _runtime = runtime.enter();
                            barrier.wait();
                            listen(ip, port)
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("no panic"))
                    .collect()
            });
            let won = listeners.iter().filter(|listener| listener.is_ok()).count();
            // Two that listen at the same moment may refuse each other.
            assert!(won <= 1, "{won} listen on port {port}");
            listening += won;
        }
        assert!(listening > 100, "{listening} of 200 ports were had at all");
    }
}
