//! Tests of the dashboard: permissions, the event stream of a page, and controls.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the browsers and programs around the gateways"
)]

mod access;
mod controls;
mod https;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use gatewayd::register::Register;
use serde_json::{Value, json};

use crate::common::{Gateway, TIMEOUT, World, expect_reset, folder, pattern};

/// An HTTP response.
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error").to_owned()
    }
}

/// Sends an HTTP/1.1 request with the header lines `lines`, and returns the response.
fn ask(admin: SocketAddr, method: &str, path: &str, lines: &[String], body: &str) -> Answer {
    let mut stream = TcpStream::connect(admin).expect("the admin address");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a socket option");
    exchange(&mut stream, method, path, lines, body).expect("an answer")
}

/// Sends a request on this connection, and reads the response until the connection ends.
fn exchange(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    lines: &[String],
    body: &str,
) -> std::io::Result<Answer> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    let code = head.split(' ').nth(1).expect("a status line");
    Ok(Answer {
        code: code.parse().expect("a status code"),
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

fn host(admin: SocketAddr) -> String {
    format!("Host: {admin}")
}

const JSON: &str = "Content-Type: application/json";

/// Sends a POST request with the headers that a program sends.
fn post(admin: SocketAddr, path: &str, body: &Value) -> Answer {
    let lines = [host(admin), JSON.to_owned()];
    ask(admin, "POST", path, &lines, &body.to_string())
}

fn get(admin: SocketAddr, path: &str) -> Answer {
    ask(admin, "GET", path, &[host(admin)], "")
}

/// Sends a POST request with the token.
fn order(admin: SocketAddr, path: &str, body: &Value) -> Answer {
    let lines = [host(admin), JSON.to_owned(), bearer()];
    ask(admin, "POST", path, &lines, &body.to_string())
}

/// Sends a GET request with the token.
fn look(admin: SocketAddr, path: &str) -> Answer {
    ask(admin, "GET", path, &[host(admin), bearer()], "")
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

/// Starts two gateways that both have the token.
fn guarded_world(link: &str) -> World {
    let keys = folder();
    token_file(&keys.0);
    World::start_in(keys, link, "")
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Writes a file with the token. Returns the configuration line that names this file.
fn token_file(folder: &Path) -> String {
    let path = folder.join("admin.token");
    fs::write(&path, format!("{TOKEN}\n")).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our file");
    "token_file = \"admin.token\"\n".to_owned()
}

/// Starts a gateway without peers. `admin` contains the keys of `[admin]`. Returns the gateway and
/// its loopback admin address.
fn alone(folder: &Path, admin: &str) -> (Gateway, SocketAddr) {
    let gateway = Gateway::start_with_admin(folder, "a.key", admin, "");
    let at = SocketAddr::from(([127, 0, 0, 1], gateway.admin.port()));
    (gateway, at)
}

/// The event stream of an open page.
struct Page {
    stream: TcpStream,
    text: String,
}

impl Page {
    fn open(admin: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(admin).expect("the admin address");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        let (host, bearer) = (host(admin), bearer());
        write!(
            stream,
            "GET /dashboard/events HTTP/1.1\r\n{host}\r\n{bearer}\r\n\r\n"
        )
        .expect("a request");
        let text = String::new();
        Self { stream, text }
    }

    /// Returns the data of the next event that has this name.
    fn next(&mut self, name: &str) -> Value {
        let mark = format!("event: {name}\ndata: ");
        loop {
            if let Some(at) = self.text.find(&mark)
                && let Some(end) = self.text[at..].find("\n\n")
            {
                let data = self.text[at + mark.len()..at + end].replace("\r\n", "");
                self.text.drain(..at + end + 2);
                return serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: {data}"));
            }
            let mut buffer = [0; 64 * 1024];
            let count = self.stream.read(&mut buffer).expect("an event in time");
            assert!(count > 0, "the stream has ended: {}", self.text);
            self.text += &String::from_utf8_lossy(&buffer[..count]);
        }
    }

    /// Reads events until the gateway's state fulfils `condition`, and returns this state.
    fn until(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let gateway = self.next("gateway");
            if condition(&gateway) {
                return gateway;
            }
            assert!(Instant::now() < deadline, "{gateway}");
        }
    }
}

#[test]
fn the_page_loads_only_what_the_program_contains() {
    let world = World::start();
    let page = get(world.near.admin, "/");
    assert_eq!(page.code, 200);
    for line in [
        "content-security-policy: default-src 'none'; script-src 'self';",
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(page.head.contains(line), "{line} not in {}", page.head);
    }
    let mut sources: Vec<_> = page.body.split("=\"dashboard/").skip(1).collect();
    sources.push("uPlot-LICENSE.txt\"");
    assert!(sources.len() > 10, "{}", page.body);
    for source in sources {
        let name = source.split('"').next().expect("a name");
        let asset = get(world.near.admin, &format!("/dashboard/{name}"));
        assert_eq!((asset.code, asset.body.is_empty()), (200, false), "{name}");
        for line in asset.body.lines().filter(|it| it.contains(" from \"")) {
            assert!(line.contains(" from \"./"), "{name}: {line}");
        }
    }
    assert!(!page.body.contains("://"), "an address elsewhere");
    assert_eq!(get(world.near.admin, "/dashboard/no.js").code, 404);
    assert_eq!(
        get(world.near.admin, "/dashboard/..%2f..%2fmod.rs").code,
        404
    );
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn news_reach_a_page_within_a_second() {
        let world = World::start();
        let mut page = Page::open(world.near.admin);
        page.next("transfers");
        let (_client, _server, client_data, _server_data) = world.uploading();
        let begun = Instant::now();
        (&client_data)
            .write_all(&pattern(1000))
            .expect("the gateway reads");
        loop {
            let told = page.next("transfers");
            let opened = told["opened"].as_array().expect("a list").iter();
            let moved = told["moved"].as_array().expect("a list").iter();
            let up = opened
                .map(|it| it["up_bytes"].clone())
                .chain(moved.map(|it| it[1].clone()));
            if up
                .into_iter()
                .any(|it| it.as_u64().is_some_and(|it| it > 0))
            {
                break;
            }
        }
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        let (client, server) = (world.forward(0), world.accept());
        while page.next("transfers")["opened"]
            .as_array()
            .expect("a list")
            .is_empty()
        {}
        let begun = Instant::now();
        drop((client, server));
        while page.next("transfers")["closed"]
            .as_array()
            .expect("a list")
            .is_empty()
        {}
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn open_pages_have_a_limit_and_further_ones_are_refused() {
        let world = World::start();
        let admin = world.near.admin;
        let mut pages: Vec<_> = (0..32).map(|_| Page::open(admin)).collect();
        for page in &mut pages {
            page.next("gateway");
        }
        assert_eq!(get(admin, "/dashboard/events").code, 503);
        assert_eq!(get(admin, "/status.json").code, 200);
        pages.pop();
        let deadline = Instant::now() + TIMEOUT;
        let mut page = loop {
            let mut stream = Page::open(admin);
            let mut first = [0; 12];
            stream.stream.read_exact(&mut first).expect("an answer");
            if &first == b"HTTP/1.1 200" {
                break stream;
            }
            assert!(Instant::now() < deadline, "no place again");
            std::thread::sleep(Duration::from_millis(100));
        };
        page.next("gateway");
    }
}
