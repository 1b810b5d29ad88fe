//! Host keys of SSH servers at the far gateway. The command shows each new host key, and adds the
//! key to `known_hosts` after a confirmation.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use net::target::HostPort;
use ssh::{FarSsh, HostKeyVerdict, ServerHostKey};

use super::ask;
use crate::{exit, places, ssh_server};

/// A host key that the operator has confirmed.
pub(super) struct ConfirmedKey {
    server: HostPort,
    key: ServerHostKey,
}

/// Fetches the host key of each server, and returns the new keys that the operator has confirmed.
/// `accepted` contains the fingerprints that need no question.
///
/// The function prints a message for each server that does not answer, and for each key without a
/// confirmation.
///
/// # Errors
/// If a host key contradicts `known_hosts`, the configured fingerprint or `accepted`.
pub(super) fn confirm(
    servers: &[HostPort],
    far: &FarSsh,
    accepted: &[String],
) -> anyhow::Result<Vec<ConfirmedKey>> {
    let mut confirmed = Vec::new();
    for server in servers {
        match ssh_server::host_key(server, far) {
            Ok((key, verdict)) => {
                if is_confirmed(server, far, &key, verdict, accepted, confirm_on_terminal)? {
                    let server = server.clone();
                    confirmed.push(ConfirmedKey { server, key });
                }
            }
            Err(error) => eprintln!(
                "The host key of {server} is not known: {error:#}. The gateway refuses SSH log-ins there until this \
                 command has added the host key"
            ),
        }
    }
    Ok(confirmed)
}

/// Adds the confirmed keys to `known_hosts`.
///
/// # Errors
/// If the file cannot be written, or if another key of a server was added to the file after the
/// confirmation.
pub(super) fn add(far: &FarSsh, confirmed: &[ConfirmedKey]) -> anyhow::Result<()> {
    let Some(path) = &far.known_hosts else {
        return Ok(());
    };
    for ConfirmedKey { server, key } in confirmed {
        let verdict = ssh::add_known_host(path, server, key);
        let verdict = verdict.with_context(|| path.display().to_string())?;
        anyhow::ensure!(
            verdict == HostKeyVerdict::Known,
            "{} has got another host key of {server} in the meantime",
            path.display()
        );
        places::give(path).with_context(|| path.display().to_string())?;
        eprintln!("New host key of {server} in {}", path.display());
    }
    Ok(())
}

/// Returns true if a key is new and `ask` or `accepted` confirms the key. Prints the key's
/// fingerprint.
fn is_confirmed(
    server: &HostPort,
    far: &FarSsh,
    key: &ServerHostKey,
    verdict: HostKeyVerdict,
    accepted: &[String],
    ask: impl FnOnce() -> anyhow::Result<Option<bool>>,
) -> anyhow::Result<bool> {
    let (fingerprint, known_hosts) = (key.fingerprint(), known_hosts(far));
    let shown = format!("Host key of {server}: {} {fingerprint}", key.algorithm());
    match verdict {
        HostKeyVerdict::Known => {
            eprintln!("{shown}, already known");
            return Ok(false);
        }
        HostKeyVerdict::Unknown => eprintln!("{shown}"),
        HostKeyVerdict::Changed { line } => anyhow::bail!(
            "{shown}, but line {line} of {known_hosts} has another host key of this server. Compare the fingerprint \
             at the server. If the server has a new key, remove that line, and run this command again"
        ),
        HostKeyVerdict::Revoked { line } => {
            anyhow::bail!("{shown}, but line {line} of {known_hosts} revokes this key")
        }
        HostKeyVerdict::NotPinned => anyhow::bail!(
            "{shown}, but host_key of [far.ssh] permits only {}",
            far.host_key.as_deref().unwrap_or_default()
        ),
    }
    if accepted.contains(&fingerprint) {
        return Ok(true);
    }
    if !accepted.is_empty() {
        return Err(exit::misuse(format!(
            "no --host-key names the host key of {server}, {fingerprint}"
        )));
    }
    let answer = ask()?;
    if answer != Some(true) {
        let rest = match answer {
            None => format!(
                "; compare the fingerprint at the server, and give --host-key {fingerprint}"
            ),
            Some(_) => String::new(),
        };
        eprintln!(
            "The host key is not confirmed, so the gateway refuses SSH log-ins at {server}{rest}"
        );
    }
    Ok(answer == Some(true))
}

/// Asks for a confirmation. Returns `None` if there is no terminal.
fn confirm_on_terminal() -> anyhow::Result<Option<bool>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    eprintln!(
        "On the server, this command prints the same line: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
    );
    let question = "Is this the key of the server, yes or no [no]";
    let is_yes = |text: &str| Ok(["y", "yes"].iter().any(|it| text.eq_ignore_ascii_case(it)));
    Ok(Some(ask(question, is_yes)?.unwrap_or(false)))
}

/// Returns the name of the file with the host keys of servers.
fn known_hosts(far: &FarSsh) -> String {
    let path = far.known_hosts.as_ref();
    path.map_or_else(String::new, |it| it.display().to_string())
}
