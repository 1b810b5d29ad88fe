//! Small local files that are read, written or copied completely. Each operation is one blocking
//! call.

use std::{io, sync::Arc};

use super::{
    failure::TaskError,
    local::{OpenPart, renaming},
};
use crate::{
    disk::{LocalFiles, Stamp},
    names::{local, shown},
    server::ServerError,
};

/// Result of reading a file.
pub(super) enum ReadOutcome {
    /// The content, and the version of the file. The version was the same before and after reading.
    Whole(Vec<u8>, Stamp),
    /// The file changed during the read, or it exceeds the size limit of small files.
    Changed,
    /// The file is open for writing, and the job would remove it after the copy.
    Busy,
}

/// A small file to copy between two local folders.
pub(super) struct FileCopy {
    pub(super) source_files: Arc<LocalFiles>,
    pub(super) destination_files: Arc<LocalFiles>,
    pub(super) source: Vec<u8>,
    pub(super) part: Vec<u8>,
    pub(super) destination: Vec<u8>,
    /// Maximum number of bytes to read.
    pub(super) bytes_max: u64,
    /// Whether the copy is checked. The check compares sizes, and the versions of the source before
    /// and after the copy.
    pub(super) is_compared: bool,
    /// Whether the call renames the copy to its final name before it returns. If false, the part
    /// file stays open.
    pub(super) is_named: bool,
}

/// Result of copying a file.
pub(super) enum CopyOutcome {
    /// The version of the source, and the complete part file. The part file is `None` if it was
    /// already renamed to its final name.
    Whole(Stamp, Option<OpenPart>),
    /// The source changed during the copy, or is larger than a small file.
    Changed,
}

impl FileCopy {
    /// Copies the file. When the function returns, the content survives a power cut.
    ///
    /// # Errors
    /// An error of the disk, [`TaskError::Busy`], or [`ServerError::Short`] if the copy has another
    /// size than the source. No part file remains.
    pub(super) fn run(&self) -> Result<CopyOutcome, TaskError> {
        let path = &self.destination;
        let on_source =
            |error| TaskError::disk(format!("reading {}", shown(&local(&self.source))))(error);
        let on_part =
            |error| TaskError::disk(format!("writing {}", shown(&local(&self.part))))(error);
        let read = read(&self.source_files, &self.source, self.bytes_max).map_err(on_source)?;
        let (content, stamp) = match read {
            ReadOutcome::Whole(content, stamp) => (content, stamp),
            ReadOutcome::Changed => return Ok(CopyOutcome::Changed),
            ReadOutcome::Busy => return Err(TaskError::Busy),
        };
        let files = &self.destination_files;
        let place = files.part_place(&self.part).map_err(on_part)?;
        let file = files.create_part_in(&place, &self.part).map_err(on_part)?;
        let mut part = OpenPart {
            files: files.clone(),
            path: self.part.clone(),
            file,
            is_kept: false,
        };
        part.file.write_at(&content, 0).map_err(on_part)?;
        if self.is_compared {
            if self.source_files.stamp(&self.source) != Some(stamp) {
                return Ok(CopyOutcome::Changed);
            }
            let (got, expected) = (
                part.file.stat().map_err(on_part)?.size_bytes,
                stamp.size_bytes,
            );
            if got != expected {
                let got = Some(got);
                return Err(ServerError::Short { got, expected }.into());
            }
        }
        let modified_unix_s = Some(stamp.modified_unix_s);
        files
            .complete_part_in(&place, &*part.file, path, modified_unix_s)
            .map_err(on_part)?;
        if !self.is_named {
            return Ok(CopyOutcome::Whole(stamp, Some(part)));
        }
        files
            .name_part_in(&place, path)
            .map_err(|error| renaming(&self.part, path)(error))?;
        part.is_kept = true;
        Ok(CopyOutcome::Whole(stamp, None))
    }
}

/// Reads a file of at most `bytes_max` bytes.
pub(super) fn read(files: &LocalFiles, path: &[u8], bytes_max: u64) -> io::Result<ReadOutcome> {
    let file = files.open(path)?;
    if files.is_being_written(&*file) {
        return Ok(ReadOutcome::Busy);
    }
    let before = Stamp::of(&file.stat()?);
    if before.size_bytes > bytes_max {
        return Ok(ReadOutcome::Changed);
    }
    let mut content = vec![0; usize::try_from(before.size_bytes).unwrap_or(usize::MAX)];
    let mut length = 0;
    while length < content.len() {
        match file.read_at(&mut content[length..], length as u64)? {
            0 => return Ok(ReadOutcome::Changed),
            count => length += count,
        }
    }
    let is_whole = file.read_at(&mut [0], length as u64)? == 0;
    let is_same = Stamp::of(&file.stat()?) == before;
    Ok(match is_whole && is_same {
        true => ReadOutcome::Whole(content, before),
        false => ReadOutcome::Changed,
    })
}

/// Writes a file under the name of its part file. When the function returns, the content survives a
/// power cut.
pub(super) fn write(
    files: &Arc<LocalFiles>,
    (part, path): (&[u8], &[u8]),
    bytes: &[u8],
    modified_unix_s: Option<i64>,
) -> io::Result<OpenPart> {
    let is_in_place = part == path;
    let part = OpenPart {
        files: files.clone(),
        path: part.to_vec(),
        file: match is_in_place {
            true => files.open_in_place(path)?,
            false => files.create_part(part)?,
        },
        // No later attempt resumes such a part.
        is_kept: is_in_place,
    };
    part.file.write_at(bytes, 0)?;
    if is_in_place {
        part.file.set_len(bytes.len() as u64)?;
    }
    files.complete_part(&*part.file, &part.path, path, modified_unix_s)?;
    Ok(part)
}

/// Renames a complete part file to its final name.
pub(super) fn name(mut part: OpenPart, path: &[u8]) -> io::Result<()> {
    part.files.name_part(&part.path, path)?;
    part.is_kept = true;
    Ok(())
}
