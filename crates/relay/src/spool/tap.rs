//! What the server of an upload is given: the bytes of its stream, or those of a spool.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::task::{JoinError, JoinHandle};

use super::{
    Place,
    contents::{Contents, Reader, SpoolError},
};
use crate::optimise::{Inlet, InletError};

/// Where the bytes for a server come from.
#[derive(Debug)]
pub(crate) enum Source {
    Stream(Inlet),
    Spool(Tap),
}

/// A spool's bytes for one server, and a stream that may bring some of them.
#[derive(Debug)]
pub(crate) struct Tap {
    reader: Reader,
    /// Until the stream has ended.
    filling: Option<Filling>,
}

/// Takes what a stream brings; ends with its owner.
#[derive(Debug)]
struct Filling(JoinHandle<Result<(), SourceError>>);

/// Why no more bytes come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("link: {0}")]
    Stream(#[from] InletError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

impl Source {
    /// The next bytes; `None` at their end. Cancelled, it loses nothing.
    ///
    /// # Errors
    /// [`SourceError`] if no more come.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self {
            Self::Stream(stream) => Ok(stream.read().await?),
            Self::Spool(tap) => tap.read().await,
        }
    }

    /// Takes no more from the stream.
    pub(crate) fn stop(&mut self, code: u32) {
        match self {
            Self::Stream(stream) => stream.stop(code),
            Self::Spool(tap) => tap.filling = None,
        }
    }
}

impl Tap {
    /// Gives a server what is at `place`. The stream fills the spool.
    pub(crate) fn new(place: Place, stream: Inlet) -> Self {
        let Place { contents, reader } = place;
        let filling = tokio::spawn(fill(contents, stream));
        Self {
            reader,
            filling: Some(Filling(filling)),
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Some(Filling(filling)) = &mut self.filling {
            tokio::select! {
                biased;
                filled = &mut *filling => {
                    self.filling = None;
                    ended(filled)?;
                }
                bytes = self.reader.read() => match bytes? {
                    Some(bytes) => return Ok(Some(bytes)),
                    // The stream may still break: then this upload does, whatever others have brought.
                    None => {
                        ended(filling.await)?;
                        self.filling = None;
                        return Ok(None);
                    }
                },
            }
        }
        Ok(self.reader.read().await?)
    }
}

/// A task that has ended is cancelled only where the process ends.
fn ended(filled: Result<Result<(), SourceError>, JoinError>) -> Result<(), SourceError> {
    let cancelled = |error: JoinError| SourceError::Spool(SpoolError::Broken(error.to_string()));
    filled.map_err(cancelled)?
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Moves a stream into a spool. It goes as fast as the stream does: a server that takes nothing holds nobody up.
async fn fill(contents: std::sync::Arc<Contents>, mut stream: Inlet) -> Result<(), SourceError> {
    let mut begin = BytesMut::new();
    while begin.len() < POSITION_BYTES {
        match stream.read().await? {
            Some(bytes) => begin.extend_from_slice(&bytes),
            // The bytes come by another stream.
            None if begin.is_empty() => return Ok(()),
            None => return Err(SpoolError::Gap.into()),
        }
    }
    let mut filler = contents.filler(begin.get_u64())?;
    filler.write(begin.freeze()).await?;
    while let Some(bytes) = stream.read().await? {
        filler.write(bytes).await?;
    }
    Ok(())
}

/// Bytes that come begin with the number of the first one.
const POSITION_BYTES: usize = 8;
