//! Source of an upload's bytes for its server: the stream of the upload, or a spool.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::task::{JoinError, JoinHandle};

use super::{
    SpoolPosition,
    contents::{SpoolContents, SpoolError, SpoolReader},
};
use crate::optimise::{CodedReadError, DecodingReader};

/// Source of the bytes for a server.
#[derive(Debug)]
pub(crate) enum ByteSource {
    Stream(DecodingReader),
    Spool(SpoolSource),
}

/// A spool's bytes for one server, and a stream that may bring some of them.
#[derive(Debug)]
pub(crate) struct SpoolSource {
    reader: SpoolReader,
    /// `Some` until the stream has ended.
    fill_task: Option<FillTask>,
}

/// A task that moves a stream into the spool. It ends with its owner.
#[derive(Debug)]
struct FillTask(JoinHandle<Result<(), SourceError>>);

/// Reason why no further bytes arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("link: {0}")]
    Stream(#[from] CodedReadError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
}

impl ByteSource {
    /// Returns the next bytes. `None` at their end. Cancel safe.
    ///
    /// # Errors
    /// [`SourceError`] if no further bytes arrive.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self {
            Self::Stream(stream) => Ok(stream.read().await?),
            Self::Spool(spool) => spool.read().await,
        }
    }

    /// Stops reading the stream.
    pub(crate) fn stop(&mut self, code: u32) {
        match self {
            Self::Stream(stream) => stream.stop(code),
            Self::Spool(spool) => spool.fill_task = None,
        }
    }
}

impl SpoolSource {
    /// Creates the source that starts at `position`. The stream fills the spool.
    pub(crate) fn new(position: SpoolPosition, stream: DecodingReader) -> Self {
        let SpoolPosition { contents, reader } = position;
        let fill_task = tokio::spawn(fill(contents, stream));
        Self {
            reader,
            fill_task: Some(FillTask(fill_task)),
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Some(FillTask(fill_task)) = &mut self.fill_task {
            tokio::select! {
                biased;
                filled = &mut *fill_task => {
                    self.fill_task = None;
                    ended(filled)?;
                }
                bytes = self.reader.read() => match bytes? {
                    Some(bytes) => return Ok(Some(bytes)),
                    // The stream may still break. This upload then breaks, too, regardless of the
                    // bytes of other streams.
                    None => {
                        ended(fill_task.await)?;
                        self.fill_task = None;
                        return Ok(None);
                    }
                },
            }
        }
        Ok(self.reader.read().await?)
    }
}

/// Returns the result of the task. A task is cancelled only when the process ends.
fn ended(filled: Result<Result<(), SourceError>, JoinError>) -> Result<(), SourceError> {
    let cancelled = |error: JoinError| SourceError::Spool(SpoolError::Broken(error.to_string()));
    filled.map_err(cancelled)?
}

impl Drop for FillTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Moves a stream into a spool at the stream's own rate. A server that takes no bytes delays no
/// other one.
async fn fill(
    contents: std::sync::Arc<SpoolContents>,
    mut stream: DecodingReader,
) -> Result<(), SourceError> {
    let mut begin = BytesMut::new();
    while begin.len() < POSITION_BYTES {
        match stream.read().await? {
            Some(bytes) => begin.extend_from_slice(&bytes),
            // Another stream brings the bytes.
            None if begin.is_empty() => return Ok(()),
            None => return Err(SpoolError::Gap.into()),
        }
    }
    let mut writer = contents.writer(begin.get_u64())?;
    writer.write(begin.freeze()).await?;
    while let Some(bytes) = stream.read().await? {
        writer.write(bytes).await?;
    }
    Ok(())
}

/// Length of the number of the first byte, which precedes the bytes of a stream.
const POSITION_BYTES: usize = 8;
