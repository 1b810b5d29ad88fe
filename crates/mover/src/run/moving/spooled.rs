//! Transfer of a file to several servers behind one gateway. The file's bytes cross the WAN only
//! once.

use std::sync::Arc;

use ftp::spool::SpoolAnswer;

use super::{
    Backend, FinishedCopy, Mover, NewPart, Overlap, ServerError, SourceStat, TaskError,
    TransferNames, read_exactly,
};
use crate::{
    job::RESUME_LEAST,
    journal::Journal,
    server::{self, SpoolReply},
    spool_sharing::FileShare,
};

impl Mover<'_> {
    /// Copies the missing bytes through a spool at the gateway (a file with one upload for several
    /// servers). Returns `None` if the bytes must be copied without a spool, for example because
    /// the gateway provides none.
    pub(super) async fn copy_by_spool(
        &mut self,
        names: &TransferNames,
        overlap: &Overlap,
        stat: &SourceStat,
        journal: Option<&Arc<Journal>>,
    ) -> Result<Option<FinishedCopy>, TaskError> {
        let job = self.shared.job.clone();
        // If the source is a server, the comparison of an overlap would fetch the file twice.
        let is_simple = overlap.length == 0 || matches!(self.source, Backend::Local(_));
        let origin = stat
            .origin()
            .filter(|it| it.size_bytes >= RESUME_LEAST.bytes());
        let (Some(sharing), Some(origin), true) = (&job.sharing, origin, is_simple) else {
            return Ok(None);
        };
        let Some(share) = sharing.share(&names.source, origin) else {
            return Ok(None);
        };
        self.check_overlap(names, overlap).await?;
        let Backend::Remote(session) = &mut *self.destination else {
            return Ok(None);
        };
        match session.spool(&share.request(overlap.length)).await? {
            SpoolReply::Yes(answer) => {
                let size_bytes = origin.size_bytes;
                let ends = (overlap.length, size_bytes);
                let clears = overlap.clears(journal);
                let there = self
                    .upload_by_spool(names, ends, (clears, overlap.new.as_ref()), &share, answer)
                    .await?;
                share.done();
                Ok(Some(FinishedCopy {
                    bytes: size_bytes,
                    is_spooled: true,
                    source_now: None,
                    there,
                    is_grown: false,
                    read: None,
                }))
            }
            SpoolReply::No => Ok(None),
            SpoolReply::Never => {
                sharing.refused();
                Ok(None)
            }
        }
    }

    /// Checks that the existing part file matches the source.
    async fn check_overlap(
        &mut self,
        names: &TransferNames,
        overlap: &Overlap,
    ) -> Result<(), TaskError> {
        if overlap.bytes.is_empty() {
            return Ok(());
        }
        let mut bytes = vec![0; overlap.bytes.len()];
        let mut reader = self.source.read(&names.source, overlap.begin()).await?;
        let is_whole = read_exactly(&mut reader, &mut bytes, self.shared).await?;
        match is_whole && bytes == overlap.bytes {
            true => Ok(()),
            false => Err(TaskError::Overlap),
        }
    }

    /// Uploads the bytes from `begin` to `end`. Sends the bytes to the gateway's spool, unless
    /// another job sends them.
    async fn upload_by_spool(
        &mut self,
        names: &TransferNames,
        (begin, end): (u64, u64),
        (clears, new): (bool, Option<&NewPart>),
        share: &FileShare<'_>,
        answer: SpoolAnswer,
    ) -> Result<Option<server::Stat>, TaskError> {
        let progress = &self.shared.progress;
        let mut writer = self
            .destination
            .write((&names.part, &names.destination), begin, clears)
            .await?;
        // The server must have begun the upload. Otherwise the spool would hold back the bytes for
        // the other jobs.
        writer.begun().await?;
        self.has_begun = true;
        if let Some(new) = new
            && writer.is_on_clear_ground().await?
        {
            new.note(names).await;
        }
        let Some(fill) = share.claim(answer) else {
            let there = writer.finish_from_spool().await?;
            *self.moved_bytes += end - begin;
            progress.arrived(end - begin);
            return Ok(there);
        };
        let mut at = answer.have_bytes;
        let mut reader = self.source.read(&names.source, at).await?;
        writer.write(&at.to_be_bytes()).await?;
        let mut bytes = vec![0; progress.step_bytes()];
        loop {
            if !matches!(reader, super::FileReader::Local(_))
                && at == end
                && reader.read(&mut bytes).await? > 0
            {
                reader.abandon().await;
                return Err(TaskError::Changed);
            }
            // A local file that grows may be longer by now, so the read ends at `end`.
            let room = usize::try_from(end - at).unwrap_or(usize::MAX);
            let room = room.min(bytes.len());
            let count = reader.read(&mut bytes[..room]).await?;
            at += count as u64;
            if count == 0 {
                break;
            }
            writer.write(&bytes[..count]).await?;
            *self.moved_bytes += count as u64;
            progress.moved(count).await;
        }
        let ended = reader.finish().await?;
        if at < end {
            return Err(match ended.is_sure {
                true => TaskError::Changed,
                false => ServerError::Cut.into(),
            });
        }
        let there = writer.finish_from_spool().await?;
        fill.done();
        Ok(there)
    }
}
