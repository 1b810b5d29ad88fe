//! `longhaul peer ls|add|rm|invite`: the gateways that may speak to this one.

pub(crate) mod invite;
mod list;

use std::{path::PathBuf, time::SystemTime};

use clap::Subcommand;
use gateway::{
    config::{Config, Origin},
    register::{Enrolled, Register, Unwanted},
    target::Endpoint,
};
use link::PublicKey;

use self::invite::with_port;
use crate::{document::Document, exit, places, service};

/// Show, add and remove the gateways that may speak to this one
///
/// Peers are those of the configuration, those that came by an invite, and those that this command adds. A
/// gateway that runs takes changes on at once.
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

/// Let a gateway with this public key speak to this one
#[derive(clap::Args)]
struct AddArgs {
    /// Name of the gateway
    name: String,
    /// Public key, as "longhaul pubkey" prints it
    public_key: PublicKey,
    /// Connect to the gateway at this address and UDP port; without it the gateway comes by itself
    #[arg(long, value_name = "HOST:PORT", value_parser = with_port)]
    endpoint: Option<Endpoint>,
}

/// Let a gateway speak to this one no more
#[derive(clap::Args)]
struct RmArgs {
    /// Name of the gateway, as "longhaul peer ls" shows it
    #[arg(required_unless_present = "invites")]
    name: Option<String>,
    /// Withdraw all invites that are open
    #[arg(long, conflicts_with = "name")]
    invites: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let file = places::config(args.config.as_deref(), "longhaul peer [OPTIONS] <COMMAND>")?;
    let config = Config::load(&file).map_err(exit::wrong_use)?;
    match &args.action {
        Action::Ls(args) => list::run(args, &config),
        Action::Add(args) => add(args, &config),
        Action::Rm(args) => remove(args, &config, &file),
        Action::Invite(args) => invite::run(args, &config),
    }
}

fn add(args: &AddArgs, config: &Config) -> anyhow::Result<()> {
    let new = Enrolled {
        name: args.name.clone(),
        public_key: args.public_key,
        endpoint: args.endpoint.as_ref().map(ToString::to_string),
        since_unix_s: unix_s(),
    };
    let mut peers = config.peers.iter().zip(&config.link.peers);
    if let Some((peer, _)) = peers.find(|(peer, of_link)| {
        peer.origin != Origin::Invite
            && (peer.name == new.name || of_link.public_keys.contains(&new.public_key))
    }) {
        return Err(exit::misuse(format!(
            "there is a peer {:?} with this name or key",
            peer.name
        )));
    }
    if config.link.identity.public_key() == new.public_key {
        return Err(exit::misuse("this is the gateway's own public key"));
    }
    let name = new.name.clone();
    change(config, |register| {
        register.peers.push(new);
        Ok(())
    })?;
    told(config, &format!("{name:?} is a peer"))
}

fn remove(args: &RmArgs, config: &Config, file: &std::path::Path) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        change(config, |register| {
            for invite in &mut register.invites {
                invite.withdrawn = true;
            }
            Ok(())
        })?;
        return told(config, "No invite is open any more");
    };
    let peers = config.peers.iter().zip(&config.link.peers);
    let mut peers = peers.filter(|(peer, _)| peer.origin != Origin::Invite);
    let Some((peer, of_link)) = peers.find(|(peer, _)| peer.name == *name) else {
        return Err(exit::misuse(format!(
            "there is no peer {name:?}: \"longhaul peer ls\" shows them"
        )));
    };
    match peer.origin {
        Origin::File => {
            let mut document = Document::open(file, "")?;
            document.remove_table("peer", "name", name);
            // A door may lead to it.
            Config::parse(&document.text(), file).map_err(exit::wrong_use)?;
            places::write_config(file, &document.text())?;
        }
        Origin::Register | Origin::Invite => change(config, |register| {
            let keys = &of_link.public_keys;
            register.peers.retain(|it| !keys.contains(&it.public_key));
            Ok(())
        })?,
    }
    told(config, &format!("{name:?} is no peer any more"))
}

/// Changes the register of this gateway.
fn change<T>(
    config: &Config,
    change: impl FnOnce(&mut Register) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let path = Register::path(&config.key_file);
    Register::change(&path, unix_s(), change).map_err(|error| match error {
        Unwanted::File(error) => error.into(),
        Unwanted::Refused(error) => error,
    })
}

/// Has a gateway that runs take a change on, and says what has become of it.
fn told(config: &Config, done: &str) -> anyhow::Result<()> {
    match service::take_on(config)? {
        true => eprintln!("{done}; the gateway knows"),
        false => eprintln!("{done}; no gateway runs, and the next one will know"),
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "reads the clock of the machine")]
fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
