//! One transfer. The module records the times of its replies and of its bytes.
//!
//! The input is the control connection, a prepared data connection, and the bytes to send. The
//! output is the last reply, the received bytes, and the times for the record.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use ::ftp::reply::ReplyClass;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use super::{
    control::{FtpControl, FtpReply},
    files,
    record::{CommandRecord, DataRecord},
};
use crate::{Failure, FailureKind, Payload, failure::within};

/// The data connection that was prepared for the next transfer.
pub(super) enum PreparedDataConnection {
    /// A passive data connection, and the time at which it opened, in microseconds from the
    /// session's beginning.
    Connected(TcpStream, u64),
    /// An active data connection. The server connects after the transfer command.
    Awaited(TcpListener),
}

/// Direction and bytes of a transfer.
pub(super) enum TransferFlow {
    /// The server sends. The value contains the bytes received so far.
    In(Vec<u8>),
    /// The probe sends the bytes `from..size` of the file `name`.
    Out { name: String, from: u64, size: u64 },
}

/// One transfer, from its command to its final reply.
#[derive(Clone, Copy)]
pub(super) struct FtpTransfer<'a> {
    /// Time at which the session began. Times in records are counted from this time.
    pub(super) began: Instant,
    pub(super) reply_timeout: Duration,
    pub(super) verb: &'a str,
    /// Address of the server on the control connection. The data connection must come from the same
    /// IP address.
    pub(super) server: SocketAddr,
    pub(super) payload: Payload,
    pub(super) session: &'a str,
}

/// The final reply to a transfer command.
pub(super) struct TransferEnd {
    pub(super) reply: FtpReply,
    /// Time at which the final reply was complete. `None` if the server refused without a
    /// preliminary reply.
    pub(super) final_us: Option<u64>,
}

impl FtpTransfer<'_> {
    /// Reads the replies and moves the bytes at the same time.
    ///
    /// If the server refuses the transfer, the function returns without waiting for bytes.
    pub(super) async fn run(
        &self,
        control: &mut FtpControl,
        exchange: &mut CommandRecord,
        prepared: PreparedDataConnection,
        flow: &mut TransferFlow,
        data: &mut DataRecord,
    ) -> Result<TransferEnd, Failure> {
        let (accepted, is_accepted) = oneshot::channel();
        let (all_moved, have_all_moved) = oneshot::channel();
        let replies = self.replies(control, exchange, accepted, have_all_moved);
        let bytes = async {
            // This value is dropped after the last byte or after a failure. From then on, the final
            // reply is due.
            let _all_moved = all_moved;
            self.bytes(prepared, flow, data, is_accepted).await
        };
        tokio::pin!(replies, bytes);
        tokio::select! {
            ended = &mut replies => {
                let ended = ended?;
                if ended.reply.code.class() == ReplyClass::Completed {
                    bytes.await?;
                }
                Ok(ended)
            }
            moved = &mut bytes => {
                moved?;
                replies.await
            }
        }
    }

    /// Waits for the preliminary reply and for the final reply, and records both in `exchange`.
    ///
    /// Sends a message through `accepted` when the preliminary reply has arrived. During the
    /// transfer, the control connection has no time limit, because the data connection has its own
    /// limit.
    async fn replies(
        &self,
        control: &mut FtpControl,
        exchange: &mut CommandRecord,
        accepted: oneshot::Sender<()>,
        have_all_moved: oneshot::Receiver<()>,
    ) -> Result<TransferEnd, Failure> {
        let first = control.reply(self.verb).await?;
        exchange.replied_us = Some(self.now_us());
        exchange.code = Some(first.code.0);
        if first.code.class() != ReplyClass::Preliminary {
            return Ok(TransferEnd {
                reply: first,
                final_us: None,
            });
        }
        // Sending fails if the data connection has failed, because the receiver was dropped.
        let _ = accepted.send(());
        let have_all_moved = async {
            let _ = have_all_moved.await;
        };
        let last = control.reply_after(self.verb, have_all_moved).await?;
        exchange.code = Some(last.code.0);
        Ok(TransferEnd {
            reply: last,
            final_us: Some(self.now_us()),
        })
    }

    /// Opens the data connection, moves all bytes, and records the times in `data`.
    async fn bytes(
        &self,
        prepared: PreparedDataConnection,
        flow: &mut TransferFlow,
        data: &mut DataRecord,
        is_accepted: oneshot::Receiver<()>,
    ) -> Result<(), Failure> {
        let mut stream = match prepared {
            PreparedDataConnection::Connected(stream, at) => {
                data.connected_us = Some(at);
                stream
            }
            PreparedDataConnection::Awaited(listener) => {
                let stream = self.within(accept_from(&listener, self.server)).await?;
                data.connected_us = Some(self.now_us());
                stream
            }
        };
        match flow {
            TransferFlow::In(bytes) => self.receive(&mut stream, bytes, data).await?,
            TransferFlow::Out { name, from, size } => {
                if is_accepted.await.is_err() {
                    // The server refused, so there is nothing to send.
                    return Ok(());
                }
                let pieces = files::content(self.payload, self.session, name, *from, *size);
                self.send(&mut stream, pieces, data).await?;
            }
        }
        data.ended_us = Some(self.now_us());
        Ok(())
    }

    /// Reads bytes until the server closes the data connection.
    async fn receive(
        &self,
        stream: &mut TcpStream,
        bytes: &mut Vec<u8>,
        data: &mut DataRecord,
    ) -> Result<(), Failure> {
        loop {
            let count = self.within(stream.read_buf(bytes)).await?;
            if count == 0 {
                return Ok(());
            }
            data.first_byte_us.get_or_insert(self.now_us());
            data.bytes += count as u64;
            if data.bytes > RETRIEVED_MAX_BYTES {
                let detail = format!("more than {RETRIEVED_MAX_BYTES} bytes");
                return Err(Failure::new(FailureKind::WrongData, self.verb, detail));
            }
        }
    }

    /// Sends `pieces`, and then closes the sending side of the data connection.
    async fn send(
        &self,
        stream: &mut TcpStream,
        pieces: impl Iterator<Item = Vec<u8>>,
        data: &mut DataRecord,
    ) -> Result<(), Failure> {
        for piece in pieces {
            self.within(stream.write_all(&piece)).await?;
            data.first_byte_us.get_or_insert(self.now_us());
            data.bytes += piece.len() as u64;
        }
        self.within(stream.shutdown()).await
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = std::io::Result<T>>,
    ) -> Result<T, Failure> {
        let during = format!("{}: data connection", self.verb);
        within(&during, self.reply_timeout, work).await
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

/// Accepts the server's data connection. Connections from other addresses are closed.
async fn accept_from(listener: &TcpListener, server: SocketAddr) -> std::io::Result<TcpStream> {
    loop {
        let (stream, from) = listener.accept().await?;
        if from.ip() == server.ip() {
            return Ok(stream);
        }
    }
}

/// Maximum size of a download: 1 GiB. The limit is needed because a session holds a retrieved file
/// in memory until the check.
const RETRIEVED_MAX_BYTES: u64 = 1 << 30;
