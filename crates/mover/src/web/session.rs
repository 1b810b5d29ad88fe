//! Session with a web server: queries about files, and downloads that may start at any offset.

use std::{io, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision};
use http_body_util::Empty;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{
        ACCEPT_ENCODING, ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HOST,
        HeaderValue, LAST_MODIFIED, LOCATION, RANGE, TRANSFER_ENCODING, USER_AGENT,
    },
};
use hyper_util::rt::TokioIo;
use net::tls::{ConnectionKind, Connector, ServerTls, TlsStart};
use tokio::time::timeout;
use url::{Position, Url};

use super::{Body, WebDial};
use crate::server::{ServerError, Stat, reach};

/// A session with a web server. The session reconnects if the server has disconnected, or if a
/// redirection leads to another server.
pub(crate) struct WebSession {
    dial: WebDial,
    /// Host and port of the server, in the normalised form of URLs.
    home: ServerAddress,
    /// TLS connector for the server itself. The connector never resumes TLS sessions of other
    /// servers.
    connector: Connector,
    open: Option<IdleConnection>,
    /// Whether downloads can start at any offset. `None` until a response has shown whether the
    /// server supports offsets.
    takes_ranges: Option<bool>,
}

/// An idle connection that the next request can use.
pub(super) struct IdleConnection {
    place: ServerAddress,
    sender: SendRequest<Empty<Bytes>>,
}

/// Host and port of a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerAddress {
    /// Host name or IP address. An IPv6 address has brackets.
    host: String,
    port: u16,
}

impl WebSession {
    /// Connects to the web server.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached, or if its certificate is not accepted.
    pub(crate) async fn open(dial: &WebDial) -> Result<Self, ServerError> {
        let home = ServerAddress::of(&parse(&dial.server.without_user().to_string())?);
        let mut session = Self {
            dial: dial.clone(),
            home,
            connector: connector(dial)?,
            open: None,
            takes_ranges: None,
        };
        session.open = Some(session.connect(session.home.clone()).await?);
        Ok(session)
    }

    /// Returns whether downloads can probably start at any offset.
    pub(crate) fn may_take_ranges(&self) -> bool {
        self.takes_ranges.unwrap_or(true)
    }

    /// Returns the attributes of the file with this path, in one round trip. Returns `None` if the
    /// file does not exist.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the request, or if the connection fails.
    pub(crate) async fn look(&mut self, path: &[u8]) -> Result<Option<ListingEntry>, ServerError> {
        let (mut response, _) = self.request(&Method::HEAD, path, None).await?;
        if matches!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN
        ) {
            // A link that is signed for one method permits no other method.
            (response, _) = self.request(&Method::GET, path, Some((0, Some(0)))).await?;
            // The server may still send the file's content, so the connection cannot be used again.
            self.open = None;
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
                // An empty file has no first byte.
                (response, _) = self.request(&Method::GET, path, None).await?;
                self.open = None;
            }
        }
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        let is_partial = status == StatusCode::PARTIAL_CONTENT;
        if status != StatusCode::OK && !is_partial {
            return Err(ServerError::Http(status));
        }
        let says_bytes = |it: &str| it.eq_ignore_ascii_case("bytes");
        let says_ranges = header(response.headers(), &ACCEPT_RANGES).is_some_and(says_bytes);
        self.takes_ranges = Some(is_partial || says_ranges);
        let Stat {
            size_bytes,
            modified,
        } = stat(&response);
        Ok(Some(ListingEntry {
            name: Vec::new(),
            kind: EntryKind::File,
            size_bytes,
            modified,
        }))
    }

    /// Downloads the bytes of a file, beginning at `offset_bytes`.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the request, or if the connection fails.
    /// [`ServerError::NoRange`] if the server cannot start at that offset.
    pub(crate) async fn get(
        &mut self,
        path: &[u8],
        offset_bytes: u64,
    ) -> Result<Body<'_>, ServerError> {
        let range = (offset_bytes > 0).then_some((offset_bytes, None));
        let (response, host) = self.request(&Method::GET, path, range).await?;
        let begin = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if offset_bytes > 0 => {
                first_byte(response.headers()).unwrap_or(0)
            }
            StatusCode::RANGE_NOT_SATISFIABLE if offset_bytes > 0 => 0,
            status => {
                self.open = None;
                return Err(ServerError::Http(status));
            }
        };
        if begin != offset_bytes {
            self.open = None;
            return Err(ServerError::NoRange);
        }
        let (stated, has_length) = (stat(&response), has_length(response.headers()));
        let stall_max = self.dial.stall_max;
        Ok(Body::new(
            response.into_body(),
            (host, &mut self.open),
            (stated, has_length),
            stall_max,
        ))
    }

    /// Requests a path and follows redirections. Returns the final response, and the host that sent
    /// it.
    async fn request(
        &mut self,
        method: &Method,
        path: &[u8],
        range: Option<(u64, Option<u64>)>,
    ) -> Result<(Response<Incoming>, String), ServerError> {
        let path = String::from_utf8_lossy(path);
        let mut url = parse(&format!("{}/{path}", self.dial.server.without_user()))?;
        for _ in 0..LED_MAX {
            let response = self.ask(method, &url, range).await?;
            let leads = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !leads {
                let host = url.host_str().unwrap_or_default().to_owned();
                return Ok((response, host));
            }
            let to = header(response.headers(), &LOCATION)
                .unwrap_or_default()
                .to_owned();
            if *method != Method::HEAD {
                // The body of the redirection is not read.
                self.open = None;
            }
            url = next_url(&url, &to)?;
        }
        Err(led(&url))
    }

    async fn ask(
        &mut self,
        method: &Method,
        url: &Url,
        range: Option<(u64, Option<u64>)>,
    ) -> Result<Response<Incoming>, ServerError> {
        let place = ServerAddress::of(url);
        let kept = self
            .open
            .take()
            .filter(|it| it.place == place && !it.sender.is_closed());
        let was_kept = kept.is_some();
        let mut open = match kept {
            Some(open) => open,
            None => self.connect(place.clone()).await?,
        };
        let mut answer = self.answer(&mut open, method, url, range).await;
        if was_kept && matches!(answer, Err(ServerError::Exchange { .. })) {
            // The server may have disconnected while the connection was idle.
            open = self.connect(place).await?;
            answer = self.answer(&mut open, method, url, range).await;
        }
        let answer = answer?;
        self.open = Some(open);
        Ok(answer)
    }

    async fn answer(
        &self,
        open: &mut IdleConnection,
        method: &Method,
        url: &Url,
        range: Option<(u64, Option<u64>)>,
    ) -> Result<Response<Incoming>, ServerError> {
        let target = &url[Position::BeforePath..Position::AfterQuery];
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, host)
            .header(USER_AGENT, concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "identity");
        if let Some((first, last)) = range {
            let last = last.map(|it| it.to_string()).unwrap_or_default();
            request = request.header(RANGE, format!("bytes={first}-{last}"));
        }
        let is_theirs = open.place == self.home;
        let account = self.dial.account.as_ref().filter(|_| is_theirs);
        if let Some((user, Some(password))) = account {
            let account = [user.as_bytes(), b":", &password.0].concat();
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(account)));
            if let Ok(mut value) = value {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
        }
        let request = request.body(Empty::new()).map_err(|_| led(url))?;
        let failed = |source| ServerError::Exchange {
            host: open.place.host.clone(),
            source,
        };
        let silent = |_| failed(io::ErrorKind::TimedOut.into());
        let exchange = async {
            // Perhaps the connection's task has not processed the end of the last response yet.
            open.sender.ready().await?;
            open.sender.send_request(request).await
        };
        let response = timeout(self.dial.reply_timeout, exchange)
            .await
            .map_err(silent)?
            .map_err(|error| failed(io::Error::other(error)))?;
        match account {
            Some((user, None)) if response.status() == StatusCode::UNAUTHORIZED => {
                Err(ServerError::NoPassword {
                    user: user.clone(),
                    host: self.dial.server.host.clone(),
                    netrc: self.dial.netrc.clone(),
                })
            }
            _ => Ok(response),
        }
    }

    async fn connect(&self, place: ServerAddress) -> Result<IdleConnection, ServerError> {
        let name = place.host.trim_start_matches('[').trim_end_matches(']');
        let tcp = reach(name, place.port, self.dial.reply_timeout).await?;
        let leg = match place == self.home {
            true => {
                self.connector
                    .connect(tcp, name, ConnectionKind::Control)
                    .await
            }
            false => {
                let theirs = connector(&self.dial)?;
                theirs.connect(tcp, name, ConnectionKind::Control).await
            }
        };
        let leg = leg.map_err(|source| ServerError::Tls {
            is_of_gateway: false,
            host: name.to_owned(),
            source,
        })?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(leg))
                .await
                .map_err(|error| ServerError::Exchange {
                    host: place.host.clone(),
                    source: io::Error::other(error),
                })?;
        // The task ends when the sender and the last body are dropped. The sender and the body also
        // return the errors of the task.
        tokio::spawn(connection);
        Ok(IdleConnection { place, sender })
    }
}

impl ServerAddress {
    fn of(url: &Url) -> Self {
        Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            port: url.port_or_known_default().unwrap_or(443),
        }
    }
}

/// Creates the TLS connector for one server.
fn connector(dial: &WebDial) -> Result<Connector, ServerError> {
    let tls = ServerTls {
        mode: TlsStart::Implicit,
        verify: dial.verify.clone(),
    };
    Connector::new(&tls).map_err(|it| ServerError::TlsSettings(it.to_string()))
}

/// Returns the target URL of a redirection.
pub(super) fn next_url(url: &Url, to: &str) -> Result<Url, ServerError> {
    let next = url.join(to).ok();
    let next = next.filter(|it| it.scheme() == "https" && it.has_host());
    next.ok_or_else(|| ServerError::Led(without_query(to)))
}

fn parse(url: &str) -> Result<Url, ServerError> {
    Url::parse(url).map_err(|_| ServerError::Led(without_query(url)))
}

/// Removes the query, the user name and the password from a URL, because they may be secrets.
fn without_query(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let begin = rest[..end].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[begin..])
        }
        None => path.to_owned(),
    }
}

fn led(url: &Url) -> ServerError {
    ServerError::Led(url[Position::BeforeHost..Position::AfterPath].to_owned())
}

/// Returns the attributes of the whole file according to a response.
pub(super) fn stat(response: &Response<Incoming>) -> Stat {
    let headers = response.headers();
    let size = match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            header(headers, &CONTENT_RANGE).and_then(|it| Some(it.rsplit_once('/')?.1))
        }
        _ => header(headers, &CONTENT_LENGTH),
    };
    let modified =
        header(headers, &LAST_MODIFIED).and_then(|it| httpdate::parse_http_date(it).ok());
    Stat {
        size_bytes: size.and_then(|it| it.parse().ok()),
        modified: modified.and_then(unix_s).map(|unix_s| ModifiedTime {
            unix_s,
            precision: TimePrecision::Second,
        }),
    }
}

/// Returns the offset of the first byte of a range response.
pub(super) fn first_byte(headers: &HeaderMap) -> Option<u64> {
    let range = header(headers, &CONTENT_RANGE)?.strip_prefix("bytes ")?;
    let first = range.split_once('-')?.0.parse().ok();
    #[cfg(fuzz_canary)]
    assert!(first != Some(77), "canary: in the reader of ranges");
    first
}

/// Returns whether a response states where its body ends (RFC 9112 section 6.3). Without such a
/// statement, the body ends with the connection, and an attacker on the path could shorten the
/// body.
pub(super) fn has_length(headers: &HeaderMap) -> bool {
    match headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        Some(codings) => codings.to_str().is_ok_and(|it| {
            let last = it.rsplit(',').next().unwrap_or_default();
            last.trim().eq_ignore_ascii_case("chunked")
        }),
        None => headers.contains_key(CONTENT_LENGTH),
    }
}

pub(super) fn header<'a>(
    headers: &'a HeaderMap,
    name: &hyper::header::HeaderName,
) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn unix_s(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    since.as_secs().try_into().ok()
}

/// Maximum number of redirections. A server that redirects more often probably redirects in a loop.
const LED_MAX: usize = 10;
