//! Options for the access to SFTP servers: keys, host keys, and the configuration of OpenSSH.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use mover::{
    credentials::{ANONYMOUS, Account, Credentials},
    location::{Scheme, Server},
    server::GatewayListener,
    sftp::{HostKeyRule, KnownHosts, SftpDial, SshConfig, SshHost, SshIdentity, SshRoute},
};
use nix::unistd::{User, geteuid};

use crate::exit;

/// Options for SFTP servers.
#[derive(clap::Args)]
pub(crate) struct SshArgs {
    /// Log in at SFTP servers only with the private key in this file. The option may be given
    /// several times [default: the keys of the agent, and of ~/.ssh]
    #[arg(long, value_name = "FILE")]
    identity: Vec<PathBuf>,
    /// Read the host keys of SFTP servers and SSH listeners from this file [default:
    /// ~/.ssh/known_hosts]
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    known_hosts: Option<PathBuf>,
    /// Accept only the host key with this SHA-256 fingerprint
    #[arg(long, value_name = "SHA256:...", conflicts_with_all = ["peer", "known_hosts"])]
    host_key: Option<String>,
}

/// Access to SFTP servers with checked options.
#[derive(Debug)]
pub(crate) struct SshAccess {
    identity: Vec<PathBuf>,
    known_hosts: Option<PathBuf>,
    host_key: Option<String>,
    config: SshConfig,
    /// Fingerprint of the host key that the user confirmed last.
    confirmed: Option<String>,
}

impl SshArgs {
    /// Checks the options. If `has_server` is true, also reads the configuration of OpenSSH.
    pub(crate) fn read(&self, has_server: bool) -> anyhow::Result<SshAccess> {
        let is_pin = |it: &String| it.strip_prefix("SHA256:").is_some_and(|it| it.len() == 43);
        exit::ensure(
            self.host_key.as_ref().is_none_or(is_pin),
            "--host-key must be a fingerprint as ssh-keygen -l prints it: SHA256: and 43 \
             characters",
        )?;
        if has_server {
            for file in &self.identity {
                let found = file.metadata();
                let found = found.with_context(|| format!("--identity {}", file.display()));
                found.map_err(|error| exit::misuse(format!("{error:#}")))?;
            }
        }
        let variable = |name: &str| env::var_os(name).filter(|it| !it.is_empty());
        let config = match variable("HOME").filter(|_| has_server) {
            Some(home) => {
                let agent = variable("SSH_AUTH_SOCK").map(PathBuf::from);
                SshConfig::read(Path::new(&home), agent, own_user())
            }
            None => Ok(SshConfig::default()),
        };
        Ok(SshAccess {
            identity: self.identity.clone(),
            known_hosts: self.known_hosts.clone(),
            host_key: self.host_key.clone(),
            config: config.map_err(exit::misuse)?,
            confirmed: None,
        })
    }
}

impl SshAccess {
    /// Returns the account for a server. The user name comes from the URL, the configuration of
    /// OpenSSH, or the netrc file. If all three lack a user name, the function uses the name of
    /// this process's user, as OpenSSH does.
    pub(crate) fn account(&self, credentials: &Credentials, server: &Server) -> Account {
        let named = |user: Option<String>| Server {
            user,
            ..server.clone()
        };
        let user = self.host(server).user.filter(|_| server.user.is_none());
        let user = server.user.clone().or(user);
        let account = credentials.account(&named(user.clone()));
        if user.is_some() || account.user != ANONYMOUS {
            return account;
        }
        match own_user() {
            Some(own) => credentials.account(&named(Some(own))),
            None => account,
        }
    }

    /// Checks that the mover can connect directly to the SFTP servers among `servers`.
    pub(crate) fn check_direct(&self, servers: &[&Server]) -> anyhow::Result<()> {
        let mut servers = servers.iter().filter(|it| it.scheme == Scheme::Sftp);
        match servers.find(|it| self.host(it).has_proxy) {
            None => Ok(()),
            Some(server) => Err(exit::misuse(format!(
                "the configuration of OpenSSH has ProxyJump or ProxyCommand for {}, which the mover \
                 does not support: use --gateway or --peer",
                server.host
            ))),
        }
    }

    /// Records that the user has confirmed an unknown host key.
    pub(crate) fn confirm_host_key(&mut self, fingerprint: String) {
        self.confirmed = Some(fingerprint);
    }

    /// Returns the parameters for the log-in at a server. `listener` is the gateway listener that
    /// leads to the server.
    pub(crate) fn dial(
        &self,
        server: &Server,
        account: Account,
        listener: Option<&GatewayListener>,
        reply_timeout: Duration,
    ) -> SftpDial {
        let host = self.host(server);
        SftpDial {
            host_keys: self.host_keys(&host, listener),
            identity: self.identity(&host),
            server: Server {
                port: match host.port {
                    Some(port) if server.port == SSH_PORT => port,
                    _ => server.port,
                },
                host: host.host,
                ..server.clone()
            },
            user: account.user,
            password: account.password,
            route: match listener {
                Some(listener) => SshRoute::Gateway {
                    listener: listener.clone(),
                    // The name of the server is always sent, because a listener with a fixed server
                    // accepts the name of this server as well.
                    has_fixed_server: false,
                },
                None => SshRoute::Direct,
            },
            reply_timeout,
            stall_max: reply_timeout,
        }
    }

    fn host(&self, server: &Server) -> SshHost {
        self.config.resolve(&server.host, server.user.as_deref())
    }

    fn identity(&self, host: &SshHost) -> SshIdentity {
        let is_named = !self.identity.is_empty();
        SshIdentity {
            key_files: match is_named {
                true => self.identity.clone(),
                false => host.identity_files.clone(),
            },
            agent: host.agent.clone(),
            has_only_key_files: is_named || host.has_only_identity_files,
        }
    }

    /// Returns the rule for the host key of the SSH server to which the mover connects. This SSH
    /// server is either a gateway's listener or the SFTP server itself.
    fn host_keys(&self, host: &SshHost, listener: Option<&GatewayListener>) -> HostKeyRule {
        if listener.is_some_and(|it| it.is_ours) {
            return HostKeyRule::Trusted;
        }
        if let Some(pin) = &self.host_key {
            return HostKeyRule::Pinned(pin.clone());
        }
        let of_listener = listener.map(|it| self.config.resolve(&it.host, None));
        let host = of_listener.as_ref().unwrap_or(host);
        HostKeyRule::Known(KnownHosts {
            files: match &self.known_hosts {
                Some(file) => vec![file.clone()],
                None => host.known_hosts.clone(),
            },
            alias: host.host_key_alias.clone(),
            accepts_new: host.accepts_new_keys,
            confirmed: self.confirmed.clone(),
        })
    }
}

/// Returns the name of the user of this process.
fn own_user() -> Option<String> {
    let user = User::from_uid(geteuid()).ok().flatten();
    user.map(|it| it.name)
}

/// Port of a URL without a port. The configuration of OpenSSH may name another port.
const SSH_PORT: u16 = 22;
