//! Files that several jobs move through the same gateway, so that their bytes cross the link once.
//!
//! Each job requests that the far gateway take its upload from the file's spool. The job whose
//! server is ready first sends the bytes, and the others send none. If it fails, their uploads fail
//! a little later. The first job that retries continues from the spool's present length.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use ftp::spool::{SpoolAnswer, SpoolRequest};

use crate::journal::PartOrigin;

/// Shared state of jobs that use one gateway.
#[derive(Debug)]
pub struct SpoolSharing {
    jobs: u32,
    files: Mutex<HashMap<SharedFile, Arc<Mutex<SharedFileState>>>>,
    /// Whether the gateway has no spool.
    is_refused: AtomicBool,
}

/// Progress of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpoolProgress {
    /// A job is sending the bytes.
    Some,
    /// A job has sent the last byte.
    All,
}

/// A path of the source, and the file's origin.
type SharedFile = (Vec<u8>, PartOrigin);

#[derive(Debug)]
struct SharedFileState {
    id: u128,
    /// Progress of each spool, by its instance.
    spools: HashMap<u64, SpoolProgress>,
    /// Jobs whose servers have the whole file.
    done: u32,
}

/// One job's share in a file.
#[derive(Debug)]
pub(crate) struct FileShare<'a> {
    sharing: &'a SpoolSharing,
    file: SharedFile,
    state: Arc<Mutex<SharedFileState>>,
    id: u128,
}

/// Right to send the bytes. If dropped, another job may send them.
#[derive(Debug)]
pub(crate) struct SendRight {
    state: Arc<Mutex<SharedFileState>>,
    instance: u64,
}

impl SpoolSharing {
    /// Creates the shared state of `jobs` jobs. Each of them is to have each file.
    pub fn new(jobs: u32) -> Self {
        Self {
            jobs,
            files: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Takes part in a file. `None` if the gateway does not support that.
    pub(crate) fn share(&self, path: &[u8], origin: PartOrigin) -> Option<FileShare<'_>> {
        if self.is_refused.load(Relaxed) {
            return None;
        }
        let file = (path.to_vec(), origin);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match files.get(&file) {
            Some(state) => state.clone(),
            None => {
                let state = Arc::new(Mutex::new(SharedFileState {
                    id: draw()?,
                    spools: HashMap::new(),
                    done: 0,
                }));
                files.insert(file.clone(), state.clone());
                state
            }
        };
        let id = lock(&state).id;
        Some(FileShare {
            sharing: self,
            file,
            state,
            id,
        })
    }

    /// Records that the gateway has no spool, or that there is no gateway.
    pub(crate) fn refused(&self) {
        self.is_refused.store(true, Relaxed);
    }
}

impl FileShare<'_> {
    /// Returns the request to the gateway, for an upload from `offset_bytes` on.
    pub(crate) fn request(&self, offset_bytes: u64) -> SpoolRequest {
        SpoolRequest {
            id: self.id,
            size_bytes: self.file.1.size_bytes,
            offset_bytes,
            readers: self.sharing.jobs,
        }
    }

    /// Claims the right to send the bytes that the spool lacks, unless another job has it. The
    /// server is ready, and `spool` is the gateway's answer.
    pub(crate) fn claim(&self, spool: SpoolAnswer) -> Option<SendRight> {
        let mut state = lock(&self.state);
        let instance = spool.instance;
        let has_all = spool.have_bytes >= self.file.1.size_bytes;
        if has_all || state.spools.contains_key(&instance) {
            return None;
        }
        state.spools.insert(instance, SpoolProgress::Some);
        Some(SendRight {
            state: self.state.clone(),
            instance,
        })
    }

    /// Records that this job's server has the whole file.
    pub(crate) fn done(self) {
        let done = {
            let mut state = lock(&self.state);
            state.done += 1;
            state.done
        };
        if done >= self.sharing.jobs {
            let mut files = self
                .sharing
                .files
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            files.remove(&self.file);
        }
    }
}

impl SendRight {
    /// Records that the gateway has all bytes.
    pub(crate) fn done(self) {
        let mut state = lock(&self.state);
        state.spools.insert(self.instance, SpoolProgress::All);
    }
}

impl Drop for SendRight {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.spools.get(&self.instance) == Some(&SpoolProgress::Some) {
            state.spools.remove(&self.instance);
        }
    }
}

fn lock(state: &Mutex<SharedFileState>) -> MutexGuard<'_, SharedFileState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws an unpredictable number, since its owner could read the file at the gateway. `None` if the
/// system has no random numbers.
fn draw() -> Option<u128> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    const ORIGIN: PartOrigin = PartOrigin {
        size_bytes: SIZE,
        modified_unix_s: 1,
        modified_ns: 0,
    };

    fn share(sharing: &SpoolSharing) -> FileShare<'_> {
        sharing.share(b"film.mxf", ORIGIN).expect("it is shared")
    }

    fn spool(instance: u64, have_bytes: u64) -> SpoolAnswer {
        SpoolAnswer {
            have_bytes,
            instance,
        }
    }

    #[test]
    fn one_job_brings_the_bytes() {
        let sharing = SpoolSharing::new(3);
        let (first, second) = (share(&sharing), share(&sharing));
        assert_eq!(first.request(7).id, second.request(0).id);
        let fill = second.claim(spool(7, 0)).expect("nobody does");
        assert!(first.claim(spool(7, 0)).is_none());
        let other = first.claim(spool(8, 0));
        assert!(other.is_some(), "one behind another gateway has nothing");
        fill.done();
        let before = "it asked before the bytes were there";
        assert!(first.claim(spool(7, 0)).is_none(), "{before}");
        let late = share(&sharing);
        assert!(late.claim(spool(9, SIZE)).is_none(), "the spool has all");
        assert!(late.claim(spool(9, 0)).is_some(), "a new one has nothing");
    }

    #[test]
    fn the_next_job_goes_on_where_one_failed() {
        let sharing = SpoolSharing::new(2);
        let first = share(&sharing);
        drop(first.claim(spool(7, 0)).expect("nobody does"));
        let second = share(&sharing);
        assert!(second.claim(spool(7, 400)).is_some());
    }

    #[test]
    fn a_file_that_all_have_is_forgotten() {
        let sharing = SpoolSharing::new(2);
        let id = share(&sharing).request(0).id;
        share(&sharing).done();
        assert_eq!(share(&sharing).request(0).id, id);
        share(&sharing).done();
        assert_ne!(share(&sharing).request(0).id, id);
        sharing.refused();
        assert!(sharing.share(b"film.mxf", ORIGIN).is_none());
    }
}
