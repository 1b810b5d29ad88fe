//! The receiver's questions for chunks that its store does not have, on a stream of their own: the data's stream goes on
//! meanwhile, and may be full.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use link::{Class, RecvStream, SendStream, StreamError};
use optimiser::{
    chunk::Name,
    decoder::{DecodeError, Decoder, Event},
    frame::Reference,
};
use tokio::{sync::mpsc, task::JoinHandle};

use super::Sharing;
use crate::wire::{Ask, Hello, Service, encode};

/// A chunk that was missing, by the number of its reference.
pub(super) type Filled = (u64, Bytes);

/// The questions of one stream. Dropped, it asks no more.
#[derive(Debug)]
pub(super) struct Borrowing {
    says: mpsc::UnboundedSender<Say>,
    filled: mpsc::UnboundedReceiver<Filled>,
    task: JoinHandle<Result<(), BorrowError>>,
}

/// What the receiver says.
#[derive(Debug, Clone, Copy)]
enum Say {
    Taken(u64),
    Missing(u64, Reference),
}

/// Why a missing chunk does not come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BorrowError {
    #[error("a chunk cannot be asked for: {0}")]
    Open(String),
    #[error("a chunk does not come: {0}")]
    Stream(#[from] StreamError),
    #[error("a chunk that is none: {0}")]
    Coding(#[from] DecodeError),
    #[error("a chunk that was asked for is another one")]
    Other,
    #[error("the peer sends no more chunks")]
    Ended,
}

impl Borrowing {
    pub(super) fn new(sharing: Sharing) -> Self {
        let (says, said) = mpsc::unbounded_channel();
        let (fill, filled) = mpsc::unbounded_channel();
        let task = tokio::spawn(borrow(sharing, said, fill));
        Self { says, filled, task }
    }

    /// All chunks of references below this number are there. If the task has ended, [`filled`](Self::filled) says why.
    pub(super) fn taken(&self, number: u64) {
        let _ = self.says.send(Say::Taken(number));
    }

    pub(super) fn missing(&self, number: u64, reference: Reference) {
        let _ = self.says.send(Say::Missing(number, reference));
    }

    /// The next chunk that was missing. They come in the order in which they were asked for. Cancel safe.
    ///
    /// # Errors
    /// Why there will be none.
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
    mut said: mpsc::UnboundedReceiver<Say>,
    fill: mpsc::UnboundedSender<Filled>,
) -> Result<(), BorrowError> {
    // What was said before the stream is open need not be said piece by piece.
    let Some(first) = said.recv().await else {
        return Ok(());
    };
    let (mut send, mut recv) = open(&sharing).await?;
    let mut fills = Fills::default();
    fills.say(first, &mut send).await?;
    loop {
        tokio::select! {
            say = said.recv() => match say {
                Some(say) => fills.say(say, &mut send).await?,
                None => {
                    send.finish();
                    return Ok(());
                }
            },
            bytes = recv.read() => {
                let bytes = bytes?.ok_or(BorrowError::Ended)?;
                fills.come(bytes, &fill)?;
            }
        }
    }
}

async fn open(sharing: &Sharing) -> Result<(SendStream, RecvStream), BorrowError> {
    let (session, transfer) = (sharing.key.session, sharing.transfer());
    let opened = sharing
        .link
        .open_beside(session.peer, sharing.beside, Class::Bulk)
        .await;
    let (mut send, recv) = opened.map_err(|error| BorrowError::Open(error.to_string()))?;
    let service = Service::Chunks {
        session: session.session,
        transfer,
        // The other gateway sends.
        of_near: !session.is_near,
    };
    send.write(encode(&Hello { service })).await?;
    Ok((send, recv))
}

/// Chunks that are asked for, and what has come of the first one.
#[derive(Debug)]
struct Fills {
    decoder: Decoder,
    asked: VecDeque<(u64, Reference)>,
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
    async fn say(&mut self, say: Say, send: &mut SendStream) -> Result<(), StreamError> {
        let ask = match say {
            Say::Taken(number) => Ask::Taken(number),
            Say::Missing(number, reference) => {
                self.asked.push_back((number, reference));
                Ask::Missing(number)
            }
        };
        send.write(encode(&ask)).await
    }

    fn come(
        &mut self,
        bytes: Bytes,
        fill: &mpsc::UnboundedSender<Filled>,
    ) -> Result<(), BorrowError> {
        self.decoder.push(bytes);
        while let Some(event) = self.decoder.poll()? {
            let Event::Bytes(bytes) = event else {
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
            if chunk.len() != reference.bytes || Name::of(&chunk) != reference.name {
                return Err(BorrowError::Other);
            }
            // Who does not listen any more has ended the transfer.
            let _ = fill.send((number, chunk));
        }
        Ok(())
    }
}
