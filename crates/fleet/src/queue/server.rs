//! Address and login of a NATS server, and the connection to it.

use std::{path::PathBuf, time::Duration};

use async_nats::{Client, ConnectOptions};

/// A NATS server, or the servers of a NATS cluster.
#[derive(Debug, Clone)]
pub struct NatsServer {
    /// URL of the server: `nats://[USER@]HOST[:PORT]` or `tls://...`. The URLs of a cluster are
    /// separated by commas.
    pub url: String,
    /// Password of the user, or the token.
    pub password: Option<String>,
    /// File with certificates of trusted authorities. The system's authorities are trusted, too.
    pub authorities: Option<PathBuf>,
    /// Name under which this process appears at the server.
    pub name: String,
}

/// Reason why a NATS server is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The text is not the URL of a NATS server.
    #[error("{0:?} is no NATS server: expected nats://[USER@]HOST[:PORT], or tls://")]
    Url(String),
    /// The URL contains a password. Other users could read the password in the list of processes.
    #[error(
        "the URL of a NATS server must not contain a password: use LONGHAUL_NATS_PASSWORD or --nats-password-file"
    )]
    Password,
    /// The server cannot be reached, or refuses the connection.
    #[error("cannot connect to the NATS server {url}")]
    Connect {
        /// URL of the server.
        url: String,
        /// The error of the client library.
        #[source]
        source: Box<async_nats::ConnectError>,
    },
}

impl NatsServer {
    /// Checks the URL.
    ///
    /// # Errors
    /// [`NatsError`] if the URL is invalid, or contains a password.
    pub fn check(&self) -> Result<(), NatsError> {
        self.addresses().map(|_| ())
    }

    /// Splits the URL. Returns the addresses without the user name, and the user name if there is
    /// one.
    fn addresses(&self) -> Result<(Vec<String>, Option<String>), NatsError> {
        let wrong = || NatsError::Url(self.url.clone());
        let (mut addresses, mut named) = (Vec::new(), None);
        for url in self.url.split(',') {
            let url = url.trim();
            let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
            if !matches!(scheme, "nats" | "tls") {
                return Err(wrong());
            }
            let (user, host) = match rest.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, rest),
            };
            if user.is_some_and(|it| it.contains(':')) {
                return Err(NatsError::Password);
            }
            let host = host.trim_end_matches('/');
            if host.is_empty() || host.contains([' ', '/']) {
                return Err(wrong());
            }
            named = user
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .or(named);
            addresses.push(format!("{scheme}://{host}"));
        }
        Ok((addresses, named))
    }

    /// Connects to the server. If the connection is lost later, the client library connects again.
    pub(super) async fn connect(&self) -> Result<Client, NatsError> {
        let (addresses, user) = self.addresses()?;
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .connection_timeout(CONNECT_TIMEOUT);
        if let Some(user) = user {
            let password = self.password.clone().unwrap_or_default();
            options = options.user_and_password(user, password);
        } else if let Some(token) = &self.password {
            options = options.token(token.clone());
        }
        if let Some(file) = &self.authorities {
            options = options.add_root_certificates(file.clone());
        }
        let client = options.connect(addresses).await;
        client.map_err(|error| NatsError::Connect {
            url: self.url.clone(),
            source: Box::new(error),
        })
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> NatsServer {
        NatsServer {
            url: url.to_owned(),
            password: None,
            authorities: None,
            name: "test".to_owned(),
        }
    }

    #[test]
    fn urls_are_read() {
        let addresses = |url: &str| server(url).addresses().expect(url);
        let one = |text: &str| vec![text.to_owned()];
        assert_eq!(
            addresses("nats.example"),
            (one("nats://nats.example"), None)
        );
        let (all, user) = addresses("tls://me@a:4222,tls://b/");
        assert_eq!(all, ["tls://a:4222", "tls://b"]);
        assert_eq!(user.as_deref(), Some("me"));
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        for url in ["", "http://a", "nats://", "nats://a b", "nats://a/b"] {
            let checked = server(url).check();
            assert!(matches!(checked, Err(NatsError::Url(_))), "{url}");
        }
        let checked = server("nats://me:secret@a").check();
        assert!(matches!(checked, Err(NatsError::Password)));
    }
}
