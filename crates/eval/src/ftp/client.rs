//! An FTP client that times one transfer, from `RETR` or `STOR` to the final reply.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use socket2::SockRef;
use suppaftp::{FtpError, FtpStream, types::FileType};
use units::ByteCount;
use xxhash_rust::xxh3::Xxh3;

use super::TrialDirection;
use bench_kit::content::Content;

#[derive(Debug, Clone)]
pub(crate) struct ClientTransfer {
    pub(crate) address: SocketAddr,
    pub(crate) direction: TrialDirection,
    pub(crate) name: String,
    pub(crate) size: ByteCount,
    /// Time limit of the login, and also of the transfer.
    pub(crate) limit: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferOutcome {
    pub(crate) bytes: ByteCount,
    pub(crate) elapsed: Duration,
    pub(crate) is_complete: bool,
    /// Hash of the received bytes.
    pub(crate) hash: u64,
}

/// Bytes that one read or write moves.
const STEP: usize = 256 * 1024;
/// Longest time for which one read blocks, before the client checks its time limit.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout for the reply to `QUIT`.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs one transfer in its own FTP session. An upload sends the content of `source`.
///
/// A login that exceeds the limit counts as an aborted transfer of zero bytes.
pub(crate) fn run(
    transfer: &ClientTransfer,
    source: &Content,
    progress: impl Fn(u64),
) -> anyhow::Result<TransferOutcome> {
    let watch = Stopwatch::start(transfer.limit);
    let mut hash = Xxh3::new();
    let (mut ftp, control) = match log_in(transfer, &watch) {
        Ok(session) => session,
        Err(_) if watch.is_over() => return Ok(outcome(0, &watch, false, &hash)),
        Err(error) => return Err(error),
    };
    let watch = Stopwatch::start(transfer.limit);
    control.set_read_timeout(Some(watch.left()))?;
    let mut bytes = 0;
    let opened = match transfer.direction {
        TrialDirection::Down => ftp.retr_as_stream(&transfer.name).context("RETR"),
        TrialDirection::Up => ftp.put_with_stream(&transfer.name).context("STOR"),
    };
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(_) if watch.is_over() => {
            cut_off(&[&control])?;
            return Ok(outcome(0, &watch, false, &hash));
        }
        Err(error) => return Err(error),
    };
    let socket = stream.get_ref().get_ref().try_clone()?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut buffer = vec![0; STEP];
    let is_complete = loop {
        if watch.is_over() {
            break false;
        }
        let moved = match transfer.direction {
            TrialDirection::Down => stream.read(&mut buffer),
            TrialDirection::Up => {
                let rest = transfer.size.bytes() - bytes;
                stream.write(source.at(bytes, rest.min(STEP as u64)))
            }
        };
        match moved {
            Ok(0) => break true,
            Ok(count) => {
                if transfer.direction == TrialDirection::Down {
                    hash.update(&buffer[..count]);
                }
                bytes += count as u64;
                progress(bytes);
                if transfer.direction == TrialDirection::Up && bytes == transfer.size.bytes() {
                    break true;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("data connection"),
        }
    };
    if is_complete {
        // The clone of the socket would keep the data connection open. The client therefore shuts
        // the connection down.
        if transfer.direction == TrialDirection::Up {
            socket
                .shutdown(Shutdown::Write)
                .context("ending the data connection")?;
        }
        control.set_read_timeout(Some(watch.left()))?;
        if let Err(error) = stream.finish() {
            if !watch.is_over() {
                return Err(error).context("final reply");
            }
            cut_off(&[&socket, &control])?;
            return Ok(outcome(bytes, &watch, false, &hash));
        }
    } else {
        let outcome = outcome(bytes, &watch, false, &hash);
        cut_off(&[&socket, &control])?;
        drop(stream);
        return Ok(outcome);
    }
    let outcome = outcome(bytes, &watch, true, &hash);
    control.set_read_timeout(Some(QUIT_TIMEOUT))?;
    let _ = ftp.quit();
    Ok(outcome)
}

/// Logs in. Returns the session, and a clone of its control connection.
///
/// # Errors
/// If the login fails, or takes longer than the limit of `watch`.
fn log_in(transfer: &ClientTransfer, watch: &Stopwatch) -> anyhow::Result<(FtpStream, TcpStream)> {
    let address = transfer.address;
    let connecting = || format!("connecting to {address}");
    let control = TcpStream::connect_timeout(&address, watch.left()).with_context(connecting)?;
    control.set_read_timeout(Some(watch.left()))?;
    let session = control.try_clone().context("the control connection")?;
    let session = FtpStream::connect_with_stream(session).with_context(connecting)?;
    let limit = transfer.limit;
    let mut session = session.passive_stream_builder(move |address| {
        TcpStream::connect_timeout(&address, limit).map_err(FtpError::ConnectionError)
    });
    control.set_read_timeout(Some(watch.left()))?;
    session
        .login("anonymous", "demo@example")
        .context("login")?;
    control.set_read_timeout(Some(watch.left()))?;
    session.transfer_type(FileType::Binary).context("TYPE I")?;
    Ok((session, control))
}

fn outcome(bytes: u64, watch: &Stopwatch, is_complete: bool, hash: &Xxh3) -> TransferOutcome {
    let elapsed = watch.elapsed();
    TransferOutcome {
        bytes: ByteCount::new(bytes),
        elapsed,
        is_complete,
        hash: hash.digest(),
    }
}

/// Resets connections and discards their queued bytes. Bytes that are still queued would slow the
/// next transfer.
fn cut_off(connections: &[&TcpStream]) -> anyhow::Result<()> {
    for connection in connections {
        connection.set_read_timeout(Some(Stopwatch::LEAST))?;
        SockRef::from(*connection).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// Start time and time limit of a transfer.
#[derive(Debug, Clone, Copy)]
struct Stopwatch {
    began: Instant,
    limit: Duration,
}

impl Stopwatch {
    /// Shortest timeout of a socket. For the kernel, a timeout of zero means no timeout.
    const LEAST: Duration = Duration::from_millis(10);

    fn start(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time until the limit as a timeout for a socket. The timeout is never zero.
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.elapsed()).max(Self::LEAST)
    }

    fn is_over(&self) -> bool {
        self.elapsed() >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use fake_ftp::{Behaviour, FakeServer, ReplyScript};

    use super::*;

    /// Downloads a file from a server that sends only these replies.
    fn download(replies: &[&str], limit: Duration) -> anyhow::Result<TransferOutcome> {
        let server = FakeServer::start(Behaviour {
            script: Some(ReplyScript::then_silence(replies)),
            ..Behaviour::default()
        });
        let transfer = ClientTransfer {
            address: server.address(),
            direction: TrialDirection::Down,
            name: "file".to_owned(),
            size: ByteCount::new(1),
            limit,
        };
        run(&transfer, &Content::generate(), |_| {})
    }

    const LOGGED_IN: [&str; 4] = ["220 here", "331 who", "230 in", "200 type"];

    #[test]
    fn a_server_that_says_nothing_is_cut_off() {
        for answers in [&[][..], &LOGGED_IN[..1], &LOGGED_IN[..3], &LOGGED_IN] {
            let limit = Duration::from_millis(100);
            let outcome = download(answers, limit).expect("no failure");
            assert!(!outcome.is_complete, "{answers:?}");
            assert_eq!(outcome.bytes, ByteCount::new(0));
            assert!(outcome.elapsed >= limit);
        }
    }

    #[test]
    fn a_server_that_refuses_is_a_failure() {
        let limit = Duration::from_secs(30);
        let error = download(&["220 here", "530 no"], limit).expect_err("no login");
        assert!(format!("{error:#}").contains("login"), "{error:#}");
    }
}
