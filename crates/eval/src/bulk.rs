//! Bulk data over TCP, acknowledged end to end: a source that sends so many bytes, or for so long, and
//! a sink that counts them and echoes the last.
//!
//! The last bytes differ from connection to connection, so an echo is proof of this transfer. What
//! lies between the two, the kernel alone or a pair of gateways, is the caller's business.

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

/// Takes connections at a site, reads what they announce, and answers with its last eight bytes.
/// Dropped, it takes no more.
#[derive(Debug)]
pub struct Sink {
    listener: TcpListener,
    address: SocketAddr,
    received: Arc<AtomicU64>,
}

/// What a source sends.
#[derive(Debug, Clone)]
pub struct Bulk {
    /// A sink, or what leads to one.
    pub to: SocketAddr,
    /// How much.
    pub size: ByteCount,
    /// After this time it is cut off; how much arrived is the sink's word.
    pub limit: Duration,
    /// Congestion control of this connection; `None` is the system's choice.
    pub congestion_control: Option<String>,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From connecting to the echo, or until it was cut off.
    pub elapsed: Duration,
    /// Whether the echo came.
    pub is_complete: bool,
}

impl Sink {
    /// Listens at a site's IPv4 address.
    ///
    /// # Errors
    /// If the port is taken.
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
                // What breaks off shows at the source.
                thread::spawn(move || swallow(stream, &count));
            }
        });
        Ok(Self {
            listener,
            address,
            received,
        })
    }

    /// Gives connections that come from now on a receive buffer of this size, as programs do that
    /// know no better, instead of one that grows.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_buffer(&self, size: ByteCount) -> anyhow::Result<()> {
        setsockopt(&self.listener, sockopt::RcvBuf, &(size.bytes() as usize))
            .context("receive buffer")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes read from all connections so far.
    pub fn received(&self) -> ByteCount {
        ByteCount::new(self.received.load(Ordering::Relaxed))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Wakes the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl Bulk {
    /// `size` bytes to `to`, however long it takes.
    pub fn new(to: SocketAddr, size: ByteCount) -> Self {
        Self {
            to,
            size,
            limit: Duration::MAX,
            congestion_control: None,
        }
    }

    /// Sends, from where the calling thread is, and waits for the echo.
    ///
    /// # Errors
    /// If the connection fails, or the echo is not what was sent last.
    pub fn send(&self) -> anyhow::Result<Ended> {
        let began = Instant::now();
        let mut stream = self.connect()?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let is_over = || began.elapsed() >= self.limit;
        let cut_off = |stream: &TcpStream| -> anyhow::Result<Ended> {
            let elapsed = began.elapsed();
            // What is still queued must not disturb what comes after.
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            Ok(Ended {
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
        Ok(Ended {
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
        let connected = socket.connect_timeout(&self.to.into(), CONNECT_PATIENCE);
        connected.with_context(|| format!("connecting to {}", self.to))?;
        // A timeout leaves it non-blocking.
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }
}

/// Reads what a connection announces and answers.
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

/// Keeps the last bytes of a stream that comes in parts of any size.
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

/// Bytes handed to the kernel, or taken from it, at once.
const STEP_BYTES: usize = 1 << 20;
/// How long a source waits for room or bytes before it looks at the clock.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longer than a first packet takes over any path here, lost a few times.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
const STREAM: socket2::Type = socket2::Type::STREAM;
