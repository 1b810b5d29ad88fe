//! The receiving half of a stream that may be coded.

use std::sync::Arc;

use bytes::Bytes;
use link::{RecvStream, StreamError};
use optimiser::{
    check::Check,
    counts::Counts,
    decoder::{DecodeError, Decoder, Event},
};

use super::Tally;
use crate::wire::Coding;

/// The receiving half of a link stream, and what decodes its bytes.
#[derive(Debug)]
pub(crate) struct Inlet {
    recv: RecvStream,
    /// Came ahead.
    first: Bytes,
    /// `None`: bytes come as they are.
    coder: Option<Box<Coder>>,
}

#[derive(Debug)]
struct Coder {
    decoder: Decoder,
    check: Check,
    tally: Arc<Tally>,
    counted: Counts,
}

/// Why no more bytes come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InletError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the peer's coding: {0}")]
    Coding(#[from] DecodeError),
}

impl Inlet {
    /// The stream, of which `first` has come ahead.
    pub(crate) fn new(
        recv: RecvStream,
        first: Bytes,
        coding: Option<Coding>,
        tally: &Arc<Tally>,
    ) -> Self {
        let coder = coding.map(|_| {
            Box::new(Coder {
                decoder: Decoder::new(false),
                check: Check::default(),
                tally: tally.clone(),
                counted: Counts::default(),
            })
        });
        Self { recv, first, coder }
    }

    /// The next bytes; `None` at their end, which is verified. Cancelled, it loses nothing.
    ///
    /// # Errors
    /// [`InletError`] if no more come. The bytes before it are not complete.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, InletError> {
        loop {
            if let Some(coder) = &mut self.coder
                && let Some(bytes) = coder.next()?
            {
                return Ok(Some(bytes));
            }
            let bytes = if self.first.is_empty() {
                self.recv.read().await?
            } else {
                Some(std::mem::take(&mut self.first))
            };
            match (&mut self.coder, bytes) {
                (None, bytes) => return Ok(bytes),
                (Some(coder), Some(bytes)) => coder.push(bytes),
                (Some(coder), None) => {
                    coder.decoder.end()?;
                    return Ok(None);
                }
            }
        }
    }

    /// Takes no more.
    pub(crate) fn stop(&mut self, code: u32) {
        self.recv.stop(code);
    }

    /// How much may wait in one place on this side, where the time to drain is limited.
    pub(crate) fn queue_bound(&self) -> Option<usize> {
        self.recv.queue_bound()
    }
}

impl Coder {
    fn push(&mut self, bytes: Bytes) {
        self.decoder.push(bytes);
    }

    fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Self {
            decoder,
            check,
            tally,
            counted,
        } = self;
        loop {
            let event = tally.processor(|| decoder.poll());
            let counts = decoder.counts();
            tally.add(&counts.since(counted));
            *counted = counts;
            match event? {
                None => return Ok(None),
                Some(Event::Bytes(bytes)) => {
                    tally.processor(|| check.update(&bytes));
                    return Ok(Some(bytes));
                }
                Some(Event::End(end)) if end == check.end() => {}
                Some(Event::End(_)) => return Err(DecodeError::Differs),
                // There is no store.
                Some(Event::Reference { .. }) => return Err(DecodeError::Chunks),
                Some(Event::Chunk { .. }) => {}
            }
        }
    }
}
