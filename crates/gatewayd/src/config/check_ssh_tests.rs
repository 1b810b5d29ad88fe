use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::super::{Config, ConfigError};
use link::Identity;
use relay::settings::ListenerCoding;
use ssh::{ChannelKind, EarlyReplies, PublicKeyWay};

/// A folder with the key of a gateway. Each test has its own folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder");
        Identity::generate()
            .write_new(&path.join("a.key"))
            .expect("a new key file");
        Self(path)
    }

    /// Writes a file with this mode, and returns its path.
    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our file");
        path
    }

    /// Parses a file with a peer that serves 10.20.0.0/16. The first line of `rest` is line 7.
    fn parse(&self, rest: &str) -> Result<Config, ConfigError> {
        let peer = Identity::from_seed([3; 32]).public_key();
        let text = format!(
            "[identity]\nkey_file = \"a.key\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"{peer}\"\nserves = [\"10.20.0.0/16\"]\n{rest}"
        );
        Config::parse(&text, &self.0.join("a.toml"))
    }

    /// Parses a listener with a target and these further keys. Their first line is line 10.
    fn parse_listener(&self, rest: &str) -> Result<Config, ConfigError> {
        self.parse(&format!("{LISTENER}{rest}"))
    }

    #[track_caller]
    fn expect_error(&self, rest: &str, at: (usize, usize), expected: &str) {
        let error = self.parse(rest).expect_err(rest);
        assert!(error.message.contains(expected), "{rest}: {error}");
        assert_eq!(error.at, Some(at), "{rest}: {error}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LISTENER: &str = "[[ssh]]\nlisten = \"0.0.0.0:2222\"\ntarget = \"10.20.0.5\"\n";

#[test]
fn a_listener_without_further_keys_has_the_defaults() {
    let folder = Folder::new("ssh-defaults");
    let config = folder.parse_listener("").expect("a valid configuration");
    let listener = &config.ssh[0];
    let target = listener.target.as_ref().expect("a target");
    assert_eq!(target.to_string(), "10.20.0.5:22");
    assert_eq!(listener.early, EarlyReplies::Held);
    assert_eq!(listener.public_key, [PublicKeyWay::Agent]);
    assert_eq!(
        listener.channels,
        [ChannelKind::Sftp, ChannelKind::Exec, ChannelKind::Shell]
    );
    assert_eq!(listener.coding, ListenerCoding::default(), "no coding");
    assert_eq!(listener.host_key_file, folder.0.join("ssh_host_ed25519"));
    assert!(
        !listener.host_key_file.exists(),
        "a check makes no host key"
    );
    assert_eq!((listener.via, &listener.clients), (None, &None));
    let far = &config.far_ssh;
    assert_eq!(far.known_hosts, Some(folder.0.join("ssh_known_hosts")));
    assert_eq!((&far.host_key, far.trust_on_first_use), (&None, false));
    assert_eq!((&far.user_keys, &far.user_ca), (&None, &None));
}

#[test]
fn all_keys_of_the_contract_are_read() {
    let folder = Folder::new("ssh-contract");
    fs::create_dir(folder.0.join("keys")).expect("a folder");
    folder.file("ca", "a key", 0o600);
    let rest = "host_key = \"keys/host\"\nclients = [\"10.0.0.0/8\"]\nvia = \"site-b\"\n\
                early = \"all\"\npublic_key = [\"key\", \"certificate\"]\n\
                channels = [\"sftp\", \"exec\"]\n\
                [far]\nallow = [\"10.20.0.5:22\"]\n\
                [far.ssh]\nknown_hosts = \"known\"\nuser_keys = \"keys\"\nuser_ca = \"ca\"\n\
                user_ca_force_command = \"internal-sftp\"\ntrust_on_first_use = true\n";
    let config = folder.parse_listener(rest).expect("a valid configuration");
    let listener = &config.ssh[0];
    assert_eq!(listener.host_key_file, folder.0.join("keys/host"));
    assert_eq!(listener.clients.as_ref().map(Vec::len), Some(1));
    assert_eq!((listener.via, listener.early), (Some(0), EarlyReplies::All));
    assert_eq!(
        listener.public_key,
        [PublicKeyWay::Key, PublicKeyWay::Certificate]
    );
    assert_eq!(listener.channels, [ChannelKind::Sftp, ChannelKind::Exec]);
    let far = &config.far_ssh;
    assert_eq!(far.known_hosts, Some(folder.0.join("known")));
    assert_eq!(far.user_keys, Some(folder.0.join("keys")));
    assert_eq!(far.user_ca, Some(folder.0.join("ca")));
    let forced = far.user_ca_force_command.as_deref();
    assert_eq!(forced, Some("internal-sftp"));
    assert!(far.trust_on_first_use);
    let none = folder.parse_listener("public_key = []\n");
    assert_eq!(none.expect("no way is permitted").ssh[0].public_key, []);
}

#[test]
fn coding_is_permitted_explicitly() {
    let folder = Folder::new("ssh-coding");
    let coding = |rest: &str| {
        let config = folder.parse_listener(&format!("{rest}[store]\nfolder = \"store\"\n"));
        config.expect(rest).ssh[0].coding.clone()
    };
    let none = ListenerCoding::default();
    let compressed = ListenerCoding {
        compresses: true,
        ..none.clone()
    };
    assert_eq!(coding(""), none);
    assert_eq!(coding("compress = \"auto\"\n"), compressed);
    let both = ListenerCoding {
        deduplicates: true,
        caches: true,
        ..none.clone()
    };
    assert_eq!(coding("dedup = \"auto\"\n"), both);
    let cached = ListenerCoding {
        caches: true,
        ..none
    };
    assert_eq!(coding("cache = true\n"), cached);
    let error = |rest: &str| folder.parse_listener(rest).expect_err(rest).message;
    let text = error("cache = true\n");
    assert!(text.contains("cache = true needs [store]"), "{text}");
    let text = error("compress = \"9\"\n");
    assert!(text.contains("expected \"auto\" or \"off\""), "{text}");
    let text = error("tenant = \"blue\"\n");
    assert!(text.contains("tenants: add it there"), "{text}");
}

#[test]
fn the_summary_names_the_host_key_and_the_source_of_host_keys_of_servers() {
    let folder = Folder::new("ssh-summary");
    let summary = |rest: &str| {
        let config = folder.parse(rest).expect("a valid configuration");
        config.to_string()
    };
    let host_key = folder.0.join("ssh_host_ed25519");
    let host_key = host_key.display();
    let shown = summary(LISTENER);
    let line = format!("ssh on 0.0.0.0:2222 to 10.20.0.5:22, host key {host_key}\n");
    assert!(shown.contains(&line), "{shown}");
    assert!(!shown.contains("ssh servers by"), "{shown}");
    let shown = summary("[[ssh]]\nlisten = \"127.0.0.1:1\"\nclients = [\"10.0.0.0/8\"]\n");
    assert!(
        shown.contains("ssh on 127.0.0.1:1 to user%server,"),
        "{shown}"
    );
    let known = folder.0.join("known");
    let shown = summary("[far.ssh]\nknown_hosts = \"known\"\ntrust_on_first_use = true\n");
    let line = format!(
        "ssh servers by the host keys in {}, with trust on first use\n",
        known.display()
    );
    assert!(shown.contains(&line), "{shown}");
    let shown = summary(&format!("[far.ssh]\nhost_key = \"{PIN}\"\n"));
    assert!(
        shown.contains(&format!("ssh servers by the host key {PIN}\n")),
        "{shown}"
    );
}

#[test]
fn mistakes_in_a_listener_are_named_with_their_position() {
    let folder = Folder::new("ssh-mistakes");
    let mistakes = [
        (
            "early = \"yes\"\n",
            (10, 9),
            "unknown early \"yes\", expected \"off\", \"held\" or \"all\"",
        ),
        (
            "public_key = [\"agent\", \"keys\"]\n",
            (10, 24),
            "unknown public_key \"keys\", expected \"agent\", \"key\" or \"certificate\"",
        ),
        (
            "public_key = [\"agent\", \"agent\"]\n",
            (10, 24),
            "\"agent\" is in the list twice",
        ),
        (
            "channels = [\"scp\"]\n",
            (10, 13),
            "unknown channel \"scp\", expected \"sftp\", \"exec\" or \"shell\"",
        ),
        ("channels = []\n", (10, 12), "expected \"sftp\""),
        ("via = \"site-c\"\n", (10, 7), "expected one of: \"site-b\""),
        (
            "host_key = \"missing/host\"\n",
            (10, 12),
            "cannot make the host key",
        ),
        ("mode = \"fast\"\n", (10, 1), "unknown field \"mode\""),
    ];
    for (rest, at, expected) in mistakes {
        folder.expect_error(&format!("{LISTENER}{rest}"), at, expected);
    }
    for (listener, at, expected) in [
        (
            "listen = \"127.0.0.1:1\"\n",
            (8, 10),
            "without target needs clients",
        ),
        (
            "listen = \"127.0.0.1:1\"\ntarget = \"10.30.0.5\"\n",
            (9, 10),
            "no [[peer]] serves this target",
        ),
        (
            "listen = \"127.0.0.1:1\"\ntarget = \"a b\"\n",
            (9, 10),
            "such as \"10.20.0.5:22\"",
        ),
        (
            "listen = \"127.0.0.1:1\"\ntarget = \"10.20.0.5\"\n\
             [[forward]]\nlisten = \"127.0.0.1:1\"\ntarget = \"10.20.0.5:873\"\n",
            (11, 10),
            "another section listens on this address",
        ),
    ] {
        folder.expect_error(&format!("[[ssh]]\n{listener}"), at, expected);
    }
}

#[test]
fn an_unusable_host_key_is_refused_at_its_key() {
    let folder = Folder::new("ssh-host-key");
    folder.file("no_key", "no key\n", 0o600);
    let text = format!("{LISTENER}host_key = \"no_key\"\n");
    folder.expect_error(&text, (10, 12), "no_key");
    // Without the key `host_key`, the error's position is that of the listener's address.
    folder.file("ssh_host_ed25519", "no key\n", 0o600);
    folder.expect_error(LISTENER, (8, 10), "ssh_host_ed25519");
    fs::remove_file(folder.0.join("ssh_host_ed25519")).expect("our file");
    let made = folder.0.join("made");
    ssh::HostKey::load_or_create(&made).expect("a new key");
    let text = format!("{LISTENER}host_key = \"made\"\n");
    folder.parse(&text).expect("a valid host key");
    let open = fs::Permissions::from_mode(0o640);
    fs::set_permissions(&made, open).expect("our file");
    folder.expect_error(&text, (10, 12), "lets other users read it");
}

#[test]
fn mistakes_in_the_log_ins_at_servers_are_named_with_their_position() {
    let folder = Folder::new("ssh-far-mistakes");
    folder.file("open", "a key", 0o640);
    folder.file("file", "a key", 0o600);
    let shared = folder.0.join("shared");
    fs::create_dir(&shared).expect("a folder");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("our folder");
    let pinned = format!("host_key = \"{PIN}\"\n");
    let known = format!("{pinned}known_hosts = \"known\"\n");
    let trusting = format!("{pinned}trust_on_first_use = true\n");
    for (keys, at, expected) in [
        ("host_key = \"SHA256:abc\"\n", (8, 12), "and 43 characters"),
        ("host_key = \"MD5:00\"\n", (8, 12), "ssh-keygen -l"),
        (&known, (9, 15), "known_hosts contradicts host_key"),
        (
            &trusting,
            (9, 22),
            "trust_on_first_use contradicts host_key",
        ),
        ("user_keys = \"none\"\n", (8, 13), "No such file"),
        ("user_keys = \"file\"\n", (8, 13), "expected a folder"),
        ("user_keys = \"shared\"\n", (8, 13), "chmod go-w"),
        (
            "user_ca_force_command = \"true\"\n",
            (8, 25),
            "set user_ca, too",
        ),
        (
            "user_ca_force_command = \"a\\nb\"\nuser_ca = \"file\"\n",
            (8, 25),
            "expected a command in one line",
        ),
        ("user_ca = \"none\"\n", (8, 11), "No such file"),
        ("user_ca = \"shared\"\n", (8, 11), "expected a file"),
        (
            "user_ca = \"open\"\n",
            (8, 11),
            "(mode 640); run: chmod 600",
        ),
    ] {
        folder.expect_error(&format!("[far.ssh]\n{keys}"), at, expected);
    }
    let far = folder
        .parse(&format!("[far.ssh]\n{pinned}"))
        .expect("valid");
    assert_eq!(far.far_ssh.host_key.as_deref(), Some(PIN));
    assert_eq!(far.far_ssh.known_hosts, None, "the pin replaces the file");
}

const PIN: &str = "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGDeYTFOnPJQeNqMTj0";
