//! Options of relayed TCP connections, with the reason for each option. Pipes have no such options.
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

use crate::{Connection, Listener, pipe::Pipe, tls::LegWriter};

/// The system call that returns the number of unacknowledged bytes.
mod queue {
    #![allow(
        missing_docs,
        reason = "the macro makes a public function without text"
    )]
    nix::ioctl_read_bad!(outq, nix::libc::TIOCOUTQ, nix::libc::c_int);
}

/// Sets the options of a control connection: no delay, and keep-alive.
///
/// Each line is written with one call, so delaying small segments would gain nothing. The
/// connection is idle during transfers, and NATs drop idle connections. If `client` is true, urgent
/// bytes stay in the stream, because some clients send the whole `ABOR` command as urgent data.
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

/// Sets the options of a connection that carries bulk data.
///
/// The kernel's queue of unsent bytes is limited. The number of bytes that the kernel accepted is
/// therefore close to the number that the peer received. Until [`end_orderly`] is called, closing
/// the connection resets it. The connection is also reset if this process dies.
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

/// Sets the options of a forwarded connection: the options for bulk data, and the option that keeps
/// urgent bytes in the stream.
///
/// Without the second option the kernel removes an urgent byte from the stream, and the byte is
/// lost. Telnet and Oracle's clients send urgent bytes.
pub fn tune_forward(connection: &Connection) -> io::Result<()> {
    if let Some(tcp) = connection.tcp() {
        keep_urgent_bytes(tcp)?;
    }
    tune_data(connection)
}

/// Makes the kernel keep urgent bytes at their position in the stream.
pub fn keep_urgent_bytes(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_out_of_band_inline(true)
}

/// Listens for one data connection. With port 0 the kernel chooses the port.
///
/// A port whose earlier connections are in TIME_WAIT (one minute) is available. If another listener
/// uses the port, the kernel refuses `bind` or `listen`.
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
    // For port 0 the system finds an unused port.
    socket.set_reuse_address(port != 0)?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    TcpListener::from_std(socket.into())
}

/// Connects a data connection from the address `local`. The peer may require the address of the
/// control connection.
///
/// A cancelled attempt is reset, since the peer would interpret an orderly end as an empty file.
///
/// # Errors
/// The error of the system call. [`io::ErrorKind::TimedOut`] after `timeout`.
pub async fn connect_from(
    local: IpAddr,
    to: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A listener for both families reports IPv4 clients as mapped addresses.
    let local = match to {
        SocketAddr::V4(_) => local.to_canonical(),
        SocketAddr::V6(_) => local,
    };
    choose_port_late(&socket);
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    socket.bind(SocketAddr::new(local, 0))?;
    tokio::time::timeout(timeout, socket.connect(to))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Makes the kernel choose the local port when the socket connects. The port then needs to be free
/// only for connections *to the same address*.
///
/// Without this option, `bind` searches for a port without any connection. Each connection occupies
/// its port for a minute after its end. After tens of thousands of connections, the search takes
/// longer than the transfer of a small file.
pub fn choose_port_late(socket: &TcpSocket) {
    // A failure only makes connections slower.
    let _ = setsockopt(socket, sockopt::IpBindAddressNoPort, &true);
}

/// Accepts the first connection from the address `peer`. Resets connections from other addresses.
pub async fn accept_from(listener: &Listener, peer: IpAddr) -> Connection {
    loop {
        match listener.accept().await {
            Ok((connection, from)) if from.ip().to_canonical() == peer.to_canonical() => {
                return connection;
            }
            Ok((connection, from)) => {
                info!(%from, "connection from another address at the data port");
                abort(connection);
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Limits the kernel's receive buffer for the bytes of a client.
///
/// These bytes count against the drain budget of an upload. [`KernelBuffer`] adjusts the limit when
/// the drain budget changes.
pub fn bound_receive_buffer(connection: &Connection) -> io::Result<()> {
    match connection.tcp() {
        Some(tcp) => SockRef::from(tcp).set_recv_buffer_size(CLIENT_RECEIVE_BYTES),
        None => Ok(()),
    }
}

/// Size of a kernel buffer on the path of an upload, in proportion to the upload's drain budget.
#[derive(Debug)]
pub struct KernelBuffer {
    bytes: usize,
}

impl KernelBuffer {
    /// Creates the value for a receive buffer. [`bound_receive_buffer`] has set the buffer's
    /// initial size.
    ///
    /// A smaller initial size would make a client on the same machine send short segments. The
    /// client's kernel would then repeatedly wait for 200 ms.
    pub fn unread() -> Self {
        Self {
            bytes: CLIENT_RECEIVE_BYTES,
        }
    }

    /// Creates the value for a buffer of unsent bytes. [`tune_data`] has set the buffer's initial
    /// size.
    pub fn unsent() -> Self {
        Self {
            bytes: UNSENT_MAX_BYTES as usize,
        }
    }

    /// Adjusts the size of the receive buffer. The size limits the number of bytes that the kernel
    /// has received and the gateway has not read.
    pub fn bound_unread(&mut self, connection: &Connection, queue_bytes: usize) -> io::Result<()> {
        let size = self.fit(queue_bytes, CLIENT_RECEIVE_BYTES_MAX);
        match size.zip(connection.tcp()) {
            Some((bytes, tcp)) => SockRef::from(tcp).set_recv_buffer_size(bytes),
            None => Ok(()),
        }
    }

    /// Adjusts the limit for unsent bytes: the bytes that the gateway has written and the kernel
    /// has not sent.
    pub fn bound_unsent(&mut self, connection: &Connection, queue_bytes: usize) -> io::Result<()> {
        let size = self.fit(queue_bytes, UNSENT_MAX_BYTES as usize);
        match size.zip(connection.tcp()) {
            Some((bytes, tcp)) => SockRef::from(tcp).set_tcp_notsent_lowat(bytes as u32),
            None => Ok(()),
        }
    }

    /// Returns the new size in bytes if it differs enough from the present size. A system call for
    /// each small change would cost more than it gains.
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

/// Closes the connection with a reset. After an orderly end, the peer would treat a partial file as
/// a complete file.
pub fn abort(connection: impl Into<Connection>) {
    let connection = connection.into();
    mark_abort(&connection);
    drop(connection);
}

/// Sends the FIN, and under TLS the close_notify. The caller must already have written all bytes of
/// a complete file.
pub async fn end_orderly(writer: &mut LegWriter) -> io::Result<()> {
    mark_orderly(writer.leg().connection())?;
    writer.shutdown().await
}

/// Sends the FIN without the TLS close_notify. A close_notify would mark the data as complete. The
/// caller must already have flushed all bytes.
pub fn end_without_notify(writer: &LegWriter) -> io::Result<()> {
    let connection = writer.leg().connection();
    mark_orderly(connection)?;
    connection.finish()
}

/// Makes the kernel send a reset when the connection is closed.
pub fn mark_abort(connection: &Connection) {
    match connection {
        Connection::Tcp(tcp) => {
            // The call fails only if the connection is already closed.
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
        Connection::Pipe(pipe) => pipe.mark_abort(),
    }
}

/// Makes the kernel end the connection in an orderly way when it is closed.
fn mark_orderly(connection: &Connection) -> io::Result<()> {
    match connection {
        Connection::Tcp(tcp) => SockRef::from(tcp).set_linger(None),
        Connection::Pipe(pipe) => {
            pipe.mark_orderly();
            Ok(())
        }
    }
}

/// Makes the kernel acknowledge the received bytes now, without its usual delay of 40 ms.
///
/// A server that sends two small replies without TCP_NODELAY sends the second reply only after the
/// first reply is acknowledged.
pub fn acknowledge_now(connection: &Connection) {
    if let Some(tcp) = connection.tcp() {
        // A failure only makes replies slower.
        let _ = SockRef::from(tcp).set_tcp_quickack(true);
    }
}

/// Waits until the peer's kernel has acknowledged all written bytes and the FIN. The peer of a pipe
/// acknowledges bytes by reading them.
///
/// # Errors
/// The connection's error if the connection broke before all bytes were acknowledged.
/// [`io::ErrorKind::TimedOut`] after 30 s without progress.
pub async fn wait_for_acknowledgement(connection: &Connection) -> io::Result<()> {
    match connection {
        Connection::Tcp(tcp) => wait_for_tcp_acknowledgement(tcp).await,
        Connection::Pipe(pipe) => wait_for_pipe_acknowledgement(pipe).await,
    }
}

async fn wait_for_pipe_acknowledgement(pipe: &Pipe) -> io::Result<()> {
    let mut least_bytes = usize::MAX;
    loop {
        let unacknowledged_bytes = pipe.unacknowledged_bytes();
        if unacknowledged_bytes == least_bytes {
            return Err(io::ErrorKind::TimedOut.into());
        }
        least_bytes = unacknowledged_bytes;
        if let Ok(result) = tokio::time::timeout(STALLED, pipe.wait_for_acknowledgement()).await {
            return result;
        }
    }
}

/// Waits for acknowledgements of all written bytes by polling, since no event reports
/// acknowledgements.
///
/// Most clients close the connection after they have read the end of the data. Their FIN then
/// acknowledges the end.
async fn wait_for_tcp_acknowledgement(stream: &TcpStream) -> io::Result<()> {
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
            // Only the FIN is unacknowledged. The peer had all bytes when it closed the connection.
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
            () = wait_for_close(stream), if is_open => is_open = false,
        }
    }
}

/// Waits until the peer has ended its direction.
async fn wait_for_close(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {
                // Another task reads the bytes before the end.
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

/// Waits until the peer has ended its direction. Does not wait until the bytes before the end are
/// read.
///
/// Unread bytes make the socket readable at once, so the function polls for the end.
pub async fn wait_for_end(connection: &Connection) -> io::Result<()> {
    let tcp = match connection {
        Connection::Tcp(tcp) => tcp,
        Connection::Pipe(pipe) => return pipe.wait_for_end().await,
    };
    while !tcp.ready(Interest::READABLE).await?.is_read_closed() {
        tokio::time::sleep(END_CHECK).await;
    }
    Ok(())
}

/// Waits for an error of the connection, usually a reset. Keeps waiting after an orderly end.
pub async fn wait_for_error(connection: &Connection) -> io::Error {
    match connection {
        Connection::Tcp(tcp) => match tcp.ready(Interest::ERROR).await {
            Ok(_) => io::ErrorKind::ConnectionReset.into(),
            Err(error) => error,
        },
        Connection::Pipe(pipe) => pipe.wait_for_error().await,
    }
}

/// Returns whether a read would return at once, with bytes or with the end of the data.
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

/// Sends Telnet's interrupt and Synch, like tnftp and lftp: the interrupt-process command, then the
/// data mark as urgent data. For a pipe it sends nothing, since pipes have no urgent data.
///
/// # Errors
/// The error of the socket.
pub fn send_synch(connection: &Connection) -> io::Result<()> {
    let Some(tcp) = connection.tcp() else {
        return Ok(());
    };
    let socket = SockRef::from(tcp);
    socket.send(TELNET_INTERRUPT)?;
    socket.send_out_of_band(TELNET_DATA_MARK)?;
    Ok(())
}

/// Shortest interval between two checks for acknowledgements.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest interval between two checks for acknowledgements.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Interval between checks for the end of the data while unread bytes precede the end.
const END_CHECK: Duration = Duration::from_millis(100);

/// Time without progress after which the gateway stops waiting for acknowledgements and sends the
/// final reply.
const STALLED: Duration = Duration::from_secs(30);

/// Pause after a failed accept. The process has probably used all file descriptors, and another
/// task may close one during the pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of unsent bytes that the kernel accepts from the gateway. At 1 Gbit/s the kernel
/// sends them in a few milliseconds.
const UNSENT_MAX_BYTES: u32 = 512 * 1024;

/// Initial receive buffer for an upload. The kernel doubles the value. At 1 Mbit/s the buffer fills
/// in 1 s.
const CLIENT_RECEIVE_BYTES: usize = 64 * 1024;

/// Largest receive buffer that an unprivileged process can set by default. It permits 1 Gbit/s with
/// a round-trip time of 1.7 ms.
const CLIENT_RECEIVE_BYTES_MAX: usize = 208 * 1024;

/// Smallest size of a kernel buffer. It holds several segments of usual size, but less than one
/// segment of the loopback interface.
const PACED_BYTES_MIN: usize = 16 * 1024;

/// Idle time after which the kernel sends a keep-alive. NATs drop connections that are idle for 300
/// s or longer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(45);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Telnet commands of RFC 854: `IAC IP`, and the first byte of `IAC DM`.
const TELNET_INTERRUPT: &[u8] = &[0xff, 0xf4, 0xff];

/// Telnet data mark (`DM`) of RFC 854. Sent as urgent data, it completes a Synch.
const TELNET_DATA_MARK: &[u8] = &[0xf2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pipe::PipeNetwork, tls::Leg};

    /// Checks that the peer receives a reset if the gateway cancels a connection attempt. An
    /// orderly end would look like an empty upload.
    #[tokio::test]
    async fn a_data_connection_that_is_given_up_while_it_comes_about_is_reset() {
        use std::io::Read as _;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let connecting = connect_from(at.ip(), at, Duration::from_secs(10));
        // The kernel connects, and the result is never polled.
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
                    wait_for_end(receiver.connection()).await.expect("orderly");
                    assert_eq!(receiver.read(&mut [0]).await.expect("orderly"), 0);
                    wait_for_acknowledgement(writer.leg().connection())
                        .await
                        .expect("read");
                }
                drop((reader, writer));
                if !is_orderly {
                    let error = wait_for_error(receiver.connection()).await;
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
            wait_for_error(&receiver).await;
            assert!(!has_unread(&receiver));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_move_is_waited_for_no_longer_than_half_a_minute() {
        let (sender, receiver) = connected(true).await;
        let mut sender = Leg::plain(sender);
        sender.write_all(b"x").await.expect("open");
        let begun = tokio::time::Instant::now();
        let error = wait_for_acknowledgement(sender.connection())
            .await
            .expect_err("unread");
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

    /// Returns both ends of a new connection.
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
            // Two sockets that listen at the same moment may refuse each other.
            assert!(won <= 1, "{won} listen on port {port}");
            listening += won;
        }
        assert!(listening > 100, "{listening} of 200 ports were had at all");
    }
}
