//! A session with a web server: questions about files, and files from any byte on.

use std::{io, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use ftp::listing::{Entry, Kind, Modified, Precision};
use gateway::tls::{Connector, Kind as Connection, Mode, ServerTls};
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
use tokio::time::timeout;
use url::{Position, Url};

use super::{Body, WebDial};
use crate::server::{ServerError, reach};

/// A session with a web server. It connects again where the server has left, and where another server has the file.
pub(crate) struct WebSession {
    dial: WebDial,
    connector: Connector,
    open: Option<Open>,
    /// Whether files can be fetched from any byte on; `None` before the server has said so.
    takes_ranges: Option<bool>,
}

/// A connection on which nothing is under way.
pub(super) struct Open {
    host: String,
    port: u16,
    sender: SendRequest<Empty<Bytes>>,
}

impl WebSession {
    /// Connects.
    ///
    /// # Errors
    /// [`ServerError`] if the server cannot be reached, or its certificate is not accepted.
    pub(crate) async fn open(dial: &WebDial) -> Result<Self, ServerError> {
        let tls = ServerTls {
            mode: Mode::Implicit,
            verify: dial.verify.clone(),
        };
        let connector = Connector::new(&tls);
        let connector = connector.map_err(|it| ServerError::TlsSettings(it.to_string()))?;
        let mut session = Self {
            dial: dial.clone(),
            connector,
            open: None,
            takes_ranges: None,
        };
        let (host, port) = (dial.server.host.clone(), dial.server.port);
        session.open = Some(session.connect(host, port).await?);
        Ok(session)
    }

    /// Whether files can be fetched from any byte on, as far as is known.
    pub(crate) fn may_take_ranges(&self) -> bool {
        self.takes_ranges.unwrap_or(true)
    }

    /// The file that has this path; `None` for nothing. One round trip.
    ///
    /// # Errors
    /// [`ServerError`] with what the server refuses.
    pub(crate) async fn look(&mut self, path: &[u8]) -> Result<Option<Entry>, ServerError> {
        let (mut response, _) = self.request(&Method::HEAD, path, None).await?;
        if matches!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN
        ) {
            // Links that are signed for one method allow no other.
            (response, _) = self.request(&Method::GET, path, Some((0, Some(0)))).await?;
            // The rest of the file may follow.
            self.open = None;
        }
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        succeeded(status)?;
        let headers = response.headers();
        let of_range =
            header(headers, &CONTENT_RANGE).and_then(|it| it.rsplit_once('/')?.1.parse().ok());
        let whole = header(headers, &CONTENT_LENGTH).and_then(|it| it.parse().ok());
        let is_partial = status == StatusCode::PARTIAL_CONTENT;
        self.takes_ranges = Some(
            is_partial
                || header(headers, &ACCEPT_RANGES)
                    .is_some_and(|it| it.eq_ignore_ascii_case("bytes")),
        );
        let modified =
            header(headers, &LAST_MODIFIED).and_then(|it| httpdate::parse_http_date(it).ok());
        Ok(Some(Entry {
            name: Vec::new(),
            kind: Kind::File,
            size_bytes: if is_partial { of_range } else { whole },
            modified: modified.and_then(unix_s).map(|unix_s| Modified {
                unix_s,
                precision: Precision::Second,
            }),
        }))
    }

    /// The bytes of a file from `offset_bytes` on.
    ///
    /// # Errors
    /// [`ServerError`] with what the server refuses; [`ServerError::NoRange`] where it does not begin in the midst of a file.
    pub(crate) async fn get(
        &mut self,
        path: &[u8],
        offset_bytes: u64,
    ) -> Result<Body<'_>, ServerError> {
        let range = (offset_bytes > 0).then_some((offset_bytes, None));
        let (response, host) = self.request(&Method::GET, path, range).await?;
        let status = response.status();
        if offset_bytes > 0 && status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Err(ServerError::NoRange);
        }
        succeeded(status)?;
        let headers = response.headers();
        let begin = header(headers, &CONTENT_RANGE).and_then(|it| {
            it.strip_prefix("bytes ")?
                .split_once('-')?
                .0
                .parse::<u64>()
                .ok()
        });
        if offset_bytes > 0 && begin != Some(offset_bytes) {
            self.open = None;
            return Err(ServerError::NoRange);
        }
        // Else the end of the connection is the end of the file, and everybody on the path can make that.
        let has_length =
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        let stall_max = self.dial.stall_max;
        Ok(Body::new(
            response.into_body(),
            (host, &mut self.open),
            has_length,
            stall_max,
        ))
    }

    /// Asks for a path, and goes where the server leads. Returns the answer, and the host that has given it.
    async fn request(
        &mut self,
        method: &Method,
        path: &[u8],
        range: Option<(u64, Option<u64>)>,
    ) -> Result<(Response<Incoming>, String), ServerError> {
        let path = String::from_utf8_lossy(path);
        let mut url = Url::parse(&format!("{}/{path}", self.dial.server.without_user()))
            .map_err(|_| ServerError::Led(path.into_owned()))?;
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
                // What the answer says besides is not read.
                self.open = None;
            }
            let next = url
                .join(&to)
                .ok()
                .filter(|it| it.scheme() == "https" && it.has_host());
            url = next.ok_or(ServerError::Led(to))?;
        }
        Err(ServerError::Led(url.to_string()))
    }

    async fn ask(
        &mut self,
        method: &Method,
        url: &Url,
        range: Option<(u64, Option<u64>)>,
    ) -> Result<Response<Incoming>, ServerError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let kept = self
            .open
            .take()
            .filter(|it| it.host == host && it.port == port && !it.sender.is_closed());
        let was_kept = kept.is_some();
        let mut open = match kept {
            Some(open) => open,
            None => self.connect(host.clone(), port).await?,
        };
        let mut answer = self.answer(&mut open, method, url, range).await;
        if was_kept && matches!(answer, Err(ServerError::Exchange { .. })) {
            // The server may have left while nothing was asked.
            open = self.connect(host, port).await?;
            answer = self.answer(&mut open, method, url, range).await;
        }
        let answer = answer?;
        self.open = Some(open);
        Ok(answer)
    }

    async fn answer(
        &self,
        open: &mut Open,
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
        let is_theirs = self.dial.server.is_at(&open.host, open.port);
        if let Some((user, password)) = self.dial.account.as_ref().filter(|_| is_theirs) {
            let account = [user.as_bytes(), b":", &password.0].concat();
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(account)));
            if let Ok(mut value) = value {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
        }
        let request = request
            .body(Empty::new())
            .map_err(|_| ServerError::Led(url.to_string()))?;
        let failed = |source| ServerError::Exchange {
            host: open.host.clone(),
            source,
        };
        let silent = |_| failed(io::ErrorKind::TimedOut.into());
        timeout(self.dial.patience, open.sender.send_request(request))
            .await
            .map_err(silent)?
            .map_err(|error| failed(io::Error::other(error)))
    }

    async fn connect(&self, host: String, port: u16) -> Result<Open, ServerError> {
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let tcp = reach(name, port, self.dial.patience).await?;
        let leg = self.connector.connect(tcp, name, Connection::Control).await;
        let leg = leg.map_err(|source| ServerError::Tls {
            host: name.to_owned(),
            source,
        })?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(leg))
                .await
                .map_err(|error| ServerError::Exchange {
                    host: host.clone(),
                    source: io::Error::other(error),
                })?;
        // It ends with the sender and the last body. What breaks it shows there.
        tokio::spawn(connection);
        Ok(Open { host, port, sender })
    }
}

fn succeeded(status: StatusCode) -> Result<(), ServerError> {
    match status.is_success() {
        true => Ok(()),
        false => Err(ServerError::Http(status)),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &hyper::header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn unix_s(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    since.as_secs().try_into().ok()
}

/// A server that leads further leads in circles.
const LED_MAX: usize = 10;
