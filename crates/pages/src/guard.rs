//! A check that each request is for a name of the listener.
//!
//! A web page can resolve its own name to the listener's address (DNS rebinding). The browser then
//! sends the name of the page in `Host`.

use std::{fmt, io, net::IpAddr, sync::Arc};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderName, StatusCode, Uri, Version, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use net::target::Host;
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    bounded_listener::{BoundedListener, TlsHandshaker},
    client::PageClient,
};

/// Names of a listener in addition to its own address and loopback.
#[derive(Debug, Clone)]
pub struct HostNames {
    /// Name of the configuration section that contains the key `hosts`.
    pub section: &'static str,
    /// Names in the key `hosts`.
    pub hosts: Vec<Host>,
}

/// Serves the pages of `router` until the task is dropped.
///
/// Requests must be for the address of the listener, a loopback address, or one of `names`. If a
/// client uses another name, its request is refused and `refused` is called. `refused` returns
/// whether to log the request. With `tls`, all connections use TLS.
///
/// # Errors
/// The error of the listener.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<dyn TlsHandshaker>>,
    names: HostNames,
    router: Router,
    refused: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
) -> io::Result<()> {
    let own = OwnNames {
        listen: listener.local_addr()?.ip().to_canonical(),
        others: names.hosts,
    };
    let guard = Arc::new(Guard {
        names: own,
        section: names.section,
        refused: Box::new(refused),
    });
    let router = router.layer(middleware::from_fn_with_state(guard, check_host));
    let service = router.into_make_service_with_connect_info::<PageClient>();
    axum::serve(BoundedListener::at_address(listener, tls)?, service).await
}

/// Creates a response in the text format of Prometheus.
pub fn as_metrics(text: String) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text)
}

/// Filter that refuses requests for other hosts than this listener.
struct Guard {
    names: OwnNames,
    /// Name of the configuration section that contains the key `hosts`.
    section: &'static str,
    refused: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names.fmt(f)
    }
}

/// Names that a request may use for this listener.
#[derive(Debug)]
struct OwnNames {
    listen: IpAddr,
    others: Vec<Host>,
}

async fn check_host(
    State(guard): State<Arc<Guard>>,
    ConnectInfo(PageClient { address, .. }): ConnectInfo<PageClient>,
    mut request: Request,
    next: Next,
) -> Response {
    let host = match guard.names.check(&request) {
        Ok(is_by_other_name) => {
            let is_forwarded = is_by_other_name || is_forwarded(request.headers());
            if let Some(info) = request
                .extensions_mut()
                .get_mut::<ConnectInfo<PageClient>>()
            {
                info.0.is_forwarded = is_forwarded;
            }
            return next.run(request).await;
        }
        Err(host) => host,
    };
    let (host, section) = (host.escape_debug().to_string(), guard.section);
    if (guard.refused)(address.ip()) {
        warn!(client = %address, host, "a request with a host name that is not the listener's");
    }
    let text = format!(
        "This listener does not have the name {host:?}. To permit it, add the name to hosts in {section}.\n"
    );
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Returns whether the headers show that a proxy forwarded the request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(HeaderName::as_str);
    names.any(|name| {
        PROXY_HEADERS.contains(&name) || PROXY_HEADER_PREFIXES.iter().any(|it| name.starts_with(it))
    })
}

/// Headers that proxies add: headers of RFC 7239 and RFC 9110, older headers, and headers of one
/// product.
const PROXY_HEADERS: [&str; 7] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "client-ip",
];
const PROXY_HEADER_PREFIXES: [&str; 3] = ["x-forwarded", "x-original-", "cf-"];

impl OwnNames {
    /// Returns whether the request is for one of `others`, the configured names.
    ///
    /// # Errors
    /// The name in the request, if the listener does not have this name.
    fn check(&self, request: &Request) -> Result<bool, String> {
        let requested_hosts = hosts(request.headers(), request.uri());
        if requested_hosts.is_empty() && request.version() == Version::HTTP_10 {
            // The client is not a browser, since every browser sends `Host`.
            return Ok(false);
        }
        let is_by_other_name = requested_hosts.iter().any(|host| !self.is_own(host));
        match requested_hosts
            .into_iter()
            .find(|host| !self.contains(host))
        {
            Some(other) => Err(other),
            None if request.headers().contains_key(header::HOST) => Ok(is_by_other_name),
            None => Err(String::new()),
        }
    }

    /// Returns whether `authority` names this listener. `authority` is a host with or without a
    /// port.
    fn contains(&self, authority: &str) -> bool {
        let host = host_of(authority);
        self.is_own(authority) || host.is_some_and(|host| self.others.contains(&host))
    }

    /// Returns whether `authority` names this listener by its own address, ignoring the configured
    /// names.
    fn is_own(&self, authority: &str) -> bool {
        match host_of(authority) {
            Some(Host::Ip(ip)) => {
                let ip = ip.to_canonical();
                // No page can redirect an address to another host.
                ip.is_loopback() || ip == self.listen || self.listen.is_unspecified()
            }
            Some(Host::Name(name)) => name == "localhost",
            None => false,
        }
    }
}

fn host_of(authority: &str) -> Option<Host> {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    Host::parse(bare.unwrap_or(host)).ok()
}

/// Returns the hosts in the `Host` headers and in the URI of a request.
fn hosts(headers: &HeaderMap, uri: &Uri) -> Vec<String> {
    let in_headers = headers.get_all(header::HOST).into_iter();
    let in_headers = in_headers.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let in_target = uri.authority().map(ToString::to_string);
    in_headers.chain(in_target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_names_are_the_listen_address_loopback_and_those_of_the_file() {
        let others = vec![Host::parse("gw.example.com").expect("a name")];
        let names = OwnNames {
            listen: [10, 0, 0, 1].into(),
            others,
        };
        for host in [
            "10.0.0.1",
            "10.0.0.1:9810",
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:9810",
            "127.9.9.9",
            "[::1]",
            "[::1]:9810",
            "gw.example.com",
            "GW.example.com:443",
        ] {
            assert!(names.contains(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9810",
            "10.0.0.2",
            "localhost.evil.example",
            "gw.example.com.evil.example",
            "127.0.0.1.evil.example",
            "0x7f.1",
            "user@localhost",
        ] {
            assert!(!names.contains(host), "{host}");
        }
        let everywhere = OwnNames {
            listen: [0, 0, 0, 0].into(),
            others: Vec::new(),
        };
        assert!(everywhere.contains("10.0.0.2") && !everywhere.contains("evil.example"));
    }
}
