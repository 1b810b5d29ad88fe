//! Sessions against any FTP server, each saying a script, with the time of every event.
//!
//! Clients wait as curl and the BSD client do: for the reply to a command before the next one, for a data
//! connection before the command that uses it, and for the preliminary reply before an upload's bytes.
//! What a session stored is compared when it comes back. TLS is not spoken.

mod control;
mod files;
mod record;
mod script;
mod session;

use std::{fmt, net::SocketAddr, rc::Rc, time::Duration};

use units::ByteCount;

use super::{Arrivals, ProbeError, clock};
use bench_kit::content::Content;

pub use record::{Data, Exchange, Session, Summary};
pub use script::{Script, ScriptError};

/// What is asked of a server.
#[derive(Debug, Clone)]
pub struct FtpProbe {
    /// The server, or what leads to it.
    pub server: SocketAddr,
    /// What records call this way to the server.
    pub label: String,
    /// Default `anonymous`.
    pub user: String,
    /// Default: an address without a meaning, as anonymous users give one.
    pub password: Password,
    /// Where sessions may write; `{folder}` in scripts. Default `.`: where a login leads to.
    pub folder: String,
    /// Begins the names of what sessions make, and differs from run to run, so that what a broken one
    /// left is in nobody's way.
    pub name: String,
    /// What each session says. Default: [`Script::middlebox`].
    pub script: Script,
    /// Who opens data connections.
    pub data: DataMode,
    /// Size of each file that is stored. Default 100 kB, as in the study.
    pub file_size: ByteCount,
    /// Mean of the random pause before each command. Default: none; the study's was 2 s.
    pub pause: Option<Duration>,
    /// Longest silence while something is awaited. Default 30 s.
    pub timeout: Duration,
    /// How many sessions, and when.
    pub arrivals: Arrivals,
}

/// A password: shown as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

/// Who opens data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataMode {
    /// Whoever the script says.
    #[default]
    Scripted,
    /// The server, also where the script has `PASV` or `EPSV`.
    Active,
    /// The client, also where the script has `PORT` or `EPRT`.
    Passive,
}

impl FtpProbe {
    /// One session of the study's script.
    pub fn new(server: SocketAddr) -> Self {
        let unique = clock::unix_us() / 1000;
        Self {
            server,
            label: "direct".to_owned(),
            user: "anonymous".to_owned(),
            password: Password("probe@longhaul.invalid".to_owned()),
            folder: ".".to_owned(),
            name: format!("probe-{unique:x}-{}", std::process::id()),
            script: Script::middlebox(),
            data: DataMode::default(),
            file_size: ByteCount::new(100_000),
            pause: None,
            timeout: Duration::from_secs(30),
            arrivals: Arrivals::default(),
        }
    }
}

/// Runs all sessions; each is handed over as soon as it has ended. They are returned in the order of
/// arrival.
///
/// # Errors
/// [`ProbeError`] if nothing could be tried. What failed is in the records.
pub fn run(probe: &FtpProbe, on_record: impl FnMut(&Session)) -> Result<Vec<Session>, ProbeError> {
    run_by_turns(&[probe], on_record)
}

/// Runs several probes by turns, in one stream of arrivals: that of the first, whose count is for each of
/// them. So all meet the same path and the same machine.
///
/// # Errors
/// [`ProbeError`] if nothing could be tried, or two have the same label.
pub fn run_by_turns(
    probes: &[&FtpProbe],
    on_record: impl FnMut(&Session),
) -> Result<Vec<Session>, ProbeError> {
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
    let common = session::Common {
        content: Content::generate(),
        strangers: files::Strangers::default(),
    };
    let start = |probe: Rc<FtpProbe>, number| {
        let common = common.clone();
        async move { session::run(&probe, &common, number).await }
    };
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
        let message = "without any patience nothing can come";
        return Err(ProbeError::Invalid(message.to_owned()));
    }
    Ok(())
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests;
