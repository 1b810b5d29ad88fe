//! Checks of `[admin]`: its host names, its token file and its TLS address.

use std::{
    fs::File,
    io::Read,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use toml::Spanned;

use super::{
    AdminHttps,
    admin_token::{AdminToken, TEXT_MAX},
    check_tls::{self, Certificate},
    file::AdminSection,
    problem::{Problem, problem},
};
use net::target::Host;

/// Returns the additional host names of the admin address.
pub(super) fn hosts(section: Option<&AdminSection>) -> Result<Vec<Host>, Problem> {
    let hosts = section.map_or(&[][..], |admin| &admin.hosts);
    let host = |text: &Spanned<String>| {
        Host::parse(text.get_ref()).map_err(|error| problem(text, error.to_string()))
    };
    hosts.iter().map(host).collect()
}

/// Returns the path of the token file, if `[admin]` names a token file.
pub(super) fn token_file(section: Option<&AdminSection>, folder: &Path) -> Option<PathBuf> {
    let named = section?.token_file.as_ref()?;
    Some(folder.join(named.get_ref()))
}

/// Reads the token, if a token file is configured.
pub(super) fn token(
    section: Option<&AdminSection>,
    folder: &Path,
) -> Result<Option<AdminToken>, Problem> {
    let Some(named) = section.and_then(|admin| admin.token_file.as_ref()) else {
        return Ok(None);
    };
    let path = folder.join(named.get_ref());
    let wrong = |what: String| problem(named, format!("{}: {what}", path.display()));
    let unreadable = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
    let file = File::open(&path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!("group or others may use it (mode {mode:04o}); run chmod 600 on it");
        return Err(wrong(message));
    }
    let mut text = String::new();
    let mut file = file.take(TEXT_MAX as u64 + 2);
    file.read_to_string(&mut text).map_err(unreadable)?;
    let token = AdminToken::new(text.trim_end());
    token.map(Some).ok_or_else(|| {
        wrong("expected one line with a token of 128 bits or more, such as \"openssl rand -hex 32\" prints".to_owned())
    })
}

/// Returns the settings of the dashboard over TLS, if `[admin.https]` exists. `plain` is the admin
/// address without TLS.
pub(super) fn https(
    section: Option<&AdminSection>,
    plain: SocketAddr,
    folder: &Path,
    key_file: &Path,
) -> Result<Option<AdminHttps>, Problem> {
    let Some((admin, https)) = section.and_then(|admin| Some((admin, admin.https.as_ref()?)))
    else {
        return Ok(None);
    };
    let listen = *https.listen.get_ref();
    if listen.port() != 0 && listen == plain {
        let message = "[admin] listens on this address without TLS, expected another one";
        return Err(problem(&https.listen, message));
    }
    if admin.token_file.is_none() && https.client_ca.is_none() {
        let message = "no user could log in: expected client_ca, or token_file in [admin]";
        return Err(problem(&https.listen, message));
    }
    let certificate = Certificate {
        cert: ("certificate", https.certificate.as_ref()),
        key: ("key", https.key.as_ref()),
        kept_as: "https",
    };
    let client_ca = https.client_ca.as_ref();
    let client_ca = client_ca.map(|file| check_tls::client_roots(file, folder));
    Ok(Some(AdminHttps {
        listen,
        certificate: certificate.source(folder, key_file)?,
        client_ca: client_ca.transpose()?.unwrap_or_default(),
    }))
}

#[cfg(test)]
#[path = "check_admin_tests.rs"]
mod tests;
