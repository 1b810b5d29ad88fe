//! A real FTP server on loopback, with a local folder and a folder on the server.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each test file uses a part; tests own sockets"
)]

mod fake;
pub(crate) mod openssh;
pub(crate) mod web;

pub(crate) use fake::FakeServerExt;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    net::TcpListener,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use mover::{
    job::{CopyOptions, Job, JobSite, Root, RootTarget},
    journal::Journal,
    location::{Scheme, Server},
    plan::{FileEvent, FileOutcome, PlanOptions},
    run::{JobProgress, JobSummary, run},
    server::{Dial, Password, Route},
    web::WebDial,
};
use net::tls::CertificateCheck;
use tokio::{runtime::Runtime, sync::oneshot};

/// A real FTP server, a local folder, and a folder on the server.
pub(crate) struct World {
    folder: tempfile::TempDir,
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    /// Runtime of all jobs, so that sessions survive the end of a job. Tests with their own runtime
    /// do not use it.
    runtime: OnceLock<Runtime>,
}

/// Result of running a job.
#[derive(Debug)]
pub(crate) struct CopyResult {
    pub(crate) summary: JobSummary,
    pub(crate) notes: Vec<FileEvent>,
    pub(crate) moved_bytes: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("room");
        for name in ["here", "server", "state"] {
            fs::create_dir(folder.path().join(name)).expect("room");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let (stop, stopped) = oneshot::channel::<()>();
        let served = folder.path().join("server");
        thread::spawn(move || {
            let stopped = async {
                // The world was dropped.
                let _ = stopped.await;
            };
            bench_kit::ftp_server::serve(served, address, stopped).expect("the server serves");
        });
        let is_up = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            std::net::TcpStream::connect(address).is_ok()
        });
        assert!(is_up, "the server is up within 5 s");
        Self {
            folder,
            port: address.port(),
            stop: Some(stop),
            runtime: OnceLock::new(),
        }
    }

    /// Creates a world whose runtime has at most `most` threads for blocking work.
    pub(crate) fn with_blocking_threads(most: usize) -> Self {
        let world = Self::new();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.max_blocking_threads(most).enable_all().build();
        let is_first = world.runtime.set(runtime.expect("a runtime")).is_ok();
        assert!(is_first);
        world
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.folder.path().join("here").join(name)
    }

    pub(crate) fn at_server(&self, name: &str) -> PathBuf {
        self.folder.path().join("server").join(name)
    }

    pub(crate) fn dial(&self) -> Dial {
        Dial {
            server: Server {
                scheme: Scheme::Ftp,
                user: None,
                host: "127.0.0.1".to_owned(),
                port: self.port,
            },
            route: Route::Direct,
            user: "anonymous".to_owned(),
            password: Some(Password(b"x".to_vec())),
            netrc: "~/.netrc".into(),
            verify: CertificateCheck::Roots(None),
            is_active: false,
            reply_timeout: Duration::from_secs(5),
            stall_max: Duration::from_secs(5),
        }
    }

    /// Creates a job that copies the local path `from` to the path `to` on the server.
    pub(crate) fn upload(&self, from: &Path, to: &str) -> Job {
        self.upload_by(self.dial(), from, to)
    }

    /// Creates a job that copies the local path `from` to the path `to` on another server.
    pub(crate) fn upload_by(&self, dial: Dial, from: &Path, to: &str) -> Job {
        let source = from.as_os_str().as_bytes().to_vec();
        let name = from.file_name().unwrap_or_default().as_bytes().to_vec();
        job(
            JobSite::Local,
            JobSite::Server(Box::new(dial)),
            (source, RootTarget::new(to.as_bytes().to_vec(), name)),
        )
    }

    /// Creates a job that copies the path `from` on the server to the local path `to`.
    pub(crate) fn download(&self, from: &str, to: &Path) -> Job {
        self.download_by(self.dial(), from, to)
    }

    /// Creates a job that copies the path `from` on another server to the local path `to`.
    pub(crate) fn download_by(&self, dial: Dial, from: &str, to: &Path) -> Job {
        let name = Path::new(from).file_name().unwrap_or_default().as_bytes();
        let target = RootTarget::new(to.as_os_str().as_bytes().to_vec(), name.to_vec());
        job(
            JobSite::Server(Box::new(dial)),
            JobSite::Local,
            (from.as_bytes().to_vec(), target),
        )
    }

    /// Creates a job that downloads `from` from a web server to the local path `to`.
    pub(crate) fn fetch_by(&self, dial: WebDial, from: &str, to: &Path) -> Job {
        let target = RootTarget::new(to.as_os_str().as_bytes().to_vec(), b"film".to_vec());
        job(
            JobSite::Web(Box::new(dial)),
            JobSite::Local,
            (from.as_bytes().to_vec(), target),
        )
    }

    /// Creates a job that copies `from` on a web server to the path `to` on the FTP server.
    pub(crate) fn pass_on(&self, dial: WebDial, from: &str, to: &str) -> Job {
        let target = RootTarget::new(to.as_bytes().to_vec(), b"film".to_vec());
        job(
            JobSite::Web(Box::new(dial)),
            JobSite::Server(Box::new(self.dial())),
            (from.as_bytes().to_vec(), target),
        )
    }

    /// Runs a job until it ends or until `after` bytes have been moved.
    pub(crate) fn run_until(&self, job: Job, after: u64) -> CopyResult {
        let journal = self.journal();
        let progress = Arc::new(JobProgress::new(job.moving.rate_max.clone()));
        let moved = progress.clone();
        let enough = async move {
            while moved.moved_bytes() < after {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let mut notes = Vec::new();
        let running = run(job, Some(journal), progress.clone(), enough, |note, _| {
            notes.extend(note);
        });
        let summary = self.block_on(running);
        CopyResult {
            summary,
            notes,
            moved_bytes: progress.moved_bytes(),
        }
    }

    pub(crate) fn run(&self, job: Job) -> CopyResult {
        self.run_until(job, u64::MAX)
    }

    /// Opens the journal of this world's jobs.
    pub(crate) fn journal(&self) -> Journal {
        Journal::open(&self.folder.path().join("state"), "job").expect("a journal")
    }

    /// Runs a future in the runtime of this world's jobs.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self
            .runtime
            .get_or_init(|| Runtime::new().expect("a runtime"));
        runtime.block_on(future)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

impl CopyResult {
    /// Returns the reasons of failures.
    pub(crate) fn failures(&self) -> Vec<&str> {
        let failures = self.notes.iter().filter_map(|note| match &note.result {
            FileOutcome::Failed(reason) => Some(reason.as_str()),
            _ => None,
        });
        failures.collect()
    }
}

/// Creates a job that copies the path `from` at one site to `target` at another site.
pub(crate) fn job(
    source: JobSite,
    destination: JobSite,
    (from, target): (Vec<u8>, RootTarget),
) -> Job {
    Job {
        source,
        destination,
        roots: vec![Root {
            source: from,
            destination: target,
        }],
        files: None,
        plan: PlanOptions::default(),
        moving: CopyOptions::default(),
        sharing: None,
        session_pool: None,
        fence: None,
    }
}

/// Returns pseudorandom bytes without repeated sequences.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    // This generator is fast in unoptimised tests, too.
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

/// Writes a file, and creates the folders above it.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("below a folder")).expect("room");
    fs::write(path, bytes).expect("room");
}

/// Returns the contents of all files below a folder, by path. For a folder, the value is `None`.
pub(crate) fn tree(folder: &Path) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(folder)
                .expect("below")
                .as_os_str()
                .as_bytes();
            if path.is_dir() {
                found.insert(name.to_vec(), None);
                folders.push(path);
            } else {
                found.insert(name.to_vec(), Some(fs::read(&path).expect("a file")));
            }
        }
    }
    found
}

/// Converts bytes to a file name.
pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
