//! FTP sessions against any server. Each session runs a script, and its record has the time of
//! every event.
//!
//! The client waits as curl and the BSD client do. It waits for the reply to a command before the
//! next command, and for the data connection before its transfer command. It waits for the
//! preliminary reply before the bytes of an upload. A file that a session stored is compared when
//! the session retrieves it. The client has no TLS.

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
    /// The server, or a forward to the server.
    pub server: SocketAddr,
    /// Name of this route in records.
    pub label: String,
    /// Login name. Default `anonymous`.
    pub user: String,
    /// Default: a meaningless mail address, as anonymous users give one.
    pub password: ProbePassword,
    /// Folder on the server in which sessions may write, `{folder}` in scripts. Default `.`, the
    /// folder after the login.
    pub folder: String,
    /// Prefix of all names that sessions create. The prefix differs from run to run, so that files
    /// left by a broken run do not disturb the next one.
    pub name: String,
    /// Commands of each session. Default: [`SessionScript::middlebox`].
    pub script: SessionScript,
    /// Opener of data connections.
    pub data: DataMode,
    /// Size of each stored file. Default 100 kB, as in the study.
    pub file_size: ByteCount,
    /// Kind of the bytes in stored files.
    pub payload: Payload,
    /// Mean of the random pause before each command. Default: no pause; the study had 2 s.
    pub pause: Option<Duration>,
    /// Longest silence before a session fails. Default 30 s.
    pub timeout: Duration,
    /// The number of sessions and their times.
    pub arrivals: Arrivals,
}

/// A password; `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ProbePassword(pub String);

/// Opener of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataMode {
    /// The mode of the script.
    #[default]
    Scripted,
    /// The server, even if the script has `PASV` or `EPSV`.
    Active,
    /// The client, even if the script has `PORT` or `EPRT`.
    Passive,
}

impl FtpProbe {
    /// One session with the study's script.
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

/// Runs all sessions, and calls back with each one as soon as it has ended. Returns the sessions in
/// the order of arrival.
///
/// # Errors
/// [`ProbeError`] if no session could be tried. A failed session is a record, not an error.
pub fn run(
    probe: &FtpProbe,
    on_record: impl FnMut(&SessionRecord),
) -> Result<Vec<SessionRecord>, ProbeError> {
    run_by_turns(&[probe], on_record)
}

/// Runs several probes in turn, so that all meet the same path and the same machine. The first
/// probe determines the arrivals, and its count applies to each probe.
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
