//! Checks of a transparent listener. No key may contradict the interception, and the servers must
//! have addresses that the kernel can intercept.

use toml::Spanned;

use super::{
    Config,
    file::FtpSection,
    problem::{Problem, problem},
};
use ftp::logon::FTP_PORT;

use super::Intercepted;

/// Returns whether the section configures a transparent listener. Refuses a section with
/// contradicting keys.
pub(super) fn listener(
    section: &FtpSection,
    via: Option<usize>,
    config: &Config,
) -> Result<bool, Problem> {
    let Some(transparent) = section.transparent.as_ref().filter(|t| *t.get_ref()) else {
        return Ok(false);
    };
    contradiction(section)?;
    let listen = *section.listen.get_ref();
    if [0, FTP_PORT].contains(&listen.port()) {
        let message =
            format!("expected a fixed port other than {FTP_PORT}: the kernel's rules name it");
        return Err(problem(&section.listen, message));
    }
    let mut listeners = config.ftp.iter().filter(|listener| listener.transparent);
    if listeners.any(|listener| listener.listen.port() == listen.port()) {
        return Err(problem(
            &section.listen,
            "another transparent listener has this port, and the port names its rules: expected another port",
        ));
    }
    let clients = section.clients.as_deref().unwrap_or_default();
    if Intercepted::new(&config.relay.peers, via, listen, clients).is_empty() {
        return Err(problem(
            transparent,
            "there is nothing to intercept: expected an address or a network in the serves of a \
             [[peer]] (packets carry no names), of IPv4 or IPv6 as listen and clients are",
        ));
    }
    Ok(true)
}

/// Refuses keys that contradict a transparent listener. Clients of such a listener connect to the
/// server's own address.
fn contradiction(section: &FtpSection) -> Result<(), Problem> {
    fn refuse<T>(value: Option<&Spanned<T>>, message: &str) -> Result<(), Problem> {
        value.map_or(Ok(()), |value| Err(problem(value, message)))
    }
    refuse(
        section.target.as_ref(),
        "target contradicts transparent = true, with which clients choose the server: leave one of them out",
    )?;
    refuse(
        section.allow.as_ref(),
        "allow contradicts transparent = true: leave it out, and name the servers in serves of each [[peer]]",
    )?;
    refuse(
        section.external_address.as_ref(),
        "external_address contradicts transparent = true, with which clients get the server's own address: leave it out",
    )?;
    refuse(
        section.passive_ports.as_ref(),
        "passive_ports contradicts transparent = true, with which data connections use the server's own address: leave \
         it out",
    )
}

#[cfg(test)]
#[path = "check_transparent_tests.rs"]
mod tests;
