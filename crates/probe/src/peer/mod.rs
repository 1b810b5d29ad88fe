//! The peer of measurements: `longhaul probe serve`.
//!
//! The peer has a TCP port, and a UDP port of the same number. Each connection has a thread. At
//! most [`CLIENTS_MAX`] connections are open at the same time. If no valid first line arrives
//! within 10 s, the peer closes the connection. The peer sends datagrams only to addresses that
//! have a control connection. Therefore an attacker cannot direct the peer's datagrams at another
//! host.

mod datagrams;
mod test_table;

use std::{
    collections::hash_map::Entry,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, SockRef, Socket, Type};

use super::{
    Failure, Payload, ProbeError,
    hello::{self, ECHO_BYTES, GO, ProbeHello, StreamsBegun, StreamsJoined, TestReady},
    line,
    tcp::{self, StreamEnd},
    transaction, udp,
};
use test_table::{RunningTest, TestKind, TestTable, lock};

/// A running peer. When it is dropped, its ports are closed, and running tests end soon afterwards.
#[derive(Debug)]
pub struct ProbePeer {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<PeerContext>,
}

#[derive(Debug)]
struct PeerContext {
    table: TestTable,
    udp: UdpSocket,
    connections: AtomicUsize,
    /// Number of bytes of memory that UDP receivers use.
    udp_bytes: AtomicU64,
    is_stopped: AtomicBool,
}

/// Maximum number of connections. Each connection has a thread. A connection needs at most 1.2 MiB
/// for a transaction's answer, or 0.25 MiB for a bulk transfer. The memory of UDP tests is limited
/// separately.
pub const CLIENTS_MAX: usize = 256;

impl ProbePeer {
    /// Starts a peer that listens at `address` for TCP and UDP. Its sockets belong to the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// [`ProbeError::System`] if a port is already in use.
    pub fn start(address: SocketAddr) -> Result<Self, ProbeError> {
        Payload::Random.prepare();
        let listening = |error| ProbeError::system(format!("listening at {address}"))(error);
        let bound = bind(address, UdpSocket::bind);
        let (listener, udp) = bound.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let shared = Arc::new(PeerContext {
            table: TestTable::default(),
            udp,
            connections: AtomicUsize::new(0),
            udp_bytes: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        });
        udp::prepare_receiver(&shared.udp).map_err(listening)?;
        spawn("probe-datagrams", {
            let shared = shared.clone();
            move || datagrams::serve(&shared)
        })?;
        spawn("probe-accept", {
            let (listener, shared) = (listener.try_clone().map_err(listening)?, shared.clone());
            move || accept(&listener, &shared, || false)
        })?;
        Ok(Self {
            address,
            listener,
            shared,
        })
    }

    /// Returns the address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ProbePeer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

/// Binds a port number for TCP, and calls `bind_udp` to bind the same number for UDP.
///
/// For port 0, the system chooses a port that is free for TCP. If another program uses the UDP port
/// of that number, the function tries further ports.
fn bind(
    address: SocketAddr,
    mut bind_udp: impl FnMut(SocketAddr) -> io::Result<UdpSocket>,
) -> io::Result<(TcpListener, UdpSocket)> {
    // The unusable listeners stay open, so that the system does not choose their ports again.
    let mut unusable = Vec::new();
    loop {
        let listener = TcpListener::bind(address)?;
        match bind_udp(listener.local_addr()?) {
            Ok(udp) => return Ok((listener, udp)),
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() == 0
                    && unusable.len() + 1 < PORTS_TRIED_MAX =>
            {
                unusable.push(listener);
            }
            Err(error) => return Err(error),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ProbeError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread
        .map(drop)
        .map_err(ProbeError::system("starting a thread"))
}

fn accept(listener: &TcpListener, shared: &Arc<PeerContext>, is_over: impl Fn() -> bool) {
    while !is_over() && !shared.is_stopped.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            // No file descriptor is available, or the peer is ending.
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            turn_away(stream);
            continue;
        }
        let place = ConnectionPermit(shared.clone());
        let started = spawn("probe-client", move || {
            // If the connection breaks, the client reports the failure.
            let _ = serve(stream, &place.0);
            drop(place);
        });
        drop(started);
    }
}

/// Refuses a connection and sends the reason. The function does not wait for the first line.
fn turn_away(mut stream: TcpStream) {
    let words = format!("no room: {CLIENTS_MAX} connections are open here");
    if stream.set_nonblocking(true).is_ok() {
        // A client that does not read sees only the end of the connection.
        let _ = complain(&mut stream, &words);
        let _ = stream.shutdown(Shutdown::Write);
    }
}

fn complain(stream: &mut TcpStream, words: &str) -> io::Result<()> {
    stream.write_all(format!("{}{words}\n", line::COMPLAINT).as_bytes())
}

/// Permit for one of [`CLIENTS_MAX`] connections. Dropping it releases the permit, even during a
/// panic.
struct ConnectionPermit(Arc<PeerContext>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, shared: &Arc<PeerContext>) -> io::Result<()> {
    let client = stream.peer_addr()?.ip();
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(tcp::STALL_MAX))?;
    let deadline = Instant::now() + hello::TIMEOUT;
    let line = line::read(&mut stream, hello::LINE_MAX_BYTES, deadline)?;
    let hello = match ProbeHello::parse(&line) {
        Ok(hello) => hello,
        Err(error) => return complain(&mut stream, &error.to_string()),
    };
    match hello {
        ProbeHello::Transaction {
            token,
            answer_bytes,
        } => stream.write_all(&transaction::peer_answer(token, answer_bytes)),
        ProbeHello::Bulk { bytes } => echo_last(stream, bytes),
        ProbeHello::Ping {} => {
            let test = shared.table.add(client, TestKind::Ping)?;
            let ended = line::write(&mut stream, &TestReady::new(test.id));
            let ended = ended.and_then(|()| attend(&stream, shared, &test, |_| false, PING_MAX));
            shared.table.remove(&test);
            ended
        }
        ProbeHello::Tcp(task) => {
            let streams = Mutex::default();
            let begun = Condvar::new();
            let kind = TestKind::Tcp {
                task,
                streams,
                begun,
            };
            let test = shared.table.add(client, kind)?;
            let ended = tcp_control(&mut stream, shared, &test);
            shared.table.remove(&test);
            ended
        }
        ProbeHello::Stream { id, index } => join(stream, shared, id, index),
        ProbeHello::Udp(task) => serve_udp(stream, shared, task),
    }
}

/// Reads `bytes` bytes, and sends back the last [`ECHO_BYTES`] of them.
fn echo_last(mut stream: TcpStream, bytes: u64) -> io::Result<()> {
    stream.set_read_timeout(Some(tcp::STALL_MAX))?;
    let began = Instant::now();
    let mut tail = Vec::new();
    let mut buffer = vec![0; tcp::STEP_BYTES];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let count = match stream.read(&mut buffer[..most])? {
            0 => return Ok(()),
            count => count,
        };
        left -= count as u64;
        tail.extend_from_slice(&buffer[..count][count.saturating_sub(ECHO_BYTES)..]);
        tail.drain(..tail.len().saturating_sub(ECHO_BYTES));
        if began.elapsed() > reply_timeout(bytes - left) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    stream.write_all(&tail)
}

/// Returns the longest time that the first `bytes` bytes of a bulk transfer may take. A slower
/// transfer is aborted.
fn reply_timeout(bytes: u64) -> Duration {
    let moving = Duration::from_secs(bytes / RATE_LEAST_BYTES_PER_S);
    (tcp::STALL_MAX + moving).min(BULK_MAX)
}

/// Waits until `is_done` returns true or the peer is stopped. Returns an error if the client
/// disconnects or the time is over.
fn attend(
    control: &TcpStream,
    shared: &PeerContext,
    test: &RunningTest,
    is_done: impl Fn(&RunningTest) -> bool,
    time_max: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + time_max;
    control.set_read_timeout(Some(LOOK_AROUND))?;
    while !is_done(test) && !shared.is_stopped.load(Ordering::Relaxed) {
        match control.peek(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            // The protocol defines no further bytes at this point. If bytes arrive, they stay
            // unread.
            Ok(_) => thread::sleep(LOOK_AROUND),
            Err(error) if tcp::is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn tcp_control(
    stream: &mut TcpStream,
    shared: &Arc<PeerContext>,
    test: &Arc<RunningTest>,
) -> io::Result<()> {
    let TestKind::Tcp {
        task,
        streams,
        begun,
    } = &test.kind
    else {
        unreachable!("it was made so");
    };
    let stream_port = task
        .window_bytes
        .map(|_| StreamPort::open(stream, task, shared, test));
    let stream_port = stream_port.transpose()?;
    let port = stream_port.as_ref().map(StreamPort::port).transpose()?;
    line::write(stream, &TestReady { id: test.id, port })?;
    let count = task.all_streams();
    let have_joined = |_: &RunningTest| lock(streams).ends.len() == count;
    attend(stream, shared, test, have_joined, tcp::STALL_MAX)?;
    drop(stream_port);
    let unusable = lock(streams).ends.values().flatten().next().cloned();
    let failure = unusable.and_then(|end| end.failure);
    let is_usable = failure.is_none();
    line::write(stream, &StreamsJoined { failure })?;
    if !is_usable {
        return Ok(());
    }
    let deadline = Instant::now() + tcp::STALL_MAX;
    let go = line::read(stream, GO.len(), deadline)?;
    if go != GO.trim_end().as_bytes() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    lock(streams).began = Some(Instant::now());
    begun.notify_all();
    line::write(stream, &StreamsBegun {})?;
    let have_ended = |_: &RunningTest| lock(streams).ends.values().all(Option::is_some);
    attend(stream, shared, test, have_ended, task.time_max())?;
    let ends: Vec<StreamEnd> = lock(streams).ends.values().flatten().cloned().collect();
    line::write(stream, &ends)
}

/// A listening port for the streams of one test. Its connections have the test's window from their
/// first packet. When this value is dropped, the port is closed.
struct StreamPort(TcpListener);

impl StreamPort {
    /// Opens a listening port at the local address of the control connection.
    fn open(
        control: &TcpStream,
        task: &tcp::TcpTask,
        shared: &Arc<PeerContext>,
        test: &Arc<RunningTest>,
    ) -> io::Result<Self> {
        let mut address = control.local_addr()?;
        address.set_port(0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.bind(&address.into())?;
        // If the kernel refuses a setting, the error is reported when a stream joins.
        let _ = task.prepare(&socket);
        socket.listen(task.all_streams() as i32)?;
        let listener = TcpListener::from(socket);
        let stream_port = Self(listener.try_clone()?);
        let (shared, test) = (shared.clone(), test.clone());
        thread::Builder::new()
            .name("probe-streams".to_owned())
            .spawn(move || accept(&listener, &shared, || test.is_over()))?;
        Ok(stream_port)
    }

    fn port(&self) -> io::Result<u16> {
        Ok(self.0.local_addr()?.port())
    }
}

impl Drop for StreamPort {
    fn drop(&mut self) {
        // Wakes the accepting thread. The thread ends no later than its test.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Adds a connection to a bulk TCP test as one of the test's streams.
fn join(mut stream: TcpStream, shared: &PeerContext, id: u64, index: u16) -> io::Result<()> {
    let unknown = || io::Error::from(io::ErrorKind::NotFound);
    let client = stream.peer_addr()?.ip();
    let test = shared.table.find(id, client).ok_or_else(unknown)?;
    let TestKind::Tcp {
        task,
        streams,
        begun,
    } = &test.kind
    else {
        return Err(unknown());
    };
    if usize::from(index) >= task.all_streams() {
        return Err(unknown());
    }
    let failed = task.prepare(&stream).err().map(|error| {
        let failure = Failure::io("a stream at the peer", &error);
        tcp::unusable(&stream, index, failure)
    });
    let is_unusable = failed.is_some();
    match lock(streams).ends.entry(index) {
        Entry::Vacant(place) => place.insert(failed),
        // A second connection with the same number is refused, because its figures would be
        // ambiguous.
        Entry::Occupied(_) => return Err(unknown()),
    };
    if is_unusable {
        return Ok(());
    }
    let is_stopped = || test.is_over() || shared.is_stopped.load(Ordering::Relaxed);
    let mut waiting = lock(streams);
    let began = loop {
        if let Some(began) = waiting.began {
            break began;
        }
        if is_stopped() {
            return Err(unknown());
        }
        let woken = begun.wait_timeout(waiting, LOOK_AROUND);
        waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
    };
    drop(waiting);
    let end = if task.client_sends(index) {
        tcp::receive(&mut stream, index, began, is_stopped)
    } else {
        tcp::send(&mut stream, index, task.limit, began, is_stopped)
    };
    lock(streams).ends.insert(index, Some(end));
    Ok(())
}

fn serve_udp(mut stream: TcpStream, shared: &PeerContext, task: udp::UdpTask) -> io::Result<()> {
    let client = stream.peer_addr()?.ip();
    let Some(_memory) = MemoryPermit::take(&shared.udp_bytes, udp::receiver_bytes(&task)) else {
        return complain(&mut stream, "no room: other tests of UDP have all of it");
    };
    let side = udp::UdpPeerTest::new(task, &shared.udp)?;
    let test = shared
        .table
        .add(client, TestKind::Udp(Box::new(Mutex::new(side))))?;
    let result = udp_control(&mut stream, shared, &test, task);
    shared.table.remove(&test);
    result
}

/// Memory that is reserved from the limit [`UDP_MEMORY_MAX_BYTES`]. Dropping this value releases
/// the memory.
struct MemoryPermit<'a> {
    all: &'a AtomicU64,
    bytes: u64,
}

impl<'a> MemoryPermit<'a> {
    fn take(all: &'a AtomicU64, bytes: u64) -> Option<Self> {
        let more = |taken: u64| (taken + bytes <= UDP_MEMORY_MAX_BYTES).then_some(taken + bytes);
        let taken = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self { all, bytes })
    }
}

impl Drop for MemoryPermit<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn udp_control(
    stream: &mut TcpStream,
    shared: &PeerContext,
    test: &RunningTest,
    task: udp::UdpTask,
) -> io::Result<()> {
    let TestKind::Udp(side) = &test.kind else {
        unreachable!("it was made so");
    };
    line::write(stream, &TestReady::new(test.id))?;
    let time_max = task.time() + tcp::STALL_MAX;
    match task.direction {
        udp::UdpDirection::Up => {
            // The client announces the end of its stream.
            line::read(stream, hello::LINE_MAX_BYTES, Instant::now() + time_max)?;
            let deadline = Instant::now() + DRAIN_MAX;
            while lock(side).silence() < udp::GRACE && Instant::now() < deadline {
                if shared.is_stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                thread::sleep(LOOK_AROUND / 4);
            }
            let report = lock(side).report(&shared.udp)?;
            line::write(stream, &report)
        }
        udp::UdpDirection::Down => {
            attend(
                stream,
                shared,
                test,
                |_| lock(side).client.is_some(),
                hello::TIMEOUT,
            )?;
            let client = lock(side).client.expect("attended");
            let is_stopped = || {
                let mut byte = [0];
                let gone =
                    stream.set_nonblocking(true).is_ok() && matches!(stream.peek(&mut byte), Ok(0));
                let _ = stream.set_nonblocking(false);
                gone || shared.is_stopped.load(Ordering::Relaxed)
            };
            let send = |bytes: &[u8]| shared.udp.send_to(bytes, client);
            let sent = udp::send_paced(task, test.id, send, is_stopped);
            line::write(stream, &sent)
        }
    }
}

/// Maximum number of ports that a peer tries if the requested port is 0. If half of the machine's
/// UDP ports are in use, one start in 65,536 fails.
const PORTS_TRIED_MAX: usize = 16;
/// Interval between two checks whether a test's client is still connected.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Longest time for which the peer waits for late datagrams after the client has announced the end
/// of its stream.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Lowest mean rate of a bulk transfer in bytes per second. A slower transfer is aborted.
const RATE_LEAST_BYTES_PER_S: u64 = 1000;
const BULK_MAX: Duration = Duration::from_secs(24 * 3600);
/// Memory limit of all UDP receivers together, in bytes. Seven of the longest tests fit into this
/// limit.
const UDP_MEMORY_MAX_BYTES: u64 = 64 << 20;
const PING_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests;
