//! Requests to a running gateway, over its admin socket or its admin address. Only the admin socket
//! accepts orders. Each request uses a separate connection.

use std::{fmt, io, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use gatewayd::admin_socket;
use http_body_util::BodyExt as _;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1,
    header::{CONTENT_TYPE, HOST},
    http::request,
};
use hyper_util::rt::TokioIo;
use nix::{libc::EACCES, unistd::geteuid};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime, time,
};

use crate::exit;

/// Address of a gateway's admin interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminPlace {
    /// The path of the admin socket, and the gateway's key file if it is known.
    Socket {
        path: PathBuf,
        key_file: Option<PathBuf>,
    },
    /// The TCP address. The gateway shows no names at this address and accepts no orders.
    Address(SocketAddr),
}

/// A TCP or Unix connection to a gateway.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Response of the gateway.
pub(crate) struct Answer {
    /// HTTP status code.
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Sends a query to each place in turn, until one place returns a response. Returns that place and
/// the response.
pub(crate) fn ask_any(places: &[AdminPlace], path: &str) -> anyhow::Result<(AdminPlace, Answer)> {
    let mut refused = None;
    for place in places {
        match ask(place, "GET", path) {
            Ok(answer) => return Ok((place.clone(), answer)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.context(
        "no address of a gateway is known: give --config FILE of the gateway, or --admin",
    )?)
}

/// Sends a request without a body. Returns the response.
pub(crate) fn ask(at: &AdminPlace, method: &str, path: &str) -> anyhow::Result<Answer> {
    ask_patiently(at, method, path, TIMEOUT)
}

/// Sends a POST request whose body is `text`. Returns the response.
pub(crate) fn send(at: &AdminPlace, path: &str, text: &str) -> anyhow::Result<Answer> {
    with_place(at, exchange(at, Request::post(path), text, TIMEOUT))
}

/// Sends an order with a JSON body, in the same form as the dashboard's page. Returns the response.
pub(crate) fn order(
    at: &AdminPlace,
    path: &str,
    body: &str,
    timeout: Duration,
) -> anyhow::Result<Answer> {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    with_place(at, exchange(at, request, body, timeout))
}

/// Sends a request without a body. `timeout` is for requests that take longer than usual.
pub(crate) fn ask_patiently(
    at: &AdminPlace,
    method: &str,
    path: &str,
    timeout: Duration,
) -> anyhow::Result<Answer> {
    let request = Request::builder().method(method).uri(path);
    with_place(at, exchange(at, request, "", timeout))
}

fn with_place(at: &AdminPlace, answered: anyhow::Result<Answer>) -> anyhow::Result<Answer> {
    answered.map_err(|error| {
        let cause = error.downcast_ref::<io::Error>();
        // The system reports this error if this user has no permission to connect. The gateway may
        // nevertheless be listening.
        let is_denied = matches!(at, AdminPlace::Socket { .. })
            && !geteuid().is_root()
            && cause.is_some_and(|it| it.raw_os_error() == Some(EACCES));
        error.context(match is_denied {
            true => format!(
                "{at} accepts only root and the gateway's user: {}",
                exit::as_root()
            ),
            false => at.no_answer(),
        })
    })
}

impl AdminPlace {
    /// Returns the error message for a gateway that sends no response.
    pub(crate) fn no_answer(&self) -> String {
        format!("no gateway answers at {self} (start it, or name another by --config or --admin)")
    }

    /// Returns the host name for the `Host` header of a request.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Socket { .. } => "localhost".to_owned(),
            Self::Address(address) => address.to_string(),
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Socket { path, key_file } => {
                let stream = admin_socket::connect(path, key_file.as_deref())?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(UnixStream::from_std(stream)?))
            }
            Self::Address(address) => {
                let stream = TcpStream::connect(address).await?;
                // If no process listens at a local port, the system may choose this port for the
                // new socket. The socket then connects to itself.
                match stream.local_addr()? == stream.peer_addr()? {
                    true => Err(io::ErrorKind::ConnectionRefused.into()),
                    false => Ok(Box::new(stream)),
                }
            }
        }
    }
}

impl fmt::Display for AdminPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { path, .. } => write!(f, "the admin socket {}", path.display()),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl std::str::FromStr for AdminPlace {
    type Err = &'static str;

    /// Parses an address with a port, or the path of a socket. A path must contain a slash.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if text.contains('/') => Ok(Self::Socket {
                path: PathBuf::from(text),
                key_file: None,
            }),
            Err(_) => Err("expected an address with a port, or the path of an admin socket"),
        }
    }
}

/// Whether an error shows that no gateway runs.
pub(crate) fn is_nobody(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|it| {
        matches!(
            it.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        )
    })
}

/// Sends a request, and returns the complete response. `timeout` is the timeout of each read.
fn exchange(
    at: &AdminPlace,
    request: request::Builder,
    body: &str,
    timeout: Duration,
) -> anyhow::Result<Answer> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(async {
        let answer = open(at, request, body, timeout).await?;
        let code = answer.status().as_u16();
        let body = read(answer.into_body(), timeout).await?;
        Ok(Answer { code, body })
    })
}

/// Sends a request. Returns the response as soon as its headers have arrived.
///
/// # Errors
/// If no response arrives within `timeout`. An [`io::Error`] if the connection fails.
pub(crate) async fn open(
    at: &AdminPlace,
    request: request::Builder,
    body: &str,
    timeout: Duration,
) -> anyhow::Result<Response<Incoming>> {
    let stream = within(TIMEOUT, at.connect()).await??;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends when the sender and the body are dropped. The sender and the body also return
    // the errors of the task.
    tokio::spawn(connection);
    let request = request.header(HOST, at.host()).body(body.to_owned())?;
    match within(timeout, sender.send_request(request)).await? {
        Err(error) if error.is_parse() => Err(error).context(
            "the answer is not HTTP (another program may have the \
            address)",
        ),
        answer => Ok(answer?),
    }
}

/// Reads the body of a response. `timeout` is the timeout of each read.
///
/// # Errors
/// If the body is longer than [`ANSWER_MAX_BYTES`], is not UTF-8, or does not arrive in time.
pub(crate) async fn read(mut body: Incoming, timeout: Duration) -> anyhow::Result<String> {
    let mut text = Vec::new();
    while let Some(frame) = within(timeout, body.frame()).await? {
        if let Ok(data) = frame?.into_data() {
            let is_short = text.len() + data.len() <= ANSWER_MAX_BYTES;
            anyhow::ensure!(
                is_short,
                "the answer is longer than {ANSWER_MAX_BYTES} bytes"
            );
            text.extend_from_slice(&data);
        }
    }
    Ok(String::from_utf8(text)?)
}

async fn within<T>(timeout: Duration, action: impl Future<Output = T>) -> io::Result<T> {
    Ok(time::timeout(timeout, action).await?)
}

/// Admin address of a gateway whose configuration does not set it.
pub(crate) const DEFAULT: &str = "127.0.0.1:9810";

/// Timeout for connections, and for requests that the gateway answers immediately.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response in bytes. A response of this length describes tens of thousands of
/// transfers.
const ANSWER_MAX_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Starts a server that replies to each request with these bytes, and then keeps the connection
    /// open.
    #[allow(clippy::disallowed_methods, reason = "a server of the test")]
    fn server(answer: &'static [u8]) -> AdminPlace {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
                let lines = lines.map_while(Result::ok);
                assert!(lines.take_while(|line| !line.is_empty()).count() > 0);
                // The client may have disconnected.
                let _ = stream.write_all(answer);
                open.push(stream);
            }
        });
        AdminPlace::Address(address)
    }

    #[test]
    fn a_body_ends_by_its_length_or_its_last_chunk() {
        let length = server(b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusyREST");
        let answer = ask(&length, "POST", "/reload").expect("HTTP");
        assert_eq!((answer.code, answer.body.as_str()), (409, "busy"));
        let chunks =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let answer = ask(&server(chunks), "GET", "/status.json").expect("HTTP");
        assert_eq!((answer.code, answer.body.as_str()), (200, "abc"));
    }

    #[test]
    fn a_server_of_another_protocol_is_no_gateway() {
        let error = ask(&server(b"220 FTP server ready\r\n"), "GET", "/").map(|it| it.code);
        let error = error.expect_err("no HTTP");
        let text = format!("{error:#}");
        assert!(text.contains("no gateway answers at 127.0.0.1"), "{text}");
        assert!(
            text.contains("the answer is not HTTP (another program may have the address)"),
            "{text}"
        );
        assert!(!is_nobody(&error));
    }

    #[test]
    fn a_server_that_falls_silent_is_left() {
        for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"] {
            let silent = server(answer.as_bytes());
            let asked = ask_patiently(&silent, "GET", "/", Duration::from_millis(200));
            let error = asked.map(|it| it.code).expect_err("nothing comes");
            let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
            assert_eq!(cause, Some(io::ErrorKind::TimedOut), "{error:#}");
        }
    }
}
