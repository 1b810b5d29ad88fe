//! The other end of measurements: `longhaul probe serve`.
//!
//! One TCP port and the UDP port of the same number. A thread for each connection, [`CLIENTS_MAX`] of them
//! at once; who says nothing sensible within a few seconds is cut off. UDP goes only to an address that has a
//! control connection, so nobody can make the peer send to somebody else.

mod datagrams;
mod table;

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;

use super::{
    ProbeError,
    hello::{self, ECHO_BYTES, Hello, Ready},
    line,
    tcp::{self, StreamEnd},
    transaction, udp,
};
use table::{Kind, Table, Test, lock};

/// A running peer. Dropped, it takes no more, and what is under way ends soon.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Table,
    udp: UdpSocket,
    connections: AtomicUsize,
    is_stopped: AtomicBool,
}

/// Connections at once; each has a thread and at most a quarter of a MiB.
pub const CLIENTS_MAX: usize = 256;

impl Peer {
    /// Listens at `address` by TCP and UDP, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`ProbeError::System`] if a port is taken.
    pub fn start(address: SocketAddr) -> Result<Self, ProbeError> {
        let listening = |error| ProbeError::system(format!("listening at {address}"))(error);
        let listener = TcpListener::bind(address).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let udp = UdpSocket::bind(address).map_err(listening)?;
        let shared = Arc::new(Shared {
            table: Table::default(),
            udp,
            connections: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        udp::prepare_receiver(&shared.udp).map_err(listening)?;
        spawn("probe-datagrams", {
            let shared = shared.clone();
            move || datagrams::serve(&shared)
        })?;
        spawn("probe-accept", {
            let (listener, shared) = (listener.try_clone().map_err(listening)?, shared.clone());
            move || accept(&listener, &shared)
        })?;
        Ok(Self {
            address,
            listener,
            shared,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ProbeError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread
        .map(drop)
        .map_err(ProbeError::system("starting a thread"))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.is_stopped.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            // No descriptors left, or the end.
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let place = Place(shared.clone());
        let started = spawn("probe-client", move || {
            // What breaks off shows at the client.
            let _ = serve(stream, &place.0);
            drop(place);
        });
        drop(started);
    }
}

/// A connection's place among all; free again when dropped, also by a panic.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let client = stream.peer_addr()?.ip();
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(tcp::STALL_MAX))?;
    let deadline = Instant::now() + hello::PATIENCE;
    let (line, rest) = line::read(&mut stream, hello::LINE_MAX_BYTES, deadline)?;
    let hello = match Hello::parse(&line) {
        Ok(hello) => hello,
        Err(error) => return stream.write_all(format!("longhaul-probe: {error}\n").as_bytes()),
    };
    match hello {
        Hello::Transaction {
            token,
            answer_bytes,
        } => stream.write_all(&transaction::peer_answer(token, answer_bytes)),
        Hello::Bulk { bytes } => echo_last(stream, bytes, &rest),
        Hello::Ping {} => {
            let test = shared.table.add(client, Kind::Ping)?;
            let ended = line::write(&mut stream, &Ready { id: test.id });
            let ended = ended.and_then(|()| attend(&stream, shared, &test, |_| false, PING_MAX));
            shared.table.remove(&test);
            ended
        }
        Hello::Tcp(task) => {
            let streams = Mutex::default();
            let (count, time) = (task.all_streams(), task.time_max());
            let test = shared.table.add(client, Kind::Tcp { task, streams })?;
            let ended = line::write(&mut stream, &Ready { id: test.id });
            let ended = ended.and_then(|()| {
                attend(
                    &stream,
                    shared,
                    &test,
                    |test| ends(test).len() == count,
                    time,
                )
            });
            shared.table.remove(&test);
            ended?;
            line::write(&mut stream, &ends(&test))
        }
        Hello::Stream { id, index } => join(stream, shared, id, index, &rest),
        Hello::Udp(task) => serve_udp(stream, shared, task),
    }
}

/// Reads so many bytes and returns the last ones.
fn echo_last(mut stream: TcpStream, bytes: u64, rest: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(tcp::STALL_MAX))?;
    let mut tail = Vec::new();
    let mut left = bytes;
    let mut take = |new: &[u8]| {
        let new = &new[..new.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        left -= new.len() as u64;
        tail.extend_from_slice(&new[new.len().saturating_sub(ECHO_BYTES)..]);
        tail.drain(..tail.len().saturating_sub(ECHO_BYTES));
        left
    };
    let mut buffer = vec![0; tcp::STEP_BYTES];
    let mut left = take(rest);
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => left = take(&buffer[..count]),
        }
    }
    stream.write_all(&tail)
}

/// Waits until a test is over: `is_done`, its client gone, or the time up.
fn attend(
    control: &TcpStream,
    shared: &Shared,
    test: &Test,
    is_done: impl Fn(&Test) -> bool,
    time_max: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + time_max;
    control.set_read_timeout(Some(LOOK_AROUND))?;
    while !is_done(test) && !shared.is_stopped.load(Ordering::Relaxed) {
        match control.peek(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            // Nothing is to come; it is not read either.
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

/// Streams that have ended.
fn ends(test: &Test) -> Vec<StreamEnd> {
    match &test.kind {
        Kind::Tcp { streams, .. } => lock(streams).values().flatten().cloned().collect(),
        Kind::Ping | Kind::Udp(_) => Vec::new(),
    }
}

/// A stream of a test of bulk TCP.
fn join(
    mut stream: TcpStream,
    shared: &Shared,
    id: u64,
    index: u16,
    rest: &[u8],
) -> io::Result<()> {
    let unknown = || io::Error::from(io::ErrorKind::NotFound);
    let client = stream.peer_addr()?.ip();
    let test = shared.table.find(id, client).ok_or_else(unknown)?;
    let Kind::Tcp { task, streams } = &test.kind else {
        return Err(unknown());
    };
    if usize::from(index) >= task.all_streams() {
        return Err(unknown());
    }
    if lock(streams).insert(index, None).is_some() {
        // Twice the same: its figures would be nobody's.
        return Err(unknown());
    }
    task.prepare(&stream)?;
    let is_stopped = || test.is_over() || shared.is_stopped.load(Ordering::Relaxed);
    let end = if task.client_sends(index) {
        tcp::receive(&mut stream, index, rest.len(), is_stopped)
    } else {
        tcp::send(&mut stream, index, task.limit, is_stopped)
    };
    lock(streams).insert(index, Some(end));
    Ok(())
}

fn serve_udp(mut stream: TcpStream, shared: &Shared, task: udp::Task) -> io::Result<()> {
    let client = stream.peer_addr()?.ip();
    let side = udp::PeerSide::new(task, &shared.udp)?;
    let test = shared
        .table
        .add(client, Kind::Udp(Box::new(Mutex::new(side))))?;
    let result = udp_control(&mut stream, shared, &test, task);
    shared.table.remove(&test);
    result
}

fn udp_control(
    stream: &mut TcpStream,
    shared: &Shared,
    test: &Test,
    task: udp::Task,
) -> io::Result<()> {
    let Kind::Udp(side) = &test.kind else {
        unreachable!("it was made so");
    };
    line::write(stream, &Ready { id: test.id })?;
    let time_max = task.time() + tcp::STALL_MAX;
    match task.direction {
        udp::Direction::Up => {
            // The client says when it has sent everything.
            line::read(stream, hello::LINE_MAX_BYTES, Instant::now() + time_max)?;
            while lock(side).silence() < udp::GRACE {
                thread::sleep(LOOK_AROUND / 4);
            }
            let report = lock(side).report(&shared.udp)?;
            line::write(stream, &report)
        }
        udp::Direction::Down => {
            attend(
                stream,
                shared,
                test,
                |_| lock(side).client.is_some(),
                hello::PATIENCE,
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

/// Between looks at whether a test still has its client.
const LOOK_AROUND: Duration = Duration::from_millis(100);
const PING_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests;
