//! The background process, which keeps a [`Wan`] running and executes commands.
//!
//! [`Client::up`](super::Client::up) starts the process, and sends the settings to the standard
//! input of the process. The process reports on standard output whether the WAN has started, and
//! then closes both streams.

use std::{
    fs, io,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    process, thread,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::setsid,
};
use serde::{Deserialize, Serialize};

use super::{
    Wan,
    capture::{Capture, CaptureOptions},
    config::{Site, WanConfig},
    control::{ControlAnswer, ControlRequest, Description, hear, say},
    error::WanError,
    netns,
    privilege::{self, Privilege},
    state::{CleanupRecord, EmulatorLock, EmulatorPaths},
};

/// Settings for the background process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DaemonOrder {
    pub(super) place: EmulatorPaths,
    pub(super) config: WanConfig,
}

/// Report whether the WAN has started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum StartResult {
    Up,
    Failed(String),
}

/// Runs the background process until a command or SIGTERM ends it. The process must have a single
/// thread when this function is called, since an ordinary user has to enter a user namespace.
///
/// # Errors
/// The error that prevented the WAN from starting. The process has also written the text of this
/// error to standard output.
pub fn run() -> anyhow::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let order: DaemonOrder = serde_json::from_str(&text)?;
    let result = Daemon::start(order);
    let verdict = match &result {
        Ok(_) => StartResult::Up,
        Err(error) => StartResult::Failed(with_causes(error)),
    };
    let mut stdout = io::stdout();
    stdout.write_all(&serde_json::to_vec(&verdict)?)?;
    stdout.flush()?;
    let mut daemon = result?;
    // The waiting command reads standard output to its end.
    let null = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stdin(&null)?;
    daemon.serve()?;
    Ok(())
}

struct Daemon {
    // Rust drops the fields in this order. The captures end when the WAN is dropped.
    wan: Wan,
    captures: Captures,
    user_namespace: Option<OwnedFd>,
    listener: UnixListener,
    signals: SignalFd,
    place: EmulatorPaths,
    lock: EmulatorLock,
}

impl Daemon {
    fn start(DaemonOrder { place, config }: DaemonOrder) -> Result<Self, WanError> {
        setsid().map_err(WanError::io("leaving the terminal's session"))?;
        let name = place.name().to_owned();
        let lock = place.lock()?.ok_or(WanError::AlreadyRunning { name })?;
        place.clean(&lock)?;
        // The signals are blocked before any thread exists, so that no thread receives them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)
            .map_err(WanError::io("blocking signals"))?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)
            .map_err(WanError::io("waiting for signals"))?;
        match Self::raise(&place, &lock, config) {
            Ok((wan, listener, user_namespace)) => Ok(Self {
                wan,
                captures: Captures::default(),
                user_namespace,
                listener,
                signals,
                place,
                lock,
            }),
            Err(error) => {
                place.clean(&lock)?;
                Err(error)
            }
        }
    }

    /// Creates the WAN and its command socket.
    ///
    /// After this process has created an object, it records that the object must be removed later.
    /// An earlier record would be dangerous: a clean-up could remove another emulator's namespace
    /// with the same name.
    fn raise(
        place: &EmulatorPaths,
        lock: &EmulatorLock,
        mut config: WanConfig,
    ) -> Result<(Wan, UnixListener, Option<OwnedFd>), WanError> {
        let mut record = CleanupRecord {
            pid: process::id(),
            namespaces: Vec::new(),
        };
        place.write(lock, &record)?;
        let listener = UnixListener::bind(place.socket()).map_err(WanError::io(format!(
            "binding {}",
            place.socket().display()
        )))?;
        let privilege = privilege::acquire()?;
        let user_namespace = match privilege {
            Privilege::Root => None,
            Privilege::UserNamespace => Some(
                fs::File::open("/proc/self/ns/user")
                    .map_err(WanError::io("opening the user namespace"))?
                    .into(),
            ),
        };
        config.visible = privilege == Privilege::Root;
        let wan = Wan::up(config)?;
        if wan.config().visible {
            let sites = wan.config().sites.iter();
            record.namespaces = sites.map(|site| netns::visible_path(&site.name)).collect();
            place.write(lock, &record)?;
        }
        Ok((wan, listener, user_namespace))
    }

    fn serve(&mut self) -> Result<(), WanError> {
        loop {
            let readable = PollFlags::POLLIN;
            let mut fds =
                [self.listener.as_fd(), self.signals.as_fd()].map(|fd| PollFd::new(fd, readable));
            match poll(&mut fds, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                result => result.map_err(WanError::io("waiting for commands"))?,
            };
            let [asked, signalled] = fds.map(|fd| fd.any().unwrap_or(false));
            if signalled {
                return Ok(());
            }
            if asked && let Ok((stream, _)) = self.listener.accept() {
                // A broken connection affects only the command on this connection.
                if let Ok(true) = self.answer(&stream) {
                    return Ok(());
                }
            }
        }
    }

    /// Executes one command. Returns true if it was the last command.
    fn answer(&mut self, stream: &UnixStream) -> io::Result<bool> {
        let (request, brought) = hear::<ControlRequest>(stream)?;
        let mut descriptors = Vec::new();
        let answer = match request {
            ControlRequest::Describe => ControlAnswer::Description(Box::new(Description {
                pid: process::id(),
                config: self.wan.config().clone(),
            })),
            ControlRequest::Report => ControlAnswer::Report(Box::new(self.wan.report())),
            ControlRequest::Configure { direction, path } => {
                self.wan.set(direction, path);
                ControlAnswer::Done
            }
            ControlRequest::Interface { site, up } => match self.wan.set_interface_up(site, up) {
                Ok(()) => ControlAnswer::Done,
                Err(error) => ControlAnswer::Failed(with_causes(&error)),
            },
            ControlRequest::Namespaces { site } => {
                if let Some(user) = &self.user_namespace {
                    descriptors.push(user.try_clone()?);
                }
                match self.wan.namespace(site) {
                    Ok(network) => {
                        descriptors.push(network);
                        ControlAnswer::Namespaces {
                            user: self.user_namespace.is_some(),
                        }
                    }
                    Err(error) => ControlAnswer::Failed(with_causes(&error)),
                }
            }
            ControlRequest::Capture { site, options } => {
                let stream = stream.try_clone()?;
                match self.capture(site, options, brought, stream) {
                    Ok(()) => return Ok(false),
                    Err(error) => ControlAnswer::Failed(with_causes(&error)),
                }
            }
            ControlRequest::Down => {
                let cleaned = self.place.clean(&self.lock);
                let answer = match &cleaned {
                    Ok(_) => ControlAnswer::Done,
                    Err(error) => ControlAnswer::Failed(with_causes(error)),
                };
                say(stream, &answer, &[])?;
                return Ok(true);
            }
        };
        say(stream, &answer, &descriptors)?;
        Ok(false)
    }

    /// Starts a capture, and a thread that waits until the client closes its sending half.
    fn capture(
        &mut self,
        site: Site,
        options: CaptureOptions,
        brought: Vec<OwnedFd>,
        stream: UnixStream,
    ) -> Result<(), WanError> {
        let file = brought
            .into_iter()
            .next()
            .ok_or_else(|| WanError::Invalid("no file came with the request".to_owned()))?;
        let capture = self.wan.capture(site, fs::File::from(file), options)?;
        let attend = move || {
            // If the client has disconnected, it needs no answer. The file of the capture is
            // complete in any case.
            let _ = attend(&stream, capture);
        };
        let thread = thread::Builder::new()
            .name("capture-end".to_owned())
            .spawn(attend)
            .map_err(WanError::io("starting a capture's thread"))?;
        self.captures.0.retain(|thread| !thread.is_finished());
        self.captures.0.push(thread);
        Ok(())
    }
}

/// The threads that wait for the end of captures. Drop waits until the files of all captures are
/// complete.
#[derive(Default)]
struct Captures(Vec<thread::JoinHandle<()>>);

impl Drop for Captures {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Reports the start of a capture to the client. Waits until the capture ends, or until the client
/// closes its sending half. Then reports the size of the capture.
fn attend(mut stream: &UnixStream, capture: Capture) -> io::Result<()> {
    say(stream, &ControlAnswer::Done, &[])?;
    stream.set_read_timeout(Some(LOOK_AFTER))?;
    while !capture.has_ended() {
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    let answer = match capture.finish() {
        Ok(report) => ControlAnswer::Captured(report),
        Err(error) => ControlAnswer::Failed(with_causes(&error)),
    };
    say(stream, &answer, &[])
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = self.place.clean(&self.lock);
        }
    }
}

/// Formats the error and its causes in one line.
fn with_causes(error: &WanError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Interval of the checks whether a capture has ended.
const LOOK_AFTER: Duration = Duration::from_millis(50);
