//! Copy of a byte stream of unknown length, such as standard input, to one file. The stream can be
//! read only once, so failures are not retried. The file receives its final name only when it is
//! complete.

use ftp::listing::EntryKind;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{backend::Backend, browse::BrowseError, failure::TaskError, progress::JobProgress};
use crate::{
    disk::LocalFiles,
    job::{CopyOptions, JobSite},
    names::{local, shown},
    server::ServerError,
};

/// Writes all of `input` to a file. Returns the size of the file in bytes.
///
/// # Errors
/// [`BrowseError`] if a directory has this path, if the site refuses the file, or if reading
/// `input` fails. Also [`BrowseError`] if `interrupt` resolves before the end of `input`. In each
/// case the part file is removed.
pub async fn pour(
    site: &JobSite,
    path: &[u8],
    moving: &CopyOptions,
    progress: &JobProgress,
    mut input: impl AsyncRead + Unpin,
    interrupt: impl Future<Output = ()>,
) -> Result<u64, BrowseError> {
    // The process id distinguishes the part from parts of other processes.
    let own = moving.partial(format!("-{}", std::process::id()).as_bytes(), path);
    let is_local = matches!(site, JobSite::Local);
    // On this machine, the mover can recognise and remove the part that an ended process has left.
    let mut part = match is_local {
        true => moving.partial(b"-", path),
        false => own.clone(),
    };
    let files = LocalFiles::without_roots();
    let mut backend = Backend::open(site, &files, None).await?;
    let there = backend.look(path).await?;
    if there.as_ref().is_some_and(|it| it.kind == EntryKind::Other) {
        let message = "the destination is neither a file nor a directory";
        return Err(BrowseError::Unusable(message.to_owned()));
    }
    if there.is_some_and(|it| it.kind == EntryKind::Directory) {
        let message =
            "the destination is a directory: standard input has no name, so name the file";
        return Err(BrowseError::Unusable(message.to_owned()));
    }
    let mut interrupt = std::pin::pin!(interrupt);
    let written = loop {
        let written = tokio::select! {
            written = write(&mut backend, (&part, path), progress, &mut input) => written,
            () = interrupt.as_mut() => Err(TaskError::Listing("interrupted".to_owned())),
        };
        match written {
            Err(error) if error.is_taken() && part != own => part.clone_from(&own),
            written => break written,
        }
    };
    let named = match written {
        Ok(bytes) => name(&mut backend, &part, path).await.map(|()| bytes),
        Err(error) => Err(error),
    };
    match named {
        Ok(bytes) => {
            backend.close(None).await;
            Ok(bytes)
        }
        Err(error) => {
            // The upload may still occupy the old connection, so a new one is needed. A local part
            // needs no removal here, because it is removed when its handle is dropped.
            if part != path && !is_local && backend.reopen(site, &files).await.is_ok() {
                // A failed removal is ignored, because the first error already states the reason.
                let _ = backend.remove(&part).await;
                backend.close(None).await;
            }
            Err(error.into())
        }
    }
}

/// Renames the part file to its final name. When the function returns, the name survives a power
/// cut.
async fn name(backend: &mut Backend, part: &[u8], path: &[u8]) -> Result<(), TaskError> {
    backend.complete(part, path, None).await?;
    backend.name(part, path, None).await?;
    if let Backend::Local(local_end) = backend {
        let what = format!("syncing the directory of {}", shown(&local(path)));
        let named = local_end.files.named(path).await;
        named.map_err(TaskError::disk(what))?;
    }
    Ok(())
}

async fn write(
    backend: &mut Backend,
    (part, path): (&[u8], &[u8]),
    progress: &JobProgress,
    mut input: impl AsyncRead + Unpin,
) -> Result<u64, TaskError> {
    let mut writer = backend.write((part, path), 0, false).await?;
    let mut bytes = vec![0; progress.step_bytes()];
    let mut length = 0;
    loop {
        let read = input.read(&mut bytes).await;
        let count = read.map_err(TaskError::disk("reading standard input".to_owned()))?;
        if count == 0 {
            break;
        }
        writer.write(&bytes[..count]).await?;
        length += count as u64;
        progress.moved(count).await;
    }
    let told = writer.finish().await?.and_then(|it| it.size_bytes);
    let got = match told {
        Some(size_bytes) => Some(size_bytes),
        None => backend
            .look_for_file(part)
            .await?
            .and_then(|it| it.size_bytes),
    };
    let is_whole = match got {
        Some(got) => got == length,
        None => !backend.tells_size(),
    };
    match is_whole {
        true => Ok(length),
        false => Err(ServerError::Short {
            got,
            expected: length,
        }
        .into()),
    }
}
