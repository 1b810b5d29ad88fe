//! First packets of a client: its identification and its list of algorithms.
//!
//! The client's order decides which cipher both sides use (RFC 4253 section 7.1). Most clients
//! prefer ciphers that take more processor time than AES-GCM. The gateway therefore reads the
//! client's list before it sends its own list.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use net::tls::Leg;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use crate::{
    algorithms::IDENTIFICATION,
    backpressure::{self, PeerEnd},
};

/// Stream to a client whose first packets the gateway has read. The SSH library reads them again.
#[derive(Debug)]
pub(super) struct GreetedStream<S> {
    stream: S,
    /// Bytes of the client that the library has not read yet.
    unread: BytesMut,
    /// Number of bytes that the gateway has already sent, although the library has not written them
    /// yet.
    sent_bytes: usize,
    /// Whether the client supports AES-GCM in both directions.
    pub(super) has_gcm: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> GreetedStream<S> {
    /// Sends the identification of the gateway.
    ///
    /// # Errors
    /// The error of the connection.
    pub(super) async fn send_identification(mut stream: S) -> io::Result<Self> {
        let line = format!("{IDENTIFICATION}\r\n");
        stream.write_all(line.as_bytes()).await?;
        Ok(Self {
            stream,
            unread: BytesMut::new(),
            sent_bytes: line.len(),
            has_gcm: false,
        })
    }

    /// Reads the identification of the client.
    ///
    /// # Errors
    /// The error of the connection, or an error for a client that does not speak SSH or sends no
    /// identification in time.
    pub(super) async fn read_identification(&mut self) -> io::Result<()> {
        let read = timeout(IDENTIFICATION_TIMEOUT, async {
            while !self.unread.contains(&b'\n') {
                if self.unread.len() >= IDENTIFICATION_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.read_more().await?;
            }
            match self.unread.starts_with(b"SSH-") {
                true => Ok(()),
                false => Err(io::ErrorKind::InvalidData.into()),
            }
        });
        read.await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Reads the list of algorithms, which follows the identification. If a client sends no list in
    /// time, the gateway sends its own list first.
    ///
    /// # Errors
    /// The error of the connection, or an error for a client that does not speak SSH.
    pub(super) async fn read_list(&mut self) -> io::Result<()> {
        let result: Result<io::Result<bool>, _> = timeout(LIST_TIMEOUT, async {
            loop {
                match Greeting::parse(&self.unread) {
                    Greeting::Incomplete if self.unread.len() < GREETING_MAX => {}
                    Greeting::Incomplete | Greeting::Other => {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    Greeting::Complete { has_gcm } => return Ok(has_gcm),
                }
                self.read_more().await?;
            }
        })
        .await;
        self.has_gcm = match result {
            Ok(has_gcm) => has_gcm?,
            Err(_) => false,
        };
        Ok(())
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Returns the stream itself, for a message before the key exchange.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

/// First bytes of a client.
#[derive(Debug, PartialEq, Eq)]
enum Greeting {
    /// The bytes end within the identification or within the list.
    Incomplete,
    /// The bytes are no identification, or something other than a list follows it.
    Other,
    /// The bytes contain the list, or a packet that may precede it.
    Complete {
        /// Whether the list has AES-GCM in both directions.
        has_gcm: bool,
    },
}

impl Greeting {
    fn parse(bytes: &[u8]) -> Self {
        let mut line = bytes.iter().take(IDENTIFICATION_MAX);
        let Some(end) = line.position(|it| *it == b'\n') else {
            return match bytes.len() < IDENTIFICATION_MAX {
                true => Self::Incomplete,
                false => Self::Other,
            };
        };
        let packet = &bytes[end + 1..];
        let Some((length, body)) = packet.split_first_chunk() else {
            return Self::Incomplete;
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > PACKET_MAX {
            return Self::Other;
        }
        let Some(body) = body.get(..length) else {
            return Self::Incomplete;
        };
        match (ciphers(body), body.get(1)) {
            (Some(lists), _) => Self::Complete {
                has_gcm: lists.into_iter().all(has_gcm),
            },
            // A client may send such a packet before its list. The library reads it.
            (None, Some(SSH_MSG_DISCONNECT..=SSH_MSG_DEBUG)) => Self::Complete { has_gcm: false },
            (None, _) => Self::Other,
        }
    }
}

/// Returns the lists of ciphers in a list of algorithms, one for each direction (RFC 4253 section
/// 7.1). Returns `None` if the packet is not such a list.
fn ciphers(packet: &[u8]) -> Option<[&[u8]; 2]> {
    // The padding length, the message type and the cookie precede the lists.
    let (head, mut rest) = packet.split_at_checked(1 + 1 + 16)?;
    if head[1] != SSH_MSG_KEXINIT {
        return None;
    }
    let mut lists = [&[][..]; 4];
    for list in &mut lists {
        let (length, after) = rest.split_first_chunk()?;
        let length = u32::from_be_bytes(*length) as usize;
        (*list, rest) = after.split_at_checked(length)?;
    }
    Some([lists[2], lists[3]])
}

fn has_gcm(list: &[u8]) -> bool {
    let mut names = list.split(|it| *it == b',');
    names.any(|it| it == b"aes128-gcm@openssh.com" || it == b"aes256-gcm@openssh.com")
}

/// Parses the first packets of a client. Returns whether the client supports AES-GCM in both
/// directions.
///
/// # Panics
/// Panics if the result depends on the amount of data that has arrived.
#[cfg(feature = "fuzzing")]
pub(crate) fn has_client_gcm(bytes: &[u8]) -> bool {
    let first = (0..bytes.len())
        .map(|end| Greeting::parse(&bytes[..end]))
        .find(|it| *it != Greeting::Incomplete);
    let whole = Greeting::parse(bytes);
    if let Some(first) = first {
        assert_eq!(first, whole);
    }
    whole == Greeting::Complete { has_gcm: true }
}

/// Returns the first packets of a client with these ciphers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn greeting(ciphers: [&str; 2]) -> Vec<u8> {
    let mut body = vec![4, SSH_MSG_KEXINIT];
    body.extend_from_slice(&[9; 16]);
    for list in [
        "curve25519-sha256",
        "ssh-ed25519",
        ciphers[0],
        ciphers[1],
        "",
    ] {
        let length = u32::try_from(list.len()).expect("short");
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(list.as_bytes());
    }
    let mut bytes = b"SSH-2.0-Client_1.0\r\n".to_vec();
    let length = u32::try_from(body.len()).expect("short");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

impl PeerEnd for GreetedStream<Leg> {
    fn has_peer_ended(&self) -> bool {
        // If a client ends its data before its channels have ended, the client is gone.
        backpressure::is_read_closed(&self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GreetedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GreetedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.sent_bytes == 0 {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        let skipped = self.sent_bytes.min(bytes.len());
        if skipped == bytes.len() {
            self.sent_bytes -= skipped;
            return Poll::Ready(Ok(skipped));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, &bytes[skipped..]);
        let written = ready!(written)?;
        self.sent_bytes = 0;
        Poll::Ready(Ok(skipped + written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

const SSH_MSG_DISCONNECT: u8 = 1;
const SSH_MSG_DEBUG: u8 = 4;
const SSH_MSG_KEXINIT: u8 = 20;

/// Maximum length of an identification in bytes (RFC 4253 section 4.2).
const IDENTIFICATION_MAX: usize = 255;

/// Maximum length of a packet in bytes (RFC 4253 section 6.1).
const PACKET_MAX: usize = 35_000;

/// Maximum length of the first packets in bytes. Clients may send a guessed packet after the list.
const GREETING_MAX: usize = IDENTIFICATION_MAX + 2 * PACKET_MAX;

/// Time limit for the identification of a client.
const IDENTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the list of a client. Some clients first wait for the gateway's list. The gateway
/// sends its list to them after this time.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_with_gcm_in_both_directions_is_recognized_at_any_cut() {
        let gcm = "chacha20-poly1305@openssh.com,aes256-gcm@openssh.com";
        for (ciphers, expected) in [([gcm, gcm], true), ([gcm, "aes128-ctr"], false)] {
            let bytes = greeting(ciphers);
            for cut in 0..bytes.len() {
                assert_eq!(Greeting::parse(&bytes[..cut]), Greeting::Incomplete);
            }
            let (mut client, server) = tokio::io::duplex(10_000);
            let greeted = GreetedStream::send_identification(server).await;
            let mut greeted = greeted.expect("open");
            client.write_all(&bytes).await.expect("open");
            client.write_all(b"rest").await.expect("open");
            greeted.read_identification().await.expect("a client");
            greeted.read_list().await.expect("a list");
            assert_eq!(greeted.has_gcm, expected);
            let mut read = vec![0; bytes.len() + 4];
            greeted.read_exact(&mut read).await.expect("open");
            assert!(read.starts_with(&bytes) && read.ends_with(b"rest"));
        }
    }

    #[tokio::test]
    async fn only_a_client_with_an_identification_of_ssh_is_served() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[b'x'; 300]] {
            let (mut client, server) = tokio::io::duplex(10_000);
            let greeted = GreetedStream::send_identification(server).await;
            let mut greeted = greeted.expect("open");
            client.write_all(bytes).await.expect("open");
            let error = greeted.read_identification().await.expect_err("not SSH");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[tokio::test]
    async fn the_identification_is_sent_once() {
        let (mut client, server) = tokio::io::duplex(10_000);
        let greeted = GreetedStream::send_identification(server).await;
        let mut greeted = greeted.expect("open");
        let line = format!("{IDENTIFICATION}\r\n");
        greeted
            .write_all(&line.as_bytes()[..5])
            .await
            .expect("open");
        let rest = [&line.as_bytes()[5..], b"next"].concat();
        greeted.write_all(&rest).await.expect("open");
        drop(greeted);
        let mut read = String::new();
        client.read_to_string(&mut read).await.expect("text");
        assert_eq!(read, line + "next");
    }

    #[test]
    fn other_protocols_are_recognized() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\xff\xff\xff\xff"[..],
            &[b'x'; 300],
            b"SSH-2.0-x\n\0\0\0\x03\0\x14x",
            b"SSH-2.0-x\n\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(Greeting::parse(bytes), Greeting::Other);
        }
    }

    #[test]
    fn a_packet_that_may_precede_the_list_is_left_to_the_library() {
        let parsed = Greeting::parse(b"SSH-2.0-x\n\0\0\0\x03\0\x02x");
        assert_eq!(parsed, Greeting::Complete { has_gcm: false });
    }

    #[tokio::test]
    async fn a_client_that_sends_no_list_is_not_served() {
        let (mut client, server) = tokio::io::duplex(100_000);
        let greeted = GreetedStream::send_identification(server).await;
        let mut greeted = greeted.expect("open");
        client.write_all(b"SSH-2.0-x\r\n").await.expect("open");
        client.write_all(&[0; 10_000]).await.expect("open");
        greeted.read_identification().await.expect("SSH");
        let error = greeted.read_list().await.expect_err("no list");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
