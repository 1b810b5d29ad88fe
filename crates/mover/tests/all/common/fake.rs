//! Log-in parameters of a fake server.

use std::time::Duration;

use fake_ftp::FakeServer;
use mover::{
    location::{Scheme, Server},
    server::{Dial, GatewayListener, Password, Route},
};
use net::tls::CertificateCheck;

/// Extension of the fake server for tests of the mover.
pub(crate) trait FakeServerExt {
    /// Returns the log-in parameters. If the server behaves as a gateway, the parameters describe a
    /// gateway.
    fn dial(&self) -> Dial;
}

impl FakeServerExt for FakeServer {
    fn dial(&self) -> Dial {
        let (host, port) = (self.address().ip().to_string(), self.address().port());
        let route = match self.is_gateway() {
            true => Route::Gateway(GatewayListener {
                host: host.clone(),
                port,
                has_tls: true,
                is_ours: false,
                network: None,
            }),
            false => Route::Direct,
        };
        Dial {
            server: Server {
                scheme: Scheme::Ftp,
                user: None,
                host,
                port,
            },
            route,
            user: "me".to_owned(),
            password: Some(Password(b"x".to_vec())),
            netrc: "~/.netrc".into(),
            verify: CertificateCheck::Roots(None),
            is_active: false,
            reply_timeout: Duration::from_secs(5),
            stall_max: Duration::from_secs(5),
        }
    }
}
