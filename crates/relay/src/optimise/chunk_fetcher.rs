//! Requests of a receiving gateway for chunks that are missing in its store.
//!
//! The requests use a separate stream, because the data stream may be full.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use link::{RecvStream, SendStream, StreamClass, StreamError, StreamOpenError};
use optimiser::{
    chunk::ChunkName,
    decoder::{DecodeError, Decoder, DecoderEvent},
    frame::ChunkReference,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::sleep,
};

use super::{CodingCounters, DedupContext, ReferenceKey};
use crate::wire::{ChunkRequest, Service, StreamHello, encode};

/// A chunk that was missing in the receiver's store and has arrived from the peer.
#[derive(Debug)]
pub(super) struct FetchedChunk {
    /// Number of the reference to the chunk.
    pub(super) number: u64,
    pub(super) name: ChunkName,
    pub(super) chunk: Bytes,
}

/// Requests for the missing chunks of one data stream. Dropping the value ends the requests.
#[derive(Debug)]
pub(super) struct ChunkFetcher {
    /// Reference number to acknowledge to the sender. The chunks of all references below this
    /// number are available.
    acknowledged: watch::Sender<u64>,
    /// Chunks to request. The receiver stops reading the data stream while it waits for a chunk, so
    /// the channel stays small.
    missing: mpsc::UnboundedSender<(u64, ChunkReference)>,
    fetched: mpsc::UnboundedReceiver<FetchedChunk>,
    task: JoinHandle<Result<(), FetchError>>,
}

/// Reason why a requested chunk does not arrive.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No stream for requests could be opened.
    #[error("a chunk cannot be requested: {0}")]
    Open(String),
    /// The stream of the requests broke.
    #[error("a chunk does not arrive: {0}")]
    Stream(#[from] StreamError),
    /// The bytes of the chunk are not a valid coding.
    #[error("a malformed chunk: {0}")]
    Coding(#[from] DecodeError),
    /// The bytes are not the requested chunk.
    #[error("a requested chunk has other content")]
    Other,
    /// The peer has ended the stream.
    #[error("the peer sends no more chunks")]
    Ended,
}

impl ChunkFetcher {
    pub(super) fn new(dedup: DedupContext, counters: Arc<CodingCounters>) -> Self {
        let (acknowledged, up_to) = watch::channel(0);
        let (missing, requests) = mpsc::unbounded_channel();
        let (chunks, fetched) = mpsc::unbounded_channel();
        let mut until = up_to.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                result = run(dedup, counters, up_to, requests, chunks) => result,
                // A peer that accepts no requests must not keep the task alive.
                () = async {
                    while until.changed().await.is_ok() {}
                    sleep(LAST_ACKNOWLEDGEMENT_TIMEOUT).await;
                } => Ok(()),
            }
        });
        Self {
            acknowledged,
            missing,
            fetched,
            task,
        }
    }

    /// Acknowledges to the sender that the chunks of all references below `number` are available.
    /// If the task has ended, [`next_chunk`](Self::next_chunk) returns the reason.
    pub(super) fn acknowledge(&self, number: u64) {
        self.acknowledged.send_replace(number);
    }

    pub(super) fn request(&self, number: u64, reference: ChunkReference) {
        let _ = self.missing.send((number, reference));
    }

    /// Returns the next requested chunk, in the order of the requests. Cancel safe.
    ///
    /// # Errors
    /// The reason why no further chunk arrives.
    pub(super) async fn next_chunk(&mut self) -> Result<FetchedChunk, FetchError> {
        match self.fetched.recv().await {
            Some(fetched) => Ok(fetched),
            None => match (&mut self.task).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) | Err(_) => Err(FetchError::Ended),
            },
        }
    }
}

async fn run(
    dedup: DedupContext,
    counters: Arc<CodingCounters>,
    mut up_to: watch::Receiver<u64>,
    mut requests: mpsc::UnboundedReceiver<(u64, ChunkReference)>,
    chunks: mpsc::UnboundedSender<FetchedChunk>,
) -> Result<(), FetchError> {
    let (mut send, mut recv) = open(&dedup).await?;
    let mut receiver = ChunkReceiver::default();
    loop {
        tokio::select! {
            Some((number, reference)) = requests.recv() => {
                receiver.requests.push_back((number, reference));
                send.write(encode(&ChunkRequest::Missing(number))).await?;
            }
            // The latest acknowledgement includes all earlier acknowledgements.
            changed = up_to.changed() => {
                if changed.is_err() {
                    send.finish();
                    return Ok(());
                }
                let number = *up_to.borrow_and_update();
                send.write(encode(&ChunkRequest::Acknowledged(number))).await?;
            }
            bytes = recv.read() => {
                let bytes = bytes?.ok_or(FetchError::Ended)?;
                receiver.receive(bytes, &chunks, &counters)?;
            }
        }
    }
}

async fn open(dedup: &DedupContext) -> Result<(SendStream, RecvStream), FetchError> {
    let ReferenceKey { session, transfer } = dedup.key;
    let deadline = Instant::now() + OPEN_TIMEOUT;
    let (mut send, recv) = loop {
        let opened = dedup
            .link
            .open_beside(session.peer, dedup.beside, StreamClass::Bulk)
            .await;
        match opened {
            Ok(opened) => break opened,
            // Another stream may end during the pause.
            Err(StreamOpenError::TooManyStreams { .. }) if Instant::now() < deadline => {
                sleep(OPEN_PAUSE).await;
            }
            Err(error) => return Err(FetchError::Open(error.to_string())),
        }
    };
    let service = Service::Chunks {
        session: session.session,
        transfer,
        // The peer sends the data.
        of_near: !session.is_near,
    };
    send.write(encode(&StreamHello { service })).await?;
    Ok((send, recv))
}

/// Requested chunks that have not arrived, and the received bytes of the first one.
#[derive(Debug)]
struct ChunkReceiver {
    decoder: Decoder,
    requests: VecDeque<(u64, ChunkReference)>,
    begun: BytesMut,
}

impl Default for ChunkReceiver {
    fn default() -> Self {
        Self {
            decoder: Decoder::new(false),
            requests: VecDeque::new(),
            begun: BytesMut::new(),
        }
    }
}

impl ChunkReceiver {
    fn receive(
        &mut self,
        bytes: Bytes,
        chunks: &mpsc::UnboundedSender<FetchedChunk>,
        counters: &CodingCounters,
    ) -> Result<(), FetchError> {
        counters.count_missing(0, bytes.len());
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.poll()? {
            let DecoderEvent::Bytes(bytes) = event else {
                return Err(FetchError::Other);
            };
            self.begun.extend_from_slice(&bytes);
            let Some(&(number, reference)) = self.requests.front() else {
                return Err(FetchError::Other);
            };
            if self.begun.len() < reference.bytes {
                continue;
            }
            self.requests.pop_front();
            let chunk = self.begun.split().freeze();
            if chunk.len() != reference.bytes || ChunkName::of(&chunk) != reference.name {
                return Err(FetchError::Other);
            }
            counters.count_missing(chunk.len(), 0);
            // A closed channel means that the transfer has ended.
            let name = reference.name;
            let _ = chunks.send(FetchedChunk {
                number,
                name,
                chunk,
            });
        }
        Ok(())
    }
}

/// Time limit for opening the request stream. At first, the link may have no free stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
const OPEN_PAUSE: Duration = Duration::from_millis(200);

/// Time limit for sending the last acknowledgements after the end of the data stream.
const LAST_ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(10);
