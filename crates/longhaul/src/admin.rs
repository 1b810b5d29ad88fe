//! Questions and orders to a running gateway: by its admin socket, or questions alone at its admin address. One request, one
//! answer: HTTP/1.0 needs no library.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use gatewayd::admin_socket;

/// Where a gateway is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminPlace {
    /// Its socket, and its key if that is known.
    Socket {
        path: PathBuf,
        key_file: Option<PathBuf>,
    },
    /// Its address, which shows no names and takes no orders.
    Address(SocketAddr),
}

/// A connection to one.
pub(crate) trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// What the gateway says.
pub(crate) struct Answer {
    /// The status of HTTP.
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Asks the first of several places that can be reached.
pub(crate) fn ask_any(places: &[AdminPlace], path: &str) -> anyhow::Result<(AdminPlace, Answer)> {
    let mut refused = None;
    for place in places {
        match ask(place, "GET", path) {
            Ok(answer) => return Ok((place.clone(), answer)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.context("no place is known where a gateway could be asked")?)
}

/// Sends one request without a body.
pub(crate) fn ask(at: &AdminPlace, method: &str, path: &str) -> anyhow::Result<Answer> {
    ask_patiently(at, method, path, PATIENCE)
}

/// Sends one request whose body is a text.
pub(crate) fn send(at: &AdminPlace, path: &str, text: &str) -> anyhow::Result<Answer> {
    with_place(at, answer(at, "POST", path, "", text, PATIENCE))
}

/// Sends one order as the dashboard's controls take it: JSON.
pub(crate) fn order(
    at: &AdminPlace,
    path: &str,
    body: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let lines = "Content-Type: application/json\r\n";
    with_place(at, answer(at, "POST", path, lines, body, patience))
}

/// The same for what takes a while.
pub(crate) fn ask_patiently(
    at: &AdminPlace,
    method: &str,
    path: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    with_place(at, answer(at, method, path, "", "", patience))
}

fn with_place(at: &AdminPlace, answered: anyhow::Result<Answer>) -> anyhow::Result<Answer> {
    answered.with_context(|| at.no_answer())
}

impl AdminPlace {
    /// What to say where nobody answers.
    pub(crate) fn no_answer(&self) -> String {
        match self {
            Self::Socket { .. } => format!("no gateway answers at {self}"),
            Self::Address(_) => format!("no gateway answers at {self} (set [admin] listen?)"),
        }
    }

    /// What the request says that it is for.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Socket { .. } => "localhost".to_owned(),
            Self::Address(address) => address.to_string(),
        }
    }

    fn connect(&self, patience: Duration) -> anyhow::Result<Box<dyn Connection>> {
        match self {
            Self::Socket { path, key_file } => {
                let stream = admin_socket::connect(path, key_file.as_deref())?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Self::Address(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                // Where nobody listens, the system may choose the same port for this end, and connects it with itself.
                let is_alone = stream.local_addr()? == stream.peer_addr()?;
                anyhow::ensure!(!is_alone, "connection refused");
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
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

    /// Reads an address with a port, or the path of a socket, which has a slash.
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

/// Whether an error says that no gateway runs.
pub(crate) fn is_nobody(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|it| {
        matches!(
            it.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        )
    })
}

fn answer(
    at: &AdminPlace,
    method: &str,
    path: &str,
    lines: &str,
    body: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let mut stream = at.connect(patience)?;
    let (length, host) = (body.len(), at.host());
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {host}\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX_BYTES).read_to_string(&mut answer)?;
    let parts = answer.split_once("\r\n\r\n");
    let (head, body) = parts.context("the answer is not HTTP")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(Answer {
        code: code.context("the answer is not HTTP")?,
        body: body.to_owned(),
    })
}

/// The admin address of a gateway whose configuration names none.
pub(crate) const DEFAULT: &str = "127.0.0.1:9810";

const PATIENCE: Duration = Duration::from_secs(5);

/// Room for tens of thousands of transfers.
const ANSWER_MAX_BYTES: u64 = 64 << 20;
