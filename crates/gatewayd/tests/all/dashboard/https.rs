//! Tests of the dashboard over TLS, with access by a token and by a client certificate.

use std::sync::Arc;

use net::tls::Fingerprint;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::ServerName,
    version::{TLS12, TLS13},
};

use super::*;
use crate::tls_common::{Authority, Issued, Versions};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A gateway with a dashboard over TLS. One authority signs the gateway's certificate. Another
/// authority signs the certificates of users.
struct Site {
    gateway: Gateway,
    at: SocketAddr,
    server_ca: Authority,
    people: Authority,
    folder: std::path::PathBuf,
}

const BOTH: Versions<'static> = &[&TLS13, &TLS12];

impl Site {
    /// Starts a site. `admin` and `https` are further keys of `[admin]` and `[admin.https]`.
    fn start(admin: &str, https: &str) -> Self {
        let (folder, ..) = folder();
        token_file(&folder);
        let (server_ca, people) = (Authority::new(), Authority::new());
        let (cert_file, key_file) = (folder.join("gw.pem"), folder.join("gw.key"));
        server_ca.issue().write(&cert_file, &key_file);
        fs::write(folder.join("people.pem"), people.pem()).expect("room");
        let keys = format!(
            "listen = \"127.0.0.1:0\"\n{admin}[admin.https]\nlisten = \"127.0.0.1:0\"\n\
             certificate = \"gw.pem\"\nkey = \"gw.key\"\n{https}"
        );
        let gateway = Gateway::start_with_admin(&folder, "a.key", &keys, "");
        Self {
            at: gateway.https.expect("an address"),
            gateway,
            server_ca,
            people,
            folder,
        }
    }

    /// Starts a site that permits access both by a token and by client certificates.
    fn with_both() -> Self {
        Self::start(TOKEN_FILE, CLIENT_CA)
    }

    /// Creates a browser that uses `own` as its client certificate.
    fn browser(&self, own: Option<&Issued>, versions: Versions<'_>) -> Browser {
        let mut roots = RootCertStore::empty();
        roots.add(self.server_ca.root()).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(own) => config
                .with_client_auth_cert(vec![own.cert.clone()], own.key())
                .expect("a certificate"),
        };
        config.resumption = Resumption::in_memory_sessions(8);
        Browser {
            at: self.at,
            config: Arc::new(config),
        }
    }

    fn stranger(&self) -> Browser {
        self.browser(None, BOTH)
    }

    fn member(&self) -> Browser {
        self.browser(Some(&self.people.issue()), BOTH)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A client that connects over TLS.
struct Browser {
    at: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Browser {
    fn connect(&self) -> Stream {
        let tcp = TcpStream::connect(self.at).expect("the gateway listens");
        tcp.set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        let name = ServerName::from(self.at.ip());
        let tls = ClientConnection::new(self.config.clone(), name);
        StreamOwned::new(tls.expect("a name"), tcp)
    }

    fn ask(&self, method: &str, path: &str, more: &[String], body: &str) -> Answer {
        let lines = [&[host(self.at)], more].concat();
        let answer = exchange(&mut self.connect(), method, path, &lines, body);
        answer.expect("an answer")
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    /// Sends a POST request with the headers that the dashboard's page sends.
    fn post(&self, path: &str, more: &[String], body: &Value) -> Answer {
        let own = [JSON.to_owned(), format!("Origin: https://{}", self.at)];
        self.ask("POST", path, &[&own, more].concat(), &body.to_string())
    }
}

const TOKEN_FILE: &str = "token_file = \"admin.token\"\n";
const CLIENT_CA: &str = "client_ca = \"people.pem\"\n";

/// Paths that reveal data of the gateway.
const VIEWS: [&str; 5] = [
    "/dashboard/events",
    "/dashboard/recent",
    "/status.json",
    "/metrics",
    "/readyz",
];

fn expect_stranger(browser: &Browser, code: u16) {
    let page = browser.get("/");
    assert_eq!(page.code, code, "{}", page.body);
    assert!(!page.body.contains("main.js"), "{}", page.body);
    for path in VIEWS {
        assert_eq!(browser.get(path).code, code, "{path}");
    }
    let stop = json!({ "transfer": 1 });
    assert_eq!(browser.post("/dashboard/stop", &[], &stop).code, code);
    let may = browser.get("/dashboard/access").json();
    for what in ["look", "change", "invite"] {
        assert_eq!(may[what], false, "{may}");
    }
}

#[test]
fn a_token_opens_the_page_and_a_secure_cookie_keeps_it_open() {
    let site = Site::start(TOKEN_FILE, "");
    let browser = site.stranger();
    expect_stranger(&browser, 401);
    assert!(browser.get("/").body.contains("login.js"));
    assert_eq!(browser.get("/dashboard/login.js").code, 200);
    let token = json!({ "token": TOKEN });
    let login = browser.post("/dashboard/login", &[], &token);
    assert_eq!(login.code, 204, "{}", login.body);
    let mut lines = login.head.lines();
    let cookie = lines.find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie");
    assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let cookie = [format!("Cookie: {pair}")];
    assert_eq!(browser.ask("GET", "/", &cookie, "").code, 200);
    let stop = json!({ "transfer": 1 });
    let stopped = browser.post("/dashboard/stop", &cookie, &stop);
    assert_eq!(stopped.code, 404, "no such transfer: {}", stopped.body);
    let bearer = [format!("Authorization: Bearer {TOKEN}")];
    for path in ["/status.json", "/metrics", "/healthz"] {
        assert_eq!(browser.ask("GET", path, &bearer, "").code, 200, "{path}");
    }
}

#[test]
fn a_certificate_opens_everything_without_a_token() {
    for admin in ["", TOKEN_FILE] {
        let site = Site::start(admin, CLIENT_CA);
        for versions in [BOTH, &[&TLS12][..]] {
            let member = site.browser(Some(&site.people.issue()), versions);
            let page = member.get("/");
            assert!(page.code == 200 && page.body.contains("main.js"));
            for path in ["/status.json", "/metrics", "/healthz", "/dashboard/recent"] {
                assert_eq!(member.get(path).code, 200, "{path}");
            }
            let rate = json!({ "peer": null, "rate_max": "1 Gbit/s" });
            assert_eq!(member.post("/dashboard/rate", &[], &rate).code, 204);
            let wish = json!({ "endpoint": "203.0.113.9:4810", "minutes": 30 });
            let invite = member.post("/dashboard/invite", &[], &wish);
            assert_eq!(invite.code, 200, "{}", invite.body);
            let may = member.get("/dashboard/access").json();
            assert_eq!(
                (&may["invite"], &may["has_token"]),
                (&json!(true), &json!(false))
            );
        }
        // The admin address without TLS ignores certificates.
        let wish = json!({ "minutes": 30 });
        let code = post(site.gateway.admin, "/dashboard/invite", &wish).code;
        assert_eq!(code, if admin.is_empty() { 403 } else { 401 });
    }
}

#[test]
fn other_certificates_are_like_none() {
    let site = Site::with_both();
    let foreign = Authority::new().issue();
    let expired = site.people.issue_until(2001);
    let of_gateway = site.server_ca.issue();
    for own in [None, Some(&foreign), Some(&expired), Some(&of_gateway)] {
        for versions in [BOTH, &[&TLS12][..]] {
            let browser = site.browser(own, versions);
            expect_stranger(&browser, 401);
            let bearer = [format!("Authorization: Bearer {TOKEN}")];
            assert_eq!(browser.ask("GET", "/", &bearer, "").code, 200);
        }
    }
    assert_eq!(site.member().get("/").code, 200);
    let without_token = Site::start("", CLIENT_CA);
    expect_stranger(&without_token.stranger(), 403);
    let told = without_token.stranger().get("/").error();
    assert!(told.contains("client_ca"), "{told}");
    let login = without_token.stranger();
    let login = login.post("/dashboard/login", &[], &json!({ "token": TOKEN }));
    assert_eq!(login.code, 403, "{}", login.body);
}

#[test]
fn a_certificate_without_its_key_is_no_certificate() {
    let site = Site::with_both();
    let (own, other) = (site.people.issue(), site.people.issue());
    let stolen = Issued {
        cert: own.cert,
        key: other.key,
        pem: own.pem,
    };
    for versions in [BOTH, &[&TLS12][..]] {
        let provider = aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(stolen.key());
        let certified =
            rustls::sign::CertifiedKey::new(vec![stolen.cert.clone()], key.expect("a key"));
        let browser = site.browser(None, versions);
        let mut config = ClientConfig::clone(&browser.config);
        config.client_auth_cert_resolver =
            Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        let thief = Browser {
            config: Arc::new(config),
            ..browser
        };
        let lines = [host(site.at)];
        let answer = exchange(&mut thief.connect(), "GET", "/", &lines, "");
        assert!(answer.is_err(), "{:?}", answer.map(|it| it.code));
    }
}

#[test]
fn a_page_of_another_origin_changes_nothing_by_a_certificate() {
    let site = Site::with_both();
    let member = site.member();
    let ask = |line: &str| {
        let lines = [JSON.to_owned(), line.to_owned()];
        let body = "{\"transfer\": 1}";
        member.ask("POST", "/dashboard/stop", &lines, body).code
    };
    assert_eq!(ask(&format!("Origin: https://{}", site.at)), 404);
    for line in [
        "Origin: https://evil.example".to_owned(),
        // An attacker on the path can forge a page with this origin.
        format!("Origin: http://{}", site.at),
        "Sec-Fetch-Site: cross-site".to_owned(),
    ] {
        assert_eq!(ask(&line), 403, "{line}");
    }
    let evil = exchange(
        &mut member.connect(),
        "GET",
        "/",
        &["Host: evil.example".to_owned()],
        "",
    );
    assert_eq!(evil.expect("an answer").code, 421);
}

#[test]
fn orders_of_programs_are_not_there() {
    let site = Site::with_both();
    let member = site.member();
    for path in ["/reload", "/upgrade", "/log"] {
        let answer = member.post(path, &[], &json!({}));
        assert_eq!(answer.code, 404, "{path}");
    }
    assert_eq!(member.get("/trace?peer=a").code, 404);
}

#[test]
fn a_client_without_tls_or_without_bytes_delays_no_others() {
    let site = Site::with_both();
    let connect = || {
        let stream = TcpStream::connect(site.at).expect("the gateway listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        stream
    };
    let silent: Vec<_> = (0..8).map(|_| connect()).collect();
    let mut slow = connect();
    // These bytes are the head of a ClientHello of 512 bytes.
    slow.write_all(&[22, 3, 1, 2, 0, 1]).expect("a connection");
    let mut plain = connect();
    write!(plain, "GET / HTTP/1.1\r\nHost: {}\r\n\r\n", site.at).expect("a request");
    let mut answer = Vec::new();
    // An alert and the end follow.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    let begun = Instant::now();
    assert_eq!(site.member().get("/").code, 200);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop((silent, slow));
}

#[test]
fn no_session_is_resumed() {
    let site = Site::with_both();
    for versions in [BOTH, &[&TLS12][..]] {
        let member = site.browser(Some(&site.people.issue()), versions);
        for _ in 0..3 {
            let mut stream = member.connect();
            let lines = [host(site.at)];
            let answer = exchange(&mut stream, "GET", "/", &lines, "");
            assert_eq!(answer.expect("an answer").code, 200);
            assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        }
    }
}

#[test]
fn another_ca_closes_what_is_open_and_a_renewed_certificate_is_shown() {
    let site = Site::with_both();
    let member = site.member();
    let mut open = member.connect();
    assert_eq!(keep_asking(&mut open, site.at)["change"], true);
    let mut page = member.connect();
    let lines = format!("{}\r\nConnection: close", host(site.at));
    write!(page, "GET /dashboard/events HTTP/1.1\r\n{lines}\r\n\r\n").expect("a request");
    page.read_exact(&mut [0; 12]).expect("events");

    let others = Authority::new();
    fs::write(site.folder.join("people.pem"), others.pem()).expect("room");
    let renewed = site.server_ca.issue();
    renewed.write(&site.folder.join("gw.pem"), &site.folder.join("gw.key"));
    let outcome = site.gateway.reload_and_tell(str::to_owned);
    assert_eq!(outcome.taken, ["[admin.https] client_ca"], "{outcome:?}");
    assert_eq!(outcome.needs_restart, [""; 0]);

    assert_eq!(keep_asking(&mut open, site.at)["look"], false);
    page.read_to_end(&mut Vec::new()).expect("the end");
    assert_eq!(member.get("/").code, 401);
    let other = site.browser(Some(&others.issue()), BOTH);
    let mut stream = other.connect();
    let answer = exchange(&mut stream, "GET", "/", &[host(site.at)], "");
    assert_eq!(answer.expect("an answer").code, 200);
    let shown = stream.conn.peer_certificates().expect("a certificate");
    assert_eq!(Fingerprint::of(&shown[0]), Fingerprint::of(&renewed.cert));
}

/// Requests `/dashboard/access` on an open connection, and returns the JSON. The connection stays
/// open.
fn keep_asking(stream: &mut Stream, at: SocketAddr) -> Value {
    let host = host(at);
    write!(stream, "GET /dashboard/access HTTP/1.1\r\n{host}\r\n\r\n").expect("a request");
    let mut text = String::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).expect("an answer");
        assert!(count > 0, "the end: {text}");
        text += &String::from_utf8_lossy(&piece[..count]);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(value) = serde_json::from_str(body)
        {
            return value;
        }
    }
}

#[test]
fn what_takes_a_restart_is_named() {
    let site = Site::with_both();
    let moved = |text: &str| {
        text.replace(
            "[admin.https]\nlisten = \"127.0.0.1:0\"",
            "[admin.https]\nlisten = \"127.0.0.2:0\"",
        )
    };
    let outcome = site.gateway.reload_and_tell(moved);
    let name = "[admin.https] listen, certificate, key";
    assert_eq!(outcome.needs_restart, [name], "{outcome:?}");
    let gone = |text: &str| {
        let (before, rest) = text.split_once("[admin.https]").expect("there is one");
        let (_, after) = rest.split_once("[link]").expect("there is one");
        format!("{before}[link]{after}")
    };
    let outcome = site.gateway.reload_and_tell(gone);
    assert_eq!(outcome.needs_restart, ["[admin.https]"], "{outcome:?}");
    assert_eq!(site.member().get("/").code, 200, "it goes on");
}

#[test]
fn a_certificate_of_its_own_is_made_once_and_a_taken_port_is_an_error() {
    let (folder, ..) = folder();
    let keys = format!(
        "listen = \"127.0.0.1:0\"\n{}[admin.https]\nlisten = \"127.0.0.1:0\"\n",
        token_file(&folder)
    );
    let gateway = Gateway::start_with_admin(&folder, "a.key", &keys, "");
    let mut tcp = TcpStream::connect(gateway.https.expect("an address")).expect("it listens");
    tcp.write_all(b"no TLS").expect("a connection");
    let _ = tcp.read_to_end(&mut Vec::new());
    let made = fs::read_to_string(folder.join("a.key.https.pem")).expect("a certificate");
    let at = gateway.https.expect("an address");
    let taken = gateway.text.replace(
        "[admin.https]\nlisten = \"127.0.0.1:0\"",
        &format!("[admin.https]\nlisten = \"{at}\""),
    );
    let config = gatewayd::config::Config::parse(&taken, &folder.join("test.toml"));
    let error = gatewayd::daemon::BoundSockets::bind(&config.expect("well-formed"));
    let error = error.expect_err("the port is taken").to_string();
    assert!(
        error.contains(&format!("[admin.https] address {at}")),
        "{error}"
    );
    drop(gateway);
    let _again = Gateway::start_with_admin(&folder, "a.key", &keys, "");
    let kept = fs::read_to_string(folder.join("a.key.https.pem")).expect("a certificate");
    assert_eq!(made, kept);
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_stranger_keeps_no_connection_and_no_page_is_kept() {
    let site = Site::with_both();
    let member = site.member();
    for path in ["/", "/dashboard/login.js", "/status.json", "/metrics"] {
        let mut stream = site.stranger().connect();
        write!(stream, "GET {path} HTTP/1.1\r\n{}\r\n\r\n", host(site.at)).expect("sent");
        let mut said = String::new();
        // If the connection stayed open, this read would not end in time.
        stream.read_to_string(&mut said).expect("its end");
        assert!(said.contains("connection: close"), "{path}: {said}");
        let answer = member.get(path);
        assert_eq!(answer.code, 200, "{path}");
        let nosniff = answer.head.contains("x-content-type-options: nosniff");
        assert!(nosniff, "{path}: {}", answer.head);
    }
    let status = member.get("/status.json");
    assert!(status.head.contains("cache-control: no-store"));
    // A user follows a link in a page of another site.
    let other_site = "Sec-Fetch-Site: cross-site".to_owned();
    let follows = [other_site.clone(), "Sec-Fetch-Mode: navigate".to_owned()];
    assert_eq!(member.ask("GET", "/status.json", &follows, "").code, 200);
    let fetches = [other_site, "Sec-Fetch-Mode: no-cors".to_owned()];
    assert_eq!(member.ask("GET", "/status.json", &fetches, "").code, 403);
}

#[test]
fn one_client_takes_no_more_than_its_places() {
    let site = Site::with_both();
    let begun: Vec<_> = (0..16)
        .map(|_| TcpStream::connect(site.at).expect("the gateway listens"))
        .collect();
    let mut late = TcpStream::connect(site.at).expect("the gateway listens");
    late.set_read_timeout(Some(TIMEOUT))
        .expect("a socket option");
    // The connection is closed or reset.
    assert_eq!(late.read(&mut [0]).unwrap_or(0), 0);
    drop(begun);
    let back = Instant::now();
    while exchange(
        &mut site.member().connect(),
        "GET",
        "/healthz",
        &[host(site.at)],
        "",
    )
    .is_err()
    {
        assert!(back.elapsed() < TIMEOUT, "places come back");
    }
}
