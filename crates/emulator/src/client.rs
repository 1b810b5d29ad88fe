//! Client that sends commands to an emulator in a background process.

use std::{
    fs, io,
    io::{Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sched::{CloneFlags, setns},
};
use wansim::PathConfig;

use super::{
    capture::{CaptureOptions, CaptureReport},
    change::PathChange,
    config::{Direction, Site, WanConfig},
    control::{ControlAnswer, ControlRequest, Description, hear, say},
    daemon::{DaemonOrder, StartResult},
    error::WanError,
    report::WanReport,
    state::EmulatorPaths,
};

/// Client that sends commands to one background emulator.
#[derive(Debug, Clone)]
pub struct Client {
    place: EmulatorPaths,
}

/// A capture that runs in the background emulator. Drop ends the capture.
#[derive(Debug)]
pub struct RemoteCapture {
    stream: UnixStream,
}

/// Kind of object that [`Client::down`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownResult {
    /// A running emulator.
    Running,
    /// Files and namespaces of an emulator whose process had died.
    Remains,
}

impl Client {
    /// Creates a client for the emulator at `place`. The emulator need not be running.
    pub fn new(place: EmulatorPaths) -> Self {
        Self { place }
    }

    /// Starts an emulator in the background, and waits until it is ready. `daemon` is a command for
    /// a process that calls [`daemon::run`](super::daemon::run).
    ///
    /// # Errors
    /// [`WanError::AlreadyRunning`], or [`WanError::Refused`] with the message of the process.
    pub fn up(&self, config: WanConfig, mut daemon: Command) -> Result<(), WanError> {
        // The background process checks the lock, too. This earlier check avoids the start of a
        // process.
        if self.place.lock()?.is_none() {
            return Err(WanError::AlreadyRunning {
                name: self.place.name().to_owned(),
            });
        }
        let log = self.place.log();
        let messages =
            fs::File::create(&log).map_err(WanError::io(format!("making {}", log.display())))?;
        let starting = || "starting the emulator's process";
        let mut child = daemon
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .current_dir("/")
            .spawn()
            .map_err(WanError::io(starting()))?;
        let order = DaemonOrder {
            place: self.place.clone(),
            config,
        };
        let text = serde_json::to_vec(&order).expect("plain data");
        let mut stdin = child.stdin.take().expect("piped");
        let mut said = Vec::new();
        // If the process died early, its result is missing.
        let _ = stdin.write_all(&text);
        drop(stdin);
        let mut stdout = child.stdout.take().expect("piped");
        stdout
            .read_to_end(&mut said)
            .map_err(WanError::io(starting()))?;
        match serde_json::from_slice(&said) {
            Ok(StartResult::Up) => Ok(()),
            Ok(StartResult::Failed(text)) => {
                let _ = child.wait();
                if let Ok(Some(lock)) = self.place.lock() {
                    self.place.forget(lock);
                }
                Err(WanError::Refused(text))
            }
            Err(_) => {
                let _ = child.wait();
                let messages = fs::read_to_string(&log).unwrap_or_default();
                let text = format!("the emulator's process died: {}", messages.trim());
                Err(WanError::Refused(text))
            }
        }
    }

    /// Returns the initial configuration and the process of the emulator.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name.
    pub fn describe(&self) -> Result<Description, WanError> {
        match self.ask(&ControlRequest::Describe)?.0 {
            ControlAnswer::Description(description) => Ok(*description),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Returns the current settings and the counters of the emulator.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name.
    pub fn report(&self) -> Result<WanReport, WanError> {
        match self.ask(&ControlRequest::Report)?.0 {
            ControlAnswer::Report(report) => Ok(*report),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Replaces the settings of one direction while traffic flows.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name.
    pub fn set(&self, direction: Direction, path: PathConfig) -> Result<(), WanError> {
        self.done(&ControlRequest::Configure { direction, path })
    }

    /// Changes some settings of the given directions, and keeps all others.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name.
    pub fn change(&self, change: &PathChange, directions: &[Direction]) -> Result<(), WanError> {
        let before = self.report()?.directions.map(|direction| direction.config);
        let mut paths = before.clone();
        change.apply(&mut paths, directions);
        for direction in Direction::BOTH {
            let path = &paths[direction.index()];
            if *path != before[direction.index()] {
                self.set(direction, path.clone())?;
            }
        }
        Ok(())
    }

    /// Sets a site's WAN interface down or up.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name. [`WanError::Refused`] if the kernel
    /// refuses.
    pub fn set_interface_up(&self, site: Site, up: bool) -> Result<(), WanError> {
        self.done(&ControlRequest::Interface { site, up })
    }

    /// Starts a capture of a site's packets to `file`, like [`Wan::capture`](super::Wan::capture).
    /// The file must be open for writing. The emulator itself needs no permission for the file.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name. [`WanError::Refused`] if the emulator
    /// cannot capture.
    pub fn capture(
        &self,
        site: Site,
        file: fs::File,
        options: CaptureOptions,
    ) -> Result<RemoteCapture, WanError> {
        let stream = self.connect()?;
        let request = ControlRequest::Capture { site, options };
        let answer = say(&stream, &request, &[file.into()])
            .and_then(|()| hear(&stream))
            .map_err(WanError::io("speaking with the emulator"))?;
        match answer.0 {
            ControlAnswer::Done => Ok(RemoteCapture { stream }),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Replaces this process by a command inside a site. The function returns only after an error.
    /// If the emulator runs in a user namespace, the process must have a single thread.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if no emulator has this name. [`WanError::Io`] if the program
    /// cannot be started.
    pub fn exec(
        &self,
        site: Site,
        mut command: Command,
    ) -> Result<std::convert::Infallible, WanError> {
        let (answer, mut descriptors) = self.ask(&ControlRequest::Namespaces { site })?;
        let ControlAnswer::Namespaces { user } = answer else {
            return Err(unexpected(&answer));
        };
        let entering = || WanError::io::<Errno>("entering the site");
        if user && !descriptors.is_empty() {
            // The process enters the user namespace first, to get the permission for the network
            // namespace.
            setns(descriptors.remove(0), CloneFlags::CLONE_NEWUSER).map_err(entering())?;
        }
        for network in descriptors {
            setns(network, CloneFlags::CLONE_NEWNET).map_err(entering())?;
        }
        let program = command.get_program().display().to_string();
        Err(WanError::io(format!("running {program}"))(command.exec()))
    }

    /// Ends the emulator and removes its sites. If the emulator's process has died, removes its
    /// remaining files and namespaces.
    ///
    /// # Errors
    /// [`WanError::NotRunning`] if there is neither a running emulator nor anything to remove.
    pub fn down(&self) -> Result<DownResult, WanError> {
        match self.done(&ControlRequest::Down) {
            Ok(()) => {}
            Err(WanError::NotRunning { name }) => {
                let Some(lock) = self.place.lock()? else {
                    return Err(WanError::Refused(format!(
                        "{name} is coming up or going down"
                    )));
                };
                let cleaned = self.place.clean(&lock)?;
                self.place.forget(lock);
                return if cleaned {
                    Ok(DownResult::Remains)
                } else {
                    Err(WanError::NotRunning { name })
                };
            }
            Err(error) => return Err(error),
        }
        // The process releases the lock at its very end.
        for _ in 0..END_CHECKS {
            if let Some(lock) = self.place.lock()? {
                self.place.forget(lock);
                return Ok(DownResult::Running);
            }
            std::thread::sleep(END_CHECK_INTERVAL);
        }
        Err(WanError::Refused(
            "the emulator's process does not end".to_owned(),
        ))
    }

    fn done(&self, request: &ControlRequest) -> Result<(), WanError> {
        match self.ask(request)?.0 {
            ControlAnswer::Done => Ok(()),
            answer => Err(unexpected(&answer)),
        }
    }

    fn ask(&self, request: &ControlRequest) -> Result<(ControlAnswer, Vec<OwnedFd>), WanError> {
        let stream = self.connect()?;
        say(&stream, request, &[])
            .and_then(|()| hear(&stream))
            .map_err(WanError::io("speaking with the emulator"))
    }

    fn connect(&self) -> Result<UnixStream, WanError> {
        UnixStream::connect(self.place.socket()).map_err(|error| {
            let name = self.place.name().to_owned();
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    WanError::NotRunning { name }
                }
                _ => WanError::io("reaching the emulator")(error),
            }
        })
    }
}

impl RemoteCapture {
    /// Waits until the capture ends, until `time` has passed, or until `stop` is readable. Then
    /// ends the capture, and returns its size.
    ///
    /// # Errors
    /// [`WanError::Refused`] with the reason why the emulator could not write the file.
    pub fn run(
        self,
        time: Option<Duration>,
        stop: BorrowedFd<'_>,
    ) -> Result<CaptureReport, WanError> {
        let speaking = || "speaking with the emulator";
        let end = time.map(|time| Instant::now() + time);
        let mut fds = [self.stream.as_fd(), stop].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        loop {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            match ppoll(&mut fds, rest.map(Into::into), None) {
                Err(Errno::EINTR) => {}
                result => {
                    result.map_err(WanError::io(speaking()))?;
                    break;
                }
            }
        }
        // The emulator may have closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Write);
        let answer = hear(&self.stream).map_err(WanError::io(speaking()))?;
        match answer.0 {
            ControlAnswer::Captured(report) => Ok(report),
            answer => Err(unexpected(&answer)),
        }
    }
}

fn unexpected(answer: &ControlAnswer) -> WanError {
    match answer {
        ControlAnswer::Failed(text) => WanError::Refused(text.clone()),
        _ => WanError::Refused("the emulator is of another version".to_owned()),
    }
}

/// Number of checks whether the emulator's process has ended. The checks take five seconds in
/// total.
const END_CHECKS: u32 = 500;
const END_CHECK_INTERVAL: Duration = Duration::from_millis(10);
