//! `longhaul setup far`: sets up the gateway near the servers.

use std::time::Duration;

use net::target::{AllowEntry, Host, HostPort};

use super::{LocationArgs, key};
use crate::{
    output,
    peer::invite::{self, EXPIRES, InviteOptions, life, peer_name, with_port},
    service,
};

/// Set up this machine as the far gateway, at the site of the FTP servers, and print an invite
///
/// The command writes the configuration, makes a key, starts the service, and prints an invite. The
/// invite is one line of text for "longhaul setup near" on the other machine. Keep the invite
/// secret. The invite works once, and expires after the time of --expires.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul setup far --allow 10.20.0.5:21 --endpoint 203.0.113.9:4810
  longhaul setup far --allow 10.20.0.0/24:21 --endpoint gw.example:4810 --dry-run")]
pub(super) struct Args {
    /// Server that the other gateway may reach: HOST:PORT, or a network such as 10.20.0.0/24:21;
    /// may be given several times
    #[arg(long, required = true, value_name = "SERVER", value_parser = allowed)]
    allow: Vec<String>,
    /// Address and UDP port at which the other gateway reaches this gateway
    #[arg(long, value_name = "HOST:PORT", value_parser = with_port)]
    endpoint: HostPort,
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
    let config = places.write(&document)?;
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

fn allowed(text: &str) -> Result<String, String> {
    let entry: Result<AllowEntry, _> = text.parse();
    entry
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

const TITLE: &str = "\
# A gateway beside FTP servers. All keys: man longhaul-gateway, docs/configuration.md
# This file has no peers that joined by an invite: \"longhaul peer ls\" shows them.
";
