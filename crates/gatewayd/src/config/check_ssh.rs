//! Checks of `[[ssh]]` and `[far.ssh]`: lists of permitted words, files of keys, and
//! contradictions.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ssh::{ChannelKind, EarlyReplies, FarSsh, HostKey, PublicKeyWay, SshListener};
use toml::Spanned;

use super::{
    Config, check_optimise,
    file::{FarSshSection, SshSection},
    listener_keys::{Listens, listen_once, served, via},
    problem::{Problem, problem},
};

/// Checks an `[[ssh]]` section.
pub(super) fn listener(
    section: SshSection,
    folder: &Path,
    config: &Config,
    listens: &mut Listens,
) -> Result<SshListener, Problem> {
    listen_once(&section.listen, config, listens)?;
    if section.target.is_none() && section.clients.is_none() {
        return Err(problem(
            &section.listen,
            "an SSH listener without target needs clients, such as clients = [\"10.0.0.0/8\"]",
        ));
    }
    let via = via(section.via.as_ref(), config)?;
    if let Some(target) = &section.target {
        served(target, via, config)?;
    }
    let tenant = check_optimise::tenant(section.tenant.as_ref(), via, config)?;
    let coding = check_optimise::ssh_listener(&section, config.store.is_some())?;
    let host_key_file = host_key_file(&section, folder, &config.key_file)?;
    Ok(SshListener {
        early: early(section.early.as_ref())?,
        public_key: public_key(section.public_key.as_ref())?,
        channels: channels(section.channels.as_ref())?,
        listen: section.listen.into_inner(),
        target: section.target.map(Spanned::into_inner),
        clients: section.clients,
        via,
        host_key_file,
        coding: coding.coding(tenant),
    })
}

/// Checks `[far.ssh]`. A missing section has the defaults.
pub(super) fn far(
    section: Option<&FarSshSection>,
    folder: &Path,
    key_file: &Path,
) -> Result<FarSsh, Problem> {
    let default = FarSshSection::default();
    let section = section.unwrap_or(&default);
    let pin = section.host_key.as_ref().map(pin).transpose()?;
    let trust = section.trust_on_first_use.as_ref();
    let trust = trust.filter(|trust| *trust.get_ref());
    if pin.is_some() {
        if let Some(known_hosts) = &section.known_hosts {
            return Err(problem(
                known_hosts,
                "known_hosts contradicts host_key: leave one of them out",
            ));
        }
        if let Some(trust) = trust {
            return Err(problem(
                trust,
                "trust_on_first_use contradicts host_key: leave one of them out",
            ));
        }
    }
    let known_hosts = match &section.known_hosts {
        Some(path) => Some(folder.join(path.get_ref())),
        None if pin.is_some() => None,
        None => Some(known_hosts_default(key_file)),
    };
    let user_keys = section.user_keys.as_ref();
    let user_ca = section.user_ca.as_ref();
    Ok(FarSsh {
        known_hosts,
        host_key: pin,
        user_keys: user_keys.map(|it| key_folder(it, folder)).transpose()?,
        user_ca: user_ca.map(|it| private_key(it, folder)).transpose()?,
        user_ca_force_command: force_command(section)?,
        trust_on_first_use: trust.is_some(),
    })
}

/// Returns the command that certificates of users contain.
fn force_command(section: &FarSshSection) -> Result<Option<String>, Problem> {
    let Some(command) = &section.user_ca_force_command else {
        return Ok(None);
    };
    let text = command.get_ref();
    if section.user_ca.is_none() {
        return Err(problem(
            command,
            "user_ca_force_command applies to certificates only: set user_ca, too",
        ));
    }
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err(problem(
            command,
            format!("user_ca_force_command is {text:?}: expected a command in one line"),
        ));
    }
    Ok(Some(text.clone()))
}

/// Returns the default file with the host keys of servers.
pub(super) fn known_hosts_default(key_file: &Path) -> PathBuf {
    key_file.with_file_name("ssh_known_hosts")
}

/// Returns the path of a listener's host key. If the file exists, the key must be usable. If the
/// file does not exist, the gateway creates it at the start. The folder of the file must therefore
/// exist.
fn host_key_file(section: &SshSection, folder: &Path, key_file: &Path) -> Result<PathBuf, Problem> {
    let path = match &section.host_key {
        Some(path) => folder.join(path.get_ref()),
        None => key_file.with_file_name(HOST_KEY_NAME),
    };
    let wrong = |message: String| match &section.host_key {
        Some(key) => problem(key, message),
        None => problem(&section.listen, message),
    };
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    if fs::symlink_metadata(&path).is_ok() {
        HostKey::load_or_create(&path).map_err(|error| wrong(error.to_string()))?;
    } else if let Some(parent) = parent
        && !parent.is_dir()
    {
        let parent = parent.display();
        return Err(wrong(format!(
            "{}: the folder {parent} does not exist, so the gateway cannot make the host key",
            path.display()
        )));
    }
    Ok(path)
}

fn early(word: Option<&Spanned<String>>) -> Result<EarlyReplies, Problem> {
    let Some(word) = word else {
        return Ok(EarlyReplies::default());
    };
    match word.get_ref().as_str() {
        "off" => Ok(EarlyReplies::Off),
        "held" => Ok(EarlyReplies::Held),
        "all" => Ok(EarlyReplies::All),
        other => Err(problem(
            word,
            format!("unknown early {other:?}, expected \"off\", \"held\" or \"all\""),
        )),
    }
}

fn public_key(list: Option<&Spanned<Vec<Spanned<String>>>>) -> Result<Vec<PublicKeyWay>, Problem> {
    let Some(list) = list else {
        return Ok(vec![PublicKeyWay::Agent]);
    };
    words(list, |word| match word {
        "agent" => Ok(PublicKeyWay::Agent),
        "key" => Ok(PublicKeyWay::Key),
        "certificate" => Ok(PublicKeyWay::Certificate),
        other => Err(format!(
            "unknown public_key {other:?}, expected \"agent\", \"key\" or \"certificate\""
        )),
    })
}

fn channels(list: Option<&Spanned<Vec<Spanned<String>>>>) -> Result<Vec<ChannelKind>, Problem> {
    let Some(list) = list else {
        return Ok(vec![
            ChannelKind::Sftp,
            ChannelKind::Exec,
            ChannelKind::Shell,
        ]);
    };
    if list.get_ref().is_empty() {
        return Err(problem(
            list,
            "no client could do anything here: expected \"sftp\", \"exec\" or \"shell\", or several of them",
        ));
    }
    words(list, |word| match word {
        "sftp" => Ok(ChannelKind::Sftp),
        "exec" => Ok(ChannelKind::Exec),
        "shell" => Ok(ChannelKind::Shell),
        other => Err(format!(
            "unknown channel {other:?}, expected \"sftp\", \"exec\" or \"shell\""
        )),
    })
}

/// Converts the words of a list to values. Each value may occur only once.
fn words<T: PartialEq>(
    list: &Spanned<Vec<Spanned<String>>>,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, Problem> {
    let mut values = Vec::new();
    for word in list.get_ref() {
        let value = value(word.get_ref()).map_err(|message| problem(word, message))?;
        if values.contains(&value) {
            let message = format!("{:?} is in the list twice: leave one out", word.get_ref());
            return Err(problem(word, message));
        }
        values.push(value);
    }
    Ok(values)
}

/// Checks the fingerprint of a host key, as `ssh-keygen -l` prints it.
fn pin(text: &Spanned<String>) -> Result<String, Problem> {
    let digest = text.get_ref().strip_prefix("SHA256:");
    let is_base64 = |it: &str| {
        it.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
    };
    match digest.map(|it| it.trim_end_matches('=')) {
        Some(digest) if digest.len() == DIGEST_LENGTH && is_base64(digest) => {
            Ok(format!("SHA256:{digest}"))
        }
        _ => Err(problem(
            text,
            "expected a fingerprint of a host key: SHA256: and 43 characters, as \"ssh-keygen -l\" prints it",
        )),
    }
}

/// Returns the path of the folder with keys of users.
fn key_folder(name: &Spanned<PathBuf>, folder: &Path) -> Result<PathBuf, Problem> {
    let path = folder.join(name.get_ref());
    let shown = path.display();
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => Err(problem(name, format!("{shown}: expected a folder"))),
        Ok(found) if found.permissions().mode() & WRITABLE_BY_OTHERS != 0 => Err(problem(
            name,
            format!("{shown}: group or others can write here; run: chmod go-w {shown}"),
        )),
        Ok(_) => Ok(path),
        Err(error) => Err(problem(name, format!("{shown}: {error}"))),
    }
}

/// Returns the path of a private key, which only its owner may read.
fn private_key(name: &Spanned<PathBuf>, folder: &Path) -> Result<PathBuf, Problem> {
    let path = folder.join(name.get_ref());
    let shown = path.display();
    let found = fs::File::open(&path).and_then(|file| file.metadata());
    match found {
        Ok(found) if !found.is_file() => Err(problem(name, format!("{shown}: expected a file"))),
        Ok(found) if found.permissions().mode() & ANY_ACCESS_OF_OTHERS != 0 => {
            let mode = found.permissions().mode() & 0o777;
            Err(problem(
                name,
                format!(
                    "{shown}: group or others can read this key (mode {mode:o}); run: chmod 600 {shown}"
                ),
            ))
        }
        Ok(_) => Ok(path),
        Err(error) => Err(problem(name, format!("{shown}: {error}"))),
    }
}

/// File name of the host key that all listeners without `host_key` use.
const HOST_KEY_NAME: &str = "ssh_host_ed25519";

/// Length of a SHA-256 digest in base64 without padding.
const DIGEST_LENGTH: usize = 43;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const ANY_ACCESS_OF_OTHERS: u32 = 0o077;

#[cfg(test)]
#[path = "check_ssh_tests.rs"]
mod tests;
