//! One file from the source to the destination: whole under its name, or not at all.

use std::sync::Arc;

use super::{
    end::{End, Reader, Writer},
    failure::TaskError,
    shared::Shared,
};
use crate::{
    job::{RESUME_LEAST, Verify},
    journal::{Journal, Origin},
    plan::{File, Outcome},
};

/// Moves a file.
pub(super) struct Mover<'a> {
    pub(super) shared: &'a Shared,
    pub(super) source: &'a mut End,
    pub(super) destination: &'a mut End,
    /// Counts what has moved, also if the move fails.
    pub(super) moved_bytes: &'a mut u64,
}

/// The names of a file while it is moved.
struct Names {
    source: Vec<u8>,
    part: Vec<u8>,
    destination: Vec<u8>,
}

impl Mover<'_> {
    pub(super) async fn run(mut self, file: &File) -> Result<Outcome, TaskError> {
        let job = &self.shared.job;
        let destination = job.destination_path(file.root, &file.path);
        let names = Names {
            source: job.source_path(file.root, &file.path),
            part: job.moving.partial(&destination),
            destination,
        };
        let facts = self.facts(file, &names).await?;
        let origin =
            facts
                .size_bytes
                .zip(facts.modified_unix_s)
                .map(|(size_bytes, modified_unix_s)| Origin {
                    size_bytes,
                    modified_unix_s,
                });
        let journal = self.journal_for(origin);
        let known = match (&journal, origin) {
            (Some(journal), Some(origin)) => {
                let part_is_ours = known(journal, &names.part).await == Some(origin);
                if !part_is_ours {
                    // The journal must not speak for what an earlier job has left under this name.
                    self.destination.remove(&names.part).await?;
                    begin(journal, &names.part, origin).await?;
                }
                part_is_ours
            }
            _ => false,
        };
        let overlap = if known {
            self.overlap(&names, origin).await?
        } else {
            Overlap::default()
        };
        let bytes = match self.copy(&names, &overlap).await {
            Err(error @ TaskError::Overlap) => {
                if let Some(journal) = &journal {
                    end(journal, &names.part).await?;
                }
                return Err(error);
            }
            result => result?,
        };
        self.check(&names, &facts, bytes).await?;
        self.destination
            .name(&names.part, &names.destination, facts.modified_unix_s)
            .await?;
        if let Some(journal) = &journal {
            end(journal, &names.part).await?;
        }
        Ok(Outcome::Moved { bytes })
    }

    /// What the source says of the file now: of a listing where that says all, else by asking.
    async fn facts(&mut self, file: &File, names: &Names) -> Result<Facts, TaskError> {
        let (mut size_bytes, mut modified) = (file.size_bytes, file.modified);
        if size_bytes.is_none() || modified.is_none() || matches!(self.source, End::Local) {
            let now = self.source.look_for_file(&names.source).await?;
            size_bytes = now.as_ref().and_then(|it| it.size_bytes);
            modified = now.and_then(|it| it.modified);
        }
        Ok(Facts {
            size_bytes,
            modified_unix_s: modified.map(|it| it.unix_s),
        })
    }

    /// The journal, if the file is worth an entry.
    fn journal_for(&self, origin: Option<Origin>) -> Option<Arc<Journal>> {
        let moving = &self.shared.job.moving;
        let is_large = origin.is_some_and(|it| it.size_bytes >= RESUME_LEAST.bytes());
        let is_resumable = moving.resumes && moving.partial_suffix.is_some() && is_large;
        self.shared.journal.clone().filter(|_| is_resumable)
    }

    /// The end of the part that an earlier attempt has left.
    async fn overlap(
        &mut self,
        names: &Names,
        origin: Option<Origin>,
    ) -> Result<Overlap, TaskError> {
        let Some(part) = self.destination.look_for_file(&names.part).await? else {
            return Ok(Overlap::default());
        };
        let Some(length) = part.size_bytes.filter(|it| {
            *it >= OVERLAP_BYTES && origin.is_some_and(|origin| *it <= origin.size_bytes)
        }) else {
            return Ok(Overlap::default());
        };
        let mut reader = self
            .destination
            .read(&names.part, length - OVERLAP_BYTES)
            .await?;
        let mut bytes = vec![0; OVERLAP_BYTES as usize];
        let is_whole = read_exactly(&mut reader, &mut bytes).await?;
        // A server counts to the end of the file by itself.
        while reader.read(&mut [0; 512]).await? > 0 {}
        reader.finish().await?;
        Ok(if is_whole {
            Overlap { length, bytes }
        } else {
            Overlap::default()
        })
    }

    /// Copies what the part lacks. Returns the size of the file.
    async fn copy(&mut self, names: &Names, overlap: &Overlap) -> Result<u64, TaskError> {
        let begin = overlap.length - overlap.bytes.len() as u64;
        let mut reader = self.source.read(&names.source, begin).await?;
        if !overlap.bytes.is_empty() {
            let mut bytes = vec![0; overlap.bytes.len()];
            let is_whole = read_exactly(&mut reader, &mut bytes).await?;
            if !is_whole || bytes != overlap.bytes {
                return Err(TaskError::Overlap);
            }
        }
        let mut writer = self.destination.write(&names.part, overlap.length).await?;
        let copied = copy(&mut reader, &mut writer, self.shared, self.moved_bytes).await?;
        reader.finish().await?;
        writer.finish().await?;
        Ok(overlap.length + copied)
    }

    /// Whether the source is what it was, and the destination has all of it.
    async fn check(&mut self, names: &Names, facts: &Facts, bytes: u64) -> Result<(), TaskError> {
        let verify = self.shared.job.moving.verify;
        if verify == Verify::None {
            return Ok(());
        }
        let now = self.source.look_for_file(&names.source).await?;
        let size_now = now.as_ref().and_then(|it| it.size_bytes).unwrap_or(bytes);
        let time_now = now.as_ref().and_then(|it| it.modified).map(|it| it.unix_s);
        let is_later = time_now.is_some()
            && facts.modified_unix_s.is_some()
            && time_now != facts.modified_unix_s;
        let is_other_size = facts.size_bytes.is_some_and(|it| it != bytes);
        if size_now != bytes || is_later || is_other_size {
            return Err(TaskError::Changed);
        }
        let there = self.destination.look_for_file(&names.part).await?;
        if let Some(got) = there.and_then(|it| it.size_bytes)
            && got != bytes
        {
            return Err(TaskError::Short {
                got,
                expected: bytes,
            });
        }
        if verify == Verify::ReadBack {
            self.read_back(names).await?;
        }
        Ok(())
    }

    /// Reads source and destination once more, and compares.
    async fn read_back(&mut self, names: &Names) -> Result<(), TaskError> {
        let mut source = self.source.read(&names.source, 0).await?;
        let mut destination = self.destination.read(&names.part, 0).await?;
        let (mut ours, mut theirs) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
        loop {
            let count = source.read(&mut ours).await?;
            if count == 0 {
                break;
            }
            let is_whole = read_exactly(&mut destination, &mut theirs[..count]).await?;
            if !is_whole || ours[..count] != theirs[..count] {
                return Err(TaskError::Differs);
            }
        }
        if destination.read(&mut theirs).await? > 0 {
            return Err(TaskError::Differs);
        }
        source.finish().await?;
        destination.finish().await
    }
}

/// What is known of the source.
struct Facts {
    size_bytes: Option<u64>,
    modified_unix_s: Option<i64>,
}

/// A part that an earlier attempt has left: its length, and its last bytes.
#[derive(Default)]
struct Overlap {
    length: u64,
    bytes: Vec<u8>,
}

async fn copy(
    reader: &mut Reader<'_>,
    writer: &mut Writer<'_>,
    shared: &Shared,
    moved_bytes: &mut u64,
) -> Result<u64, TaskError> {
    let mut bytes = vec![0; STEP_BYTES];
    let mut copied = 0;
    loop {
        let count = reader.read(&mut bytes).await?;
        if count == 0 {
            return Ok(copied);
        }
        writer.write(&bytes[..count]).await?;
        copied += count as u64;
        *moved_bytes += count as u64;
        shared.progress.moved(count).await;
    }
}

/// Fills `bytes`; false if the file ends before.
async fn read_exactly(reader: &mut Reader<'_>, bytes: &mut [u8]) -> Result<bool, TaskError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let count = reader.read(&mut bytes[filled..]).await?;
        if count == 0 {
            return Ok(false);
        }
        filled += count;
    }
    Ok(true)
}

async fn known(journal: &Arc<Journal>, part: &[u8]) -> Option<Origin> {
    // A journal that cannot be read knows nothing: the file is moved from its beginning.
    on_journal(journal, part, |journal, part| journal.origin(part))
        .await
        .ok()
        .flatten()
}

async fn begin(journal: &Arc<Journal>, part: &[u8], origin: Origin) -> Result<(), TaskError> {
    on_journal(journal, part, move |journal, part| {
        journal.begin(part, origin)
    })
    .await
}

async fn end(journal: &Arc<Journal>, part: &[u8]) -> Result<(), TaskError> {
    on_journal(journal, part, |journal, part| journal.end(part)).await
}

async fn on_journal<T: Send + 'static>(
    journal: &Arc<Journal>,
    part: &[u8],
    work: impl FnOnce(&Journal, &[u8]) -> Result<T, redb::Error> + Send + 'static,
) -> Result<T, TaskError> {
    let (journal, part) = (journal.clone(), part.to_vec());
    let done = tokio::task::spawn_blocking(move || work(&journal, &part)).await;
    let done = done.expect("the journal does not panic");
    done.map_err(|it| TaskError::Journal(Box::new(it)))
}

/// What is compared where a part is gone on with.
const OVERLAP_BYTES: u64 = 64 * 1024;

/// Bytes of one read.
const STEP_BYTES: usize = 256 * 1024;
