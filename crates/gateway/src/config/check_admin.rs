//! Checks of `[admin]`: its names, and the file of its token.

use std::{fs::File, io::Read, os::unix::fs::MetadataExt, path::Path};

use toml::Spanned;

use super::{
    admin_token::{AdminToken, TEXT_MAX},
    file::AdminSection,
    problem::{Problem, problem},
};
use crate::target::Host;

/// Further names of the admin address.
pub(super) fn hosts(section: Option<&AdminSection>) -> Result<Vec<Host>, Problem> {
    let hosts = section.map_or(&[][..], |admin| &admin.hosts);
    let host = |text: &Spanned<String>| {
        Host::parse(text.get_ref()).map_err(|error| problem(text, error.to_string()))
    };
    hosts.iter().map(host).collect()
}

/// The token, if there is to be one.
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
