//! One end of a stream of a bulk TCP test.

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

/// One end's record of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The stream's number.
    pub index: u16,
    /// This end's address.
    pub local: Option<SocketAddr>,
    /// The other end's address, as this end sees it.
    pub remote: Option<SocketAddr>,
    /// Bytes that the kernel took, or that arrived.
    pub bytes: u64,
    /// Seconds from the common beginning of a direction's streams to the stream's last byte, by the
    /// clock of this end.
    pub seconds: f64,
    /// Bytes of each interval; counted by the receiver only.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interval_bytes: Vec<u64>,
    /// Receive buffer at the beginning: twice the requested size, since the kernel counts its
    /// overhead. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_buffer_bytes: Option<u64>,
    /// Send buffer at the beginning, with the same overhead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_buffer_bytes: Option<u64>,
    /// The kernel's view at the end.
    pub info: TcpInfo,
    /// Why the stream ended early.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
}

/// Sends until the limit, and waits until the other end has read everything.
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

/// Receives until the other end closes.
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

/// The record of a stream that could not be used.
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
    // A blocking write returns when its whole block is written. It leaves a bounded buffer emptier
    // than partial writes do: less goodput below 64 KiB (docs/measuring.md).
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
    // The other end closes after it has read everything.
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
        // A stop also ends a stream whose bytes never end.
        if is_stopped() {
            return Err(Failure::new(
                FailureKind::TimedOut,
                "receiving",
                "it was stopped",
            ));
        }
    }
}

/// Waits until the kernel takes more bytes, or until the next check.
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

/// Fails after [`STALL_MAX`] of silence, or when the test is over.
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

/// Bytes of one read or write.
pub(crate) const STEP_BYTES: usize = STEP_MAX_BYTES;
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// Maximum number of intervals of a record: two hours.
const INTERVALS_MAX: usize = 7200;
