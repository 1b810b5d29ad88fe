//! A bulk transfer over TCP with an acknowledgement from end to end. A source sends a number of
//! bytes. A sink counts the bytes and echoes the last eight.
//!
//! The last bytes differ from connection to connection, so an echo proves that this very transfer
//! arrived. The caller provides the path between source and sink: the kernel alone or a pair of
//! gateways.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use units::ByteCount;

use emulator::{Site, Wan};

/// Accepts connections at a site, counts the bytes that arrive, and echoes the last eight bytes of
/// each connection. A dropped sink accepts no more connections.
#[derive(Debug)]
pub struct ByteSink {
    listener: TcpListener,
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

/// The sending end of a transfer.
#[derive(Debug, Clone)]
pub struct BulkSender {
    /// A sink, or a gateway in front of a sink.
    pub to: SocketAddr,
    /// Bytes to send.
    pub size: ByteCount,
    /// Longest time from connecting to the echo. A transfer that takes longer is cut off.
    /// [`ByteSink::received`] returns the bytes that arrived.
    pub limit: Duration,
    /// Congestion control of this connection, by the kernel's name; `None` keeps the system's
    /// choice.
    pub congestion_control: Option<String>,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkEnd {
    /// Time from connecting to the echo, or to the cut.
    pub elapsed: Duration,
    /// Whether the echo came.
    pub is_complete: bool,
}

impl ByteSink {
    /// Listens at a site's IPv4 address.
    ///
    /// # Errors
    /// If the kernel does not give the address and port, for example because the port is taken.
    pub fn start(wan: &Wan, site: Site, port: u16) -> anyhow::Result<Self> {
        let address = SocketAddr::from((wan.address(site), port));
        let listener = wan
            .enter(site, || TcpListener::bind(address))?
            .with_context(|| format!("listening at {address}"))?;
        let address = listener.local_addr()?;
        let received = Arc::new(AtomicU64::new(0));
        let (accepting, count) = (listener.try_clone()?, received.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = accepting.accept() {
                let count = count.clone();
                // The source notices a broken connection.
                thread::spawn(move || swallow(stream, &count));
            }
        });
        Ok(Self {
            listener,
            address,
            received,
        })
    }

    /// Gives later connections a receive buffer of this fixed size, as programs do that set
    /// `SO_RCVBUF`. Without this call the kernel lets the buffer grow.
    ///
    /// # Errors
    /// If the kernel refuses the size.
    pub fn set_buffer(&self, size: ByteCount) -> anyhow::Result<()> {
        setsockopt(&self.listener, sockopt::RcvBuf, &(size.bytes() as usize))
            .context("receive buffer")
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes read from all connections so far.
    pub fn received(&self) -> ByteCount {
        ByteCount::new(self.received.load(Ordering::Relaxed))
    }
}

impl Drop for ByteSink {
    fn drop(&mut self) {
        // Wakes the accepting thread.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl BulkSender {
    /// A transfer of `size` bytes to `to` without a time limit.
    pub fn new(to: SocketAddr, size: ByteCount) -> Self {
        Self {
            to,
            size,
            limit: Duration::MAX,
            congestion_control: None,
        }
    }

    /// Sends from the calling thread's network namespace, and waits for the echo.
    ///
    /// # Errors
    /// If the connection fails, or the echo differs from the last bytes.
    pub fn send(&self) -> anyhow::Result<BulkEnd> {
        let began = Instant::now();
        let mut stream = self.connect()?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let is_over = || began.elapsed() >= self.limit;
        let cut_off = |stream: &TcpStream| -> anyhow::Result<BulkEnd> {
            let elapsed = began.elapsed();
            // Queued bytes would disturb the next trial, so the connection ends with a reset.
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            Ok(BulkEnd {
                elapsed,
                is_complete: false,
            })
        };
        let mut total = self.size.bytes();
        stream.write_all(&total.to_be_bytes())?;
        let block = noise();
        let mut tail = [0; 8];
        while total > 0 {
            if is_over() {
                return cut_off(&stream);
            }
            let step = total.min(block.len() as u64) as usize;
            match stream.write(&block[..step]) {
                Ok(count) => {
                    push(&mut tail, &block[..count]);
                    total -= count as u64;
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error).context("sending"),
            }
        }
        let (mut echo, mut got) = ([0; 8], 0);
        while got < echo.len() {
            if is_over() {
                return cut_off(&stream);
            }
            match stream.read(&mut echo[got..]) {
                Ok(0) => anyhow::bail!("the connection ended before the echo"),
                Ok(count) => got += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error).context("waiting for the echo"),
            }
        }
        ensure!(echo == tail, "the echo is not what was sent last");
        Ok(BulkEnd {
            elapsed: began.elapsed(),
            is_complete: true,
        })
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(self.to), STREAM, None)?;
        if let Some(name) = &self.congestion_control {
            setsockopt(&socket, sockopt::TcpCongestion, &name.into())
                .with_context(|| format!("congestion control {name}"))?;
        }
        let connected = socket.connect_timeout(&self.to.into(), CONNECT_TIMEOUT);
        connected.with_context(|| format!("connecting to {}", self.to))?;
        // `connect_timeout` leaves the socket non-blocking.
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }
}

/// Reads an announced number of bytes and echoes the last eight.
fn swallow(mut stream: TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut size = [0; 8];
    stream.read_exact(&mut size)?;
    let mut left = u64::from_be_bytes(size);
    let mut block = vec![0; STEP_BYTES];
    let mut tail = [0; 8];
    while left > 0 {
        let most = left.min(STEP_BYTES as u64) as usize;
        let got = stream.read(&mut block[..most])?;
        if got == 0 {
            return Ok(());
        }
        push(&mut tail, &block[..got]);
        count.fetch_add(got as u64, Ordering::Relaxed);
        left -= got as u64;
    }
    stream.write_all(&tail)
}

/// Updates `tail`, the last bytes of a stream that arrives in parts of any size.
fn push(tail: &mut [u8; 8], bytes: &[u8]) {
    let new = &bytes[bytes.len().saturating_sub(tail.len())..];
    tail.rotate_left(new.len());
    tail[8 - new.len()..].copy_from_slice(new);
}

/// Bytes that no other transfer sends: D. Knuth's generator (MMIX), begun with the time.
fn noise() -> Vec<u8> {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut state = time.unwrap_or_default().as_nanos() as u64;
    let mut block = vec![0; STEP_BYTES];
    for word in block.chunks_exact_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_le_bytes());
    }
    block
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Bytes of one read or write.
const STEP_BYTES: usize = 1 << 20;
/// Longest wait for room or bytes before the source checks its time limit.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Longest wait for a connection: time for several lost SYNs on any path of a plan.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const STREAM: socket2::Type = socket2::Type::STREAM;
