//! Access to a server: its route, its user name and password, and its use of TLS.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ftp::client::Reply;
use net::{
    Connection,
    pipe::PipeNetwork,
    tls::{CertificateCheck, ConnectionKind, Connector, Leg, ServerTls, TlsStart},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{
    ServerError,
    error::{is_forbidden_server, is_gateways_tls_refusal, requires_tls},
};
use crate::location::{Scheme, Server};

/// Parameters for connecting and logging in to a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial {
    /// The server.
    pub server: Server,
    /// The route to the server.
    pub route: Route,
    /// The user name.
    pub user: String,
    /// Password of the user. `None` is sufficient for a server that asks for no password.
    pub password: Option<Password>,
    /// Netrc file that was searched for the password. Only an error message contains the path.
    pub netrc: PathBuf,
    /// Check of the server's certificate, if the URL requests TLS.
    pub verify: CertificateCheck,
    /// Whether data connections use active mode, in which the server connects to the mover.
    pub is_active: bool,
    /// Longest time to wait for a connection or for a reply.
    pub reply_timeout: Duration,
    /// Longest time for which a transfer may make no progress.
    pub stall_max: Duration,
}

/// Route to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Directly, without a gateway.
    Direct,
    /// Through the listener of a gateway. The user name at log-in contains the name of the server.
    Gateway(GatewayListener),
}

/// Address of a gateway's listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayListener {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether the gateway uses TLS on its connection to the server. If false, the mover uses TLS
    /// on its connection to the listener.
    pub has_tls: bool,
    /// Whether the listener belongs to an embedded near gateway in this process.
    pub is_ours: bool,
    /// In-memory network of this process. The listener has the address `host` and `port` in this
    /// network. `None` means the operating system's network.
    pub network: Option<PipeNetwork>,
}

impl GatewayListener {
    /// Returns the gateway that stands between the mover and the server, for display.
    pub(crate) fn describe(&self) -> String {
        match self.is_ours {
            true => "the far gateway".to_owned(),
            false => format!("the gateway {}:{}", self.host, self.port),
        }
    }
}

/// A password. Its debug output does not show the content.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub Vec<u8>);

impl Password {
    /// Returns the password for anonymous log-ins.
    pub fn guest() -> Self {
        Self(GUEST.to_vec())
    }

    fn is_guests(&self) -> bool {
        self.0 == GUEST
    }
}

/// Password for anonymous log-ins. Servers expect a mail address there, and do not check it.
const GUEST: &[u8] = b"longhaul@";

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Dial {
    /// Creates log-in parameters for tests, for a server at `address`.
    #[cfg(test)]
    pub(crate) fn for_tests(address: SocketAddr) -> Self {
        Self {
            server: Server {
                scheme: Scheme::Ftp,
                user: None,
                host: address.ip().to_string(),
                port: address.port(),
            },
            route: Route::Direct,
            user: "joe".to_owned(),
            password: Some(Password(b"secret".to_vec())),
            netrc: "~/.netrc".into(),
            verify: CertificateCheck::Off,
            is_active: false,
            reply_timeout: Duration::from_secs(10),
            stall_max: Duration::from_secs(10),
        }
    }

    /// Returns the argument of the command `USER`.
    pub(super) fn logon(&self) -> Vec<u8> {
        let Server { host, port, .. } = &self.server;
        match &self.route {
            Route::Direct => self.user.clone().into_bytes(),
            Route::Gateway(_) if host.contains(':') => {
                format!("{}@[{host}]:{port}", self.user).into_bytes()
            }
            Route::Gateway(_) => format!("{}@{host}:{port}", self.user).into_bytes(),
        }
    }

    /// Returns the argument of the command `PASS`.
    ///
    /// # Errors
    /// [`ServerError::NoPassword`] if no source contains a password for the user.
    pub(super) fn pass(&self) -> Result<&[u8], ServerError> {
        match &self.password {
            Some(password) => Ok(&password.0),
            None => Err(ServerError::NoPassword {
                user: self.user.clone(),
                host: self.server.host.clone(),
                netrc: self.netrc.clone(),
            }),
        }
    }

    /// Improves the error of a refused log-in. The new error names TLS if the log-in requires TLS.
    /// If a gateway's listener passes on a server's greeting, the listener leads to one fixed
    /// server. The new error then names the listener as the cause.
    pub(super) fn explain(&self, error: ServerError, greeting: &Reply) -> ServerError {
        let error = match error {
            ServerError::LogIn(reply) if self.lacks_tls(&reply) => {
                return ServerError::TlsRequired(reply);
            }
            error => error,
        };
        let Route::Gateway(listener) = &self.route else {
            return error;
        };
        let takes_names = greeting.to_string().contains("Longhaul gateway");
        match error {
            ServerError::LogIn(reply)
                if !reply.is_temporary()
                    && !requires_tls(&reply)
                    && !is_forbidden_server(&reply)
                    && !listener.is_ours
                    && !takes_names =>
            {
                ServerError::FixedServer {
                    listener: format!("{}:{}", listener.host, listener.port),
                    reply,
                }
            }
            error => error,
        }
    }

    /// Returns whether a log-in was refused because the URL requests no TLS. If the mover uses a
    /// gateway, only the gateway's own refusal counts, because the gateway's configuration may
    /// determine the use of TLS with the server.
    fn lacks_tls(&self, reply: &Reply) -> bool {
        let is_of_first_hop = self.route == Route::Direct || is_gateways_tls_refusal(reply);
        self.server.scheme == Scheme::Ftp && is_of_first_hop && requires_tls(reply)
    }

    /// Returns the TLS mode of the connection that the mover opens. Returns `None` if that
    /// connection is not encrypted.
    pub(super) fn tls(&self) -> Option<TlsStart> {
        if matches!(&self.route, Route::Gateway(listener) if listener.has_tls) {
            return None;
        }
        match self.server.scheme {
            // Web servers and SFTP servers do not use FTP.
            Scheme::Ftp | Scheme::Https | Scheme::Sftp => None,
            Scheme::Explicit => Some(TlsStart::Explicit),
            Scheme::Implicit => Some(TlsStart::Implicit),
        }
    }

    /// Creates the TLS connector of one FTP session. All connections of the FTP session share one
    /// TLS session. TLS sessions of other connectors are not resumed.
    pub(super) fn connector(&self, mode: TlsStart) -> Result<Connector, ServerError> {
        let tls = ServerTls {
            mode,
            verify: self.verify.clone(),
        };
        // Some servers require that each data connection resumes the TLS session. TLS 1.2 is used,
        // because its sessions can be resumed any number of times.
        Connector::new_tls12(&tls).map_err(|error| ServerError::TlsSettings(error.to_string()))
    }

    /// Connects to the server, or to the gateway through which the server is reached.
    pub(super) async fn connect(&self) -> Result<Connection, ServerError> {
        let (host, port) = self.next_hop();
        let Some(network) = self.network() else {
            return reach(host, port, self.reply_timeout)
                .await
                .map(Connection::from);
        };
        let connected = match host.parse::<IpAddr>() {
            Ok(ip) => network.connect(SocketAddr::new(ip, port)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
        };
        let pipe = connected.map_err(|source| ServerError::Connect {
            host: host.to_owned(),
            port,
            source,
        })?;
        Ok(pipe.into())
    }

    /// Connects to an address of the server, for a control connection or a data connection.
    pub(super) async fn connect_to(&self, address: SocketAddr) -> io::Result<Connection> {
        match self.network() {
            Some(network) => network.connect(address).map(Connection::from),
            None => connect_to(address, self.reply_timeout)
                .await
                .map(Connection::from),
        }
    }

    /// Performs the TLS handshake.
    pub(super) async fn handshake(
        &self,
        connector: &Connector,
        connection: Connection,
        kind: ConnectionKind,
    ) -> Result<Leg, ServerError> {
        let (host, _) = self.next_hop();
        let made = connector.connect(connection, host, kind).await;
        made.map_err(|source| ServerError::Tls {
            host: host.to_owned(),
            is_of_gateway: self.is_behind_gateway(),
            source,
        })
    }

    /// Returns whether a gateway may receive the password together with the user name. The password
    /// must be no secret, or the route to the server must use TLS.
    pub(super) fn may_hurry_password(&self) -> bool {
        let is_private = self.server.scheme != Scheme::Ftp
            && matches!(&self.route, Route::Gateway(listener) if listener.has_tls);
        let password = self.password.as_ref();
        password.is_some_and(|it| it.is_guests() || is_private)
    }

    /// Returns whether the server is reached through a gateway.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        matches!(self.route, Route::Gateway(_))
    }

    /// Returns the server and the route to it, for display.
    pub(crate) fn describe(&self) -> String {
        let server = format!("the server {}", self.server.place());
        match &self.route {
            Route::Direct => server,
            Route::Gateway(listener) => format!("{server} behind {}", listener.describe()),
        }
    }

    /// Returns the in-memory network of this process, if the server is reached through that
    /// network.
    pub(super) fn network(&self) -> Option<&PipeNetwork> {
        match &self.route {
            Route::Direct => None,
            Route::Gateway(listener) => listener.network.as_ref(),
        }
    }

    fn next_hop(&self) -> (&str, u16) {
        match &self.route {
            Route::Direct => (&self.server.host, self.server.port),
            Route::Gateway(listener) => (&listener.host, listener.port),
        }
    }
}

/// Connects to a host. Tries the host's addresses one after another, until one accepts a connection
/// within `reply_timeout`.
///
/// # Errors
/// [`ServerError`] if the host has no address, or if no address accepts a connection.
pub(crate) async fn reach(
    host: &str,
    port: u16,
    reply_timeout: Duration,
) -> Result<TcpStream, ServerError> {
    let resolve = timeout(reply_timeout, lookup_host((host, port)));
    let resolved = resolve
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let unknown = |source| ServerError::Resolve {
        host: host.to_owned(),
        source,
    };
    let addresses: Vec<SocketAddr> = resolved.map_err(unknown)?.collect();
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match connect_to(address, reply_timeout).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(ServerError::Connect {
        host: host.to_owned(),
        port,
        source: last,
    })
}

async fn connect_to(address: SocketAddr, reply_timeout: Duration) -> io::Result<TcpStream> {
    let connecting = timeout(reply_timeout, TcpStream::connect(address));
    let tcp = connecting
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    tcp.set_nodelay(true)?;
    // A control connection is idle while data moves, and a firewall forgets connections without
    // traffic.
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
    Ok(tcp)
}

/// Idle time before the first TCP keepalive. The value is shorter than the timeouts of common
/// firewalls.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::reply;

    fn behind() -> Route {
        Route::Gateway(GatewayListener {
            host: "gateway".to_owned(),
            port: 21,
            has_tls: false,
            is_ours: false,
            network: None,
        })
    }

    #[test]
    fn a_refusal_that_is_no_fault_of_the_account_names_its_own_cure() {
        let hint = |greeting: &str, line: &str| {
            let mut dial = Dial::for_tests(([127, 0, 0, 1], 21).into());
            dial.route = behind();
            let refused = ServerError::LogIn(reply(line));
            let explained = dial.explain(refused, &reply(greeting));
            explained.hint().unwrap_or_default()
        };
        let greetings = ["220 Longhaul gateway", "220 (vsFTPd 3.0.3)"];
        let far = "530 gateway: 10.77.0.9:2121 is not allowed (reported by peer site-b)";
        let loopback = "530 gateway: 127.0.0.1:21 is not allowed: loopback addresses must be listed explicitly \
                        (reported by peer site-b)";
        let near = "530 gateway: 10.77.0.9:2121 is not allowed at this listener";
        let broken = "500 OOPS: vsftpd: refusing to run with writable root inside chroot()";
        for greeting in greetings {
            for (line, words) in [
                (far, "allow in [far] of the far gateway's file"),
                (loopback, "allow in [far] of the far gateway's file"),
                (near, "allow of the gateway's listener"),
                (broken, "the fault is in the server"),
            ] {
                let told = hint(greeting, line);
                assert!(told.contains(words), "{line}: {told}");
                assert!(!told.contains("check user"), "{line}: {told}");
                assert!(!told.contains("~/.netrc"), "{line}: {told}");
            }
        }
        let fixed = hint(greetings[1], "530 Login incorrect.");
        assert!(fixed.starts_with("check user and password"), "{fixed}");
    }

    #[test]
    fn a_refusal_without_tls_names_the_scheme_that_reaches_the_refusing_hop() {
        let gateway = "530 gateway: TLS is required here: choose explicit TLS (ftpes:// or --ssl-reqd), AUTH TLS comes \
                       first";
        let servers = [
            "530 Non-anonymous sessions must use encryption.",
            "550 SSL/TLS required on the control channel",
        ];
        let hint = |scheme, route: Route, line: &str| {
            let mut dial = Dial::for_tests(([127, 0, 0, 1], 21).into());
            dial.server.scheme = scheme;
            dial.route = route;
            let refused = ServerError::LogIn(reply(line));
            let explained = dial.explain(refused, &reply("220 Longhaul gateway"));
            assert!(explained.to_string().ends_with(line), "{explained}");
            explained.hint()
        };
        let ftpes = Some("write ftpes:// in place of ftp:// in the URL");
        for line in servers {
            assert_eq!(hint(Scheme::Ftp, Route::Direct, line), ftpes, "{line}");
            assert_eq!(hint(Scheme::Ftp, behind(), line), None, "{line}");
            assert_eq!(hint(Scheme::Explicit, Route::Direct, line), None, "{line}");
        }
        assert_eq!(hint(Scheme::Ftp, Route::Direct, gateway), ftpes);
        assert_eq!(hint(Scheme::Ftp, behind(), gateway), ftpes);
        assert_eq!(hint(Scheme::Explicit, behind(), gateway), None);
        let wrong = hint(Scheme::Ftp, Route::Direct, "530 Login incorrect.");
        assert!(wrong.is_some_and(|it| it.contains("password")), "{wrong:?}");
    }
}
