//! `longhaul probe ftp`.

use std::{fs, path::PathBuf, time::Duration};

use probe::{
    compare::Comparison,
    ftp::{self, DataMode, FtpProbe, Password, Script, Session, Summary},
};
use units::ByteCount;

use super::{
    Verdict,
    options::{Arrive, Output, parse_time, resolve, wrong_use},
    show,
};

/// FTP sessions with any server, every event with its time
///
/// Without a script each session is that of a study of middleboxes: 35 commands, four transfers of files,
/// passive and active, and two listings, in a folder of its own that it removes again. What is stored is
/// compared when it comes back.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The server, or a gateway's front door: HOST or HOST:PORT
    server: String,
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    arrive: Arrive,
    #[command(flatten)]
    output: Output,
}

/// What sessions are.
#[derive(clap::Args)]
pub(super) struct SessionArgs {
    /// Commands to say, one on a line; --help tells how they are written
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Let the server connect to us for data, whatever the script says
    #[arg(long, conflicts_with = "passive")]
    active: bool,
    /// Connect to the server for data, whatever the script says
    #[arg(long)]
    passive: bool,
    /// User name
    #[arg(long, default_value = "anonymous", value_name = "NAME")]
    user: String,
    /// Password; better in the environment, where other users do not see it
    #[arg(
        long,
        env = "LONGHAUL_PROBE_PASSWORD",
        hide_env_values = true,
        value_name = "TEXT"
    )]
    password: Option<String>,
    /// Folder on the server where sessions may write
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    folder: String,
    /// Size of the files that are stored
    #[arg(long, default_value = "100 kB", value_name = "SIZE")]
    size: ByteCount,
    /// Mean of a random pause before each command
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pause: Option<Duration>,
    /// Longest silence while something is awaited
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME")]
    timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe ftp ftp.example.org
  longhaul probe ftp 10.77.0.2 --folder files -n 500 --rate 5 --out sessions.jsonl --plot cdf.svg
  longhaul probe ftp 127.0.0.1:2121 --script mine.ftp --user joe

A script has one command on a line, as it goes over the wire:
  # a comment
  USER {user}
  PASS {password}
  CWD {folder}
  TYPE I
  PASV                   EPSV, PORT, EPRT alike: addresses are filled in; before a transfer they may be left out
  STOR {session}.bin     content is made up; RETR compares it
  SLEEP 2s               a random time with this mean
  550 MDTM gone          a code in front is the reply that must come; 5xx: any of that kind
  QUIT
{session} is a name that no other session has, {number} the session's number; {{ is a brace.

Exit codes: 0 all sessions were complete; 1 some were not; 2 wrong use or script.";

impl SessionArgs {
    /// The probe of one way, as the options say.
    pub(super) fn probe(&self, server: &str, arrive: &Arrive) -> anyhow::Result<FtpProbe> {
        let mut probe = FtpProbe::new(resolve(server, Some(21))?);
        if let Some(path) = &self.script {
            let text = fs::read_to_string(path)
                .map_err(|error| wrong_use(format!("{}: {error}", path.display())))?;
            probe.script = Script::parse(&text)
                .map_err(|error| wrong_use(format!("{}:{error}", path.display())))?;
        }
        probe.data = match (self.active, self.passive) {
            (true, _) => DataMode::Active,
            (_, true) => DataMode::Passive,
            _ => DataMode::Scripted,
        };
        probe.user.clone_from(&self.user);
        if let Some(password) = &self.password {
            probe.password = Password(password.clone());
        }
        probe.folder.clone_from(&self.folder);
        probe.file_size = self.size;
        probe.pause = self.pause;
        probe.timeout = self.timeout;
        probe.arrivals = arrive.arrivals()?;
        Ok(probe)
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let probe = args.session.probe(&args.server, &args.arrive)?;
    let mut sink = args.output.sink(probe.arrivals.count)?;
    let sessions = ftp::run(&probe, |session| {
        sink.add(session, session.failure.is_none())
    })?;
    sink.finish()?;
    let summary = Summary::of(sessions.iter());
    let text = format!("{}\n{}", probe.server, text(&summary, sessions.iter()));
    let comparison = Comparison::of_ftp("", &[probe.label.as_str()], &sessions);
    args.output.conclude(&text, &comparison.plots)?;
    Ok(Verdict::of(summary.sessions_complete == summary.sessions))
}

/// The summary of one way.
pub(super) fn text<'a>(
    summary: &Summary,
    sessions: impl Iterator<Item = &'a Session> + Clone,
) -> String {
    let count = |part, whole| show::share(part, whole);
    let mut text = format!(
        "sessions     {} complete\n             {}\n",
        count(summary.sessions_complete, summary.sessions),
        show::times(summary.session_s.as_ref()),
    );
    text += &format!(
        "commands     {} as expected\n             {} until the reply\n",
        count(summary.commands_complete, summary.commands_planned),
        show::times(summary.response_s.as_ref()),
    );
    text += &format!(
        "transfers    {} complete\n             {} until the final reply\n",
        count(summary.transfers_complete, summary.transfers_planned),
        show::times(summary.transfer_s.as_ref()),
    );
    let all = sessions.filter_map(|session| session.failure.as_ref());
    text + &show::failures(&summary.failures, all)
}
