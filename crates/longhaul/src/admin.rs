//! Questions to a running gateway at its admin address. One request, one answer: HTTP/1.0 needs no library.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context as _;

/// What the gateway says.
pub(crate) struct Answer {
    /// The status of HTTP.
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Sends one request without a body.
pub(crate) fn ask(admin: SocketAddr, method: &str, path: &str) -> anyhow::Result<Answer> {
    ask_patiently(admin, method, path, PATIENCE)
}

/// Sends one request whose body is a text.
pub(crate) fn send(admin: SocketAddr, path: &str, text: &str) -> anyhow::Result<Answer> {
    told(admin, answer(admin, "POST", path, "", text, PATIENCE))
}

/// Sends one request as the dashboard's controls take it: JSON, with the token of the gateway if it has one.
pub(crate) fn order(
    admin: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let mut lines = "Content-Type: application/json\r\n".to_owned();
    if let Some(token) = token {
        lines += &format!("Authorization: Bearer {token}\r\n");
    }
    told(admin, answer(admin, "POST", path, &lines, body, patience))
}

/// The same for what takes a while.
pub(crate) fn ask_patiently(
    admin: SocketAddr,
    method: &str,
    path: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    told(admin, answer(admin, method, path, "", "", patience))
}

fn told(admin: SocketAddr, answered: anyhow::Result<Answer>) -> anyhow::Result<Answer> {
    answered.with_context(|| format!("no gateway answers at {admin} (set [admin] listen?)"))
}

fn answer(
    admin: SocketAddr,
    method: &str,
    path: &str,
    lines: &str,
    body: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    // Where nobody listens, the system may choose the same port for this end, and connects it with itself.
    let is_alone = stream.local_addr()? == stream.peer_addr()?;
    anyhow::ensure!(!is_alone, "connection refused");
    stream.set_read_timeout(Some(patience))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {admin}\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
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
