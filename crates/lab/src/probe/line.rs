//! Lines over TCP connections that block, with a time after which they must be there.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, FailureKind, hello::Hello};

/// Reads up to the first newline. Returns the line without it, and what came behind it.
pub(super) fn read(
    stream: &mut TcpStream,
    max_bytes: usize,
    deadline: Instant,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let searched = bytes.len();
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(at) = bytes[searched..].iter().position(|&byte| byte == b'\n') {
            let rest = bytes.split_off(searched + at + 1);
            bytes.pop();
            return if bytes.len() < max_bytes {
                Ok((bytes, rest))
            } else {
                Err(too_long())
            };
        }
        if bytes.len() >= max_bytes {
            return Err(too_long());
        }
    }
}

/// Writes a value as a line of JSON.
pub(super) fn write(stream: &mut TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value).expect("plain values");
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Connects to a peer and says what for.
pub(super) fn connect(
    peer: SocketAddr,
    hello: &Hello,
    patience: Duration,
) -> Result<TcpStream, Failure> {
    let failed = |error: io::Error| Failure::io("connecting", &error);
    let mut stream = TcpStream::connect_timeout(&peer, patience).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(hello.line().as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// Reads a peer's answer.
pub(super) fn answer<T: DeserializeOwned>(
    stream: &mut TcpStream,
    during: &str,
    patience: Duration,
) -> Result<T, Failure> {
    let line = read(stream, ANSWER_MAX_BYTES, Instant::now() + patience);
    let (line, _) = line.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            let detail = "the connection ended; is it a longhaul probe serve of this version?";
            Failure::new(FailureKind::Ended, during, detail)
        }
        _ => Failure::io(during, &error),
    })?;
    serde_json::from_slice(&line).map_err(|error| {
        let words = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
        Failure::new(
            FailureKind::UnexpectedReply,
            during,
            format!("{error}: {words}"),
        )
    })
}

fn too_long() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the line is too long")
}

/// Of a peer: an hour of intervals of all streams.
const ANSWER_MAX_BYTES: usize = 16 << 20;
