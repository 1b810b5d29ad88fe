//! A competing flow on the path: one TCP connection that sends data until it is dropped.

use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use units::ByteCount;

use super::cell::{CompetingConnection, TrialDirection};
use crate::bulk::ByteSink;
use emulator::{Site, Wan};

/// A TCP connection that sends data. Drop ends the connection.
#[derive(Debug)]
pub(crate) struct RunningConnection {
    stop: Arc<AtomicBool>,
    /// Samples of the number of received bytes, each with its time.
    counts: Arc<Mutex<Vec<(Instant, ByteCount)>>>,
    sender: Option<JoinHandle<std::io::Result<anyhow::Result<()>>>>,
    counter: Option<JoinHandle<()>>,
}

impl RunningConnection {
    /// Starts a competing flow in the direction of the work. Returns when the cell's head start for
    /// competing flows has passed.
    pub(crate) fn start(
        wan: &Wan,
        neighbour: CompetingConnection,
        direction: TrialDirection,
        head_start: Duration,
    ) -> anyhow::Result<Self> {
        let to = match direction {
            TrialDirection::Down => Site::A,
            TrialDirection::Up => Site::B,
        };
        let sink = ByteSink::start(wan, to, 0)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (sink.address(), stop.clone());
        let sender = wan.spawn_thread_in(to.other(), move || send(address, neighbour, &stopped))?;
        let counts = Arc::new(Mutex::new(Vec::new()));
        let (noted, stopped) = (counts.clone(), stop.clone());
        let counter = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                lock(&noted).push((Instant::now(), sink.received()));
                thread::sleep(COUNT_EVERY);
            }
        });
        thread::sleep(head_start);
        Ok(Self {
            stop,
            counts,
            sender: Some(sender),
            counter: Some(counter),
        })
    }

    /// Returns the rate of the received bytes over the last period of length `time`, in bits per
    /// second.
    pub(crate) fn bits_per_s(&self, time: Duration) -> f64 {
        let counts = lock(&self.counts);
        let Some(&(end, last)) = counts.last() else {
            return 0.0;
        };
        let begun = end.checked_sub(time).unwrap_or(end);
        let after = counts.partition_point(|(at, _)| *at < begun);
        let (at, first) = counts[after.min(counts.len() - 1)];
        let seconds = end.duration_since(at).as_secs_f64();
        let bits = (last - first).bytes() as f64 * 8.0;
        if seconds > 0.0 { bits / seconds } else { 0.0 }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // An entry is added in one step, so a panic in another thread leaves no incomplete entry.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for RunningConnection {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // An error of the sender is ignored here, because the number of received bytes shows it.
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        if let Some(counter) = self.counter.take() {
            let _ = counter.join();
        }
    }
}

fn send(to: SocketAddr, neighbour: CompetingConnection, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    let name = match neighbour {
        CompetingConnection::Cubic => "cubic",
        CompetingConnection::Bbr => "bbr",
    };
    setsockopt(&stream, sockopt::TcpCongestion, &name.into())?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&u64::MAX.to_be_bytes())?;
    let block = vec![7; STEP_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("sending"),
        }
    }
    // A reset ends the connection, because bytes that are still queued would disturb the next
    // trial.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(())
}

const COUNT_EVERY: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(100);
const STEP_BYTES: usize = 256 << 10;
