//! Checks of a listener with `tls = { mode = "pass-through" }`. The listener forwards the encrypted
//! control connection without reading it. Some keys are therefore required, and others have no
//! effect.

use std::net::SocketAddr;

use toml::Spanned;

use super::{
    Config, PassThrough, check_tls,
    file::FtpSection,
    listener_keys::{Listens, PortUse, passive_ports, served, via},
    problem::{Problem, problem},
};

/// Whether the section configures TLS with `mode = "pass-through"`.
pub(super) fn is_asked(section: &FtpSection) -> bool {
    let mode = section.tls.as_ref().map(|tls| tls.mode.get_ref().as_str());
    mode == Some("pass-through")
}

/// Checks an `[[ftp]]` section with `mode = "pass-through"`.
pub(super) fn listener(
    section: FtpSection,
    config: &Config,
    listens: &mut Listens,
) -> Result<PassThrough, Problem> {
    contradiction(&section)?;
    let Some(tls) = &section.tls else {
        return Err(problem(&section.listen, "expected tls"));
    };
    check_tls::no_tls_keys(tls)?;
    let needs = |what: &str| problem(&tls.mode, format!("tls mode \"pass-through\" needs {what}"));
    let Some(target) = section.target else {
        return Err(needs(
            "target: the gateway cannot read which server the client names",
        ));
    };
    let Some(ports) = &section.passive_ports else {
        return Err(needs(
            "passive_ports, those of the server: the gateway cannot read which one it announces",
        ));
    };
    let data_ports = passive_ports(ports)?;
    if data_ports.len() > DATA_PORTS_MAX {
        let message =
            format!("expected at most {DATA_PORTS_MAX} ports, on each of which to listen");
        return Err(problem(ports, message));
    }
    let ip = section.listen.get_ref().ip();
    if let Some(port) = data_ports.clone().find(|port| {
        let taken = listens.insert(SocketAddr::new(ip, *port), PortUse::Data(ports.span()));
        taken.is_some()
    }) {
        let message = format!(
            "another section, or this one, listens on port {port} already: expected other ports"
        );
        return Err(problem(ports, message));
    }
    let via = via(section.via.as_ref(), config)?;
    served(&target, via, config)?;
    Ok(PassThrough {
        listen: section.listen.into_inner(),
        target: target.into_inner(),
        clients: section.clients,
        via,
        data_ports,
    })
}

/// Refuses keys that have an effect only if the gateway reads or writes the control connection.
fn contradiction(section: &FtpSection) -> Result<(), Problem> {
    fn refuse<T>(value: Option<&Spanned<T>>, message: &str) -> Result<(), Problem> {
        value.map_or(Ok(()), |value| Err(problem(value, message)))
    }
    refuse(
        section.transparent.as_ref().filter(|t| *t.get_ref()),
        "tls mode \"pass-through\" is for one target, and transparent = true for all: leave one of them out",
    )?;
    refuse(
        section.allow.as_ref(),
        "allow contradicts tls mode \"pass-through\", which has one target: leave it out",
    )?;
    refuse(
        section.external_address.as_ref(),
        "tls mode \"pass-through\" does not read the server's address: set it at the server",
    )?;
    refuse(
        section.mode.as_ref(),
        "there is no mode with tls mode \"pass-through\", which only relays: leave it out",
    )?;
    refuse(
        section.server_data.as_ref(),
        "the client chooses with tls mode \"pass-through\", and active data connections cannot be relayed with it: \
         leave server_data out",
    )?;
    refuse(
        section.compress.as_ref(),
        "the bytes that tls mode \"pass-through\" relays are encrypted, and cannot be compressed: leave this key out",
    )?;
    refuse(
        section.dedup.as_ref(),
        "the bytes that tls mode \"pass-through\" relays are encrypted, and no two files have the same bytes: leave \
         this key out",
    )?;
    refuse(
        section.cache.as_ref(),
        "the bytes that tls mode \"pass-through\" relays are encrypted, and no two files have the same bytes: leave \
         this key out",
    )?;
    refuse(
        section.tenant.as_ref(),
        "no store keeps the bytes that tls mode \"pass-through\" relays: leave tenant out",
    )?;
    refuse(
        section.optimise_tls.as_ref(),
        "the bytes that tls mode \"pass-through\" relays are encrypted, and cannot be compressed: leave this key out",
    )?;
    let server = section.server_tls.as_ref().map(|tls| &tls.mode);
    refuse(
        server.filter(|mode| mode.get_ref() != "off"),
        "tls mode \"pass-through\" is the client's own TLS with the server, expected \"off\"",
    )
}

/// Maximum number of data ports of a pass-through listener. Each port needs one listening socket.
const DATA_PORTS_MAX: usize = 1024;
