//! A bulk transfer over TCP with an acknowledgement from end to end. The sender sends a number of
//! bytes. A sink counts these bytes, and echoes the last eight of them as the acknowledgement.
//!
//! The last bytes differ between connections, so an echo proves that all bytes of this transfer
//! arrived. The caller provides the path between sender and sink: the kernel alone, or a pair of
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

/// A TCP server that counts the bytes that it receives, and echoes the last eight bytes of each
/// connection. A dropped sink accepts no more connections.
#[derive(Debug)]
pub struct ByteSink {
    listener: TcpListener,
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

/// The sender of a bulk transfer, with its settings.
#[derive(Debug, Clone)]
pub struct BulkSender {
    /// Address of a sink, or of a gateway in front of a sink.
    pub to: SocketAddr,
    /// Bytes to send.
    pub size: ByteCount,
    /// Longest time from connecting until the echo arrives. The sender aborts a transfer that takes
    /// longer. [`ByteSink::received`] then returns the bytes that arrived.
    pub limit: Duration,
    /// Congestion control of this connection, by the kernel's name. With `None` the system's
    /// default applies.
    pub congestion_control: Option<String>,
}

/// Duration of a transfer, and whether it completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkEnd {
    /// Time from connecting until the echo arrived, or until the sender aborted the transfer.
    pub elapsed: Duration,
    /// Whether the echo arrived.
    pub is_complete: bool,
}

impl ByteSink {
    /// Listens at a site's IPv4 address.
    ///
    /// # Errors
    /// If the kernel cannot bind the address and port, for example because another socket uses the
    /// port.
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
                // An error is ignored here, because the sender also notices a broken connection.
                thread::spawn(move || swallow(stream, &count));
            }
        });
        Ok(Self {
            listener,
            address,
            received,
        })
    }

    /// Sets a fixed size for the receive buffers of later connections, like programs that set
    /// `SO_RCVBUF`. Without this call the kernel enlarges the buffer as needed.
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

    /// Returns the number of bytes read from all connections so far.
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
    /// Creates a transfer of `size` bytes to `to`, without a time limit.
    pub fn new(to: SocketAddr, size: ByteCount) -> Self {
        Self {
            to,
            size,
            limit: Duration::MAX,
            congestion_control: None,
        }
    }

    /// Sends all bytes from the calling thread's network namespace, and waits for the echo.
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
            // A reset ends the connection, because bytes that are still queued would disturb the
            // next trial.
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

/// Reads the announced number of bytes and echoes the last eight bytes.
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

/// Updates `tail`, the last eight bytes of a stream, with the next bytes of the stream.
fn push(tail: &mut [u8; 8], bytes: &[u8]) {
    let new = &bytes[bytes.len().saturating_sub(tail.len())..];
    tail.rotate_left(new.len());
    tail[8 - new.len()..].copy_from_slice(new);
}

/// Returns pseudorandom bytes that no other transfer sends. D. Knuth's generator (MMIX) makes the
/// bytes, with the time as its seed.
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
/// Longest time for which one read or write blocks, before the sender checks its time limit.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout for a connection attempt. It leaves time for several lost SYNs on any path of a plan.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const STREAM: socket2::Type = socket2::Type::STREAM;
