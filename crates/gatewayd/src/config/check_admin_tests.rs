use std::{fs, os::unix::fs::PermissionsExt};

use link::Identity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use crate::config::Config;
use net::tls::CertSource;

/// A folder with an identity, a token and a certificate. Each test has its own folder.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder");
        let identity = Identity::generate();
        identity
            .write_new(&path.join("a.key"))
            .expect("a new key file");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("a certificate").pem();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a certificate").pem();
        for (name, text) in [
            ("admin.token", "0123456789abcdef0123456789abcdef"),
            ("gw.pem", &cert),
            ("ca.pem", &ca),
            ("gw.key", &key.serialize_pem()),
            ("empty.pem", ""),
        ] {
            fs::write(path.join(name), text).expect("a file");
            let owner_only = fs::Permissions::from_mode(0o600);
            fs::set_permissions(path.join(name), owner_only).expect("chmod");
        }
        Self(path)
    }

    /// Parses a configuration. `admin` and `https` are the keys of `[admin]` and `[admin.https]`.
    fn parse(&self, admin: &str, https: &str) -> Result<Config, String> {
        let text = format!(
            "[identity]\nkey_file = \"a.key\"\n[admin]\nlisten = \"127.0.0.1:9810\"\n{admin}\n[admin.https]\n{https}"
        );
        Config::parse(&text, &self.0.join("a.toml")).map_err(|error| error.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LISTEN: &str = "listen = \"10.0.0.1:9443\"\n";
const TOKEN: &str = "token_file = \"admin.token\"";

#[test]
fn an_address_with_tls_is_read() {
    let folder = Folder::new("https");
    let config = folder.parse(TOKEN, LISTEN).expect("a token is enough");
    let made = CertSource {
        cert_file: folder.0.join("a.key.https.pem"),
        key_file: folder.0.join("a.key.https.key"),
        self_signed: true,
    };
    let https = config.admin_https.as_ref().expect("there is one");
    assert_eq!(
        (https.certificate.clone(), https.client_ca.len()),
        (made, 0)
    );
    let shown = config.to_string();
    assert!(
        shown.contains("dashboard on https://10.0.0.1:9443\n"),
        "{shown}"
    );
    let given = "certificate = \"gw.pem\"\nkey = \"gw.key\"\nclient_ca = \"ca.pem\"\n";
    let config = folder.parse("", &format!("{LISTEN}{given}"));
    let https = config.expect("so is a CA").admin_https;
    let https = https.expect("there is one");
    assert!(!https.certificate.self_signed);
    assert_eq!(https.client_ca.len(), 1);
}

#[test]
fn an_address_with_tls_that_cannot_work_names_its_place() {
    let folder = Folder::new("https-errors");
    for (admin, https, expected) in [
        ("", "", "6:1: missing field \"listen\""),
        (
            "",
            LISTEN,
            "7:10: no user could log in: expected client_ca, or token_file in [admin]",
        ),
        (TOKEN, "listen = \"9443\"\n", "7:10: expected ADDRESS:PORT"),
        (
            TOKEN,
            "listen = \"127.0.0.1:9810\"\n",
            "7:10: [admin] listens on this address",
        ),
        (
            TOKEN,
            "certificate = \"gw.pem\"\n",
            "7:15: certificate needs key",
        ),
        (TOKEN, "key = \"gw.key\"\n", "7:7: key needs certificate"),
        (
            TOKEN,
            "certificate = \"absent.pem\"\nkey = \"gw.key\"\n",
            "absent.pem: No such file",
        ),
        (
            TOKEN,
            "certificate = \"gw.pem\"\nkey = \"empty.pem\"\n",
            "8:7: ",
        ),
        ("", "client_ca = \"empty.pem\"\n", "7:13: "),
        (
            "",
            "client_ca = \"gw.pem\"\n",
            "certificate 1 is not that of a CA",
        ),
        (
            "",
            "client_ca = \"absent.pem\"\n",
            "absent.pem: No such file",
        ),
        (TOKEN, "hosts = []\n", "7:1: unknown field \"hosts\""),
    ] {
        let listen = match https.is_empty() || https.starts_with("listen") {
            true => "",
            false => LISTEN,
        };
        // The test appends the key, so that the numbers of earlier lines do not change.
        let error = folder.parse(admin, &format!("{https}{listen}"));
        let error = error.expect_err(https);
        assert!(error.contains(expected), "{https}: {error}");
    }
    let listener = "[[ftp]]\nlisten = \"10.0.0.1:9443\"\nclients = []\n";
    let error = folder.parse(TOKEN, &format!("{LISTEN}{listener}"));
    let error = error.expect_err("taken");
    assert!(
        error.contains("9:10: the section [admin] or [admin.https] listens on this address"),
        "{error}"
    );
}
