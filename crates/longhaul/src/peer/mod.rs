//! `longhaul peer ls|add|rm|invite`: administration of the gateways that may connect to this one.

pub(crate) mod invite;
mod list;

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Subcommand;
use gatewayd::{
    config::{Config, PeerOrigin},
    register::{EnrolledPeer, Register, RegisterChangeError},
};
use link::PublicKey;
use net::target::HostPort;

use self::invite::{peer_name, served, with_port};
use crate::{document::Document, exit, places, service};

/// Show, add and remove the gateways that may connect to this gateway
///
/// Peers come from the configuration file, from invites, and from this command. A running gateway
/// applies changes immediately.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul peer ls
  longhaul peer invite --endpoint 203.0.113.9:4810
  longhaul peer add oslo rCW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE= --endpoint oslo.example:4810
  longhaul peer rm oslo

Exit codes: 0 done; 1 a step failed; 2 wrong use or configuration.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Read the configuration from this file [default: /etc/longhaul/gateway.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    Ls(list::Args),
    Add(AddArgs),
    Rm(RmArgs),
    Invite(invite::Args),
}

/// Permit a gateway with this public key to connect to this gateway
#[derive(clap::Args)]
struct AddArgs {
    /// Name for the other gateway
    #[arg(value_parser = peer_name)]
    name: String,
    /// Public key of the other gateway, as printed by "longhaul pubkey"
    public_key: PublicKey,
    /// Connect to the other gateway at this address and UDP port [default: wait until the other
    /// gateway connects]
    #[arg(long, value_name = "HOST:PORT", value_parser = with_port)]
    endpoint: Option<HostPort>,
    /// Servers that clients of this gateway reach through the other gateway: names, *.example.com,
    /// addresses or networks [default: none]
    #[arg(long, value_name = "PATTERN", num_args = 1.., value_parser = served)]
    serves: Vec<String>,
}

/// Remove another gateway's permission to connect to this gateway
///
/// A running gateway immediately ends the connections, sessions and transfers of the peer. Older
/// gateway processes that still run after an upgrade also end the peer's connections. The invite of
/// the peer becomes invalid.
#[derive(clap::Args)]
struct RmArgs {
    /// Name of the other gateway, as shown by "longhaul peer ls"
    #[arg(required_unless_present = "invites")]
    name: Option<String>,
    /// Invalidate all invites, both unused and used
    #[arg(long, conflicts_with = "name")]
    invites: bool,
    /// Flag without effect: the command always ends the peer's connections immediately
    #[arg(long, conflicts_with = "invites")]
    now: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let file = places::config(args.config.as_deref(), "longhaul peer [OPTIONS] <COMMAND>")?;
    let loaded = Config::load(&file);
    if let (Action::Rm(args), Err(_)) = (&args.action, &loaded) {
        // The error may come from the register, or even from the peer to be removed. Therefore the
        // register is not read here.
        let text = std::fs::read_to_string(&file)?;
        let alone = Config::parse_with(&text, &file, &Register::default());
        return remove(
            args,
            &alone.map_err(|error| exit::misuse(places::explain(&error)))?,
            &file,
        );
    }
    let config = loaded.map_err(|error| exit::misuse(places::explain(&error)))?;
    match &args.action {
        Action::Ls(args) => list::run(args, &config),
        Action::Add(args) => add(args, &config, &file),
        Action::Rm(args) => remove(args, &config, &file),
        Action::Invite(args) => invite::run(args, &config, &file),
    }
}

fn add(args: &AddArgs, config: &Config, file: &Path) -> anyhow::Result<()> {
    let new = EnrolledPeer {
        name: args.name.clone(),
        public_key: args.public_key,
        endpoint: args.endpoint.as_ref().map(ToString::to_string),
        serves: args.serves.clone(),
        since_unix_s: unix_s(),
    };
    let mut peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    if let Some((peer, _)) = peers.find(|(peer, of_link)| {
        !peer.is_guest() && (peer.name == new.name || of_link.public_keys.contains(&new.public_key))
    }) {
        return Err(exit::misuse(format!(
            "the peer {:?} has this name or key: remove it by longhaul peer rm, or choose another name",
            peer.name
        )));
    }
    if config.relay.link.identity.public_key() == new.public_key {
        return Err(exit::misuse(
            "this is the gateway's own public key: expected the one that longhaul pubkey prints at \
         the peer",
        ));
    }
    let name = new.name.clone();
    change(config, file, |register| {
        register
            .dismissed
            .retain(|it| it.public_key != new.public_key);
        register.peers.push(new);
        Ok(())
    })?;
    report_change(config, &format!("{name:?} is a peer"))
}

fn remove(args: &RmArgs, config: &Config, file: &Path) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        change(config, file, |register| {
            register.withdraw_invites();
            Ok(())
        })?;
        return report_change(config, "All open invites are withdrawn");
    };
    // The register may also contain a peer of the configuration file, with the same key.
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    let mut peers = peers.filter(|(peer, _)| peer.origin == PeerOrigin::File);
    let of_file = peers.find(|(peer, _)| peer.name == *name);
    let keys = of_file.map_or(&[][..], |(_, of_link)| &of_link.public_keys);
    let mut document = Document::open(file, "")?;
    let was_in_file = document.remove_table("peer", "name", name)?;
    let text = document.text();
    let was_in_register = change_for(config, (&text, file), |register| {
        Ok(register.dismiss(name, keys, unix_s()))
    })?;
    exit::ensure(
        was_in_file || was_in_register,
        &format!("there is no peer {name:?}: \"longhaul peer ls\" shows them"),
    )?;
    if was_in_file {
        places::write_config(file, &text)?;
    }
    report_change(
        config,
        &format!("{name:?} is no longer a peer, and its connections have ended"),
    )
}

/// Changes the register of this gateway. If the configuration would be invalid with the changed
/// register, refuses the change, because the gateway could no longer start.
fn change<T>(
    config: &Config,
    file: &Path,
    change: impl FnOnce(&mut Register) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(file)?;
    change_for(config, (&text, file), change)
}

/// Changes the register. Checks the new register together with `text`, the future content of the
/// configuration file.
fn change_for<T>(
    config: &Config,
    (text, file): (&str, &Path),
    change: impl FnOnce(&mut Register) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let path = Register::path(&config.key_file);
    let changed = Register::change(&path, unix_s(), |register| {
        let done = change(register)?;
        Config::parse_with(text, file, register).map_err(exit::wrong_use)?;
        Ok(done)
    });
    changed.map_err(|error| match error {
        RegisterChangeError::File(error) => error.into(),
        RegisterChangeError::Refused(error) => error,
    })
}

/// Makes a running gateway apply a change, and prints the result.
fn report_change(config: &Config, done: &str) -> anyhow::Result<()> {
    match service::take_on(config)? {
        true => eprintln!("{done}; the running gateway has applied it"),
        false => eprintln!("{done}; no gateway runs, so it applies from the next start"),
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "reads the clock of the machine")]
fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
