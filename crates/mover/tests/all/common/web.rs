//! A web server on loopback with configurable behaviour, for tests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use mover::{
    location::{Scheme, Server},
    server::Password,
    web::WebDial,
};
use net::tls::CertificateCheck;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// Deviations of the test server from usual behaviour.
#[derive(Debug, Clone, Default)]
pub(crate) struct WebBehaviour {
    /// Whether the server does not support ranges.
    pub(crate) no_ranges: bool,
    /// Whether the server refuses `HEAD`.
    pub(crate) no_head: bool,
    /// Whether responses are chunked and do not state the size of the file.
    pub(crate) is_chunked: bool,
    /// Whether the file ends when the server closes the connection.
    pub(crate) ends_by_close: bool,
    /// Number of bytes after which the server aborts the first response to `GET`.
    pub(crate) breaks_after: Option<usize>,
    /// Required user name and password, encoded in base64.
    pub(crate) account: Option<&'static str>,
    /// Target to which the server redirects all requests.
    pub(crate) leads_to: Option<String>,
    /// Status of all responses.
    pub(crate) status: Option<&'static str>,
    /// Whether the server announces support for ranges but always sends the whole file.
    pub(crate) lies_of_ranges: bool,
    /// Transfer coding that the server announces instead of `chunked`. The body then ends with the
    /// connection.
    pub(crate) coding: Option<&'static str>,
    /// If a requested range begins at this offset or later, the server sends bytes of another
    /// version, as an outdated mirror does.
    pub(crate) stale_from: Option<usize>,
    /// Maximum number of concurrent downloads. If the maximum is exceeded, the server responds with
    /// status 503. Each download takes some time.
    pub(crate) gets_max: Option<usize>,
    /// Time that the server needs for half a megabyte of each file.
    pub(crate) slows_answers: Duration,
}

const STEP_BYTES: usize = 1 << 19;

#[derive(Debug, Default)]
pub(crate) struct WebState {
    /// Content and modification time of each file, by path and query.
    pub(crate) files: std::collections::HashMap<String, (Vec<u8>, &'static str)>,
    /// Requests received so far, each with method, target and range.
    pub(crate) asked: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) authorizations: Vec<String>,
    /// Number of responses to `GET` in progress.
    pub(crate) gets: usize,
    breaks_after: Option<usize>,
}

pub(crate) struct Web {
    address: SocketAddr,
    state: Arc<Mutex<WebState>>,
}

impl Web {
    pub(crate) fn start(manners: WebBehaviour) -> Self {
        Self::start_as("127.0.0.1", manners, (tls(), None))
    }

    /// Starts a server at the IP address `ip`. The first TLS configuration is used for the first
    /// connection. The second TLS configuration, if given, is used for all later connections.
    pub(crate) fn start_as(
        ip: &str,
        manners: WebBehaviour,
        (config, later): (Arc<ServerConfig>, Option<Arc<ServerConfig>>),
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(WebState {
            breaks_after: manners.breaks_after,
            ..WebState::default()
        }));
        let served = state.clone();
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let later = later.clone().filter(|_| number > 0);
                let config = later.unwrap_or_else(|| config.clone());
                let (state, manners) = (served.clone(), manners.clone());
                let client = client.expect("a connection");
                lock(&state).connections += 1;
                thread::spawn(move || serve(client, config, &state, &manners));
            }
        });
        Self { address, state }
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        let file = (content.to_vec(), "Fri, 02 Jan 2026 03:04:05 GMT");
        self.state().files.insert(path.to_owned(), file);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, WebState> {
        lock(&self.state)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.address)
    }

    pub(crate) fn dial(&self) -> WebDial {
        WebDial {
            server: Server {
                scheme: Scheme::Https,
                user: None,
                host: self.address.ip().to_string(),
                port: self.address.port(),
            },
            account: None,
            netrc: "~/.netrc".into(),
            verify: CertificateCheck::Off,
            reply_timeout: Duration::from_secs(5),
            stall_max: Duration::from_secs(5),
        }
    }

    pub(crate) fn dial_as(&self, user: &str, password: &str) -> WebDial {
        let password = Password(password.as_bytes().to_vec());
        WebDial {
            account: Some((user.to_owned(), Some(password))),
            ..self.dial()
        }
    }
}

fn lock(state: &Mutex<WebState>) -> MutexGuard<'_, WebState> {
    state.lock().expect("no test panics with it")
}

fn tls() -> Arc<ServerConfig> {
    tls_of("localhost").0
}

/// Creates the TLS configuration of a server with this name. Also returns the server's certificate.
pub(crate) fn tls_of(name: &str) -> (Arc<ServerConfig>, CertificateDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let der = certificate.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key);
    (Arc::new(config.expect("they belong together")), der)
}

/// Responds to requests until the client disconnects.
fn serve(
    client: TcpStream,
    config: Arc<ServerConfig>,
    state: &Mutex<WebState>,
    manners: &WebBehaviour,
) {
    let tls = ServerConnection::new(config).expect("a configuration");
    let mut stream = BufReader::new(StreamOwned::new(tls, client));
    while let Some(request) = read(&mut stream) {
        let is_get = request[0].starts_with("GET");
        if is_get && let Some(most) = manners.gets_max {
            let mut state = lock(state);
            state.gets += 1;
            if state.gets > most {
                state.gets -= 1;
                drop(state);
                let full = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
                let stream = stream.get_mut();
                if stream
                    .write_all(full)
                    .and_then(|()| stream.flush())
                    .is_err()
                {
                    return;
                }
                continue;
            }
            drop(state);
            thread::sleep(Duration::from_secs(4));
        }
        let (answer, goes_on) = answer(&request, state, manners);
        let stream = stream.get_mut();
        let written = answer.chunks(STEP_BYTES).try_for_each(|chunk| {
            if is_get {
                thread::sleep(manners.slows_answers);
            }
            stream.write_all(chunk).and_then(|()| stream.flush())
        });
        if is_get && manners.gets_max.is_some() {
            lock(state).gets -= 1;
        }
        if written.is_err() || !goes_on {
            stream.conn.send_close_notify();
            let _ = stream.flush();
            return;
        }
    }
}

/// Reads the lines of one request. Returns `None` at the end of the connection.
fn read(stream: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        let count = stream.take(10_000).read_line(&mut line).ok()?;
        let line = line.trim_end().to_owned();
        match (count, line.is_empty()) {
            (0, _) => return None,
            (_, true) => return Some(lines),
            (_, false) => lines.push(line),
        }
    }
}

/// Returns the response to a request, and whether the connection stays open.
fn answer(request: &[String], state: &Mutex<WebState>, manners: &WebBehaviour) -> (Vec<u8>, bool) {
    let header = |name: &str| {
        let lines = request.iter().filter_map(|it| it.split_once(": "));
        let mut found = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.to_owned())
    };
    let mut words = request[0].split(' ');
    let method = words.next().expect("a method");
    let target = words.next().expect("a target");
    let range = header("range").filter(|_| !manners.no_ranges && !manners.lies_of_ranges);
    let asked = format!("{method} {target} {}", range.clone().unwrap_or_default());
    lock(state).authorizations.extend(header("authorization"));
    lock(state).asked.push(asked.trim_end().to_owned());
    let short = |status: &str, more: &str| {
        let answer = format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n");
        (answer.into_bytes(), true)
    };
    if let Some(status) = manners.status {
        return short(status, "");
    }
    if let Some(place) = &manners.leads_to {
        return short("302 Found", &format!("Location: {place}{target}\r\n"));
    }
    if let Some(account) = manners.account
        && header("authorization") != Some(format!("Basic {account}"))
    {
        return short("401 Unauthorized", "WWW-Authenticate: Basic\r\n");
    }
    if method == "HEAD" && manners.no_head {
        return short("403 Forbidden", "");
    }
    let Some((mut content, mut modified)) = lock(state).files.get(target).cloned() else {
        return short("404 Not Found", "");
    };
    let first = range.as_ref().and_then(|it| {
        let first = it.trim_start_matches("bytes=").split('-').next()?;
        first.parse::<usize>().ok()
    });
    if let (Some(first), Some(from)) = (first, manners.stale_from)
        && first >= from
    {
        modified = "Thu, 01 Jan 2026 00:00:00 GMT";
        content.iter_mut().for_each(|it| *it = !*it);
    }
    let mut head = format!("Last-Modified: {modified}\r\n");
    let mut body = content.as_slice();
    let mut status = "200 OK";
    if !manners.no_ranges {
        head += "Accept-Ranges: bytes\r\n";
    }
    if let Some(range) = range {
        let (first, last) = range
            .trim_start_matches("bytes=")
            .split_once('-')
            .expect("a range");
        let first: usize = first.parse().expect("a number");
        let end = last
            .parse()
            .map_or(content.len(), |last: usize| content.len().min(last + 1));
        if first >= content.len() {
            return short("416 Range Not Satisfiable", "");
        }
        body = &content[first..end];
        status = "206 Partial Content";
        head += &format!(
            "Content-Range: bytes {first}-{}/{}\r\n",
            end - 1,
            content.len()
        );
    }
    let ends_by_close = manners.ends_by_close && method == "GET";
    if let Some(coding) = manners.coding {
        head += &format!("Transfer-Encoding: {coding}\r\n");
    }
    match (manners.is_chunked, ends_by_close || manners.ends_by_close) {
        (true, _) => head += "Transfer-Encoding: chunked\r\n",
        (_, true) => head += "Connection: close\r\n",
        _ => head += &format!("Content-Length: {}\r\n", body.len()),
    }
    let mut answer = format!("HTTP/1.1 {status}\r\n{head}\r\n").into_bytes();
    if method == "GET" {
        let breaks_after = lock(state).breaks_after.take();
        if manners.is_chunked {
            answer.extend(format!("{:x}\r\n", body.len()).as_bytes());
        }
        answer.extend(&body[..breaks_after.unwrap_or(body.len()).min(body.len())]);
        if breaks_after.is_some() {
            return (answer, false);
        }
        if manners.is_chunked {
            answer.extend(b"\r\n0\r\n\r\n");
        }
    }
    (answer, !manners.ends_by_close)
}
