//! Far half of an SFTP session. The far half connects the link stream of a channel with the
//! server's channel, on which the subsystem `sftp` runs.

use std::time::Duration;

use bytes::Bytes;
use relay::session_memory::MemoryShare;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client::Msg};
use sftp::{FarSettings, SftpError, SftpFar, ToFar};
use tokio::{sync::mpsc, time::sleep};
use tracing::debug;

use super::{connection::ServerState, exit::exit_message};
use crate::{
    backpressure::HeldBytes,
    sftp_tasks::{SftpTask, TaskState, join_pieces},
    wire::{
        FrameReader, FrameWriter, WireError,
        channel::{ChannelMessage, EXTENDED},
    },
};

/// End of an SFTP session, as the far half sees it.
#[derive(Debug)]
pub(super) enum SftpEnd {
    /// The near half has closed the channel, or its stream broke.
    Near,
    /// The server has closed the channel, and all its answers have been written.
    Server,
    /// The server or the near half has violated the protocol.
    Violation(String),
}

/// Far half of an SFTP session.
pub(super) struct SftpChannel<'a> {
    held: &'a HeldBytes,
    server: &'a ServerState,
    state: TaskState<State>,
    _memory: MemoryShare,
}

struct State {
    session: SftpFar,
    near: NearState,
}

/// Progress of the near half's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NearState {
    Open,
    /// The near half sends no further requests.
    Ended,
    /// The near half has closed the channel.
    Closed,
}

/// Message of the server that is not an answer to a request.
enum Control {
    /// Message about the program.
    Message(ChannelMessage),
    /// Bytes of standard error.
    Extended(Bytes),
    /// End of the channel.
    Close,
}

impl<'a> SftpChannel<'a> {
    pub(super) fn new(held: &'a HeldBytes, server: &'a ServerState) -> Self {
        let FarSettings { reads_max } = FarSettings::default();
        // The answers in the queue take up to twice `reads_max`.
        let memory = server.backpressure.memory();
        let memory = memory.reserve(QUEUES_BYTES + 2 * reads_max);
        let settings = FarSettings {
            reads_max: (memory.bytes() / 3).max(READS_MIN),
        };
        Self {
            held,
            server,
            state: TaskState::new(State {
                session: SftpFar::new(settings),
                near: NearState::Open,
            }),
            _memory: memory,
        }
    }

    /// Passes on requests and answers, until the near half or the server closes the channel.
    pub(super) async fn run(
        &self,
        read: &mut ChannelReadHalf,
        write: &ChannelWriteHalf<Msg>,
        send: &mut FrameWriter,
        frames: &mut FrameReader,
    ) -> SftpEnd {
        let (controls, to_write) = mpsc::channel(CONTROLS_MAX);
        tokio::select! {
            end = self.read_server(read, controls) => end,
            end = self.read_near(frames) => end,
            end = self.write_server(write) => end,
            end = self.write_near(send, to_write) => end,
        }
    }

    async fn read_server(
        &self,
        read: &mut ChannelReadHalf,
        controls: mpsc::Sender<Control>,
    ) -> SftpEnd {
        loop {
            self.state
                .wait_until(SftpTask::ChannelReader, |state| {
                    state.session.wants_server_bytes()
                })
                .await;
            let control = match read.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    self.held.remove(data.len());
                    let received = self.change(|state| state.session.receive_from_server(data));
                    match received {
                        Ok(()) => continue,
                        Err(error) => return violation(&error),
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    self.held.remove(data.len());
                    Control::Extended(data)
                }
                Some(ChannelMsg::WindowAdjusted { .. }) => {
                    self.held.remove(0);
                    continue;
                }
                Some(ChannelMsg::Success) => Control::Message(ChannelMessage::Started),
                Some(ChannelMsg::Failure) => Control::Message(ChannelMessage::Refused),
                Some(ChannelMsg::Close) => Control::Close,
                None => Control::Message(ChannelMessage::Failed(self.server.end_text().await)),
                Some(other) => match exit_message(other) {
                    Some(message) => Control::Message(message),
                    None => continue,
                },
            };
            let is_end = matches!(
                control,
                Control::Close
                    | Control::Message(ChannelMessage::Refused | ChannelMessage::Failed(_))
            );
            // The receiver is another task of this channel.
            let _ = controls.send(control).await;
            if is_end {
                let _ = controls.send(Control::Close).await;
                std::future::pending::<()>().await;
            }
        }
    }

    async fn read_near(&self, frames: &mut FrameReader) -> SftpEnd {
        loop {
            tokio::select! {
                () = self.state.wait_until(SftpTask::StreamReader, |state| {
                    state.session.wants_near_messages()
                }) => {}
                error = frames.failed() => {
                    debug!(%error, "the stream of a channel broke");
                    return SftpEnd::Near;
                }
            }
            let message = match frames.next().await {
                Ok(Some(frame)) => ChannelMessage::decode(frame),
                Ok(None) => Ok(ChannelMessage::Close),
                Err(error) => Err(error),
            };
            match message {
                Ok(ChannelMessage::Sftp(kind, body)) => {
                    let received = match ToFar::decode(kind, body) {
                        Ok(message) => {
                            self.change(|state| state.session.receive_from_near(message))
                        }
                        Err(error) => return SftpEnd::Violation(error.to_string()),
                    };
                    if let Err(error) = received {
                        return violation(&error);
                    }
                }
                Ok(ChannelMessage::Eof) => self.change(|state| state.near = NearState::Ended),
                Ok(ChannelMessage::Close) => {
                    // The near half may already have answered the last requests, so the server gets
                    // time to accept them.
                    self.change(|state| state.near = NearState::Closed);
                    sleep(FLUSH_TIMEOUT).await;
                    return SftpEnd::Near;
                }
                Ok(_) => return SftpEnd::Violation("unexpected message".to_owned()),
                Err(WireError::Lost(_) | WireError::Truncated) => return SftpEnd::Near,
                Err(error) => return SftpEnd::Violation(error.to_string()),
            }
        }
    }

    async fn write_server(&self, write: &ChannelWriteHalf<Msg>) -> SftpEnd {
        let mut has_sent_end = false;
        loop {
            if let Some(bytes) = self.next_server_bytes() {
                let _wait = self.server.backpressure.wait_for_window();
                if write.data_bytes(bytes).await.is_err() {
                    // The connection has ended. The task of the other direction then also ends.
                    std::future::pending::<()>().await;
                }
                continue;
            }
            let (near, is_flushed) = {
                let state = self.state.lock();
                (state.near, state.session.is_flushed())
            };
            if near == NearState::Closed && is_flushed {
                return SftpEnd::Near;
            }
            if near == NearState::Ended && !has_sent_end {
                has_sent_end = true;
                let _ = write.eof().await;
            }
            self.state.wait(SftpTask::ChannelWriter).await;
        }
    }

    async fn write_near(
        &self,
        send: &mut FrameWriter,
        mut controls: mpsc::Receiver<Control>,
    ) -> SftpEnd {
        let mut next: Option<Control> = None;
        loop {
            if let Err(error) = send.advance().await {
                debug!(%error, "the stream of a channel broke");
                // The near half may have closed its end in an orderly way.
                std::future::pending::<()>().await;
            }
            // The answers precede the end of the output.
            if let Some(message) = self.next_near_message() {
                send.queue_sftp(message.encode());
                continue;
            }
            match next.take() {
                Some(Control::Message(message)) => send.queue(message.encode()),
                Some(Control::Extended(data)) => {
                    if send.write_data(EXTENDED, data).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Some(Control::Close) => {
                    send.queue(ChannelMessage::Close.encode());
                    return SftpEnd::Server;
                }
                None => tokio::select! {
                    biased;
                    control = controls.recv() => next = control.or(Some(Control::Close)),
                    () = self.state.wait(SftpTask::StreamWriter) => {}
                    // `advance` reports the error again.
                    _ = send.flush_when_idle() => {}
                },
            }
        }
    }

    /// Returns bytes for the server.
    fn next_server_bytes(&self) -> Option<Bytes> {
        let bytes = {
            let session = &mut self.state.lock().session;
            join_pieces(|| session.next_server_bytes())?
        };
        self.state.wake(&[SftpTask::StreamReader]);
        Some(bytes)
    }

    fn next_near_message(&self) -> Option<sftp::ToNear> {
        let message = self.state.lock().session.next_near_message()?;
        // The queue has become shorter, so the session may read further.
        self.state
            .wake(&[SftpTask::ChannelReader, SftpTask::ChannelWriter]);
        Some(message)
    }

    /// Changes the state, and wakes all tasks.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.change(|state| {
            let changed = change(state);
            if state.near == NearState::Closed {
                // The near half reads no more answers. Unread answers must not stop the input of
                // the server.
                while state.session.next_near_message().is_some() {}
            }
            changed
        })
    }
}

fn violation(error: &SftpError) -> SftpEnd {
    SftpEnd::Violation(error.to_string())
}

/// Memory for the queues of one channel, in bytes. The queues hold requests for the server, and
/// delayed requests.
const QUEUES_BYTES: u64 = 8 * 1024 * 1024;

/// Number of bytes that a channel may read ahead of the link when the memory is short.
const READS_MIN: u64 = 512 * 1024;

/// Maximum number of server messages that wait for the link. Answers to requests do not count.
const CONTROLS_MAX: usize = 16;

/// Time limit for the server to accept the last requests of a client that has closed its channel.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
