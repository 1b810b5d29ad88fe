//! Messages between two processes over a Unix socket, with attached sockets.
//!
//! A message consists of its length in four bytes and a JSON text. The attached sockets arrive
//! together with the length.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// One of the two endpoints of the channel between an old and a new process.
#[derive(Debug)]
pub(super) struct HandoverChannel {
    socket: UnixStream,
}

/// Maximum number of sockets that are attached to one message. The kernel permits 253.
pub(super) const SOCKETS_MAX: usize = 64;
/// Maximum length of a message in bytes. A message about 4096 peers has less than a tenth of this
/// length.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Timeout of a write. The receiving process normally reads a message immediately.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

impl HandoverChannel {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Creates a channel, and returns both endpoints.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::new(ours), theirs.into()))
    }

    /// Returns a second handle of this endpoint.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.socket.try_clone().map(Self::new)
    }

    /// Sends a message with the attached sockets.
    ///
    /// # Errors
    /// If the other process has ended, or does not read the message in time.
    pub(super) fn send(
        &mut self,
        message: &impl Serialize,
        sockets: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let text = serde_json::to_vec(message)?;
        let length = (text.len() as u32).to_be_bytes();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(sockets)) {
            return Err(io::Error::other("too many sockets for a message"));
        }
        let parts = [IoSlice::new(&length)];
        let sent = sendmsg(
            self.socket.as_fd(),
            &parts,
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        self.socket.write_all(&length[sent..])?;
        self.socket.write_all(&text)
    }

    /// Receives the next message and its attached sockets.
    ///
    /// # Errors
    /// `TimedOut` if no message arrives in time. `UnexpectedEof` if the other process has ended.
    /// `InvalidData` if the message is malformed.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.socket.set_read_timeout(Some(timeout))?;
        let mut length = [0; 4];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut length)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came = recvmsg(self.socket.as_fd(), &mut parts, &mut ancillary, flags);
        let came = came.map_err(|error| timed_out(error.into()))?.bytes;
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut sockets = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                sockets.extend(came);
            }
        }
        self.socket.read_exact(&mut length[came..])?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; length];
        self.socket.read_exact(&mut text).map_err(timed_out)?;
        Ok((serde_json::from_slice(&text)?, sockets))
    }
}

/// Converts the error of a read with a timeout. The kernel reports `WouldBlock` when the timeout
/// expires.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn pair() -> (HandoverChannel, HandoverChannel) {
        let (one, other) = HandoverChannel::pair().expect("sockets can be made");
        (one, HandoverChannel::new(other.into()))
    }

    #[test]
    fn a_message_arrives_with_its_sockets() {
        let (mut one, mut other) = pair();
        let path = std::env::temp_dir().join(format!("longhaul-channel-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).expect("a scratch file");
        std::fs::remove_file(&path).expect("it is there");
        let text = "x".repeat(300_000);
        let writer = std::thread::spawn({
            let (text, file) = (text.clone(), file.try_clone().expect("a handle"));
            move || {
                one.send(&("first", text), &[file.as_fd(), file.as_fd()])
                    .expect("the other end reads");
                one.send(&"second", &[]).expect("the other end reads");
            }
        });
        let (first, mut sockets) = other.receive::<(String, String)>(TIMEOUT).expect("it came");
        assert_eq!(first, ("first".to_owned(), text));
        assert_eq!(sockets.len(), 2);
        let (second, none) = other.receive::<String>(TIMEOUT).expect("it came");
        assert_eq!((second.as_str(), none.len()), ("second", 0));
        writer.join().expect("no panic");
        let mut same = std::fs::File::from(sockets.pop().expect("there are two"));
        same.write_all(b"7").expect("it is open");
        assert_eq!(file.stream_position().expect("it is open"), 1, "one file");
        let gone = other.receive::<String>(TIMEOUT).expect_err("nothing more");
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_wait_in_vain_ends_with_an_error() {
        let (_one, mut other) = pair();
        let late = other.receive::<String>(Duration::from_millis(20));
        let late = late.expect_err("nothing comes");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn nonsense_is_an_error() {
        let (mut one, mut other) = pair();
        one.socket
            .write_all(&[0xff, 0xff, 0xff, 0xff, 1])
            .expect("there is room");
        assert!(other.receive::<String>(TIMEOUT).is_err());
        let (mut one, mut other) = pair();
        one.socket
            .write_all(b"\0\0\0\x02{]")
            .expect("there is room");
        assert!(other.receive::<String>(TIMEOUT).is_err());
    }
}
