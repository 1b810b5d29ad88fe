//! Options for the access to servers: the route, the account, TLS and SSH.

use std::{
    env,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use mover::{
    credentials::{ANONYMOUS, Account, Credentials},
    embedded_gateway::{EmbeddedGateway, FarGateway, GatewayListeners},
    job::JobSite,
    location::{Location, Remote, Scheme, Server},
    server::{Dial, GatewayListener, HostKeyRejection, Password, Route, ServerError},
    sftp::{SftpDial, SftpSession},
    web::WebDial,
};
use net::tls::{CertificateCheck, Fingerprint};

use crate::{
    exit, peers,
    ssh_access::{SshAccess, SshArgs},
};

/// Options for the access to servers.
#[derive(clap::Args)]
pub(crate) struct ConnectionArgs {
    /// Connect to servers through this listener of a gateway. If the option is given as often as
    /// --to, the first --gateway belongs to the first --to, and so on
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "peer")]
    gateway: Vec<String>,
    /// Act as a near gateway, and connect to servers through this far gateway: its key and address,
    /// or its name in the file of --peers. If the option is given as often as --to, the first
    /// --peer belongs to the first --to, and so on
    #[arg(long, value_name = "NAME|KEY@HOST:PORT")]
    peer: Vec<String>,
    /// With --peer: read names of far gateways from this file, with lines such as studio =
    /// "KEY@HOST:PORT" [default: ~/.config/longhaul/peers.toml]
    #[arg(long, value_name = "FILE", requires = "peer")]
    peers: Option<PathBuf>,
    /// With --peer: read the private key of this machine from this file, which longhaul keygen has
    /// made [default: ~/.config/longhaul/key]
    #[arg(long, value_name = "FILE", requires = "peer")]
    key: Option<PathBuf>,
    /// Read the password for the server from the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Read user names and passwords for servers from this file [default: ~/.netrc]
    #[arg(long, value_name = "FILE")]
    netrc: Option<PathBuf>,
    /// Accept only the server certificate with this SHA-256 fingerprint
    #[arg(long, value_name = "HEX", conflicts_with = "tls_insecure")]
    tls_pin: Option<String>,
    /// Accept any server certificate; an attacker on the path can then read and change the copied
    /// files
    #[arg(long)]
    tls_insecure: bool,
    /// Use active mode: servers open the data connections to this machine
    #[arg(long)]
    active: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

/// Access to servers with checked options.
#[derive(Debug)]
pub(crate) struct Access {
    credentials: Credentials,
    /// Path of the netrc file, for messages. It is the value of `--netrc`, or `~/.netrc`.
    netrc: PathBuf,
    verify_tls: CertificateCheck,
    /// Gateway listeners that lead to the servers. `None` means direct connections.
    listeners: Option<GatewayListeners>,
    ssh: SshAccess,
    /// The far gateway, and the file with this process's private key.
    peer: Option<(FarGateway, PathBuf)>,
    /// Text that distinguishes this gateway from others. `None` if the command line names at most
    /// one gateway.
    gateway: Option<String>,
    is_active: bool,
    reply_timeout: Duration,
}

impl ConnectionArgs {
    pub(crate) fn is_direct(&self) -> bool {
        self.gateway.is_empty() && self.peer.is_empty()
    }

    /// Whether the options name a far gateway.
    pub(crate) fn has_peer(&self) -> bool {
        !self.peer.is_empty()
    }

    /// Reads the options and the environment. Also reads the netrc file and the configuration of
    /// OpenSSH, if `servers` need them. `reply_timeout` is the timeout of replies, and of transfers
    /// without progress.
    pub(crate) fn read(
        &self,
        reply_timeout: Duration,
        servers: &[&Server],
    ) -> anyhow::Result<Access> {
        self.read_one(0, 1, reply_timeout, servers)
    }

    /// Reads the access to one of several destinations. `number` is its index, and `count` the
    /// number of destinations.
    pub(crate) fn read_one(
        &self,
        number: usize,
        count: usize,
        reply_timeout: Duration,
        servers: &[&Server],
    ) -> anyhow::Result<Access> {
        let gateway = one_of(&self.gateway, "--gateway", number, count)?;
        let peer = one_of(&self.peer, "--peer", number, count)?;
        let is_one_of_several = self.gateway.len().max(self.peer.len()) > 1;
        let peer = peer.map(|it| self.peer(it)).transpose()?;
        let key_and_place =
            |(peer, _): &(FarGateway, PathBuf)| format!("{}@{}", peer.public_key, peer.endpoint);
        let named = gateway
            .map(str::to_owned)
            .or_else(|| peer.as_ref().map(key_and_place));
        let has_sftp = servers.iter().any(|it| it.scheme == Scheme::Sftp);
        let has_ftp = servers.iter().any(|it| it.scheme.is_ftp());
        exit::ensure(
            gateway.is_none() || !(has_sftp && has_ftp),
            "a listener of a gateway leads to FTP servers or to SSH servers: use --peer, which leads \
             to both, or copy in two steps",
        )?;
        let ssh = self.ssh.read(has_sftp)?;
        if gateway.is_none() && peer.is_none() {
            ssh.check_direct(servers)?;
        }
        Ok(Access {
            credentials: self.credentials(!servers.is_empty())?,
            ssh,
            netrc: self.netrc.clone().unwrap_or_else(|| "~/.netrc".into()),
            verify_tls: self.verify_tls()?,
            listeners: gateway.map(listeners).transpose()?,
            peer,
            gateway: named.filter(|_| is_one_of_several),
            is_active: self.active,
            reply_timeout,
        })
    }

    fn credentials(&self, has_server: bool) -> anyhow::Result<Credentials> {
        let mut credentials = Credentials::default();
        let home = env::var_os("HOME").filter(|it| !it.is_empty());
        let netrc = self
            .netrc
            .clone()
            .or_else(|| Some(Path::new(&home?).join(".netrc")));
        if let Some(netrc) = netrc.filter(|_| has_server) {
            credentials.read_netrc(&netrc).map_err(exit::wrong_use)?;
        }
        if let Some(file) = &self.password_file {
            credentials.read_password(file).map_err(exit::wrong_use)?;
        } else if let Some(password) = env::var_os("LONGHAUL_PASSWORD") {
            credentials.password = Some(Password(password.into_vec()));
        }
        Ok(credentials)
    }

    fn verify_tls(&self) -> anyhow::Result<CertificateCheck> {
        match &self.tls_pin {
            Some(pin) => {
                let pin: Fingerprint = pin.parse().map_err(exit::wrong_use)?;
                Ok(CertificateCheck::Pin(pin))
            }
            None if self.tls_insecure => Ok(CertificateCheck::Off),
            None => Ok(CertificateCheck::Roots(None)),
        }
    }

    fn peer(&self, text: &str) -> anyhow::Result<(FarGateway, PathBuf)> {
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
        let file = self.peers.clone();
        let file = file.unwrap_or_else(|| peers::default_file(&home));
        let peer = peers::find(text, &file)?;
        let key = home.join(".config/longhaul/key");
        Ok((peer, self.key.clone().unwrap_or(key)))
    }
}

/// Returns the value of an option for one of several destinations. `number` is the destination's
/// index, and `count` the number of destinations.
fn one_of<'a>(
    values: &'a [String],
    flag: &str,
    number: usize,
    count: usize,
) -> anyhow::Result<Option<&'a str>> {
    let wrong = match count {
        1 => format!("{flag} was given several times: give it once"),
        _ => format!("{flag} must be given once, or as often as --to: {count} times"),
    };
    exit::ensure(values.len() <= 1 || values.len() == count, &wrong)?;
    Ok(values.get(number).or(values.first()).map(String::as_str))
}

fn listeners(text: &str) -> anyhow::Result<GatewayListeners> {
    let wrong = || exit::misuse(format!("{text:?} is no gateway: expected HOST:PORT"));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| wrong())?;
    exit::ensure(
        !host.is_empty() && port > 0,
        "expected HOST:PORT of a gateway",
    )?;
    let listener = GatewayListener {
        host: host.to_owned(),
        port,
        has_tls: false,
        is_ours: false,
        network: None,
    };
    // The listener has only one protocol. The schemes of the servers' URLs show which one.
    Ok(GatewayListeners {
        ftp: listener.clone(),
        ssh: listener,
    })
}

/// Starts one near gateway in this process if the options name far gateways. The near gateway has
/// separate listeners for each far gateway. Each [`Access`] then uses the listeners for its own far
/// gateway. `scheme` is the scheme of the FTP servers' URLs.
pub(crate) fn start_near(
    all: &mut [&mut Access],
    scheme: Option<Scheme>,
) -> anyhow::Result<Option<EmbeddedGateway>> {
    let mut peers: Vec<FarGateway> = Vec::new();
    for (peer, _) in all.iter().filter_map(|it| it.peer.as_ref()) {
        if !peers.contains(peer) {
            peers.push(peer.clone());
        }
    }
    let named = all
        .iter()
        .find_map(|it| Some((&it.peer.as_ref()?.1, &it.verify_tls)));
    let Some((key, verify_tls)) = named else {
        return Ok(None);
    };
    let scheme = scheme.unwrap_or(Scheme::Ftp);
    let near = EmbeddedGateway::start(&peers, key, scheme, verify_tls).map_err(exit::wrong_use)?;
    for access in all {
        let number = peers
            .iter()
            .position(|it| access.peer.as_ref().is_some_and(|(own, _)| own == it));
        access.listeners = number.map(|it| near.listeners(it));
    }
    Ok(Some(near))
}

impl Access {
    /// Starts a near gateway in this process if the options name a far gateway. This access then
    /// uses the listeners of the near gateway. `scheme` is the scheme of the FTP servers' URLs.
    pub(crate) fn start_near(
        &mut self,
        scheme: Option<Scheme>,
    ) -> anyhow::Result<Option<EmbeddedGateway>> {
        start_near(&mut [self], scheme)
    }

    /// Returns the far gateway and the key file if the options name a far gateway.
    pub(crate) fn peer(&self) -> Option<&(FarGateway, PathBuf)> {
        self.peer.as_ref()
    }

    /// Returns a text that distinguishes this gateway from others. The same server address can
    /// belong to different servers behind different gateways.
    pub(crate) fn gateway(&self) -> Option<&str> {
        self.gateway.as_deref()
    }

    /// Returns the gateway listeners that lead to the servers. `None` means direct connections.
    pub(crate) fn listeners(&self) -> Option<&GatewayListeners> {
        self.listeners.as_ref()
    }

    /// Returns the rule by which the process checks certificates of servers.
    pub(crate) fn verify_tls(&self) -> &CertificateCheck {
        &self.verify_tls
    }

    /// Makes this access use the listeners of a running near gateway.
    pub(crate) fn use_listeners(&mut self, listeners: GatewayListeners) {
        self.listeners = Some(listeners);
    }

    /// Returns the user name for a server.
    pub(crate) fn user(&self, server: &Server) -> String {
        self.account(server).user
    }

    fn account(&self, server: &Server) -> Account {
        match server.scheme {
            Scheme::Sftp => self.ssh.account(&self.credentials, server),
            _ => self.credentials.account(server),
        }
    }

    /// Asks the user for a missing password, if the process has a terminal. For an SFTP server,
    /// [`ask_for_ssh`](Self::ask_for_ssh) asks instead, because such a server may accept a key.
    pub(crate) fn ask_password(&mut self, server: &Server) -> anyhow::Result<()> {
        let is_open = self.account(server).password.is_none();
        match is_open && server.scheme != Scheme::Sftp && has_terminal() {
            true => self.prompt_for_password(server),
            false => Ok(()),
        }
    }

    /// Logs in at each SFTP server once, if the process has a terminal. Asks the user whether an
    /// unknown host key is right, and for the password of a server that accepts no key. Ignores all
    /// other failures, because the job reports them later.
    pub(crate) async fn ask_for_ssh(&mut self, servers: &[Server]) -> anyhow::Result<()> {
        let servers = servers.iter().filter(|it| it.scheme == Scheme::Sftp);
        for server in servers.filter(|_| has_terminal()) {
            for _ in 0..SSH_QUESTIONS_MAX {
                match SftpSession::open(&self.sftp_dial(server)).await {
                    Ok(session) => {
                        session.close().await;
                        break;
                    }
                    Err(ServerError::HostKey(HostKeyRejection::Unknown {
                        server,
                        fingerprint,
                        algorithm,
                        ..
                    })) => {
                        let is_right = is_host_key_right(&server, &algorithm, &fingerprint)?;
                        anyhow::ensure!(is_right, "the host key is not confirmed");
                        self.ssh.confirm_host_key(fingerprint);
                    }
                    Err(ServerError::SshLogIn {
                        wants_password: true,
                        ..
                    }) => self.prompt_for_password(server)?,
                    Err(_) => break,
                }
            }
        }
        Ok(())
    }

    fn prompt_for_password(&mut self, server: &Server) -> anyhow::Result<()> {
        let account = self.account(server);
        let question = format!("Password of {} at {}: ", account.user, server.host);
        let password = rpassword::prompt_password(question).context("cannot read a password")?;
        let password = Password(password.into_bytes());
        let asked = (server.clone(), account.user, password);
        self.credentials.asked.push(asked);
        Ok(())
    }

    /// Copies the passwords that the user has entered for another job. If the jobs use different
    /// gateways, copies nothing, because the same address may belong to a different server.
    pub(crate) fn adopt_passwords(&mut self, other: &Self) {
        if self.gateway == other.gateway {
            self.credentials.clone_from(&other.credentials);
        }
    }

    /// Returns the [`JobSite`] (local or server, with all connection settings) of a location.
    pub(crate) fn site(&self, location: &Location) -> JobSite {
        let Location::Remote(Remote { server, .. }) = location else {
            return JobSite::Local;
        };
        if server.scheme == Scheme::Sftp {
            return JobSite::Sftp(Box::new(self.sftp_dial(server)));
        }
        let account = self.credentials.account(server);
        if !server.scheme.is_ftp() {
            let is_known = server.user.is_some() || account.user != ANONYMOUS;
            return JobSite::Web(Box::new(WebDial {
                server: server.clone(),
                account: is_known.then_some((account.user, account.password)),
                netrc: self.netrc.clone(),
                verify: self.verify_tls.clone(),
                reply_timeout: self.reply_timeout,
                stall_max: self.reply_timeout,
            }));
        }
        JobSite::Server(Box::new(Dial {
            server: server.clone(),
            route: match &self.listeners {
                Some(listeners) => Route::Gateway(listeners.ftp.clone()),
                None => Route::Direct,
            },
            user: account.user,
            password: account.password,
            netrc: self.netrc.clone(),
            verify: self.verify_tls.clone(),
            is_active: self.is_active,
            reply_timeout: self.reply_timeout,
            stall_max: self.reply_timeout,
        }))
    }

    fn sftp_dial(&self, server: &Server) -> SftpDial {
        let listener = self.listeners.as_ref().map(|it| &it.ssh);
        let account = self.account(server);
        self.ssh.dial(server, account, listener, self.reply_timeout)
    }
}

/// Asks the user whether the host key of a server is right.
fn is_host_key_right(server: &str, algorithm: &str, fingerprint: &str) -> anyhow::Result<bool> {
    let mut answer = String::new();
    loop {
        eprint!(
            "The host key of {server} is not known.\n{algorithm} key fingerprint is \
             {fingerprint}.\nIs it right (yes/no)? "
        );
        answer.clear();
        let length = std::io::stdin().read_line(&mut answer);
        let is_ended = length.context("cannot read the answer")? == 0;
        match answer.trim() {
            "yes" => return Ok(true),
            "no" => return Ok(false),
            _ if is_ended => return Ok(false),
            _ => {}
        }
    }
}

/// Maximum number of log-ins at one SFTP server for which the process asks the user questions.
const SSH_QUESTIONS_MAX: usize = 3;

/// Whether the user can answer questions on a terminal.
fn has_terminal() -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}
