//! `longhaul setup near`: sets up the gateway near the clients.

use std::{
    env, fmt, fs,
    io::{self, BufRead as _, IsTerminal as _},
    net::{SocketAddr, TcpListener, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gatewayd::{
    config::Config,
    enrolment::{self, Invite},
};
use link::PublicKey;
use net::target::{HostPort, SSH_PORT};
use relay::status::GatewaySnapshot;
use toml_edit::Array;

use super::{LocationArgs, ask, key};
use crate::{admin, document::Document, exit, peer::invite::peer_name, places, service};

/// Set up this machine as the near gateway, at the site of the clients
///
/// The command asks for the invite that "longhaul setup far" has printed. It also asks for the
/// service (FTP or SSH), the server and the address of the listener for clients. It makes a key,
/// enrols the key at the far gateway, writes the configuration, and starts the service. Options
/// answer the questions in advance.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo longhaul setup near
  sudo longhaul setup near --invite-file invite --target 10.20.0.5:21 --listen 0.0.0.0:21
  sudo longhaul setup near --invite-file invite --service ssh --target 10.20.0.5:22
  ssh root@far longhaul peer invite | sudo longhaul setup near --invite-file - --target 10.20.0.5:21")]
pub(super) struct Args {
    #[arg(hide = true)]
    invite: Option<String>,
    /// Read the invite from this file, or from standard input if it is -
    #[arg(long, value_name = "FILE")]
    invite_file: Option<PathBuf>,
    /// Service of the server: ftp, or ssh for SFTP, scp, rsync and shells [default: by the port of
    /// --target]
    #[arg(long, value_name = "SERVICE")]
    service: Option<Service>,
    /// Connect clients to this server; without a server, clients name it when they log in: USER
    /// name@host by FTP, name%host by SSH
    #[arg(long, value_name = "HOST:PORT")]
    target: Option<String>,
    /// Accept clients at this address and port
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Name of this gateway at the far gateway [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = peer_name)]
    name: Option<String>,
    /// Name of the far gateway at this gateway
    #[arg(long, default_value = "far", value_name = "NAME", value_parser = peer_name)]
    peer_name: String,
    #[command(flatten)]
    places: LocationArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    exit::ensure(
        args.invite.is_none(),
        "every user of this machine can read an invite on the command line: let this command ask for it, or \
         give --invite-file. At the far gateway, longhaul peer invite makes another one",
    )?;
    let Args { places, .. } = args;
    places.ensure_writable()?;
    let invite = read_invite(args)?;
    let service = match args.service.or_else(|| service_of(args.target.as_deref())) {
        None => ask("Service of the server, ftp or ssh [ftp]", str::parse)?.unwrap_or(Service::Ftp),
        Some(service) => service,
    };
    let target = target(service, args.target.as_deref())?;
    let (mut document, key_file) = places.open(TITLE)?;
    let listen = match args.listen {
        None => {
            let own = document.values(service.section(), "listen")?;
            let (usual, why) = match service {
                Service::Ftp => usual_listen(&own, can_bind),
                Service::Ssh => (usual_ssh_listen(&own), None),
            };
            if let Some(why) = why {
                eprintln!("{why}");
            }
            let question = format!("Address for {service} clients [{usual}]");
            ask(&question, address)?.unwrap_or(usual)
        }
        Some(listen) => listen,
    };
    let listener = NewListener {
        service,
        listen,
        target: target.as_ref(),
    };
    add(&mut document, &invite, &args.peer_name, &listener)?;
    if is_by_ipv6(&invite.endpoint) {
        document.set_default("link", "listen", "[::]:4810");
    }
    if !places.show(&document, &key_file)? {
        return Ok(());
    }
    let identity = key(&key_file)?;
    // The configuration is checked before the enrolment, because the enrolment uses up the invite.
    let planned = Config::parse(&document.text(), &places.config).map_err(exit::wrong_use)?;
    let mut peers = planned.relay.link.peers.iter();
    anyhow::ensure!(
        peers.any(|it| it.public_keys.contains(&invite.far)),
        "the far gateway is no peer in the configuration"
    );
    let name = enrol(&invite, identity.public_key(), &own_name(args)?)?;
    eprintln!("This gateway is now a peer of the far gateway, as {name:?}");
    let config = places.write(&document)?;
    if places.no_start {
        service::take_on(&config)?;
        return Ok(());
    }
    match service::start(&config, &places.config)? {
        service::State::Running => wait_until_up(&config, invite.far, &listener),
        service::State::Stopped(how) => {
            eprintln!("Start the gateway: {how}");
            Ok(())
        }
    }
}

/// Service of the server behind the far gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Ftp,
    Ssh,
}

impl Service {
    /// Returns the name of the configuration section for listeners of this service.
    fn section(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Ssh => "ssh",
        }
    }
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "ftp" => Ok(Self::Ftp),
            "ssh" | "sftp" => Ok(Self::Ssh),
            _ => Err(format!("{text:?} is no service, expected ftp or ssh")),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ftp => "FTP",
            Self::Ssh => "SSH",
        })
    }
}

/// Returns the service that usually listens at the port of `target`. Returns `None` if the port
/// shows no service.
fn service_of(target: Option<&str>) -> Option<Service> {
    let target: HostPort = target?.parse().ok()?;
    match target.port {
        FTP_PORT => Some(Service::Ftp),
        SSH_PORT => Some(Service::Ssh),
        _ => None,
    }
}

/// Returns the server of the listener: `given`, or the answer to a question.
fn target(service: Service, given: Option<&str>) -> anyhow::Result<Option<HostPort>> {
    let parse = |text: &str| match service {
        Service::Ftp => text.parse(),
        Service::Ssh => HostPort::parse_ssh(text),
    };
    if let Some(given) = given {
        let parsed = parse(given).map_err(|it| exit::misuse(format!("--target: {it}")))?;
        return Ok(Some(parsed));
    }
    let question =
        format!("{service} server behind the far gateway, HOST:PORT [none: clients name it]");
    ask(&question, |text| {
        parse(text).map_err(|error| error.to_string())
    })
}

/// A listener that the command adds.
struct NewListener<'a> {
    service: Service,
    listen: SocketAddr,
    target: Option<&'a HostPort>,
}

fn add(
    document: &mut Document,
    invite: &Invite,
    peer_name: &str,
    added: &NewListener<'_>,
) -> anyhow::Result<()> {
    let far = invite.far.to_string();
    let known = document.name_of_peer(&far)?;
    let via = if let Some(name) = known {
        name
    } else {
        let names = document.values("peer", "name")?;
        let numbered = (2..).map(|number| format!("{peer_name}-{number}"));
        let mut free = std::iter::once(peer_name.to_owned()).chain(numbered);
        let name = free.find(|it| !names.contains(it));
        let name = name.expect("there are more numbers than peers");
        let mut peer = vec![
            ("name", name.as_str().into()),
            ("public_key", far.as_str().into()),
            ("endpoint", invite.endpoint.as_str().into()),
        ];
        // If `serves` is empty, a listener uses this peer only if its `via` names the peer. All
        // other listeners continue to use earlier peers.
        if !names.is_empty() {
            peer.push(("serves", Array::new().into()));
        }
        document.add_table("peer", &peer)?;
        name
    };
    let mut listener = vec![("listen", added.listen.to_string().into())];
    match added.target {
        Some(target) => listener.push(("target", target.to_string().into())),
        // If clients name servers, the file lists the permitted clients.
        None => listener.push(("clients", Array::from_iter(PRIVATE).into())),
    }
    listener.push(("via", via.into()));
    document.add_table(added.service.section(), &listener)
}

/// Whether the far gateway's endpoint has only IPv6 addresses.
fn is_by_ipv6(endpoint: &str) -> bool {
    let addresses = endpoint.to_socket_addrs();
    let mut addresses = addresses.into_iter().flatten().peekable();
    addresses.peek().is_some() && addresses.all(|it| it.is_ipv6())
}

fn read_invite(args: &Args) -> anyhow::Result<Invite> {
    let text = match &args.invite_file {
        Some(file) if file.as_os_str() == "-" => {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line)?;
            line
        }
        Some(file) => fs::read_to_string(file).with_context(|| file.display().to_string())?,
        None if io::stdin().is_terminal() => rpassword::prompt_password(
            "Invite that \"longhaul setup far\" has printed (not shown): ",
        )
        .context("the invite cannot be read")?,
        None => {
            return Err(exit::misuse(
                "the invite is missing: give --invite-file FILE, or --invite-file - for standard input",
            ));
        }
    };
    text.parse::<Invite>().map_err(exit::wrong_use)
}

/// Parses the address of a listener.
fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "expected ADDRESS:PORT, such as 0.0.0.0:2121".to_owned();
    text.parse().map_err(wrong)
}

/// Returns the suggested address for the listener. `own` contains the addresses of listeners in the
/// configuration. If one of these addresses has the default FTP port, returns this address. If the
/// default port cannot be used, returns an address with another port, and the reason.
fn usual_listen(
    own: &[String],
    bind: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> (SocketAddr, Option<String>) {
    let ftp = SocketAddr::from(([0, 0, 0, 0], FTP_PORT));
    let other = SocketAddr::from(([0, 0, 0, 0], OTHER_PORT));
    let mut own = own.iter().filter_map(|it| it.parse::<SocketAddr>().ok());
    if let Some(own) = own.find(|it| it.port() == FTP_PORT) {
        return (own, None);
    }
    let program = env::current_exe().unwrap_or_else(|_| PathBuf::from("longhaul"));
    let allow = format!(
        "run this command as root: the service's unit has AmbientCapabilities=CAP_NET_BIND_SERVICE. Without the unit, allow \
         the program ports below 1024 by \"setcap cap_net_bind_service=+ep {}\"",
        program.display()
    );
    let (why, cure) = match bind(ftp).map_err(|error| error.kind()) {
        Err(io::ErrorKind::AddrInUse) => (
            "another program listens there",
            "find the program by \"ss -ltnp sport = :21\" and stop it",
        ),
        Err(io::ErrorKind::PermissionDenied) => ("this user may not listen there", allow.as_str()),
        _ => return (ftp, None),
    };
    let text = format!(
        "Port {FTP_PORT} is not free: {why}. The suggestion is port {OTHER_PORT}, which clients must be given. To have \
         port {FTP_PORT}, {cure}, then use --listen {ftp}"
    );
    (other, Some(text))
}

/// Returns the suggested address for an SSH listener: the first address of `own`. If `own` is
/// empty, the port differs from the port of the machine's own SSH server.
fn usual_ssh_listen(own: &[String]) -> SocketAddr {
    let own = own.iter().find_map(|it| it.parse().ok());
    own.unwrap_or(SocketAddr::from(([0, 0, 0, 0], OTHER_SSH_PORT)))
}

#[allow(clippy::disallowed_methods, reason = "looks whether a port is free")]
fn can_bind(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

fn own_name(args: &Args) -> anyhow::Result<String> {
    match &args.name {
        Some(name) => Ok(name.clone()),
        None => {
            let name = nix::unistd::gethostname().context("the host has no name")?;
            Ok(name.to_string_lossy().into_owned())
        }
    }
}

fn enrol(invite: &Invite, public_key: PublicKey, name: &str) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let enrolled = runtime.block_on(enrolment::enrol(invite, public_key, name));
    enrolled.map_err(|error| {
        anyhow::anyhow!(
            "{}. The configuration was not written: remove the cause, and run the same command again",
            mover::run::chain(&error)
        )
    })
}

/// Waits until the link to the far gateway is connected, and prints a message.
#[allow(clippy::disallowed_methods, reason = "waits for another process")]
fn wait_until_up(
    config: &Config,
    far: PublicKey,
    listener: &NewListener<'_>,
) -> anyhow::Result<()> {
    let NewListener {
        service, listen, ..
    } = listener;
    let mut peers = config.relay.link.peers.iter();
    let peer = peers.find(|it| it.public_keys.contains(&far));
    let peer = peer.context("the far gateway is no peer")?;
    let begun = Instant::now();
    while begun.elapsed() < UP_TIMEOUT {
        let asked = admin::ask_any(&places::places_of(config), "/status.json");
        let snapshot =
            asked.and_then(|(_, it)| Ok(serde_json::from_str::<GatewaySnapshot>(&it.body)?));
        if let Ok(snapshot) = snapshot
            && let Some(seen) = snapshot.peers.iter().find(|it| it.name == peer.name)
            && seen.state == "up"
        {
            let rtt = seen
                .base_rtt_ms
                .map_or(String::new(), |rtt| format!(", RTT {rtt:.1} ms"));
            eprintln!(
                "The link to {} is up{rtt}. {service} clients connect to {listen}",
                peer.name
            );
            let mut ssh = snapshot.ssh.iter();
            if let Some(shown) = ssh.find(|it| it.listen == listen.to_string()) {
                eprintln!("They see the host key {}", shown.host_key);
            }
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    let at = peer.endpoint.as_deref().unwrap_or_default();
    anyhow::bail!(
        "the gateway runs, but its link to {} ({at}) is not up: longhaul status",
        peer.name
    )
}

/// Networks that the Internet cannot reach (RFC 1918, RFC 4193), and the loopback network.
const PRIVATE: [&str; 6] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
];

/// Default port of FTP (RFC 959). If port 21 is in use, the command suggests the port in the next
/// constant.
const FTP_PORT: u16 = 21;
const OTHER_PORT: u16 = 2121;

/// Suggested port of an SSH listener. The machine's own SSH server usually has port 22.
const OTHER_SSH_PORT: u16 = 2222;

const UP_TIMEOUT: Duration = Duration::from_secs(15);

const TITLE: &str = "\
# A gateway beside clients. All keys: man longhaul-gateway, docs/configuration.md
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_is_refused_with_the_expected_form() {
        let expected = "expected ADDRESS:PORT, such as 0.0.0.0:2121";
        for wrong in ["2121", "0.0.0.0", "localhost:21"] {
            assert_eq!(address(wrong), Err(expected.to_owned()), "{wrong}");
        }
        let all = SocketAddr::from(([0, 0, 0, 0], 2121));
        assert_eq!(address("0.0.0.0:2121"), Ok(all));
    }

    #[test]
    fn a_port_that_is_not_free_is_named_with_its_cure() {
        let ftp = SocketAddr::from(([0, 0, 0, 0], 21));
        assert_eq!(usual_listen(&[], |_| Ok(())), (ftp, None));
        for (kind, cure) in [
            (io::ErrorKind::AddrInUse, "stop it"),
            (io::ErrorKind::PermissionDenied, "as root"),
        ] {
            let (listen, why) = usual_listen(&[], |at| {
                assert_eq!(at, ftp);
                Err(kind.into())
            });
            let why = why.expect("a reason");
            assert_eq!(listen.port(), 2121);
            assert!(why.contains("Port 21 is not free"), "{why}");
            assert!(
                why.contains(cure) && why.contains("--listen 0.0.0.0:21"),
                "{why}"
            );
            // The listener belongs to this gateway.
            let own = ["0.0.0.0:21".to_owned()];
            assert_eq!(usual_listen(&own, |_| Err(kind.into())), (ftp, None));
            let own = ["192.0.2.1:2121".to_owned(), "[::]:21".to_owned()];
            let all = SocketAddr::from(([0; 8], 21));
            assert_eq!(usual_listen(&own, |_| Err(kind.into())), (all, None));
        }
    }

    #[test]
    fn the_service_follows_from_the_port_of_the_target() {
        for (text, service) in [
            ("10.20.0.5:21", Some(Service::Ftp)),
            ("10.20.0.5", Some(Service::Ftp)),
            ("10.20.0.5:22", Some(Service::Ssh)),
            ("10.20.0.5:2022", None),
        ] {
            assert_eq!(service_of(Some(text)), service, "{text}");
        }
        let target = target(Service::Ssh, Some("10.20.0.5")).expect("a host");
        assert_eq!(target.expect("given").to_string(), "10.20.0.5:22");
        assert_eq!("SFTP".parse(), Ok(Service::Ssh));
        assert!("smtp".parse::<Service>().is_err());
    }

    #[test]
    fn an_ssh_listener_is_added_beside_other_listeners() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("gateway.toml");
        let text = "[[ssh]]\nlisten = \"0.0.0.0:2200\"\nclients = [\"10.0.0.0/8\"]\n";
        fs::write(&path, text).expect("room");
        let far = link::Identity::generate().public_key();
        let invite = Invite::new(far, &"far.example:4810".parse().expect("an endpoint"));
        let mut document = Document::open(&path, TITLE).expect("TOML");
        let own = document.values("ssh", "listen").expect("tables");
        assert_eq!(usual_ssh_listen(&own).port(), 2200);
        assert_eq!(usual_ssh_listen(&[]).port(), 2222);
        let added = NewListener {
            service: Service::Ssh,
            listen: SocketAddr::from(([0, 0, 0, 0], 2222)),
            target: Some(&HostPort::parse_ssh("10.20.0.5").expect("a host")),
        };
        add(&mut document, &invite, "far", &added).expect("tables");
        let changes = document.changes();
        assert!(
            changes.contains("+ [[ssh]]\n  + listen = \"0.0.0.0:2222\"\n  + target = \"10.20.0.5:22\"\n  + via = \"far\""),
            "{changes}"
        );
    }

    fn ftp<'a>(listen: SocketAddr, target: &'a HostPort) -> NewListener<'a> {
        NewListener {
            service: Service::Ftp,
            listen,
            target: Some(target),
        }
    }

    #[test]
    fn a_second_setup_adds_nothing_to_the_first() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("gateway.toml");
        let far = link::Identity::generate().public_key();
        let endpoint: HostPort = "far.example:4810".parse().expect("an endpoint");
        let invite = Invite::new(far, &endpoint);
        let listen = SocketAddr::from(([0, 0, 0, 0], 21));
        let mut document = Document::open(&path, TITLE).expect("none");
        add(&mut document, &invite, "far", &ftp(listen, &endpoint)).expect("tables");
        let first = document.text();
        assert!(
            first.contains("name = \"far\"")
                && first.contains("target = \"far.example:4810\"")
                && first.contains("via = \"far\"")
                && !first.contains("serves")
        );
        fs::write(&path, &first).expect("room");
        let mut document = Document::open(&path, TITLE).expect("TOML");
        let again = Invite::new(far, &endpoint);
        add(&mut document, &again, "far", &ftp(listen, &endpoint)).expect("tables");
        assert_eq!(document.changes(), "");
        // Another far gateway needs its own listener. The command refuses to use the listener of
        // this peer for another peer.
        let other = Invite::new(link::Identity::generate().public_key(), &endpoint);
        let told = add(&mut document, &other, "far", &ftp(listen, &endpoint));
        let told = told.expect_err("the listener has a peer").to_string();
        assert!(told.contains("another via"), "{told}");
        let mut document = Document::open(&path, TITLE).expect("TOML");
        let second = SocketAddr::from(([0, 0, 0, 0], 2121));
        add(&mut document, &other, "far", &ftp(second, &endpoint)).expect("tables");
        let names = document.values("peer", "name").expect("tables");
        assert_eq!(names, ["far", "far-2"]);
        let text = document.text();
        assert!(
            text.contains("serves = []") && text.contains("via = \"far-2\""),
            "{text}"
        );
        let elsewhere: HostPort = "other.example:21".parse().expect("an endpoint");
        let told = add(&mut document, &other, "far", &ftp(listen, &elsewhere));
        let told = told.expect_err("the listener has a target").to_string();
        assert!(told.contains("another target"), "{told}");
    }
}
