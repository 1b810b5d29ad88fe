//! Start and reload of the gateway's service. If the systemd unit is installed, systemd starts the
//! service. A running gateway receives the order to reload over its admin socket.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use gatewayd::{config::Config, reload::ReloadOutcome};
use nix::unistd::{Uid, User, geteuid};
use relay::status::GatewaySnapshot;

use crate::{
    admin::{self, AdminPlace},
    exit, places,
};

/// State of a gateway after a change of its files.
pub(crate) enum State {
    /// The gateway runs with the new files.
    Running,
    /// The gateway does not run. The text is the command with which the user starts the gateway.
    Stopped(String),
}

/// Makes a running gateway apply the configuration. If no gateway runs, starts the service.
///
/// # Errors
/// If the service does not start, or the gateway does not apply the configuration.
pub(crate) fn start(config: &Config, file: &Path) -> anyhow::Result<State> {
    if take_on(config)? {
        return Ok(State::Running);
    }
    // The unit reads the configuration only at its default path.
    if file != Path::new(places::CONFIG) || !has_unit() {
        let owner = fs::metadata(&config.key_file).map(|it| Uid::from_raw(it.uid()));
        let other = owner.ok().filter(|it| *it != geteuid());
        let other = other.and_then(|it| User::from_uid(it).ok().flatten());
        let user = other.as_ref().map(|it| it.name.as_str());
        return Ok(State::Stopped(start_command(file, user)));
    }
    eprintln!("Starting the service: systemctl enable --now {UNIT}");
    let succeeds = |arguments: &[&str]| {
        let status = systemctl(arguments).status();
        status.map(|it| it.success())
    };
    let started = succeeds(&["enable", "--now", UNIT]).context("systemctl cannot be run")?;
    anyhow::ensure!(
        started && succeeds(&["is-active", "--quiet", UNIT])?,
        "the service does not start; journalctl -u {UNIT} shows the reason"
    );
    Ok(State::Running)
}

/// Returns the command that starts a gateway. If another user owns the key file, `user` is this
/// owner, because only the owner can read the key.
fn start_command(file: &Path, user: Option<&str>) -> String {
    let file = exit::quote(file.as_os_str()).unwrap_or_else(|| file.display().to_string());
    let sudo = user.map_or(String::new(), |user| format!("sudo -u {user} "));
    format!("{sudo}longhaul gateway --config {file}")
}

/// Returns the name of the service's user, if the service reads this configuration file.
pub(crate) fn user(file: &Path) -> Option<String> {
    if file != Path::new(places::CONFIG) || !has_unit() {
        return None;
    }
    let shown = systemctl(&["show", "--property=User", "--value", UNIT]).output();
    let shown = shown.ok().filter(|it| it.status.success())?;
    let name = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Makes a running gateway apply its changed files. Returns whether a gateway runs.
///
/// # Errors
/// If the gateway does not apply the files.
pub(crate) fn take_on(config: &Config) -> anyhow::Result<bool> {
    let at = places::socket_of(config);
    let ask = |method, path| match admin::ask(&at, method, path) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if admin::is_nobody(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(answer) = ask("GET", "/status.json")? else {
        ensure_none_without_socket(config)?;
        return Ok(false);
    };
    let other = || {
        format!(
            "the program at {at} is no gateway of this version (restart the gateway, or use the \
     longhaul of its version)"
        )
    };
    let snapshot: GatewaySnapshot = serde_json::from_str(&answer.body).with_context(other)?;
    let own = config.relay.link.identity.public_key().to_string();
    if snapshot.public_key != own {
        eprintln!("Another gateway answers at {at}: set [admin] socket to a path for this one");
        return Ok(false);
    }
    let Some(answer) = ask("POST", "/reload")? else {
        return Ok(false);
    };
    let outcome: ReloadOutcome = serde_json::from_str(&answer.body).with_context(other)?;
    if let Some(error) = outcome.error {
        anyhow::bail!("the gateway does not apply the change: {error}");
    }
    for change in outcome.needs_restart {
        eprintln!("Needs a restart of the gateway: {change}");
    }
    Ok(true)
}

/// Returns an error if the gateway of this configuration answers at its admin address. The caller
/// has found no program at the admin socket, so this gateway could not receive orders.
///
/// # Errors
/// If this gateway answers at its admin address.
fn ensure_none_without_socket(config: &Config) -> anyhow::Result<()> {
    let address = AdminPlace::Address(config.admin_listen);
    let Ok(answer) = admin::ask(&address, "GET", "/status.json") else {
        return Ok(());
    };
    let own = config.relay.link.identity.public_key().to_string();
    let is_own =
        serde_json::from_str::<GatewaySnapshot>(&answer.body).is_ok_and(|it| it.public_key == own);
    anyhow::ensure!(
        !is_own,
        "a gateway with this key answers at {address}, and not at {}: it has not applied the change. Send it SIGHUP \
         (systemctl reload {UNIT})",
        places::socket_of(config)
    );
    Ok(())
}

fn has_unit() -> bool {
    let asked = || systemctl(&["cat", UNIT]).stdout(Stdio::null()).status();
    Path::new("/run/systemd/system").is_dir() && asked().is_ok_and(|it| it.success())
}

fn systemctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null());
    command.stderr(Stdio::null());
    command
}

const UNIT: &str = "longhaul";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_starts_a_gateway_names_the_owner_of_the_key() {
        let file = Path::new("/etc/longhaul/gateway.toml");
        assert_eq!(
            start_command(file, Some("longhaul")),
            "sudo -u longhaul longhaul gateway --config /etc/longhaul/gateway.toml"
        );
        assert_eq!(
            start_command(Path::new("my files/a.toml"), None),
            "longhaul gateway --config 'my files/a.toml'"
        );
    }
}
