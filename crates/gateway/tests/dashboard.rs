//! The dashboard: who may look and change something, what a page is told, and what its controls do.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the browsers and programs around the gateways"
)]

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use common::{Gateway, PATIENCE, World, expect_reset, folder, pattern};
use gateway::register::Register;
use serde_json::{Value, json};

/// An answer.
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

/// Asks as HTTP/1.1, with these lines in the head.
fn ask(admin: SocketAddr, method: &str, path: &str, lines: &[String], body: &str) -> Answer {
    let mut stream = TcpStream::connect(admin).expect("the admin address");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    let code = head.split(' ').nth(1).expect("a status line");
    Answer {
        code: code.parse().expect("a status code"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn host(admin: SocketAddr) -> String {
    format!("Host: {admin}")
}

const JSON: &str = "Content-Type: application/json";

/// Asks as a program does.
fn post(admin: SocketAddr, path: &str, body: &Value) -> Answer {
    let lines = [host(admin), JSON.to_owned()];
    ask(admin, "POST", path, &lines, &body.to_string())
}

fn get(admin: SocketAddr, path: &str) -> Answer {
    ask(admin, "GET", path, &[host(admin)], "")
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A file with a token.
fn token_file(folder: &Path) -> String {
    let path = folder.join("admin.token");
    fs::write(&path, format!("{TOKEN}\n")).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our file");
    "token_file = \"admin.token\"\n".to_owned()
}

/// A gateway without peers whose admin section has these keys, and its admin address by loopback.
fn alone(folder: &Path, admin: &str) -> (Gateway, SocketAddr) {
    let gateway = Gateway::start_with_admin(folder, "a.key", admin, "");
    let at = SocketAddr::from(([127, 0, 0, 1], gateway.admin.port()));
    (gateway, at)
}

/// Events of a page that is open.
struct Page {
    stream: TcpStream,
    text: String,
}

impl Page {
    fn open(admin: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(admin).expect("the admin address");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        let host = host(admin);
        write!(stream, "GET /dashboard/events HTTP/1.1\r\n{host}\r\n\r\n").expect("a request");
        let text = String::new();
        Self { stream, text }
    }

    /// The data of the next event of this name.
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

    /// The gateway as it is once `condition` holds.
    fn until(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
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
    let mut sources: Vec<_> = page.body.split("=\"/dashboard/").skip(1).collect();
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

#[test]
fn a_page_that_rebinds_its_name_gets_nothing() {
    let world = World::start();
    let evil = ["Host: evil.example".to_owned(), JSON.to_owned()];
    for path in [
        "/",
        "/dashboard/events",
        "/dashboard/recent",
        "/dashboard/main.js",
    ] {
        assert_eq!(
            ask(world.near.admin, "GET", path, &evil, "").code,
            421,
            "{path}"
        );
    }
    for path in [
        "/dashboard/rate",
        "/dashboard/stop",
        "/dashboard/invite",
        "/dashboard/login",
    ] {
        assert_eq!(
            ask(world.near.admin, "POST", path, &evil, "{}").code,
            421,
            "{path}"
        );
    }
}

const CHANGES: [&str; 5] = [
    "/dashboard/rate",
    "/dashboard/stop",
    "/dashboard/invite",
    "/dashboard/login",
    "/dashboard/logout",
];

#[test]
fn another_page_changes_nothing() {
    let world = World::start();
    let admin = world.near.admin;
    let (host, json) = (host(admin), JSON.to_owned());
    for path in CHANGES {
        for line in [
            "Origin: http://evil.example".to_owned(),
            "Origin: null".to_owned(),
            format!("Origin: http://{admin}.evil.example"),
            // Another program on the same machine.
            format!("Origin: http://127.0.0.1:{}", admin.port() ^ 1),
            "Sec-Fetch-Site: cross-site".to_owned(),
            "Referer: http://evil.example/".to_owned(),
        ] {
            let lines = [host.clone(), json.clone(), line.clone()];
            let answer = ask(admin, "POST", path, &lines, "{}");
            assert_eq!(answer.code, 403, "{path}, {line}: {}", answer.body);
        }
        // What a form can send.
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            let kind = format!("Content-Type: {kind}");
            let own = format!("Origin: http://{admin}");
            let answer = ask(admin, "POST", path, &[host.clone(), kind, own], "{}");
            assert_eq!(answer.code, 415, "{path}: {}", answer.body);
        }
        let code = get(admin, path).code;
        assert!(
            (400..500).contains(&code),
            "no change by GET: {path}: {code}"
        );
    }
}

#[test]
fn its_own_page_and_programs_set_a_rate_until_a_reload() {
    let mut world = World::start();
    let admin = world.near.admin;
    let mut page = Page::open(admin);
    page.until(|it| it["peers"][0]["state"] == "up");
    let own = [
        host(admin),
        JSON.to_owned(),
        format!("Origin: http://{admin}"),
        "Sec-Fetch-Site: same-origin".to_owned(),
    ];
    let wish = json!({ "peer": "site-b", "rate_max": "8 Mbit/s" }).to_string();
    assert_eq!(ask(admin, "POST", "/dashboard/rate", &own, &wish).code, 204);
    let all = json!({ "peer": null, "rate_max": "1 Gbit/s" });
    assert_eq!(post(admin, "/dashboard/rate", &all).code, 204);
    let seen = page.until(|it| it["rate_max"]["is_by_hand"] == true);
    assert_eq!(seen["rate_max"]["now_bits_per_s"], 1_000_000_000);
    assert_eq!(seen["peers"][0]["rate_max"]["now_bits_per_s"], 8_000_000);
    assert_eq!(
        seen["peers"][0]["rate_max"]["configured_bits_per_s"],
        Value::Null
    );
    // The link does it: 2 MB take two seconds.
    let begun = Instant::now();
    upload(&world, 2_000_000);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1_300), "{took:?}");
    assert_eq!(world.near.reload_and_tell(str::to_owned).error, None);
    page.until(|it| it["rate_max"]["is_by_hand"] == false);
    for (wish, code) in [
        (json!({ "peer": "nobody", "rate_max": null }), 404),
        (json!({ "peer": null, "rate_max": "1 bit/s" }), 422),
        (json!({ "peer": null, "rate_max": "fast" }), 422),
        (json!({ "peer": null, "rate_max": 7 }), 400),
        (json!({ "peer": null, "rate": "1 Gbit/s" }), 400),
    ] {
        let answer = post(admin, "/dashboard/rate", &wish);
        assert_eq!(answer.code, code, "{wish}: {}", answer.body);
        assert!(!answer.error().is_empty());
    }
    world.near.shut_down();
}

/// Sends so many bytes through the forward, up to the other side's end.
fn upload(world: &World, count: usize) {
    let mut client = world.forward(0);
    let mut server = world.accept().stream;
    let bytes = pattern(count);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&bytes).expect("the gateway reads");
            client.shutdown(std::net::Shutdown::Write).expect("open");
        });
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("an orderly end");
        assert!(all == bytes);
    });
}

#[test]
fn a_stopped_transfer_ends_on_both_sides_and_its_session_goes_on() {
    let world = World::start();
    let admin = world.near.admin;
    let (mut client, mut server, client_data, server_data) = world.mid_upload();
    let transfer = world.near.snapshot().transfers[0].clone();
    assert_eq!(
        (transfer.path.as_str(), transfer.kind.as_str()),
        ("a", "ftp")
    );
    let stop = json!({ "transfer": transfer.id });
    assert_eq!(post(admin, "/dashboard/stop", &stop).code, 204);
    expect_reset(&client_data);
    expect_reset(&server_data);
    server.send("426 broken");
    client.expect_code("4");
    client.send("NOOP");
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("200 ok");
    world.near.wait_for("the end", |it| it.transfers.is_empty());
    assert_eq!(post(admin, "/dashboard/stop", &stop).code, 404);
    let found = get(admin, "/dashboard/recent?words=failed+stor").json();
    assert_eq!(found["matching"], 1, "{found}");
}

#[test]
fn a_forward_can_be_stopped_at_either_gateway() {
    for is_far in [false, true] {
        let world = World::start();
        let mut client = world.forward(0);
        let server = world.accept();
        client.write_all(b"hello").expect("the gateway reads");
        let gateway = if is_far { &world.far } else { &world.near };
        let open = gateway.wait_for("a forward", |it| !it.transfers.is_empty());
        let stop = json!({ "transfer": open.transfers[0].id });
        assert_eq!(post(gateway.admin, "/dashboard/stop", &stop).code, 204);
        expect_reset(&client);
        expect_reset(&server.stream);
    }
}

#[test]
fn progress_is_told_where_the_server_announces_a_size() {
    let world = World::start();
    for (command, reply, size) in [
        (
            "RETR a",
            "150 Opening BINARY mode data connection for a (1000 bytes).",
            Some(1000),
        ),
        ("RETR a", "150 go", None),
    ] {
        let (mut client, mut server, _client_data, mut server_data) = world.prepared();
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
        server_data.write_all(&[0; 500]).expect("the gateway reads");
        let moved = world.near.wait_for("bytes", |it| {
            it.transfers.iter().any(|t| t.down_bytes == 500)
        });
        let transfer = moved.transfers.last().expect("one");
        assert_eq!(transfer.size_bytes, size, "{reply}");
    }
    let (mut client, mut server, _client_data, _server_data) = world.prepared();
    for (command, reply) in [
        ("REST 400", "350 at 400"),
        ("RETR a", "150 a (1000 bytes)."),
    ] {
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
    }
    let transfers = world.near.snapshot().transfers;
    assert_eq!(
        transfers.last().expect("one").size_bytes,
        None,
        "it begins inside"
    );
}

#[test]
fn an_address_that_is_not_loopback_needs_a_token() {
    let (folder, ..) = folder();
    let (off, at) = alone(&folder, "listen = \"0.0.0.0:0\"\n");
    for path in ["/", "/dashboard/events", "/dashboard/recent"] {
        let answer = get(at, path);
        assert_eq!(answer.code, 403, "{path}");
        assert!(answer.error().contains("token_file"), "{}", answer.body);
    }
    assert_eq!(
        post(at, "/dashboard/stop", &json!({ "transfer": 1 })).code,
        403
    );
    assert_eq!(get(at, "/status.json").code, 200, "outside checks go on");
    drop(off);
    let keys = format!("listen = \"0.0.0.0:0\"\n{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    let login_page = get(at, "/");
    assert_eq!(login_page.code, 401);
    assert!(login_page.body.contains("login.js") && !login_page.body.contains("main.js"));
    for path in [
        "/dashboard/events",
        "/dashboard/recent",
        "/dashboard/history?peer=a&span=day",
    ] {
        assert_eq!(get(at, path).code, 401, "{path}");
    }
    assert_eq!(
        post(at, "/dashboard/stop", &json!({ "transfer": 1 })).code,
        401
    );
    assert_eq!(get(at, "/metrics").code, 200);
    let wrong = json!({ "token": TOKEN.replace('0', "1") });
    assert_eq!(post(at, "/dashboard/login", &wrong).code, 401);
    let right = post(at, "/dashboard/login", &json!({ "token": TOKEN }));
    assert_eq!(right.code, 204);
    let cookie = right
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie");
    assert!(
        cookie.ends_with("Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().expect("a pair");
    let cookie = format!("Cookie: {pair}");
    let with_cookie = |method, path, more: &[String], body| {
        let lines = [&[host(at), cookie.clone()], more].concat();
        ask(at, method, path, &lines, body).code
    };
    assert_eq!(with_cookie("GET", "/", &[], ""), 200);
    let stop = "{\"transfer\": 1}";
    // A cookie alone shows a browser, and no page.
    assert_eq!(
        with_cookie("POST", "/dashboard/stop", &[JSON.to_owned()], stop),
        403
    );
    let own = [JSON.to_owned(), format!("Origin: http://{at}")];
    assert_eq!(
        with_cookie("POST", "/dashboard/stop", &own, stop),
        404,
        "no transfer"
    );
    let bearer = |token: &str| {
        let line = format!("Authorization: Bearer {token}");
        ask(
            at,
            "POST",
            "/dashboard/stop",
            &[host(at), JSON.to_owned(), line],
            stop,
        )
        .code
    };
    assert_eq!((bearer(TOKEN), bearer("x")), (404, 401));
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn an_invite_takes_a_token_even_at_loopback() {
    let (folder, ..) = folder();
    let wish = json!({ "endpoint": "203.0.113.9:4810", "name": "oslo", "minutes": 30 });
    let (without, at) = alone(&folder, "listen = \"127.0.0.1:0\"\n");
    let refused = post(at, "/dashboard/invite", &wish);
    assert_eq!(refused.code, 403);
    assert!(refused.error().contains("token_file"), "{}", refused.body);
    assert_eq!(get(at, "/dashboard/access").json()["invite"], false);
    drop(without);
    let keys = format!("listen = \"127.0.0.1:0\"\n{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    assert_eq!(get(at, "/").code, 200, "loopback may look");
    assert_eq!(post(at, "/dashboard/invite", &wish).code, 401);
    let invite = |wish: &Value| {
        let lines = [
            host(at),
            JSON.to_owned(),
            format!("Authorization: Bearer {TOKEN}"),
        ];
        ask(at, "POST", "/dashboard/invite", &lines, &wish.to_string())
    };
    let unknown = invite(&json!({ "minutes": 30 }));
    assert_eq!(unknown.code, 422, "no endpoint is known: {}", unknown.body);
    let made = invite(&wish);
    assert_eq!(made.code, 200, "{}", made.body);
    assert!(made.head.contains("no-store"), "{}", made.head);
    let text = made.json()["invite"].as_str().expect("a text").to_owned();
    let read: gateway::enrolment::Invite = text.parse().expect("an invite");
    assert_eq!(read.endpoint, "203.0.113.9:4810");
    let register = Register::read(&Register::path(&folder.join("a.key"))).expect("there");
    assert_eq!(register.invites.len(), 1);
    assert_eq!(register.invites[0].public_key, read.identity().public_key());
    assert_eq!(register.invites[0].name.as_deref(), Some("oslo"));
    // The endpoint is known from now on.
    assert_eq!(invite(&json!({ "minutes": 1 })).code, 200);
    for wish in [
        json!({ "minutes": 0 }),
        json!({ "minutes": 50_000 }),
        json!({ "minutes": 1, "name": "a\nb" }),
        json!({ "minutes": 1, "endpoint": "nowhere" }),
    ] {
        assert_eq!(invite(&wish).code, 422, "{wish}");
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn another_token_ends_what_the_first_one_opened() {
    let (folder, ..) = folder();
    let keys = format!("listen = \"127.0.0.1:0\"\n{}", token_file(&folder));
    let (gateway, at) = alone(&folder, &keys);
    let lines = [
        host(at),
        JSON.to_owned(),
        format!("Authorization: Bearer {TOKEN}"),
    ];
    let stop = || ask(at, "POST", "/dashboard/stop", &lines, "{\"transfer\": 1}").code;
    assert_eq!(stop(), 404);
    fs::write(folder.join("admin.token"), TOKEN.replace('0', "7")).expect("room");
    let outcome = gateway.reload_and_tell(str::to_owned);
    assert_eq!(outcome.taken, ["[admin] token_file"]);
    assert_eq!(stop(), 401);
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn odd_questions_are_answered_and_break_nothing() {
    let world = World::start();
    let admin = world.near.admin;
    for (path, code) in [
        ("/dashboard/recent?words=%00%ff%C3", 200),
        ("/dashboard/recent?before=-1", 400),
        ("/dashboard/recent?nonsense=1", 400),
        ("/dashboard/history?peer=%F0%9F%92%A9&span=day", 404),
        ("/dashboard/history?peer=site-b&span=year", 400),
        ("/dashboard/history", 400),
    ] {
        assert_eq!(get(admin, path).code, code, "{path}");
    }
    let long = "x".repeat(300);
    assert_eq!(
        get(admin, &format!("/dashboard/recent?words={long}")).code,
        422
    );
    let lines = [host(admin), JSON.to_owned()];
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"transfer\": 1e99}",
        "{\"transfer\": -1}",
        "\u{0}",
    ] {
        assert_eq!(
            ask(admin, "POST", "/dashboard/stop", &lines, body).code,
            400,
            "{body:?}"
        );
    }
    let large = "x".repeat(100_000);
    assert_eq!(
        ask(admin, "POST", "/dashboard/stop", &lines, &large).code,
        413
    );
}

/// These measure real time: `cargo xtask test` runs them alone.
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
    fn pages_have_a_bound_and_others_are_told() {
        let world = World::start();
        let admin = world.near.admin;
        let mut pages: Vec<_> = (0..32).map(|_| Page::open(admin)).collect();
        for page in &mut pages {
            page.next("gateway");
        }
        assert_eq!(get(admin, "/dashboard/events").code, 503);
        assert_eq!(get(admin, "/status.json").code, 200);
        pages.pop();
        let deadline = Instant::now() + PATIENCE;
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
