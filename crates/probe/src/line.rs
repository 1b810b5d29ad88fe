//! Lines of text over blocking TCP connections. Each operation has a deadline.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, FailureKind, hello::ProbeHello};

/// Reads bytes up to the first newline, and no further bytes. Returns the line without the newline.
pub(super) fn read(
    stream: &mut TcpStream,
    max_bytes: usize,
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.peek(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = buffer[..count].iter().position(|&byte| byte == b'\n');
        let mine = end.map_or(count, |end| end + 1);
        stream.read_exact(&mut buffer[..mine])?;
        line.extend_from_slice(&buffer[..mine]);
        // The limit includes the newline.
        if line.len() > max_bytes {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the line is too long",
            ));
        }
        if end.is_some() {
            line.pop();
            return Ok(line);
        }
    }
}

/// Writes a value as one line of JSON.
pub(super) fn write(stream: &mut TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value).expect("plain values");
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Connects to a peer and sends the first line.
pub(super) fn connect(
    peer: SocketAddr,
    hello: &ProbeHello,
    reply_timeout: Duration,
) -> Result<TcpStream, Failure> {
    let failed = |error: io::Error| Failure::io("connecting", &error);
    let mut stream = TcpStream::connect_timeout(&peer, reply_timeout).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream
        .set_write_timeout(Some(reply_timeout))
        .map_err(failed)?;
    stream.write_all(hello.line().as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// Reads a peer's answer.
pub(super) fn answer<T: DeserializeOwned>(
    stream: &mut TcpStream,
    during: &str,
    reply_timeout: Duration,
) -> Result<T, Failure> {
    let line = read(stream, ANSWER_MAX_BYTES, Instant::now() + reply_timeout);
    let line = line.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            let detail = "the connection ended; is it a longhaul probe serve of this version?";
            Failure::new(FailureKind::Ended, during, detail)
        }
        _ => Failure::io(during, &error),
    })?;
    if let Some(words) = line.strip_prefix(COMPLAINT.as_bytes()) {
        let words = String::from_utf8_lossy(words).trim().to_owned();
        return Err(Failure::new(FailureKind::UnexpectedReply, during, words));
    }
    serde_json::from_slice(&line).map_err(|error| {
        let words = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
        Failure::new(
            FailureKind::UnexpectedReply,
            during,
            format!("{error}: {words}"),
        )
    })
}

/// First characters of a line by which a peer refuses a request.
pub(super) const COMPLAINT: &str = "longhaul-probe: ";
/// Maximum length of a peer's answer in bytes. The longest answer contains the intervals of all
/// streams over one hour.
const ANSWER_MAX_BYTES: usize = 16 << 20;
