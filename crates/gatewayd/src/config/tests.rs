use super::*;
use link::Identity;

/// A folder with a private key. Each test has its own folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let key = path.join("site-a.key");
        let _ = std::fs::remove_file(&key);
        Identity::generate()
            .write_new(&key)
            .expect("a new key file");
        Self(path)
    }

    fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, &self.0.join("a.toml"))
    }

    /// Parses an invalid configuration. Returns the line, the column and the message of the
    /// mistake.
    fn error(&self, text: &str) -> (usize, usize, String) {
        let error = self.parse(text).expect_err("the configuration is wrong");
        let (line, column) = error.at.expect("it was read");
        (line, column, error.message)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const IDENTITY: &str = "[identity]\nkey_file = \"site-a.key\"\n";

fn with_peer(rest: &str) -> String {
    let key = Identity::generate().public_key();
    format!("{IDENTITY}[[peer]]\nname = \"site-b\"\npublic_key = \"{key}\"\n{rest}")
}

#[test]
fn everything_of_the_contract_that_exists_is_read() {
    let folder = Folder::new("contract");
    let key = Identity::generate().public_key();
    let text = format!(
        r#"{IDENTITY}
[link]
listen = "0.0.0.0:4811"
policy = "reserved"
rate_reserved = "200 Mbit/s"
rate_max = "800 Mbit/s"
memory_max = "512 MiB"
idle_timeout = "2 min"
drain_max = "30 s"
[[peer]]
name = "site-b"
public_key = ["{key}"]
endpoint = "203.0.113.9:4810"
serves = ["ftp.example.com", "*.archive.example", "10.20.0.0/16", "2001:db8::/32"]
allow = ["10.20.0.5:21"]
rate_max = "100 Mbit/s"
[[ftp]]
listen = "0.0.0.0:2121"
target = "10.20.0.5"
clients = ["10.0.0.0/8"]
via = "site-b"
mode = "strict"
transparent = false
passive_ports = "30000-30999"
external_address = "198.51.100.7"
server_data = "passive"
tls = {{ mode = "off" }}
server_tls = {{ mode = "off" }}
[[forward]]
listen = "127.0.0.1:6201"
target = "10.20.0.5:873"
[far]
allow = ["10.20.0.0/16:21", "ftp.example.com:21", "[2001:db8::/32]:21"]
[spool]
folder = "."
size_max = "1 GiB"
[log]
level = "debug"
format = "json"
transfer_log = "transfers.log"
transfer_log_format = "xferlog"
[admin]
listen = "127.0.0.1:9811"
"#
    );
    let config = folder.parse(&text).expect("a valid configuration");
    assert_eq!(config.ftp[0].target.as_ref().map(|t| t.port), Some(21));
    assert_eq!(config.ftp[0].passive_ports, Some(30000..=30999));
    assert_eq!(config.relay.link.idle_timeout.as_secs(), 120);
    assert_eq!(
        config.relay.peers[0].allow.0.len(),
        1,
        "the peer's own list replaces far.allow"
    );
    let spool = config.spool.as_ref().expect("a spool");
    assert_eq!(spool.size_max.bytes(), 1 << 30);
    assert_eq!(config.drain_max.as_secs(), 30);
    assert_eq!(config.log_level, LogLevel::Debug);
    assert_eq!(config.log_format, LogFormat::Json);
    let defaults = folder.parse(&with_peer("")).expect("a valid configuration");
    assert_eq!(defaults.log_level, LogLevel::Info);
    assert_eq!(defaults.log_format, LogFormat::Text);
    let log = config.transfer_log.as_ref().expect("a transfer log");
    assert_eq!(log.path, folder.0.join("transfers.log"));
    assert_eq!(log.format, transfer_log::TransferLogFormat::Xferlog);
    let summary = config.to_string();
    assert!(
        summary.contains("site-a.key") && !summary.contains("PRIVATE KEY"),
        "{summary}"
    );
}

#[test]
fn an_error_names_line_column_and_what_was_expected() {
    let folder = Folder::new("errors");
    let (line, column, message) = folder.error(&format!("{IDENTITY}[link]\nlisen = \"x\"\n"));
    assert_eq!((line, column), (4, 1));
    assert!(
        message.contains("lisen") && message.contains("listen"),
        "{message}"
    );

    let (line, column, message) = folder.error(&format!("{IDENTITY}[link]\nlisten = 4810\n"));
    assert_eq!((line, column), (4, 10));
    assert!(message.contains("socket address"), "{message}");

    let (line, _, message) = folder.error(&format!("{IDENTITY}[link]\nrate_max = \"9 MB/s\"\n"));
    assert_eq!(line, 4);
    assert!(message.contains("300 Mbit/s"), "{message}");

    let small = "[spool]\nfolder = \".\"\nsize_max = \"1 MiB\"\n";
    let (line, _, message) = folder.error(&format!("{IDENTITY}{small}"));
    assert_eq!(line, 5);
    assert!(message.contains("64 MiB at least"), "{message}");

    let (line, _, message) = folder.error("[identity]\n[link]\n");
    assert_eq!(line, 1);
    assert!(message.contains("key_file"), "{message}");

    let (line, _, message) = folder.error("[identity]\nkey_file = \"absent.key\"\n");
    assert_eq!(line, 2);
    assert!(message.contains("absent.key"), "{message}");

    let (line, _, _) = folder.error("[identity]\nkey_file = \n");
    assert_eq!(line, 2);
}

#[test]
fn every_key_is_documented() {
    let folder = Folder::new("documented");
    let document = include_str!("../../../../docs/configuration.md");
    let tables = [
        "",
        "[identity]",
        "[link]",
        "[[peer]]",
        "[[ftp]]",
        "[[ssh]]",
        "[[forward]]",
        "[far]",
        "[far.ssh]",
        "[limits]",
        "[log]",
    ];
    let inner = [
        "[[ftp]]\n[ftp.tls]",
        "[[ftp]]\n[ftp.server_tls]",
        "[admin]",
        "[admin.https]",
    ];
    for table in tables.iter().chain(&inner) {
        let (_, _, message) = folder.error(&format!("{table}\nnonsense = 1\n"));
        let (_, expected) = message.split_once("expected ").expect("the keys");
        let keys: Vec<_> = expected.split('"').skip(1).step_by(2).collect();
        assert!(!keys.is_empty(), "{message}");
        for key in keys {
            let written = [format!("`{key}`"), format!("[{key}]")];
            assert!(
                written.iter().any(|text| document.contains(text)),
                "{table}: {key} is not in docs/configuration.md"
            );
        }
    }
}

#[test]
fn tls_passes_through_to_one_target_on_known_ports() {
    let folder = Folder::new("pass-through");
    let base = "[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntls = { mode = \"pass-through\" }\n";
    let target = "target = \"10.0.0.1:990\"\n";
    let ports = "passive_ports = \"50000-50099\"\n";
    let config = folder.parse(&with_peer(&format!("{base}{target}{ports}")));
    let listener = &config.expect("complete").pass_through[0];
    assert_eq!(listener.target.to_string(), "10.0.0.1:990");
    assert_eq!(listener.data_ports, 50_000..=50_099);
    assert!(listener.admits([10, 1, 2, 3].into()) && !listener.admits([192, 0, 2, 1].into()));

    for (rest, line, expected) in [
        (
            format!("{target}{ports}external_address = \"192.0.2.1\"\n"),
            11,
            "at the server",
        ),
        (
            format!("{target}{ports}mode = \"strict\"\n"),
            11,
            "only relays",
        ),
        (
            format!("{target}{ports}server_data = \"active\"\n"),
            11,
            "active",
        ),
        (
            format!("{target}{ports}server_tls = {{ mode = \"explicit\" }}\n"),
            11,
            "own TLS",
        ),
        (
            format!("clients = [\"10.0.0.0/8\"]\n{ports}"),
            8,
            "needs target",
        ),
        (target.to_owned(), 8, "needs passive_ports"),
        (
            format!("{target}passive_ports = \"40000-50000\"\n"),
            10,
            "at most 1024",
        ),
        (format!("{ports}transparent = true\n"), 10, "one target"),
    ] {
        let (at, _, message) = folder.error(&with_peer(&format!("{base}{rest}")));
        assert!(message.contains(expected), "{rest}: {message}");
        assert_eq!(at, line, "{rest}: {message}");
    }
    let second = base.replace("2121", "2122");
    let twice = format!("{base}{target}{ports}{second}{target}{ports}");
    let (at, _, message) = folder.error(&with_peer(&twice));
    assert!(message.contains("listens on port 50000"), "{message}");
    assert_eq!(at, 15, "{message}");
    let own = format!("{base}{target}passive_ports = \"2121-2130\"\n");
    let (_, _, message) = folder.error(&with_peer(&own));
    assert!(
        message.contains("or this one, listens on port 2121"),
        "{message}"
    );
    let certificate = base.replace("through\"", "through\", cert_file = \"c\"");
    let (_, _, message) = folder.error(&with_peer(&format!("{certificate}{target}{ports}")));
    assert!(message.contains("a certificate needs"), "{message}");
}

#[test]
fn two_sections_with_one_address_are_both_named() {
    let folder = Folder::new("twice");
    let section = "[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntarget = \"10.0.0.1\"\n";
    let (line, column, message) = folder.error(&with_peer(&section.repeat(2)));
    let first = line - 3;
    assert_eq!(
        (column, message),
        (
            10,
            format!(
                "another section listens on this address (line {first}): merge the two sections, or choose another \
                 port"
            )
        )
    );
    let passing = "[[ftp]]\nlisten = \"127.0.0.1:990\"\ntarget = \"10.0.0.1\"\n\
                   tls = { mode = \"pass-through\" }\npassive_ports = \"2121-2130\"\n";
    let (line, _, message) = folder.error(&with_peer(&format!("{passing}{section}")));
    let ports = line - 2;
    assert_eq!(
        message,
        format!(
            "passive_ports of another section contains this port (line {ports}): choose another port"
        )
    );
}

#[test]
fn contradictions_are_errors() {
    let folder = Folder::new("contradictions");
    for (text, expected) in [
        ("[[ftp]]\nlisten = \"127.0.0.1:2121\"\n", "needs clients"),
        (
            "[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntarget = \"10.0.0.1\"\nvia = \"x\"\n",
            "site-b",
        ),
        (
            "[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntarget = \"0x7f.1\"\n",
            "0x7f.1",
        ),
        (
            "[[peer]]\nname = \"site-b\"\npublic_key = \"x\"\n",
            "another peer",
        ),
        (
            "[[peer]]\nname = \"c\"\npublic_key = \"x\"\n",
            "44 characters",
        ),
        (
            "[[ftp]]\nlisten = \"127.0.0.1:1\"\ntarget = \"10.0.0.1\"\nallow = [\"10.0.0.1\"]\n",
            "allow contradicts target",
        ),
        ("endpoint = \"203.0.113.9\"\n", "with a port"),
        ("serves = [\"10.0.0.1/8\"]\n", "10.0.0.1/8"),
        (
            "serves = [\"a.b\"]\n[[forward]]\nlisten = \"127.0.0.1:1\"\ntarget = \"c.d:1\"\n",
            "serves",
        ),
        ("[link]\npolicy = \"reserved\"\n", "rate_reserved"),
        ("[link]\nidle_timeout = \"10\"\n", "10 min"),
        ("[far]\nallow = [\"127.1:21\"]\n", "127.1"),
        ("[log]\nlevel = \"loud\"\n", "debug"),
        ("[log]\nformat = \"xml\"\n", "journald"),
        ("[log]\ntransfer_log_format = \"json\"\n", "transfer_log"),
        (
            "[log]\ntransfer_log = \"t\"\ntransfer_log_format = \"csv\"\n",
            "xferlog",
        ),
    ] {
        let (_, _, message) = folder.error(&with_peer(text));
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn values_that_cannot_work_name_their_place_and_the_least() {
    let folder = Folder::new("least");
    for (text, at, expected) in [
        ("[link]\nrate_max = \"63 kbit/s\"\n", (7, 12), "64 kbit/s"),
        ("rate_max = \"1 kbit/s\"\n", (6, 12), "64 kbit/s"),
        ("[link]\nmemory_max = \"15 MiB\"\n", (7, 14), "16 MiB"),
        ("[link]\nidle_timeout = \"999 ms\"\n", (7, 16), "1 s"),
    ] {
        let (line, column, message) = folder.error(&with_peer(text));
        assert_eq!((line, column), at, "{text}: {message}");
        assert!(message.contains(expected), "{text}: {message}");
    }
    let least = "rate_max = \"64 kbit/s\"\n[link]\nrate_max = \"64 kbit/s\"\n\
                 memory_max = \"16 MiB\"\nidle_timeout = \"1 s\"\n";
    folder.parse(&with_peer(least)).expect("the least values");
}

#[test]
fn what_clients_may_take_fits_the_streams_of_a_peer() {
    let folder = Folder::new("streams");
    for (memory, streams) in [
        ("16 MiB", 34),
        ("64 MiB", 136),
        ("1 GiB", 2172),
        ("8 GiB", 3072),
    ] {
        let link = format!("[link]\nmemory_max = \"{memory}\"\n");
        let limits = |rest: &str| {
            let text = with_peer(&format!("{link}[limits]\n{rest}"));
            folder.parse(&text).expect("it fits").relay.limits
        };
        let default = limits("");
        let sum =
            |l: &relay::limits::RelayLimits| l.sessions_max + l.transfers_max + l.forwards_max;
        assert!(sum(&default) <= streams, "{memory}: {default:?}");
        assert!(sum(&default) + 3 > streams, "{memory}: {default:?}");
        assert!(default.forwards_max <= streams / 8);
        assert!(default.sessions_per_client_max <= default.sessions_max);
        // Explicit limits reduce the limits that are not set.
        let most = streams - 1;
        let set = limits(&format!("sessions_max = {}\n", most - 1));
        assert_eq!(
            (set.sessions_max, set.transfers_max),
            (most - 1, 1),
            "{memory}"
        );
    }
    // The streams of two peers share the memory.
    let key = Identity::generate().public_key();
    let second = format!("[[peer]]\nname = \"site-c\"\npublic_key = \"{key}\"\n");
    let two = folder
        .parse(&with_peer(&second))
        .expect("it fits")
        .relay
        .limits;
    assert_eq!(two.sessions_max, 1086 / 2);
    let all = "[[forward]]\nlisten = \"127.0.0.1:1\"\ntarget = \"10.0.0.1:1\"\n\
               [limits]\nsessions_max = 1000\ntransfers_max = 1000\nforwards_max = 172\n";
    folder.parse(&with_peer(all)).expect("2172 streams");
}

#[test]
fn limits_that_no_peer_has_streams_for_name_what_would_fit() {
    let folder = Folder::new("no-streams");
    for (rest, at, expected) in [
        (
            "[limits]\nsessions_max = 2000\ntransfers_max = 2000\n",
            (8, 17),
            "4000 together, and memory_max = \"1 GiB\" gives 2172 to the peer: expected at most 172 here",
        ),
        (
            "[link]\nmemory_max = \"64 MiB\"\n[limits]\ntransfers_max = 1000\n",
            (9, 17),
            "expected at most 135 here, or memory_max = \"472 MiB\"",
        ),
        (
            "[limits]\nsessions_max = 3\nforwards_max = 18446744073709551615\n",
            (8, 16),
            "expected at most 2168 here",
        ),
    ] {
        let (line, column, message) = folder.error(&with_peer(rest));
        assert!(message.contains(expected), "{rest}: {message}");
        assert_eq!((line, column), at, "{rest}: {message}");
    }
}

#[test]
fn a_forward_has_the_same_clients_as_other_listeners() {
    let folder = Folder::new("forward-clients");
    let text = with_peer("[[forward]]\nlisten = \"127.0.0.1:1\"\ntarget = \"10.0.0.1:873\"\n");
    let forward = |text: &str| {
        let config = folder.parse(text).expect("a valid configuration");
        config.forwards.into_iter().next().expect("a forward")
    };
    let default = forward(&text);
    assert!(default.admits([10, 1, 2, 3].into()) && !default.admits([192, 0, 2, 1].into()));
    let own = forward(&format!("{text}clients = [\"192.0.2.0/24\"]\n"));
    assert!(!own.admits([10, 1, 2, 3].into()) && own.admits([192, 0, 2, 1].into()));
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("permissions");
    let key = folder.0.join("site-a.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("chmod");
    let (line, _, message) = folder.error(IDENTITY);
    assert_eq!(line, 2);
    assert!(message.contains("site-a.key"), "{message}");
}

#[test]
fn a_token_that_others_can_read_or_guess_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("token");
    let path = folder.0.join("admin.token");
    let text = format!("{IDENTITY}[admin]\ntoken_file = \"admin.token\"\n");
    let token = "0123456789abcdef0123456789abcdef";
    for (content, mode, expected) in [
        (None, 0, "cannot be read"),
        (Some(token), 0o640, "chmod 600"),
        (Some("password"), 0o600, "128 bits"),
        (Some(""), 0o600, "128 bits"),
        (
            Some("0123456789abcdef0123456789abcdef\nand more\n"),
            0o600,
            "128 bits",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&path, content).expect("room");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("our file");
        }
        let (line, column, message) = folder.error(&text);
        assert_eq!((line, column), (4, 14), "{message}");
        assert!(
            message.contains("admin.token") && message.contains(expected),
            "{message}"
        );
        assert!(!message.contains("0123456789abcdef"), "{message}");
    }
    std::fs::write(&path, format!("{token}\n")).expect("room");
    let config = folder.parse(&text).expect("a valid configuration");
    assert!(config.admin_token.is_some_and(|it| it.is(token)));
}

#[test]
fn the_default_clients_are_loopback_and_private_ranges() {
    let folder = Folder::new("clients");
    let text = with_peer("[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntarget = \"10.0.0.1\"\n");
    let listener = folder
        .parse(&text)
        .expect("a valid configuration")
        .ftp
        .remove(0);
    for ip in [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.1",
    ] {
        assert!(listener.admits(ip.parse().expect("an address")), "{ip}");
    }
    for ip in ["203.0.113.1", "2001:db8::1", "::ffff:8.8.8.8"] {
        assert!(!listener.admits(ip.parse().expect("an address")), "{ip}");
    }
}

#[test]
fn every_example_is_a_valid_configuration() {
    let folder = Folder::new("examples");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found = 0;
    for entry in std::fs::read_dir(examples).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("an example");
        let text = text.replace("site-b.key", "site-a.key");
        folder
            .parse(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found += 1;
    }
    assert!(found >= 2, "found {found} examples");
}
