//! Bulk transfer over one TCP connection.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use units::{BitRate, ByteCount};

use super::{LoadError, address};
use crate::{Site, Wan};

/// Sends data for the duration `time`, and returns the rate at which the receiving program read it.
///
/// # Errors
/// [`LoadError`] if the connection fails.
pub fn tcp_goodput(
    wan: &Wan,
    from: Site,
    ipv6: bool,
    time: Duration,
) -> Result<BitRate, LoadError> {
    let to = address(wan, from.other(), ipv6, 0);
    let listener = wan
        .enter(from.other(), || TcpListener::bind(to))?
        .map_err(LoadError::io("listening"))?;
    let to = listener.local_addr().map_err(LoadError::io("listening"))?;
    let mut stream = wan
        .enter(from, || TcpStream::connect(to))?
        .map_err(LoadError::io("connecting"))?;
    let (mut incoming, _) = listener.accept().map_err(LoadError::io("accepting"))?;
    let receiver = thread::spawn(move || {
        let mut buffer = vec![0; BLOCK_BYTES];
        let (start, mut total) = (Instant::now(), 0u64);
        while let Ok(length @ 1..) = incoming.read(&mut buffer) {
            total += length as u64;
        }
        BitRate::from_transfer(ByteCount::new(total), start.elapsed())
    });
    let block = vec![7; BLOCK_BYTES];
    let start = Instant::now();
    while start.elapsed() < time {
        stream
            .write_all(&block)
            .map_err(LoadError::io("sending by TCP"))?;
    }
    drop(stream);
    let rate = receiver.join();
    Ok(rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

const BLOCK_BYTES: usize = 256 << 10;
