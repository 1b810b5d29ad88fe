//! Files that several jobs upload through the same gateway. With a shared spool (a file at the far
//! gateway), the bytes of each file cross the link only once.
//!
//! Each job asks the far gateway to read the job's upload from the spool. Only one job sends the
//! bytes to the spool: the job whose server is the first to be ready. If that job fails, the
//! uploads of the other jobs fail a little later. The first job that retries continues at the
//! spool's present length.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use ftp::spool::{SpoolAnswer, SpoolRequest};

use crate::journal::PartOrigin;

/// State that several jobs share because they use one gateway.
#[derive(Debug)]
pub struct SpoolSharing {
    jobs: u32,
    files: Mutex<HashMap<SharedFile, Arc<Mutex<SharedFileState>>>>,
    /// Whether the gateway cannot provide spools.
    is_refused: AtomicBool,
}

/// Progress of filling a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpoolProgress {
    /// A job is sending the bytes to the spool.
    Some,
    /// A job has sent the last byte to the spool.
    All,
}

/// A file of the source: its path, and its size and modification time.
type SharedFile = (Vec<u8>, PartOrigin);

#[derive(Debug)]
struct SharedFileState {
    id: u128,
    /// Progress of each spool, by the spool's instance number.
    spools: HashMap<u64, SpoolProgress>,
    /// Number of jobs whose servers have received the whole file.
    done: u32,
}

/// One job's use of a shared file.
#[derive(Debug)]
pub(crate) struct FileShare<'a> {
    sharing: &'a SpoolSharing,
    file: SharedFile,
    state: Arc<Mutex<SharedFileState>>,
    id: u128,
}

/// Permission to send the bytes of a file to a spool. If this value is dropped before all bytes are
/// sent, another job may send them.
#[derive(Debug)]
pub(crate) struct SendRight {
    state: Arc<Mutex<SharedFileState>>,
    instance: u64,
}

impl SpoolSharing {
    /// Creates the shared state of `jobs` jobs. Each job uploads each file.
    pub fn new(jobs: u32) -> Self {
        Self {
            jobs,
            files: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Adds a job to a shared file. Returns `None` if the gateway cannot provide spools, or if the
    /// operating system provides no random number for the spool.
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

    /// Records that the gateway cannot provide spools, or that there is no gateway.
    pub(crate) fn refused(&self) {
        self.is_refused.store(true, Relaxed);
    }
}

impl FileShare<'_> {
    /// Returns the request to the gateway for an upload that starts at `offset_bytes`.
    pub(crate) fn request(&self, offset_bytes: u64) -> SpoolRequest {
        SpoolRequest {
            id: self.id,
            size_bytes: self.file.1.size_bytes,
            offset_bytes,
            readers: self.sharing.jobs,
        }
    }

    /// Claims the permission to send the bytes that the spool lacks. `spool` is the gateway's
    /// answer. Returns `None` if no bytes are missing or another job has the permission.
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

    /// Records that this job's server has received the whole file.
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
    /// Records that the gateway has received all bytes.
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

/// Returns an unpredictable number that identifies a file's spool. Any client that has the number
/// can read the file at the gateway. Returns `None` if the operating system provides no random
/// numbers.
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
