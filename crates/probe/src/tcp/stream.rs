//! Sender or receiver of one stream in a bulk TCP test.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{getsockopt, sockopt},
};
use serde::{Deserialize, Serialize};

use super::{STALL_MAX, StreamLimit, TcpRecord, cut_off};
use crate::{
    Failure, FailureKind, Payload, TcpInfo,
    payload::{self, STEP_MAX_BYTES},
};

/// Measurements of one host for one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// Number of the stream.
    pub index: u16,
    /// Address of this host.
    pub local: Option<SocketAddr>,
    /// Address of the other host, as this host sees it.
    pub remote: Option<SocketAddr>,
    /// Number of bytes that arrived. For the sender, the number of bytes that the kernel accepted.
    pub bytes: u64,
    /// Time in seconds from the common start of the streams to the last byte of this stream,
    /// according to this host's clock.
    pub seconds: f64,
    /// Number of bytes in each interval. Only the receiver counts them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interval_bytes: Vec<u64>,
    /// Size of the receive buffer at the start, in bytes. The size is twice the requested size,
    /// because the kernel includes its overhead. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_buffer_bytes: Option<u64>,
    /// Size of the send buffer at the start, in bytes. The size is twice the requested size,
    /// because the kernel includes its overhead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_buffer_bytes: Option<u64>,
    /// The kernel's data about the connection when the stream ended.
    pub info: TcpInfo,
    /// Reason why the stream ended early. `None` if the stream did not end early.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Sends bytes until the limit is reached, and waits until the other host has read all bytes.
pub(crate) fn send(
    stream: &mut TcpStream,
    index: u16,
    limit: StreamLimit,
    began: Instant,
    is_stopped: impl Fn() -> bool,
) -> StreamEnd {
    let mut end = StreamEnd::new(stream, index);
    let result = push(stream, &mut end, limit, began, is_stopped);
    end.finish(stream, result)
}

/// Receives bytes until the other host closes the stream.
pub(crate) fn receive(
    stream: &mut TcpStream,
    index: u16,
    began: Instant,
    is_stopped: impl Fn() -> bool,
) -> StreamEnd {
    let mut end = StreamEnd::new(stream, index);
    let result = pull(stream, &mut end, began, is_stopped);
    end.finish(stream, result)
}

/// Returns the measurements of a stream that could not be used.
pub(crate) fn unusable(stream: &TcpStream, index: u16, failure: Failure) -> StreamEnd {
    StreamEnd::new(stream, index).finish(stream, Err(failure))
}

impl StreamEnd {
    fn new(stream: &TcpStream, index: u16) -> Self {
        Self {
            index,
            local: stream.local_addr().ok(),
            remote: stream.peer_addr().ok(),
            bytes: 0,
            seconds: 0.0,
            interval_bytes: Vec::new(),
            receive_buffer_bytes: buffer(getsockopt(stream, sockopt::RcvBuf)),
            send_buffer_bytes: buffer(getsockopt(stream, sockopt::SndBuf)),
            info: TcpInfo::default(),
            failure: None,
        }
    }

    fn finish(mut self, stream: &TcpStream, result: Result<(), Failure>) -> Self {
        if let Ok(info) = TcpInfo::of(stream) {
            self.info = info;
        }
        if let Err(failure) = result {
            cut_off(stream);
            self.failure = Some(failure);
        }
        self
    }
}

fn push(
    stream: &mut TcpStream,
    end: &mut StreamEnd,
    limit: StreamLimit,
    began: Instant,
    is_stopped: impl Fn() -> bool,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("sending", &error);
    stream.set_read_timeout(Some(LOOK_AROUND)).map_err(failed)?;
    // Writes do not block, because a blocking write returns only after its whole block. With
    // buffers below 64 KiB, blocking writes would leave the buffer emptier, and would lower the
    // goodput (docs/measuring.md).
    stream.set_nonblocking(true).map_err(failed)?;
    let mut bytes = payload::PayloadStream::new(Payload::Random);
    let mut moved_at = Instant::now();
    loop {
        let left = match limit {
            StreamLimit::Time { ms } if began.elapsed() >= Duration::from_millis(ms) => 0,
            StreamLimit::Time { .. } => u64::MAX,
            StreamLimit::Bytes { count } => count - end.bytes,
        };
        if left == 0 {
            break;
        }
        match stream.write(bytes.ahead(left)) {
            Ok(count) => {
                bytes.advance(count);
                end.bytes += count as u64;
                moved_at = Instant::now();
                end.seconds = moved_at.saturating_duration_since(began).as_secs_f64();
            }
            Err(error) if is_timeout(&error) => {
                wait_for_room(stream).map_err(failed)?;
                look("sending", moved_at, &is_stopped)?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    stream.set_nonblocking(false).map_err(failed)?;
    stream.shutdown(Shutdown::Write).map_err(failed)?;
    // The other host closes the stream after it has read all bytes.
    let moved_at = Instant::now();
    loop {
        match stream.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let detail = "data came back";
                return Err(Failure::new(FailureKind::WrongData, "sending", detail));
            }
            Err(error) if is_timeout(&error) => look("ending", moved_at, &is_stopped)?,
            Err(error) => return Err(failed(error)),
        }
    }
}

fn pull(
    stream: &mut TcpStream,
    end: &mut StreamEnd,
    began: Instant,
    is_stopped: impl Fn() -> bool,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("receiving", &error);
    stream.set_read_timeout(Some(LOOK_AROUND)).map_err(failed)?;
    let mut buffer = vec![0; STEP_BYTES];
    let mut moved_at = Instant::now();
    let mut count = 0;
    loop {
        if count > 0 {
            moved_at = Instant::now();
            let elapsed = moved_at.saturating_duration_since(began);
            end.bytes += count;
            end.seconds = elapsed.as_secs_f64();
            let interval = (end.seconds / TcpRecord::INTERVAL.as_secs_f64()) as usize;
            if interval >= end.interval_bytes.len() && interval < INTERVALS_MAX {
                end.interval_bytes.resize(interval + 1, 0);
            }
            if let Some(bytes) = end.interval_bytes.get_mut(interval) {
                *bytes += count;
            }
        }
        count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count as u64,
            Err(error) if is_timeout(&error) => {
                look("receiving", moved_at, &is_stopped)?;
                0
            }
            Err(error) => return Err(failed(error)),
        };
        // A stopped test must also end a stream to which bytes arrive without end.
        if is_stopped() {
            return Err(Failure::new(
                FailureKind::TimedOut,
                "receiving",
                "it was stopped",
            ));
        }
    }
}

/// Waits until the kernel can accept more bytes, or until the time for the next check.
fn wait_for_room(stream: &TcpStream) -> io::Result<()> {
    let mut sockets = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    let reply_timeout = PollTimeout::from(LOOK_AROUND.as_millis() as u8);
    match poll(&mut sockets, reply_timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn buffer(bytes: nix::Result<usize>) -> Option<u64> {
    bytes.ok().map(|bytes| bytes as u64)
}

/// Returns a failure if the stream has made no progress for [`STALL_MAX`], or if the test is over.
fn look(during: &str, moved_at: Instant, is_stopped: impl Fn() -> bool) -> Result<(), Failure> {
    if is_stopped() {
        return Err(Failure::new(
            FailureKind::TimedOut,
            during,
            "it was stopped",
        ));
    }
    if moved_at.elapsed() > STALL_MAX {
        return Err(Failure::timed_out(during, STALL_MAX));
    }
    Ok(())
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Maximum number of bytes in one read or write.
pub(crate) const STEP_BYTES: usize = STEP_MAX_BYTES;
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// Maximum number of intervals in a record. These intervals cover two hours.
const INTERVALS_MAX: usize = 7200;
