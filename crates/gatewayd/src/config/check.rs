//! Checks that involve several keys of the configuration: references between sections, and
//! contradictions.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use ftp::session::{SessionMode, far::DataOpener};
use link::{Identity, LinkConfig, PeerConfig, PeerId, Policy, PublicKey};
use toml::Spanned;
use units::{BitRate, ByteCount};

use super::{
    Config, Forward, FtpListener, ListenerTls, PeerOrigin, PeerSettings, RelaySettings,
    check_admin, check_limits, check_log, check_optimise, check_pass_through, check_spool,
    check_ssh, check_tls, check_transparent,
    file::{File, ForwardSection, FtpSection, LinkSection, OneOrMore, PeerSection},
    listener_keys::{Listens, PortUse, listen_once, passive_ports, served, via},
    peer_name::{PEER_NAME_MAX, may_be_name},
    problem::{Problem, in_full, problem},
    registered,
};
use crate::{admin_socket, register::Register};
use net::target::{AllowEntry, AllowList, HostPort};
use relay::settings::{IDLE_TIMEOUT, MEMORY_MAX, MEMORY_PER_PEER_MIB, memory_least};

/// Checks a file. Uses `register` if given. Otherwise reads the register in the folder of the key
/// file.
pub(super) fn check(
    mut file: File,
    path: &Path,
    register: Option<&Register>,
) -> Result<Config, Problem> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let key_file = folder.join(file.identity.key_file.get_ref());
    let identity = Identity::read(&key_file)
        .map_err(|error| problem(&file.identity.key_file, in_full(&error)))?;
    let policy = policy(&file.link)?;
    let mut names = HashSet::new();
    let mut keys = HashSet::new();
    let mut peers = Vec::new();
    let mut link_peers = Vec::new();
    for section in std::mem::take(&mut file.peers) {
        if !names.insert(section.name.get_ref().clone()) {
            return Err(problem(
                &section.name,
                "another peer has this name: give each peer its own",
            ));
        }
        link_peers.push(link_peer(&section, &mut keys, identity.public_key())?);
        peers.push(PeerSettings {
            id: PeerId(peers.len()),
            origin: PeerOrigin::File,
            compresses: check_optimise::is_auto(section.compress.as_ref())?.unwrap_or(true),
            deduplicates: check_optimise::is_auto(section.dedup.as_ref())?.unwrap_or(true),
            tenants: check_optimise::tenants(&section.tenants)?,
            name: section.name.into_inner(),
            serves: section.serves,
            allow: AllowList(section.allow.unwrap_or_else(|| file.far.allow.clone())),
        });
    }
    keys.insert(identity.public_key());
    for (peer, of_link) in registered(&file, &key_file, register, &names, &keys)? {
        peers.push(PeerSettings {
            id: PeerId(peers.len()),
            ..peer
        });
        link_peers.push(of_link);
    }
    let counted = link_peers.iter().filter(|it| !it.is_guest).count();
    let admin_listen = file.admin.as_ref().and_then(|admin| admin.listen);
    let admin_https = check_admin::https(
        file.admin.as_ref(),
        admin_listen.unwrap_or(ADMIN_LISTEN),
        folder,
        &key_file,
    )?;
    let named = file.admin.as_ref().and_then(|admin| admin.socket.as_ref());
    let usual = || admin_socket::usual_path(&key_file, path);
    let (admin_socket, admin_socket_explicit) = match named {
        Some(named) => (folder.join(named), true),
        None => (usual(), false),
    };
    let memory_file = key_file.with_added_extension("replay");
    let memory_max = memory_max(file.link.memory_max.as_ref(), counted)?;
    let limits = check_limits::limits(file.limits, memory_max, counted, !file.forwards.is_empty())?;
    let far_ssh = check_ssh::far(file.far.ssh.as_ref(), folder, &key_file)?;
    let mut config = Config {
        key_file,
        link_listen: file.link.listen.unwrap_or(LINK_LISTEN),
        relay: RelaySettings {
            link: LinkConfig {
                identity,
                peers: link_peers,
                policy,
                rate_max: rate_max(file.link.rate_max.as_ref())?,
                memory_max,
                idle_timeout: idle_timeout(file.link.idle_timeout.as_ref())?,
                memory_file: Some(memory_file),
            },
            peers,
            limits,
        },
        ftp: Vec::new(),
        pass_through: Vec::new(),
        ssh: Vec::new(),
        far_ssh,
        forwards: Vec::new(),
        admin_hosts: check_admin::hosts(file.admin.as_ref())?,
        admin_token: check_admin::token(file.admin.as_ref(), folder)?,
        admin_token_file: check_admin::token_file(file.admin.as_ref(), folder),
        drain_max: file.link.drain_max.map_or(DRAIN_MAX, Spanned::into_inner),
        upgrade_drain_max: file.link.upgrade_drain_max.map(Spanned::into_inner),
        log_level: check_log::level(&file.log)?,
        log_format: check_log::format(&file.log)?,
        spool: check_spool::spool(file.spool.as_ref(), folder)?,
        store: check_optimise::store(file.store.as_ref(), folder)?,
        transfer_log: check_log::transfer_log(&file.log, folder)?,
        admin_listen: admin_listen.unwrap_or(ADMIN_LISTEN),
        admin_explicit: admin_listen.is_some(),
        admin_socket,
        admin_socket_explicit,
        admin_https,
    };
    let https = config.admin_https.iter().map(|https| https.listen);
    let mut listens: Listens = https.map(|listen| (listen, PortUse::Admin)).collect();
    for section in file.ftp {
        listen_once(&section.listen, &config, &mut listens)?;
        if check_pass_through::is_asked(&section) {
            let listener = check_pass_through::listener(section, &config, &mut listens)?;
            config.pass_through.push(listener);
        } else {
            let listener = ftp_listener(section, folder, &config)?;
            config.ftp.push(listener);
        }
    }
    for section in file.ssh {
        let listener = check_ssh::listener(section, folder, &config, &mut listens)?;
        config.ssh.push(listener);
    }
    for section in file.forwards {
        let forward = forward(section, &config, &mut listens)?;
        config.forwards.push(forward);
    }
    Ok(config)
}

/// Returns the peers of the register, and the guests. There are two kinds of guests: gateways with
/// an invite, and removed peers.
fn registered(
    file: &File,
    key_file: &Path,
    register: Option<&Register>,
    names: &HashSet<String>,
    keys: &HashSet<PublicKey>,
) -> Result<Vec<(PeerSettings, PeerConfig)>, Problem> {
    let wrong = |message: String| problem(&file.identity.key_file, message);
    let path = Register::path(key_file);
    let read;
    let register = match register {
        Some(register) => register,
        None => {
            read = Register::read(&path).map_err(|error| wrong(in_full(&error)))?;
            &read
        }
    };
    let peers = registered::peers(register, &file.far.allow, names, keys);
    peers.map_err(|message| wrong(format!("{}: {message}", path.display())))
}

fn policy(section: &LinkSection) -> Result<Policy, Problem> {
    let Some(name) = &section.policy else {
        return match &section.rate_reserved {
            None => Ok(Policy::Fair),
            Some(rate) => Err(problem(rate, "rate_reserved needs policy = \"reserved\"")),
        };
    };
    match (name.get_ref().as_str(), &section.rate_reserved) {
        ("fair", None) => Ok(Policy::Fair),
        ("background", None) => Ok(Policy::Background),
        ("reserved", Some(rate)) if rate.get_ref().as_bits_per_s() > 0 => {
            Ok(Policy::Reserved(*rate.get_ref()))
        }
        ("reserved", Some(rate)) => Err(problem(rate, "expected a rate above zero")),
        ("reserved", None) => Err(problem(name, "policy = \"reserved\" needs rate_reserved")),
        ("fair" | "background", Some(rate)) => {
            Err(problem(rate, "rate_reserved needs policy = \"reserved\""))
        }
        (other, _) => Err(problem(
            name,
            format!("unknown policy {other:?}, expected \"fair\", \"background\" or \"reserved\""),
        )),
    }
}

fn rate_max(rate: Option<&Spanned<BitRate>>) -> Result<Option<BitRate>, Problem> {
    match rate {
        Some(rate) if *rate.get_ref() < RATE_MAX_MIN => {
            let message = format!("expected a rate of at least {RATE_MAX_MIN}");
            Err(problem(rate, message))
        }
        rate => Ok(rate.map(|rate| *rate.get_ref())),
    }
}

fn memory_max(memory: Option<&Spanned<ByteCount>>, peers: usize) -> Result<ByteCount, Problem> {
    let least = memory_least(peers);
    match memory {
        Some(memory) if *memory.get_ref() < least => {
            let message = format!(
                "expected at least {least}: {MEMORY_PER_PEER_MIB} MiB for each of {} peers",
                peers.max(1)
            );
            Err(problem(memory, message))
        }
        Some(memory) => Ok(*memory.get_ref()),
        None => Ok(MEMORY_MAX.max(least)),
    }
}

fn idle_timeout(time: Option<&Spanned<Duration>>) -> Result<Duration, Problem> {
    match time {
        Some(time) if *time.get_ref() < IDLE_TIMEOUT_MIN => {
            Err(problem(time, "expected at least 1 s"))
        }
        Some(time) => Ok(*time.get_ref()),
        None => Ok(IDLE_TIMEOUT),
    }
}

fn link_peer(
    section: &PeerSection,
    keys: &mut HashSet<PublicKey>,
    own: PublicKey,
) -> Result<PeerConfig, Problem> {
    let name = section.name.get_ref();
    if !may_be_name(name) {
        let message = format!("expected a name of 1 to {PEER_NAME_MAX} printable characters");
        return Err(problem(&section.name, message));
    }
    let texts = match section.public_key.get_ref() {
        OneOrMore::One(key) => std::slice::from_ref(key),
        OneOrMore::More(keys) => keys,
    };
    let mut public_keys = Vec::new();
    for text in texts {
        let key: PublicKey = text.parse().map_err(|_| {
            problem(
                &section.public_key,
                "expected a public key: the 44 characters that \"longhaul pubkey\" prints",
            )
        })?;
        if key == own {
            return Err(problem(
                &section.public_key,
                "this is the gateway's own public key: expected the one that longhaul pubkey prints at the peer",
            ));
        }
        if !keys.insert(key) {
            return Err(problem(
                &section.public_key,
                "another peer has this public key: each gateway needs a key of its own",
            ));
        }
        public_keys.push(key);
    }
    if public_keys.is_empty() {
        return Err(problem(
            &section.public_key,
            "expected at least one public key",
        ));
    }
    if let Some(endpoint) = &section.endpoint
        && HostPort::with_port(endpoint.get_ref()).is_none()
    {
        return Err(problem(
            endpoint,
            "expected an address or name with a port, such as \"203.0.113.9:4810\"",
        ));
    }
    Ok(PeerConfig {
        name: name.clone(),
        public_keys,
        endpoint: section.endpoint.as_ref().map(|e| e.get_ref().clone()),
        rate_max: rate_max(section.rate_max.as_ref())?,
        is_guest: false,
    })
}

fn ftp_listener(
    section: FtpSection,
    folder: &Path,
    config: &Config,
) -> Result<FtpListener, Problem> {
    if section.target.is_none() && section.clients.is_none() {
        return Err(problem(
            &section.listen,
            "an FTP listener without target needs clients, such as clients = [\"10.0.0.0/8\"]",
        ));
    }
    let via = via(section.via.as_ref(), config)?;
    if let Some(target) = &section.target {
        served(target, via, config)?;
    }
    let allow = allow(section.allow.as_ref(), section.target.is_some())?;
    let passive_ports = section
        .passive_ports
        .as_ref()
        .map(passive_ports)
        .transpose()?;
    let mode = mode(section.mode.as_ref())?;
    let server_data = server_data(section.server_data.as_ref())?;
    let tls = check_tls::listener(&section, folder, &config.key_file)?;
    let tls_rules = check_tls::rules(&section, folder)?;
    let server_tls = check_tls::server(&section, folder)?;
    let transparent = check_transparent::listener(&section, via, config)?;
    let optimised =
        check_optimise::listener(&section, tls != ListenerTls::Off, config.store.is_some())?;
    let tenant = check_optimise::tenant(section.tenant.as_ref(), via, config)?;
    Ok(FtpListener {
        mode,
        server_data,
        listen: section.listen.into_inner(),
        target: section.target.map(Spanned::into_inner),
        transparent,
        clients: section.clients,
        allow,
        via,
        passive_ports,
        external_address: section.external_address.map(Spanned::into_inner),
        tls,
        tls_rules,
        server_tls,
        coding: optimised.coding(tenant),
    })
}

/// Returns the servers that clients may name at a listener without a target. It is an error to
/// configure both `allow` and a target.
fn allow(
    list: Option<&Spanned<Vec<AllowEntry>>>,
    has_target: bool,
) -> Result<Option<AllowList>, Problem> {
    match list {
        Some(list) if has_target => Err(problem(
            list,
            "allow contradicts target: it is for listeners at which clients name the server",
        )),
        list => Ok(list.map(|list| AllowList(list.get_ref().clone()))),
    }
}

fn forward(
    section: ForwardSection,
    config: &Config,
    listens: &mut Listens,
) -> Result<Forward, Problem> {
    listen_once(&section.listen, config, listens)?;
    let via = via(section.via.as_ref(), config)?;
    served(&section.target, via, config)?;
    Ok(Forward {
        listen: section.listen.into_inner(),
        target: section.target.into_inner(),
        clients: section.clients,
        via,
        compresses: check_optimise::is_auto(section.compress.as_ref())?.unwrap_or(false),
    })
}

fn mode(name: Option<&Spanned<String>>) -> Result<SessionMode, Problem> {
    let Some(name) = name else {
        return Ok(SessionMode::default());
    };
    match name.get_ref().as_str() {
        "fast" => Ok(SessionMode::Fast),
        "strict" => Ok(SessionMode::Strict),
        other => Err(problem(
            name,
            format!("unknown mode {other:?}, expected \"fast\" or \"strict\""),
        )),
    }
}

fn server_data(name: Option<&Spanned<String>>) -> Result<DataOpener, Problem> {
    let Some(name) = name else {
        return Ok(DataOpener::default());
    };
    match name.get_ref().as_str() {
        "passive" => Ok(DataOpener::Passive),
        "active" => Ok(DataOpener::Active),
        other => Err(problem(
            name,
            format!("unknown server_data {other:?}, expected \"passive\" or \"active\""),
        )),
    }
}

/// Default address of the link's UDP socket.
const LINK_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 4810);

/// Default admin address. `longhaul status` assumes the same address.
pub(super) const ADMIN_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9810);

/// Minimum rate limit. At a lower rate, sending one full packet takes longer than the link waits
/// for a report of the peer.
pub(crate) const RATE_MAX_MIN: BitRate = BitRate::kbit(64);

/// Minimum idle timeout. With a shorter timeout, a few lost packets on a path with a long
/// round-trip time would end the connection.
const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Default time for draining at a shutdown. It is well below the 90 s after which systemd kills a
/// service.
const DRAIN_MAX: Duration = Duration::from_secs(10);
