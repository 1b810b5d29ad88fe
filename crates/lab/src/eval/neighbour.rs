//! Another user of the path: a TCP connection with endless data, for as long as it is kept.

use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use units::ByteCount;

use super::cell::{Direction, Neighbour};
use crate::{
    bulk::Sink,
    wan::{Site, Wan},
};

/// A connection that sends; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    sink: Sink,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<std::io::Result<anyhow::Result<()>>>>,
}

impl Running {
    /// Starts it in the direction of the work, and gives it time to find its rate.
    pub(crate) fn start(
        wan: &Wan,
        neighbour: Neighbour,
        direction: Direction,
        head_start: Duration,
    ) -> anyhow::Result<Self> {
        let to = match direction {
            Direction::Down => Site::A,
            Direction::Up => Site::B,
        };
        let sink = Sink::start(wan, to, 0)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (sink.address(), stop.clone());
        let sender = wan.spawn_thread_in(to.other(), move || send(address, neighbour, &stopped))?;
        thread::sleep(head_start);
        Ok(Self {
            sink,
            stop,
            sender: Some(sender),
        })
    }

    /// Bytes that have arrived.
    pub(crate) fn received(&self) -> ByteCount {
        self.sink.received()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            // What became of it shows in what it has received.
            let _ = sender.join();
        }
    }
}

fn send(to: SocketAddr, neighbour: Neighbour, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    let name = match neighbour {
        Neighbour::Cubic => "cubic",
        Neighbour::Bbr => "bbr",
    };
    setsockopt(&stream, sockopt::TcpCongestion, &name.into())?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&u64::MAX.to_be_bytes())?;
    let block = vec![7; STEP_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("sending"),
        }
    }
    // What is still queued must not disturb what comes after.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(())
}

const PATIENCE: Duration = Duration::from_millis(100);
const STEP_BYTES: usize = 256 << 10;
