//! `longhaul probe ftp`: measures FTP sessions.

use std::{fs, path::PathBuf, time::Duration};

use probe::{
    compare::Comparison,
    ftp::{self, DataMode, FtpProbe, ProbePassword, SessionRecord, SessionScript, SessionSummary},
};
use units::ByteCount;

use super::{
    Verdict,
    options::{ArrivalArgs, Content, Output, parse_time, resolve},
    show,
};
use crate::exit::misuse;

/// Measure FTP sessions with any server, and record the time of every event
///
/// The built-in script comes from a study of middleboxes. It has 35 commands, with four file
/// transfers in passive and active mode, and two listings. The probe stores files, retrieves the
/// files, and compares the content. Each session creates its own folder, and removes the folder at
/// its end.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Address of an FTP server, or of a gateway's listener: HOST or HOST:PORT
    server: String,
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    arrive: ArrivalArgs,
    #[command(flatten)]
    output: Output,
}

/// Options of the sessions.
#[derive(clap::Args)]
pub(super) struct SessionArgs {
    /// Send the commands of this file instead of the built-in script
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Use only active data connections, regardless of the script
    #[arg(long, conflicts_with = "passive")]
    active: bool,
    /// Use only passive data connections, regardless of the script
    #[arg(long)]
    passive: bool,
    /// Log in with this user name
    #[arg(long, default_value = "anonymous", value_name = "NAME")]
    user: String,
    /// Log in with this password; other users can see command lines, so prefer the environment
    /// variable
    #[arg(
        long,
        env = "LONGHAUL_PROBE_PASSWORD",
        hide_env_values = true,
        value_name = "TEXT"
    )]
    password: Option<String>,
    /// Create the folders of sessions in this folder on the server
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    folder: String,
    /// Size of each file to store
    #[arg(long, default_value = "100 kB", value_name = "SIZE")]
    size: ByteCount,
    #[command(flatten)]
    content: Content,
    /// Wait before each command for a random time with this mean [default: no wait]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pause: Option<Duration>,
    /// Abort a session after this time without a reply
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME")]
    timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  longhaul probe ftp ftp.example.org
  longhaul probe ftp 10.77.0.2 --folder files -n 500 --arrivals 5 --out sessions.jsonl
  longhaul probe ftp 127.0.0.1:2121 --script mine.ftp --user joe

A script has one command on each line, as it is sent to the server:
  # a comment
  USER {user}
  PASS {password}
  CWD {folder}
  TYPE I
  PASV                   the probe fills in the addresses of PASV, EPSV, PORT and EPRT
  STOR {session}.bin     the probe makes the content; RETR compares it
  SLEEP 2s               wait for a random time with this mean
  550 MDTM gone          expect the reply 550; 5xx expects a reply from 500 to 599
  QUIT
If no PASV, EPSV, PORT or EPRT precedes a transfer, the probe still opens a data connection.
{session} is a unique name of the session, {number} is the number of the session, and {{ is a brace.

Exit codes: 0 all sessions were complete; 1 some sessions failed; 2 wrong use or an invalid script.";

impl SessionArgs {
    /// Creates the probe of one route. The options determine its sessions.
    pub(super) fn probe(&self, server: &str, arrive: &ArrivalArgs) -> anyhow::Result<FtpProbe> {
        let mut probe = FtpProbe::new(resolve(server, Some(21))?);
        if let Some(path) = &self.script {
            let text = fs::read_to_string(path)
                .map_err(|error| misuse(format!("{}: {error}", path.display())))?;
            probe.script = SessionScript::parse(&text)
                .map_err(|error| misuse(format!("{}:{error}", path.display())))?;
        }
        probe.data = match (self.active, self.passive) {
            (true, _) => DataMode::Active,
            (_, true) => DataMode::Passive,
            _ => DataMode::Scripted,
        };
        probe.user.clone_from(&self.user);
        if let Some(password) = &self.password {
            probe.password = ProbePassword(password.clone());
        }
        probe.folder.clone_from(&self.folder);
        probe.file_size = self.size;
        probe.payload = self.content.payload();
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
    let summary = SessionSummary::of(sessions.iter());
    let text = format!("{}\n{}", probe.server, text(&summary, sessions.iter()));
    let comparison = Comparison::of_ftp("", &[probe.label.as_str()], &sessions);
    args.output.conclude(&text, &comparison.plots)?;
    Ok(Verdict::of(summary.sessions_complete == summary.sessions))
}

/// Returns the summary of one route as text.
pub(super) fn text<'a>(
    summary: &SessionSummary,
    sessions: impl Iterator<Item = &'a SessionRecord> + Clone,
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
