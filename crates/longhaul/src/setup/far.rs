//! `longhaul setup far`: sets up the gateway near the servers.

use std::time::Duration;

use gatewayd::config::Config;
use net::target::{AllowEntry, Host, HostPort, SSH_PORT};

use super::{LocationArgs, host_keys, key};
use crate::{
    exit, output,
    peer::invite::{self, EXPIRES, InviteOptions, life, peer_name, with_port},
    service,
};

/// Set up this machine as the far gateway, at the site of the servers, and print an invite
///
/// The command writes the configuration, makes a key, starts the service, and prints an invite. The
/// invite is one line of text for "longhaul setup near" on the other machine. Keep the invite
/// secret. The invite works once, and expires after the time of --expires.
///
/// If a server of --allow has port 22, the command fetches the host key of this SSH server. It
/// shows the fingerprint, and asks for a confirmation. It then adds the host key to the file that
/// `known_hosts` in [far.ssh] names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo longhaul setup far --allow 10.20.0.5:21 --endpoint 203.0.113.9:4810
  sudo longhaul setup far --allow 10.20.0.5:22 --endpoint 203.0.113.9:4810
  sudo longhaul setup far --allow 10.20.0.0/24:21 --endpoint gw.example:4810 --dry-run")]
pub(super) struct Args {
    /// Server that the other gateway may reach: HOST:PORT, or a network such as 10.20.0.0/24:21;
    /// may be given several times
    #[arg(long, required = true, value_name = "SERVER", value_parser = allowed)]
    allow: Vec<String>,
    /// Address and UDP port at which the other gateway reaches this gateway
    #[arg(long, value_name = "HOST:PORT", value_parser = with_port)]
    endpoint: HostPort,
    /// Fetch the host keys of all servers of --allow, not only of servers with port 22
    #[arg(long)]
    ssh: bool,
    /// Accept the SSH server with this host key without a question: SHA256:..., as "ssh-keygen -l"
    /// prints it; may be given several times
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    host_key: Vec<String>,
    /// Name of the near gateway [default: the name that the near gateway chooses]
    #[arg(long, value_name = "NAME", value_parser = peer_name)]
    peer_name: Option<String>,
    /// Time after which the invite expires
    #[arg(long, default_value = EXPIRES, value_name = "TIME", value_parser = life)]
    expires: Duration,
    #[command(flatten)]
    places: LocationArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { places, .. } = args;
    places.ensure_writable()?;
    let (mut document, key_file) = places.open(TITLE)?;
    let port = args.endpoint.port;
    let any = match &args.endpoint.host {
        Host::Ip(ip) if ip.is_ipv6() => "[::]",
        _ => "0.0.0.0",
    };
    document.set_default("link", "listen", &format!("{any}:{port}"));
    document.add("far", "allow", &args.allow);
    if !places.show(&document, &key_file)? {
        return Ok(());
    }
    key(&key_file)?;
    let planned = Config::parse(&document.text(), &places.config).map_err(exit::wrong_use)?;
    let confirmed = host_keys::confirm(&ssh_servers(args), &planned.far_ssh, &args.host_key)?;
    let config = places.write(&document)?;
    host_keys::add(&config.far_ssh, &confirmed)?;
    let invite = invite::make(
        &config,
        &places.config,
        &args.endpoint,
        InviteOptions {
            name: args.peer_name.clone(),
            // The peer is beside clients, so no server is reached through it.
            serves: Vec::new(),
            expires: args.expires,
        },
    )?;
    if places.no_start {
        service::take_on(&config)?;
    } else if let service::State::Stopped(how) = service::start(&config, &places.config)? {
        eprintln!("Start the gateway: {how}");
    }
    eprintln!(
        "On the machine beside the clients run: sudo longhaul setup near\n\
         It asks for this invite, which is good once, for {}:",
        invite::minutes(args.expires)
    );
    output::print(&format!("{invite}\n"))
}

/// Returns the SSH servers of `--allow`. A network names no server.
fn ssh_servers(args: &Args) -> Vec<HostPort> {
    let entries = args.allow.iter().filter_map(|it| it.parse().ok());
    let servers = entries.filter_map(|it: AllowEntry| it.server());
    servers
        .filter(|it| args.ssh || it.port == SSH_PORT)
        .collect()
}

fn fingerprint(text: &str) -> Result<String, String> {
    match text.starts_with("SHA256:") {
        true => Ok(text.to_owned()),
        false => Err("expected SHA256:..., as \"ssh-keygen -l\" prints it".to_owned()),
    }
}

fn allowed(text: &str) -> Result<String, String> {
    let entry: Result<AllowEntry, _> = text.parse();
    entry
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

const TITLE: &str = "\
# A gateway beside servers. All keys: man longhaul-gateway, docs/configuration.md
# This file has no peers that joined by an invite: \"longhaul peer ls\" shows them.
";
