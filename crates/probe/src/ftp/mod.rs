//! FTP sessions with any server. Each session runs a script. The session's record contains the time
//! of every event.
//!
//! The client waits as curl and the BSD client do. The client waits for the reply to a command
//! before it sends the next command. The client waits for the data connection before it sends the
//! transfer command. The client waits for the preliminary reply before it sends the bytes of an
//! upload. If a session retrieves a file that it has stored, it compares the content. The client
//! does not support TLS.

mod control;
mod files;
mod record;
mod script;
mod session;
mod transfer;

use std::{fmt, net::SocketAddr, rc::Rc, time::Duration};

use units::ByteCount;

use super::{Arrivals, Payload, ProbeError, clock};

pub use record::{CommandRecord, DataRecord, SessionRecord, SessionSummary};
pub use script::{SessionScript, SessionScriptError};

/// Settings of the sessions.
#[derive(Debug, Clone)]
pub struct FtpProbe {
    /// Address of the server, or of a forward that leads to the server.
    pub server: SocketAddr,
    /// Name of the route in the records.
    pub label: String,
    /// User name. The default is `anonymous`.
    pub user: String,
    /// Password. The default has the form of a mail address, which anonymous users give as their
    /// password.
    pub password: ProbePassword,
    /// Folder on the server in which sessions may write. Scripts refer to it as `{folder}`. The
    /// default is `.`, the folder after the log-in.
    pub folder: String,
    /// Prefix of all names that sessions create. Each run has another prefix. Therefore files that
    /// an interrupted run has left do not disturb the next run.
    pub name: String,
    /// Commands of each session. The default is [`SessionScript::middlebox`].
    pub script: SessionScript,
    /// Mode of data connections.
    pub data: DataMode,
    /// Size of each stored file. The default is 100 kB, as in the middlebox study.
    pub file_size: ByteCount,
    /// Kind of the bytes in stored files.
    pub payload: Payload,
    /// Mean of the random pause before each command. The default is no pause. The middlebox study
    /// used 2 s.
    pub pause: Option<Duration>,
    /// Time without progress after which a session fails. The default is 30 s.
    pub timeout: Duration,
    /// Number of sessions, and their start times.
    pub arrivals: Arrivals,
}

/// A password. Its debug output is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ProbePassword(pub String);

/// Mode of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataMode {
    /// The mode that each command of the script selects.
    #[default]
    Scripted,
    /// Active mode: the server connects to the client. The commands `PASV` and `EPSV` in the script
    /// do not change the mode.
    Active,
    /// Passive mode: the client connects to the server. The commands `PORT` and `EPRT` in the
    /// script do not change the mode.
    Passive,
}

impl FtpProbe {
    /// Creates a probe with one session that runs the script of the middlebox study.
    pub fn new(server: SocketAddr) -> Self {
        let unique = clock::unix_us() / 1000;
        Self {
            server,
            label: "direct".to_owned(),
            user: "anonymous".to_owned(),
            password: ProbePassword("probe@longhaul.invalid".to_owned()),
            folder: ".".to_owned(),
            name: format!("probe-{unique:x}-{}", std::process::id()),
            script: SessionScript::middlebox(),
            data: DataMode::default(),
            file_size: ByteCount::new(100_000),
            payload: Payload::default(),
            pause: None,
            timeout: Duration::from_secs(30),
            arrivals: Arrivals::default(),
        }
    }
}

/// Runs all sessions. Calls `on_record` with each session as soon as it has ended. Returns the
/// sessions in the order of arrival.
///
/// # Errors
/// [`ProbeError`] if no session could be tried. A failed session is a record and not an error.
pub fn run(
    probe: &FtpProbe,
    on_record: impl FnMut(&SessionRecord),
) -> Result<Vec<SessionRecord>, ProbeError> {
    run_by_turns(&[probe], on_record)
}

/// Runs several probes in turn, so that all probes use the network path under the same conditions.
/// The arrivals of the first probe are used for all probes. Each probe runs as many sessions as
/// these arrivals contain.
///
/// # Errors
/// [`ProbeError`] if no session could be tried, or if two probes have the same label.
pub fn run_by_turns(
    probes: &[&FtpProbe],
    on_record: impl FnMut(&SessionRecord),
) -> Result<Vec<SessionRecord>, ProbeError> {
    let Some(first) = probes.first() else {
        return Ok(Vec::new());
    };
    for (index, probe) in probes.iter().enumerate() {
        validate(probe)?;
        if probes[..index]
            .iter()
            .any(|other| other.label == probe.label)
        {
            let message = format!("two ways are called {:?}", probe.label);
            return Err(ProbeError::Invalid(message));
        }
    }
    let common = session::RunContext {
        foreign_files: files::ForeignFiles::default(),
    };
    let start = |probe: Rc<FtpProbe>, number| {
        let common = common.clone();
        async move { session::run(&probe, &common, number).await }
    };
    probes.iter().for_each(|probe| probe.payload.prepare());
    first.arrivals.drive_by_turns(probes, start, on_record)
}

fn validate(probe: &FtpProbe) -> Result<(), ProbeError> {
    let has_line_end = |text: &String| text.contains(['\r', '\n', '\0']);
    let texts = [
        &probe.user,
        &probe.password.0,
        &probe.folder,
        &probe.name,
        &probe.label,
    ];
    if texts.into_iter().any(has_line_end) {
        let message = "user, password, folder, name and label are one line each";
        return Err(ProbeError::Invalid(message.to_owned()));
    }
    if probe.timeout.is_zero() {
        let message = "without time for a reply nothing can come";
        return Err(ProbeError::Invalid(message.to_owned()));
    }
    Ok(())
}

impl fmt::Debug for ProbePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests;
