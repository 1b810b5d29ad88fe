//! Files that several jobs move through the same gateway: their bytes go to it once.
//!
//! Each job asks the far gateway to take its upload from the file's spool. The job whose server is ready first brings the
//! bytes there; the others bring none. If it fails, their uploads fail a little later, and the first one that comes again
//! goes on from where the spool is.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use ftp::spool::{SpoolAnswer, SpoolRequest};

use crate::journal::Origin;

/// What several jobs move through one gateway.
#[derive(Debug)]
pub struct Sharing {
    jobs: u32,
    files: Mutex<HashMap<File, Arc<Mutex<State>>>>,
    /// The gateway has no spool.
    is_refused: AtomicBool,
}

/// What is brought to a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brought {
    /// A job is bringing the bytes.
    Some,
    /// A job has brought the last of them.
    All,
}

/// A path of the source, and what is there.
type File = (Vec<u8>, Origin);

#[derive(Debug)]
struct State {
    id: u128,
    /// What is brought to each spool of that name.
    spools: HashMap<u64, Brought>,
    /// Jobs that have the whole file.
    done: u32,
}

/// One job's part in a file.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    sharing: &'a Sharing,
    file: File,
    state: Arc<Mutex<State>>,
    id: u128,
}

/// Brings the bytes. Dropped, it leaves that to another job.
#[derive(Debug)]
pub(crate) struct Fill {
    state: Arc<Mutex<State>>,
    instance: u64,
}

impl Sharing {
    /// Nothing has moved. So many jobs are to have each file.
    pub fn new(jobs: u32) -> Self {
        Self {
            jobs,
            files: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Takes part in a file; `None` where the gateway does not do that.
    pub(crate) fn share(&self, path: &[u8], origin: Origin) -> Option<Share<'_>> {
        if self.is_refused.load(Relaxed) {
            return None;
        }
        let file = (path.to_vec(), origin);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match files.get(&file) {
            Some(state) => state.clone(),
            None => {
                let state = Arc::new(Mutex::new(State {
                    id: draw()?,
                    spools: HashMap::new(),
                    done: 0,
                }));
                files.insert(file.clone(), state.clone());
                state
            }
        };
        let id = lock(&state).id;
        Some(Share {
            sharing: self,
            file,
            state,
            id,
        })
    }

    /// The gateway has no spool, or there is none.
    pub(crate) fn refused(&self) {
        self.is_refused.store(true, Relaxed);
    }
}

impl Share<'_> {
    /// What the gateway is asked, for an upload from `offset_bytes` on.
    pub(crate) fn request(&self, offset_bytes: u64) -> SpoolRequest {
        SpoolRequest {
            id: self.id,
            size_bytes: self.file.1.size_bytes,
            offset_bytes,
            readers: self.sharing.jobs,
        }
    }

    /// The server is ready, and this is what the gateway has answered. The right to bring what the spool has not, unless
    /// another job does.
    pub(crate) fn claim(&self, spool: SpoolAnswer) -> Option<Fill> {
        let mut state = lock(&self.state);
        let instance = spool.instance;
        let has_all = spool.have_bytes >= self.file.1.size_bytes;
        if has_all || state.spools.contains_key(&instance) {
            return None;
        }
        state.spools.insert(instance, Brought::Some);
        Some(Fill {
            state: self.state.clone(),
            instance,
        })
    }

    /// This job's server has the whole file.
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

impl Fill {
    /// The gateway has all.
    pub(crate) fn done(self) {
        let mut state = lock(&self.state);
        state.spools.insert(self.instance, Brought::All);
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.spools.get(&self.instance) == Some(&Brought::Some) {
            state.spools.remove(&self.instance);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that nobody guesses: who knows it could read the file at the gateway. `None` if the system has none.
fn draw() -> Option<u128> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    const ORIGIN: Origin = Origin {
        size_bytes: SIZE,
        modified_unix_s: 1,
        modified_ns: 0,
    };

    fn share(sharing: &Sharing) -> Share<'_> {
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
        let sharing = Sharing::new(3);
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
        let sharing = Sharing::new(2);
        let first = share(&sharing);
        drop(first.claim(spool(7, 0)).expect("nobody does"));
        let second = share(&sharing);
        assert!(second.claim(spool(7, 400)).is_some());
    }

    #[test]
    fn a_file_that_all_have_is_forgotten() {
        let sharing = Sharing::new(2);
        let id = share(&sharing).request(0).id;
        share(&sharing).done();
        assert_eq!(share(&sharing).request(0).id, id);
        share(&sharing).done();
        assert_ne!(share(&sharing).request(0).id, id);
        sharing.refused();
        assert!(sharing.share(b"film.mxf", ORIGIN).is_none());
    }
}
