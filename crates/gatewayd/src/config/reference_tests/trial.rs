//! A configuration with every key. The tests change one key at a time, and check whether the change
//! needs a restart.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use link::Identity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use toml::{Table, Value};

use crate::{config::Config, reload};

/// A configuration with every section. Its files are in a separate temporary folder.
pub(super) struct Trial {
    folder: PathBuf,
    pub(super) table: Table,
}

impl Trial {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        for (name, seed) in [("a.key", 1), ("b.key", 2)] {
            let identity = Identity::from_seed([seed; 32]);
            identity.write_new(&folder.join(name)).expect("a new file");
        }
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a certificate").pem();
        for (name, text) in [
            ("a.token", "0123456789abcdef0123456789abcdef"),
            ("b.token", "fedcba9876543210fedcba9876543210"),
            ("a.pem", &certificate),
            ("a.pem.key", &key.serialize_pem()),
            ("ca.pem", &ca),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        fs::create_dir(folder.join("keys")).expect("a folder");
        let peer = Identity::from_seed([3; 32]).public_key();
        let text = FILE.replace("PUBLIC_KEY", &peer.to_string());
        let table = text.parse().expect("TOML");
        Self { folder, table }
    }

    /// Parses the file after setting the given values. Each pair has a path in the file and the new
    /// value.
    pub(super) fn config(&self, values: &[(&str, &str)]) -> Result<Config, String> {
        let mut table = self.table.clone();
        for (place, value) in values {
            let other = Identity::from_seed([4; 32]).public_key().to_string();
            let value = value.replace("OTHER_KEY", &other);
            let value: Table = format!("x = {value}").parse().expect("a value of TOML");
            let (parent, name) = place.rsplit_once('.').expect("a key in a section");
            entry(&mut table, parent).insert(name.to_owned(), value["x"].clone());
        }
        self.parse(&table)
    }

    pub(super) fn parse(&self, table: &Table) -> Result<Config, String> {
        let text = toml::to_string(table).expect("TOML");
        let config = Config::parse(&text, &self.folder.join("a.toml"));
        let mut config = config.map_err(|error| error.to_string())?;
        // The configuration also stores whether the file sets `listen`. In this comparison, the
        // default counts as set.
        config.admin_explicit = true;
        Ok(config)
    }

    /// Returns the event that applies a change of this key: "reload" or "restart".
    pub(super) fn applied_at(&self, path: &str) -> &'static str {
        let other = OTHER_VALUES.iter().find(|(key, _)| *key == path);
        let (_, other) = other.unwrap_or_else(|| panic!("OTHER_VALUES has no value for {path}"));
        let place = place(path);
        let needed = NEEDED.iter().filter(|(key, ..)| *key == path);
        let mut values: Vec<_> = needed.map(|(_, place, value)| (*place, *value)).collect();
        values.push((&place, other));
        let running = self.config(&[]).expect("a valid file");
        let fresh = self.config(&values);
        let fresh = fresh.unwrap_or_else(|error| panic!("{path}: {error}"));
        let (applied, needs_restart) = reload::changes(&running, fresh);
        match (applied.is_empty(), needs_restart.is_empty()) {
            (_, false) => "restart",
            (false, true) => "reload",
            (true, true) => panic!("{path}: a reload reports no change"),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of a key in [`FILE`].
pub(super) fn place(path: &str) -> String {
    for (path_of, place) in PLACES {
        if let Some(rest) = path.strip_prefix(path_of)
            && (path_of.ends_with('.') || rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{place}{rest}");
        }
    }
    path.to_owned()
}

/// Returns the table at a path in the file, such as `ftp.0.tls`.
pub(super) fn entry<'a>(table: &'a mut Table, place: &str) -> &'a mut Table {
    let mut parts = place.split('.');
    let first = parts.next().unwrap_or_default();
    let mut value = table
        .entry(first)
        .or_insert_with(|| Value::Table(Table::new()));
    for part in parts {
        value = match (value, part.parse::<usize>()) {
            (Value::Array(items), Ok(index)) => &mut items[index],
            (Value::Table(table), _) => table.get_mut(part).expect("a table of the file"),
            _ => panic!("{place} is no place"),
        };
    }
    value.as_table_mut().expect("a table")
}

/// Keys whose path in [`FILE`] differs from the key's name. Each entry has the start of the name
/// and the start of the path. The function [`place`] uses the first entry that matches.
const PLACES: [(&str, &str); 9] = [
    ("ftp.tls.", "ftp.2.tls."),
    ("ftp.server_tls.", "ftp.2.server_tls."),
    ("ftp.optimise_tls", "ftp.2.optimise_tls"),
    ("ftp.allow", "ftp.1.allow"),
    ("ftp.transparent", "ftp.1.transparent"),
    ("ftp", "ftp.0"),
    ("ssh", "ssh.0"),
    ("forward", "forward.0"),
    ("peer", "peer.0"),
];

const FILE: &str = r#"
[identity]
key_file = "a.key"
[[peer]]
name = "site-b"
public_key = "PUBLIC_KEY"
serves = ["10.20.0.0/16"]
tenants = ["red"]
[[ftp]]
listen = "127.0.0.1:2121"
target = "10.20.0.5:21"
[[ftp]]
listen = "127.0.0.1:2122"
clients = ["10.0.0.0/8"]
[[ftp]]
listen = "127.0.0.1:2123"
target = "10.20.0.5:21"
tls = { mode = "explicit" }
server_tls = { mode = "explicit" }
[[ssh]]
listen = "127.0.0.1:2222"
target = "10.20.0.5:22"
[[forward]]
listen = "127.0.0.1:6201"
target = "10.20.0.5:873"
[far.ssh]
[spool]
folder = "spool"
[store]
folder = "store"
[log]
transfer_log = "a.log"
[admin]
token_file = "a.token"
[admin.https]
listen = "127.0.0.1:9443"
"#;

/// For each key, a value that differs from the key's value in [`FILE`] and from the key's default.
const OTHER_VALUES: &[(&str, &str)] = &[
    ("identity.key_file", "'b.key'"),
    ("link.listen", "'0.0.0.0:4811'"),
    ("link.policy", "'background'"),
    ("link.rate_reserved", "'9 Mbit/s'"),
    ("link.rate_max", "'9 Mbit/s'"),
    ("link.memory_max", "'2 GiB'"),
    ("link.idle_timeout", "'2 min'"),
    ("link.drain_max", "'30 s'"),
    ("link.upgrade_drain_max", "'1 h'"),
    ("peer.name", "'site-c'"),
    ("peer.public_key", "'OTHER_KEY'"),
    ("peer.endpoint", "'203.0.113.9:4810'"),
    ("peer.serves", "['10.20.0.0/16', 'ftp.example.com']"),
    ("peer.allow", "['10.20.0.5:21']"),
    ("peer.rate_max", "'9 Mbit/s'"),
    ("peer.compress", "'off'"),
    ("peer.dedup", "'off'"),
    ("peer.tenants", "['red', 'blue']"),
    ("ftp.listen", "'127.0.0.1:2131'"),
    ("ftp.target", "'10.20.0.6:21'"),
    ("ftp.clients", "['10.0.0.0/8']"),
    ("ftp.allow", "['10.20.0.5:21']"),
    ("ftp.via", "'site-b'"),
    ("ftp.mode", "'strict'"),
    ("ftp.transparent", "true"),
    ("ftp.passive_ports", "'30000-30999'"),
    ("ftp.external_address", "'198.51.100.7'"),
    ("ftp.server_data", "'active'"),
    ("ftp.tls", "{ mode = 'explicit' }"),
    ("ftp.server_tls", "{ mode = 'explicit' }"),
    ("ftp.compress", "'off'"),
    ("ftp.dedup", "'off'"),
    ("ftp.tenant", "'red'"),
    ("ftp.cache", "false"),
    ("ftp.optimise_tls", "true"),
    ("ftp.tls.mode", "'implicit'"),
    ("ftp.tls.cert_file", "'a.pem'"),
    ("ftp.tls.key_file", "'a.pem.key'"),
    ("ftp.tls.required", "true"),
    ("ftp.tls.min_version", "'1.3'"),
    ("ftp.tls.client_roots_file", "'ca.pem'"),
    ("ftp.tls.require_reuse", "false"),
    ("ftp.server_tls.mode", "'implicit'"),
    ("ftp.server_tls.roots_file", "'ca.pem'"),
    ("ftp.server_tls.verify", "false"),
    (
        "ftp.server_tls.pin",
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
    ),
    ("ssh.listen", "'127.0.0.1:2223'"),
    ("ssh.target", "'10.20.0.6:22'"),
    ("ssh.host_key", "'other_host_key'"),
    ("ssh.clients", "['10.0.0.0/8']"),
    ("ssh.via", "'site-b'"),
    ("ssh.early", "'all'"),
    ("ssh.public_key", "['agent', 'certificate']"),
    ("ssh.channels", "['sftp']"),
    ("ssh.compress", "'auto'"),
    ("ssh.dedup", "'auto'"),
    ("ssh.tenant", "'red'"),
    ("ssh.cache", "true"),
    ("forward.listen", "'127.0.0.1:6202'"),
    ("forward.target", "'10.20.0.5:874'"),
    ("forward.clients", "['10.0.0.0/8']"),
    ("forward.via", "'site-b'"),
    ("forward.compress", "'auto'"),
    ("far.allow", "['10.20.0.5:21']"),
    ("far.ssh", "{ trust_on_first_use = true }"),
    ("far.ssh.known_hosts", "'other'"),
    (
        "far.ssh.host_key",
        "'SHA256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
    ),
    ("far.ssh.user_keys", "'keys'"),
    ("far.ssh.user_ca", "'a.pem.key'"),
    ("far.ssh.user_ca_force_command", "'internal-sftp'"),
    ("far.ssh.trust_on_first_use", "true"),
    ("limits.sessions_max", "9"),
    ("limits.sessions_per_client_max", "9"),
    ("limits.transfers_max", "9"),
    ("limits.forwards_max", "9"),
    ("limits.failed_logins_per_minute_max", "9"),
    ("limits.login_timeout", "'9 s'"),
    ("limits.idle_timeout", "'9 s'"),
    ("limits.stall_timeout", "'9 s'"),
    ("spool.folder", "'other'"),
    ("spool.size_max", "'1 GiB'"),
    ("store.folder", "'other'"),
    ("store.size_max", "'1 GiB'"),
    ("log.level", "'debug'"),
    ("log.format", "'json'"),
    ("log.transfer_log", "'other.log'"),
    ("log.transfer_log_format", "'xferlog'"),
    ("admin.listen", "'127.0.0.1:9811'"),
    ("admin.hosts", "['gw.example']"),
    ("admin.token_file", "'b.token'"),
    ("admin.socket", "'other.sock'"),
    ("admin.https", "{ listen = '127.0.0.1:9444' }"),
    ("admin.https.listen", "'127.0.0.1:9444'"),
    ("admin.https.certificate", "'a.pem'"),
    ("admin.https.key", "'a.pem.key'"),
    ("admin.https.client_ca", "'ca.pem'"),
];

/// Keys that need a second key. Each entry has a key, the path of the second key, and the value of
/// the second key.
const NEEDED: [(&str, &str, &str); 6] = [
    ("link.rate_reserved", "link.policy", "'reserved'"),
    ("ftp.tls.cert_file", "ftp.2.tls.key_file", "'a.pem.key'"),
    ("ftp.tls.key_file", "ftp.2.tls.cert_file", "'a.pem'"),
    ("admin.https.certificate", "admin.https.key", "'a.pem.key'"),
    ("admin.https.key", "admin.https.certificate", "'a.pem'"),
    (
        "far.ssh.user_ca_force_command",
        "far.ssh.user_ca",
        "'a.pem.key'",
    ),
];
