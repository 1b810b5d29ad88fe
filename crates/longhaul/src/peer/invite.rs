//! `longhaul peer invite`: creates an invite, a line of text with which another gateway becomes a
//! peer.

use std::{path::Path, time::Duration};

use gatewayd::{
    config::{Config, may_be_name},
    enrolment::Invite,
    register::{OpenInvite, Register},
};
use net::target::{HostPort, ServesPattern};

use super::{change, report_change, unix_s};
use crate::{exit, output};

/// Print an invite that lets another gateway become a peer
///
/// "longhaul setup near" on the other machine asks for the invite. Keep the invite secret, because
/// anyone who has the invite can become a peer. The invite works once, and expires after the time
/// of --expires.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul peer invite --endpoint 203.0.113.9:4810 --name oslo
  longhaul peer invite --name oslo --serves ftp.oslo.example 10.20.0.0/16")]
pub(crate) struct Args {
    /// Address and UDP port at which the other gateway reaches this gateway [default: as in the
    /// last invite]
    #[arg(long, value_name = "HOST:PORT", value_parser = with_port)]
    endpoint: Option<HostPort>,
    /// Name of the near gateway [default: the name that the near gateway chooses]
    #[arg(long, value_name = "NAME", value_parser = peer_name)]
    name: Option<String>,
    /// Servers that clients of this gateway reach through the other gateway: names, *.example.com,
    /// addresses or networks [default: none]
    #[arg(long, value_name = "PATTERN", num_args = 1.., value_parser = served)]
    serves: Vec<String>,
    /// Time after which the invite expires
    #[arg(long, default_value = EXPIRES, value_name = "TIME", value_parser = life)]
    expires: Duration,
}

pub(super) fn run(args: &Args, config: &Config, file: &Path) -> anyhow::Result<()> {
    let known = || {
        let register = Register::read(&Register::path(&config.key_file))?;
        let endpoint = register.endpoint.and_then(|it| it.parse().ok());
        endpoint.ok_or_else(|| {
            exit::misuse("--endpoint HOST:PORT is missing: where others reach this gateway")
        })
    };
    let endpoint = match &args.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => known()?,
    };
    let wanted = InviteOptions {
        name: args.name.clone(),
        serves: args.serves.clone(),
        expires: args.expires,
    };
    let invite = make(config, file, &endpoint, wanted)?;
    report_change(
        config,
        &format!("The invite is good once, for {}", minutes(args.expires)),
    )?;
    output::print(&format!("{invite}\n"))
}

/// Properties that the peer will have after it uses the invite.
pub(crate) struct InviteOptions {
    pub(crate) name: Option<String>,
    pub(crate) serves: Vec<String>,
    pub(crate) expires: Duration,
}

/// Creates an invite and stores it in the register.
pub(crate) fn make(
    config: &Config,
    file: &Path,
    endpoint: &HostPort,
    wanted: InviteOptions,
) -> anyhow::Result<Invite> {
    let invite = Invite::new(config.relay.link.identity.public_key(), endpoint);
    let now = unix_s();
    let open = OpenInvite {
        name: wanted.name,
        serves: wanted.serves,
        public_key: invite.identity().public_key(),
        expires_unix_s: now + wanted.expires.as_secs(),
        used_by: None,
        withdrawn: false,
    };
    change(config, file, |register| {
        register.endpoint = Some(endpoint.to_string());
        Ok(register.invite(open, now)?)
    })?;
    Ok(invite)
}

/// Parses an endpoint. In contrast to [`HostPort`] itself, requires a port.
pub(crate) fn with_port(text: &str) -> Result<HostPort, &'static str> {
    let expected = "expected an address or name with a port, such as 203.0.113.9:4810";
    HostPort::with_port(text).ok_or(expected)
}

/// Parses a pattern of the key `serves`.
pub(crate) fn served(text: &str) -> Result<String, String> {
    let pattern: Result<ServesPattern, _> = text.parse();
    pattern
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

/// Parses the name of a peer.
pub(crate) fn peer_name(text: &str) -> Result<String, &'static str> {
    let expected = "expected 1 to 64 printable characters";
    may_be_name(text).then(|| text.to_owned()).ok_or(expected)
}

/// Parses the time for which an invite is valid.
pub(crate) fn life(text: &str) -> Result<Duration, String> {
    let life = units::parse_duration(text).map_err(|error| error.to_string())?;
    let is_sensible = LIFE_MIN <= life && life <= LIFE_MAX;
    is_sensible
        .then_some(life)
        .ok_or_else(|| "expected 1 s to 30 d".to_owned())
}

const LIFE_MIN: Duration = Duration::from_secs(1);

/// Maximum time for which an invite is valid. It is limited because an invite is a secret that
/// others may find.
const LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Formats a duration for users.
pub(crate) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

/// Default time for which an invite is valid. It is long enough to walk to the other machine.
pub(crate) const EXPIRES: &str = "30 min";
