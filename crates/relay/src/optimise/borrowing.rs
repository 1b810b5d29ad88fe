//! The receiver's requests for chunks that are missing in its store.
//!
//! They use a stream of their own, since the data's stream continues meanwhile, and may be full.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use link::{Class, OpenError, RecvStream, SendStream, StreamError};
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

use super::{Key, Sharing, Tally};
use crate::wire::{Ask, Hello, Service, encode};

/// A chunk that was missing.
#[derive(Debug)]
pub(super) struct Filled {
    /// Number of its reference.
    pub(super) number: u64,
    pub(super) name: ChunkName,
    pub(super) chunk: Bytes,
}

/// The requests of one stream. Dropping it ends the requests.
#[derive(Debug)]
pub(super) struct Borrowing {
    /// Number below which all chunks of references are available.
    taken: watch::Sender<u64>,
    /// Requested chunks. The receiver stops reading the stream while it waits for one, which bounds
    /// the channel.
    missing: mpsc::UnboundedSender<(u64, ChunkReference)>,
    filled: mpsc::UnboundedReceiver<Filled>,
    task: JoinHandle<Result<(), BorrowError>>,
}

/// Reason why a missing chunk does not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BorrowError {
    #[error("a chunk cannot be requested: {0}")]
    Open(String),
    #[error("a chunk does not arrive: {0}")]
    Stream(#[from] StreamError),
    #[error("a malformed chunk: {0}")]
    Coding(#[from] DecodeError),
    #[error("a requested chunk has other content")]
    Other,
    #[error("the peer sends no more chunks")]
    Ended,
}

impl Borrowing {
    pub(super) fn new(sharing: Sharing, tally: Arc<Tally>) -> Self {
        let (taken, up_to) = watch::channel(0);
        let (missing, asked) = mpsc::unbounded_channel();
        let (fill, filled) = mpsc::unbounded_channel();
        let mut until = up_to.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                result = borrow(sharing, tally, up_to, asked, fill) => result,
                // A peer that accepts no requests must not keep the task alive.
                () = async {
                    while until.changed().await.is_ok() {}
                    sleep(PARTING_PATIENCE).await;
                } => Ok(()),
            }
        });
        Self {
            taken,
            missing,
            filled,
            task,
        }
    }

    /// Records that all chunks of references below `number` are available. If the task has ended,
    /// [`filled`](Self::filled) returns the reason.
    pub(super) fn taken(&self, number: u64) {
        self.taken.send_replace(number);
    }

    pub(super) fn missing(&self, number: u64, reference: ChunkReference) {
        let _ = self.missing.send((number, reference));
    }

    /// Returns the next missing chunk, in the order of requests. Cancel safe.
    ///
    /// # Errors
    /// The reason why no further chunk arrives.
    pub(super) async fn filled(&mut self) -> Result<Filled, BorrowError> {
        match self.filled.recv().await {
            Some(filled) => Ok(filled),
            None => match (&mut self.task).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) | Err(_) => Err(BorrowError::Ended),
            },
        }
    }
}

async fn borrow(
    sharing: Sharing,
    tally: Arc<Tally>,
    mut up_to: watch::Receiver<u64>,
    mut asked: mpsc::UnboundedReceiver<(u64, ChunkReference)>,
    fill: mpsc::UnboundedSender<Filled>,
) -> Result<(), BorrowError> {
    let (mut send, mut recv) = open(&sharing).await?;
    let mut fills = Fills::default();
    loop {
        tokio::select! {
            Some((number, reference)) = asked.recv() => {
                fills.asked.push_back((number, reference));
                send.write(encode(&Ask::Missing(number))).await?;
            }
            // The latest number covers all earlier ones.
            changed = up_to.changed() => {
                if changed.is_err() {
                    send.finish();
                    return Ok(());
                }
                let number = *up_to.borrow_and_update();
                send.write(encode(&Ask::Taken(number))).await?;
            }
            bytes = recv.read() => {
                let bytes = bytes?.ok_or(BorrowError::Ended)?;
                fills.come(bytes, &fill, &tally)?;
            }
        }
    }
}

async fn open(sharing: &Sharing) -> Result<(SendStream, RecvStream), BorrowError> {
    let Key { session, transfer } = sharing.key;
    let deadline = Instant::now() + OPEN_PATIENCE;
    let (mut send, recv) = loop {
        let opened = sharing
            .link
            .open_beside(session.peer, sharing.beside, Class::Bulk)
            .await;
        match opened {
            Ok(opened) => break opened,
            // Other streams may end meanwhile.
            Err(OpenError::TooManyStreams { .. }) if Instant::now() < deadline => {
                sleep(OPEN_PAUSE).await;
            }
            Err(error) => return Err(BorrowError::Open(error.to_string())),
        }
    };
    let service = Service::Chunks {
        session: session.session,
        transfer,
        // The peer sends the data.
        of_near: !session.is_near,
    };
    send.write(encode(&Hello { service })).await?;
    Ok((send, recv))
}

/// Requested chunks, and the received part of the first one.
#[derive(Debug)]
struct Fills {
    decoder: Decoder,
    asked: VecDeque<(u64, ChunkReference)>,
    begun: BytesMut,
}

impl Default for Fills {
    fn default() -> Self {
        Self {
            decoder: Decoder::new(false),
            asked: VecDeque::new(),
            begun: BytesMut::new(),
        }
    }
}

impl Fills {
    fn come(
        &mut self,
        bytes: Bytes,
        fill: &mpsc::UnboundedSender<Filled>,
        tally: &Tally,
    ) -> Result<(), BorrowError> {
        tally.missed(0, bytes.len());
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.poll()? {
            let DecoderEvent::Bytes(bytes) = event else {
                return Err(BorrowError::Other);
            };
            self.begun.extend_from_slice(&bytes);
            let Some(&(number, reference)) = self.asked.front() else {
                return Err(BorrowError::Other);
            };
            if self.begun.len() < reference.bytes {
                continue;
            }
            self.asked.pop_front();
            let chunk = self.begun.split().freeze();
            if chunk.len() != reference.bytes || ChunkName::of(&chunk) != reference.name {
                return Err(BorrowError::Other);
            }
            tally.missed(chunk.len(), 0);
            // A closed channel means that the transfer has ended.
            let name = reference.name;
            let _ = fill.send(Filled {
                number,
                name,
                chunk,
            });
        }
        Ok(())
    }
}

/// Time to wait for a free stream.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);
const OPEN_PAUSE: Duration = Duration::from_millis(200);

/// Time to acknowledge the last chunks, once the data has ended here.
const PARTING_PATIENCE: Duration = Duration::from_secs(10);
