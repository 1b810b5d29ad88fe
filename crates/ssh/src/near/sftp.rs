//! Near half of an SFTP session. The near half connects the client's channel for the subsystem
//! `sftp` with the link stream of the channel.

use std::{future::pending, sync::Arc};

use bytes::Bytes;
use relay::session_memory::{MemoryShare, SessionMemory};
use russh::{ChannelMsg, ChannelReadHalf};
use sftp::{EarlyReplies, EncodedMessage, NearSettings, SftpError, SftpNear, SharedFiles, ToNear};
use tokio::time::{Instant, sleep_until};

use super::{
    client_end::{ChannelEnd, ClientEnd, STALL_TIMEOUT},
    far_half::FarHalf,
    transfers::Transfers,
};
use crate::{
    sftp_tasks::{SftpTask, TaskState, join_pieces},
    signals::signal_name,
    wire::{FrameReader, FrameWriter, WireError, channel::ChannelMessage},
};

/// Near half of an SFTP session, with the transfers that it reports.
pub(super) struct SftpChannel<'a> {
    client: &'a ClientEnd,
    far: &'a FarHalf,
    state: TaskState<State>,
}

struct State {
    session: SftpNear,
    /// Memory for queues and read-ahead. `None` while the client has no open file.
    memory: Option<MemoryShare>,
    /// Start of the session.
    started: Instant,
    transfers: Transfers,
    /// Whether the client has ended its data.
    has_client_ended: bool,
    /// Whether a message about the end of the server's program has arrived.
    has_server_ended: bool,
    /// Whether all answers have been written to the client.
    is_written: bool,
}

impl State {
    /// Reserves memory for the read-ahead of the files that the client may open now.
    fn reserve(&mut self, memory: &Arc<SessionMemory>) {
        if self.memory.is_some() {
            return;
        }
        let read_ahead_max = NearSettings::default().read_ahead_max;
        let share = memory.reserve(QUEUES_BYTES + read_ahead_max);
        let parts = read_ahead_max / QUEUES_BYTES;
        let read_ahead_bytes = share.bytes() / (parts + 1) * parts;
        self.session.set_read_ahead_max(read_ahead_bytes);
        self.memory = Some(share);
    }

    /// Records whether downloads wait for the client or for the far half. A download waits for the
    /// client if the client reads slowly or requests nothing.
    fn record_download_wait(&mut self) {
        let is_on_far = self.is_written && self.session.awaits_far();
        self.transfers.record_download_wait(is_on_far);
    }

    /// Passes the events of the session on to the status.
    fn report(&mut self) {
        while let Some(event) = self.session.next_event() {
            self.transfers.record(event);
        }
    }
}

impl<'a> SftpChannel<'a> {
    /// Creates the near half. `files` is the registry of open files that the user's sessions from
    /// the same address share.
    pub(super) fn new(
        client: &'a ClientEnd,
        far: &'a FarHalf,
        transfers: Transfers,
        files: SharedFiles,
    ) -> Self {
        let settings = NearSettings {
            early: client.early(),
            read_ahead_max: 0,
            is_openssh: client.is_openssh(),
            ..NearSettings::default()
        };
        let mut session = SftpNear::new(settings);
        session.set_shared_files(files);
        Self {
            client,
            far,
            state: TaskState::new(State {
                session,
                memory: None,
                started: Instant::now(),
                transfers,
                has_client_ended: false,
                has_server_ended: false,
                is_written: true,
            }),
        }
    }

    /// Passes on requests and answers, until the client or the far half closes the channel.
    pub(super) async fn run(
        &self,
        read: &mut ChannelReadHalf,
        send: &mut FrameWriter,
        frames: &mut FrameReader,
    ) -> ChannelEnd {
        let end = tokio::select! {
            end = self.read_client(read) => end,
            end = self.read_far(frames) => end,
            end = self.write_client() => end,
            end = self.write_far(send) => end,
            end = self.pass_time() => end,
            end = self.wait_for_end() => end,
            () = self.client.held.stalled_after_close(STALL_TIMEOUT) => ChannelEnd::Client,
            () = self.client.probe_while_paused() => ChannelEnd::Client,
            () = self.wait_for_stop() => ChannelEnd::Failed("stopped by the operator".to_owned()),
        };
        if matches!(end, ChannelEnd::Client | ChannelEnd::Settled) {
            // The gateway may have answered these requests early.
            while let Some(message) = self.next_far_message() {
                send.queue_sftp(message);
            }
        }
        let mut state = self.state.lock();
        let reason = match &end {
            ChannelEnd::Client | ChannelEnd::Settled => "the client has closed the channel",
            ChannelEnd::Far => "the server has closed the channel",
            ChannelEnd::Failed(text) => text,
        };
        state.session.end(reason);
        state.report();
        end
    }

    async fn read_client(&self, read: &mut ChannelReadHalf) -> ChannelEnd {
        loop {
            self.state
                .wait_until(SftpTask::ChannelReader, |state| {
                    state.session.wants_client_bytes()
                })
                .await;
            self.state.lock().transfers.record_upload_wait(false);
            let message = read.wait().await;
            self.state.lock().transfers.record_upload_wait(true);
            match message {
                Some(ChannelMsg::Data { data }) => {
                    self.client.held.remove(data.len());
                    let memory = self.client.client.backpressure.memory();
                    let received = self.change(|state| {
                        state.reserve(memory);
                        state.session.receive_from_client(data)
                    });
                    if let Err(error) = received {
                        return failed(&error);
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => self.client.held.remove(data.len()),
                Some(ChannelMsg::WindowAdjusted { .. } | ChannelMsg::WindowChange { .. }) => {
                    self.client.held.remove(0)
                }
                Some(ChannelMsg::Signal { signal }) => {
                    self.client.held.remove(signal_name(&signal).len());
                }
                Some(ChannelMsg::Eof) => {
                    self.client.held.remove(0);
                    self.change(|state| state.has_client_ended = true);
                }
                Some(ChannelMsg::Close) | None => return ChannelEnd::Client,
                Some(_) => {}
            }
        }
    }

    async fn read_far(&self, frames: &mut FrameReader) -> ChannelEnd {
        loop {
            self.state
                .wait_until(SftpTask::StreamReader, |state| {
                    state.session.wants_far_messages()
                })
                .await;
            let message = match frames.next().await {
                Ok(Some(frame)) => ChannelMessage::decode(frame),
                Ok(None) => Err(WireError::Truncated),
                Err(error) => Err(error),
            };
            let message = match message {
                Ok(ChannelMessage::Sftp(kind, body)) => {
                    let message = ToNear::decode(kind, body);
                    let received = match message {
                        Ok(message) => self.change(|state| state.session.receive_from_far(message)),
                        Err(error) => return ChannelEnd::Failed(error.to_string()),
                    };
                    match received {
                        Ok(()) => continue,
                        Err(error) => return failed(&error),
                    }
                }
                Ok(message) => message,
                Err(error) => return self.client.stream_end(&error, self.far).await,
            };
            if !matches!(
                message,
                ChannelMessage::Started | ChannelMessage::Extended(_)
            ) {
                self.state.lock().has_server_ended = true;
                // The answers precede the end of the data.
                self.state
                    .wait_until(SftpTask::StreamReader, |state| state.is_written)
                    .await;
            }
            if let Some(end) = self.client.handle_message(message, self.far).await {
                return end;
            }
        }
    }

    async fn write_client(&self) -> ChannelEnd {
        loop {
            let Some(bytes) = self.next_client_bytes() else {
                self.state.wait(SftpTask::ChannelWriter).await;
                continue;
            };
            // The result is ignored, because `read_client` reports the end of the client after it
            // has read the client's last requests.
            let _ = self.client.write(bytes).await;
        }
    }

    async fn write_far(&self, send: &mut FrameWriter) -> ChannelEnd {
        let mut has_sent_end = false;
        loop {
            if send.advance().await.is_err() {
                // The far half reports the reason on the other stream.
                pending::<()>().await;
            }
            if let Some(message) = self.next_far_message() {
                send.queue_sftp(message);
            } else if !has_sent_end && self.may_send_end() {
                has_sent_end = true;
                send.queue(ChannelMessage::Eof.encode());
            } else {
                tokio::select! {
                    biased;
                    () = self.state.wait(SftpTask::StreamWriter) => {}
                    // `advance` reports the error again.
                    _ = send.flush_when_idle() => {}
                }
            }
        }
    }

    /// Passes the current time to the session whenever the session needs it.
    async fn pass_time(&self) -> ChannelEnd {
        loop {
            let due = {
                let state = self.state.lock();
                state.session.next_due().map(|due| state.started + due)
            };
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = wait => self.change(|_| ()),
                () = self.state.wait(SftpTask::Clock) => {}
            }
        }
    }

    /// Waits until the client has ended its requests and has all answers. The client then no longer
    /// needs the server's program.
    async fn wait_for_end(&self) -> ChannelEnd {
        if self.client.early() == EarlyReplies::Off {
            return pending().await;
        }
        let is_over = |state: &State| {
            state.has_client_ended
                && !state.has_server_ended
                && state.is_written
                && state.session.is_settled()
        };
        self.state.wait_until(SftpTask::End, is_over).await;
        ChannelEnd::Settled
    }

    /// Waits until the operator stops a transfer.
    async fn wait_for_stop(&self) {
        let stops = self.state.lock().transfers.stops();
        stops.notified().await;
    }

    /// Returns whether the client has ended its requests, and the session sends no request itself.
    fn may_send_end(&self) -> bool {
        let state = self.state.lock();
        state.has_client_ended && !state.session.has_waiting_reads()
    }

    /// Returns bytes for the client.
    fn next_client_bytes(&self) -> Option<Bytes> {
        let bytes = {
            let mut state = self.state.lock();
            let bytes = join_pieces(|| state.session.next_client_bytes());
            state.is_written = bytes.is_none();
            state.record_download_wait();
            bytes
        };
        self.state.wake(&[
            SftpTask::ChannelReader,
            SftpTask::StreamReader,
            SftpTask::End,
        ]);
        bytes
    }

    fn next_far_message(&self) -> Option<EncodedMessage> {
        let message = self.state.lock().session.next_far_message()?;
        self.state.wake(&[SftpTask::ChannelReader]);
        Some(message.encode())
    }

    /// Changes the state at the present time, reports events, and wakes all tasks.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.change(|state| {
            let now = state.started.elapsed();
            state.session.set_time(now);
            let changed = change(state);
            state.is_written = false;
            state.report();
            if !state.session.has_handles() {
                state.memory = None;
            }
            changed
        })
    }
}

fn failed(error: &SftpError) -> ChannelEnd {
    ChannelEnd::Failed(error.to_string())
}

/// Memory for the queues of one channel, in bytes. The queues hold requests for the far half, and
/// answers for the client.
const QUEUES_BYTES: u64 = 8 * 1024 * 1024;
