//! An FTP client that times one transfer, from RETR or STOR to the final reply.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use socket2::SockRef;
use suppaftp::{FtpStream, types::FileType};
use units::ByteCount;
use xxhash_rust::xxh3::Xxh3;

use super::{Direction, content::Content};

/// One transfer to be done.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) address: SocketAddr,
    pub(crate) direction: Direction,
    pub(crate) name: String,
    pub(crate) size: ByteCount,
    pub(crate) limit: Duration,
}

/// How it went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) bytes: ByteCount,
    pub(crate) elapsed: Duration,
    pub(crate) is_complete: bool,
    /// Of the bytes received.
    pub(crate) hash: u64,
}

/// Bytes moved by one call.
const STEP: usize = 256 * 1024;
/// How long the client waits for a reply or for bytes before it looks at the clock.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a reply may take.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// Does one transfer in a session of its own. `source` is what an upload sends.
pub(crate) fn run(
    transfer: &Transfer,
    source: &Content,
    progress: impl Fn(u64),
) -> anyhow::Result<Outcome> {
    let mut ftp = FtpStream::connect(transfer.address)
        .with_context(|| format!("connecting to {}", transfer.address))?;
    let control = ftp
        .get_ref()
        .try_clone()
        .context("the control connection")?;
    control.set_read_timeout(Some(REPLY_PATIENCE))?;
    ftp.login("anonymous", "demo@example").context("login")?;
    ftp.transfer_type(FileType::Binary).context("TYPE I")?;
    let watch = Stopwatch::start(transfer.limit);
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    let mut stream = match transfer.direction {
        Direction::Down => ftp.retr_as_stream(&transfer.name).context("RETR")?,
        Direction::Up => ftp.put_with_stream(&transfer.name).context("STOR")?,
    };
    let socket = stream.get_ref().get_ref().try_clone()?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; STEP];
    let is_complete = loop {
        if watch.is_over() {
            break false;
        }
        let moved = match transfer.direction {
            Direction::Down => stream.read(&mut buffer),
            Direction::Up => {
                let rest = transfer.size.bytes() - bytes;
                stream.write(source.at(bytes, rest.min(STEP as u64)))
            }
        };
        match moved {
            Ok(0) => break true,
            Ok(count) => {
                if transfer.direction == Direction::Down {
                    hash.update(&buffer[..count]);
                }
                bytes += count as u64;
                progress(bytes);
                if transfer.direction == Direction::Up && bytes == transfer.size.bytes() {
                    break true;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("data connection"),
        }
    };
    if is_complete {
        // Our clone keeps the connection open otherwise.
        if transfer.direction == Direction::Up {
            socket
                .shutdown(Shutdown::Write)
                .context("ending the data connection")?;
        }
        let left = transfer.limit.saturating_sub(watch.elapsed());
        control.set_read_timeout(Some(left.max(Duration::from_millis(10))))?;
        if let Err(error) = stream.finish() {
            if !watch.is_over() {
                return Err(error).context("final reply");
            }
            cut_off(&socket, &control)?;
            return Ok(outcome(bytes, &watch, false, &hash));
        }
    } else {
        let outcome = outcome(bytes, &watch, false, &hash);
        cut_off(&socket, &control)?;
        drop(stream);
        return Ok(outcome);
    }
    let outcome = outcome(bytes, &watch, true, &hash);
    control.set_read_timeout(Some(REPLY_PATIENCE))?;
    let _ = ftp.quit();
    Ok(outcome)
}

fn outcome(bytes: u64, watch: &Stopwatch, is_complete: bool, hash: &Xxh3) -> Outcome {
    let elapsed = watch.elapsed();
    Outcome {
        bytes: ByteCount::new(bytes),
        elapsed,
        is_complete,
        hash: hash.digest(),
    }
}

/// Ends both connections at once, with what they still hold, so that nothing of this transfer
/// disturbs the next one.
fn cut_off(data: &TcpStream, control: &TcpStream) -> anyhow::Result<()> {
    control.set_read_timeout(Some(Duration::from_millis(10)))?;
    for socket in [data, control] {
        SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// A clock for transfers: when it began and whether its time is over.
#[derive(Debug, Clone, Copy)]
struct Stopwatch {
    began: Instant,
    limit: Duration,
}

impl Stopwatch {
    fn start(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn is_over(&self) -> bool {
        self.elapsed() >= self.limit
    }
}
