//! Source of the bytes that the far gateway writes to the server of an upload. The source is the
//! upload's own stream or a spool (a file for several servers).

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::task::{JoinError, JoinHandle};

use super::{
    SpoolPosition,
    contents::{SpoolContents, SpoolError, SpoolReader},
};
use crate::optimise::{CodedReadError, DecodingReader};

/// Source of the bytes for the server of an upload.
#[derive(Debug)]
pub(crate) enum ByteSource {
    Stream(DecodingReader),
    Spool(SpoolSource),
}

/// Reader of a spool for one server. The upload's own stream may write bytes to the spool.
#[derive(Debug)]
pub(crate) struct SpoolSource {
    reader: SpoolReader,
    /// Task that writes the stream to the spool. `None` after the stream has ended.
    fill_task: Option<FillTask>,
}

/// Task that writes a stream to the spool. Dropping the value aborts the task.
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
    /// Returns the next bytes. Returns `None` at the end of the file. Cancel safe.
    ///
    /// # Errors
    /// [`SourceError`] if no further bytes arrive.
    pub(crate) async fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self {
            Self::Stream(stream) => Ok(stream.read().await?),
            Self::Spool(spool) => spool.read().await,
        }
    }

    /// Stops reading the upload's stream.
    pub(crate) fn stop(&mut self, code: u32) {
        match self {
            Self::Stream(stream) => stream.stop(code),
            Self::Spool(spool) => spool.fill_task = None,
        }
    }
}

impl SpoolSource {
    /// Creates a source that starts at `position`. A task writes the bytes of `stream` to the
    /// spool.
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

/// Returns the result of the fill task. The task is cancelled only when the process ends.
fn ended(filled: Result<Result<(), SourceError>, JoinError>) -> Result<(), SourceError> {
    let cancelled = |error: JoinError| SourceError::Spool(SpoolError::Broken(error.to_string()));
    filled.map_err(cancelled)?
}

impl Drop for FillTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the bytes of a stream to a spool as fast as they arrive. A server that accepts no bytes
/// therefore does not delay other servers.
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

/// Length of the header of a stream that carries bytes. The header is the offset of the first byte.
const POSITION_BYTES: usize = 8;
