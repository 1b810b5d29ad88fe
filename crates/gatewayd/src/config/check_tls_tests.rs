use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::*;
use crate::config::{file::File, place};

/// A folder with a certificate, its key and a file of another kind. Each test has its own folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).expect("a file");
            set_mode(&path.join(name), 0o600);
        };
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("a certificate").pem();
        write("cert.pem", &cert);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a certificate");
        write("ca.pem", &ca.pem());
        write("key.pem", &key.serialize_pem());
        let other = KeyPair::generate().expect("a key").serialize_pem();
        write("other.key", &other);
        write("both.pem", &(cert.clone() + &key.serialize_pem()));
        write("empty.pem", "");
        write(
            "odd.pem",
            "-----BEGIN CERTIFICATE-----\nodd\n-----END CERTIFICATE-----\n",
        );
        write("bundle.pem", &cert.repeat(200));
        Self(path)
    }

    /// Parses an `[[ftp]]` section with a target and the lines `rest`. Returns its TLS settings for
    /// clients and for the server.
    fn read(&self, rest: &str) -> Result<(ListenerTls, Option<ServerTls>), (usize, usize, String)> {
        let text = format!("{HEAD}target = \"10.0.0.1\"\n{rest}\n");
        self.read_text(&text)
    }

    fn read_text(
        &self,
        text: &str,
    ) -> Result<(ListenerTls, Option<ServerTls>), (usize, usize, String)> {
        let file: File = toml::from_str(text).expect("well-formed");
        let identity = self.0.join("site-a.key");
        let both = || {
            let section = &file.ftp[0];
            let listener = listener(section, &self.0, &identity)?;
            Ok((listener, server(section, &self.0)?))
        };
        both().map_err(|problem: Problem| {
            let (line, column) = place(text, problem.span.start);
            (line, column, problem.message)
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

const HEAD: &str = "[identity]\nkey_file = \"site-a.key\"\n[[ftp]]\nlisten = \"127.0.0.1:2121\"\n";

/// Line number of the first key in `rest`. It follows [`HEAD`] and the line with the target.
const LINE: usize = 6;

#[test]
fn every_mode_is_read() {
    let folder = Folder::new("tls-modes");
    let read = |rest: &str| folder.read(rest).expect("well-formed");
    let off = read("tls = { mode = \"off\" }\nserver_tls = { mode = \"off\" }");
    assert_eq!(off, (ListenerTls::Off, None));
    assert_eq!(read(""), off);

    let made = CertSource {
        cert_file: folder.0.join("site-a.key.ftps.pem"),
        key_file: folder.0.join("site-a.key.ftps.key"),
        self_signed: true,
    };
    assert_eq!(
        read("tls = { mode = \"explicit\" }").0,
        ListenerTls::Explicit(made)
    );
    let given = CertSource {
        cert_file: folder.0.join("cert.pem"),
        key_file: folder.0.join("key.pem"),
        self_signed: false,
    };
    let implicit =
        "tls = { mode = \"implicit\", cert_file = \"cert.pem\", key_file = \"key.pem\" }";
    assert_eq!(read(implicit).0, ListenerTls::Implicit(given));
    read("tls = { mode = \"implicit\", cert_file = \"both.pem\", key_file = \"both.pem\" }");

    let server = |rest: &str| read(&format!("server_tls = {{ {rest} }}")).1.expect("TLS");
    let system = server("mode = \"explicit\"");
    assert_eq!(system.mode, TlsStart::Explicit);
    assert_eq!(system.verify, CertificateCheck::Roots(None));
    assert_eq!(server("mode = \"explicit\", verify = true"), system);
    assert_eq!(server("mode = \"implicit\"").mode, TlsStart::Implicit);
    assert_eq!(
        server("mode = \"explicit\", verify = false").verify,
        CertificateCheck::Off
    );
    let pin = format!("mode = \"explicit\", pin = \"{}\"", "ab".repeat(32));
    assert_eq!(
        server(&pin).verify,
        CertificateCheck::Pin(Fingerprint([0xab; 32]))
    );
    let CertificateCheck::Roots(Some(roots)) =
        server("mode = \"explicit\", roots_file = \"cert.pem\"").verify
    else {
        panic!("given roots");
    };
    assert_eq!(roots.len(), 1);
}

#[test]
fn certificates_that_cannot_be_used_name_file_and_place() {
    let folder = Folder::new("tls-files");
    for (cert, key, column, expected) in [
        ("absent.pem", "key.pem", 40, "absent.pem: No such file"),
        (
            "empty.pem",
            "key.pem",
            40,
            "empty.pem: expected certificates in PEM",
        ),
        (
            "key.pem",
            "key.pem",
            40,
            "key.pem: expected certificates in PEM",
        ),
        (
            "odd.pem",
            "key.pem",
            40,
            "odd.pem: expected certificates in PEM",
        ),
        ("cert.pem", "absent.pem", 66, "absent.pem: No such file"),
        (
            "cert.pem",
            "empty.pem",
            66,
            "empty.pem: expected an unencrypted private key",
        ),
        (
            "cert.pem",
            "cert.pem",
            66,
            "cert.pem: expected an unencrypted private key",
        ),
        (
            "cert.pem",
            "other.key",
            66,
            "other.key: this key does not fit the certificate",
        ),
    ] {
        let text = format!(
            "tls = {{ mode = \"explicit\", cert_file = {:14} key_file = \"{key}\" }}",
            format!("\"{cert}\",")
        );
        let (line, at, message) = folder.read(&text).expect_err("it cannot be used");
        assert!(message.contains(expected), "{message}");
        assert_eq!((line, at), (LINE, column), "{text}: {message}");
    }
    for (roots, expected) in [
        ("absent.pem", "absent.pem: No such file"),
        ("empty.pem", "there is none in it"),
        ("odd.pem", "odd.pem: expected certificates in PEM"),
        ("bundle.pem", "expected at most 49152"),
    ] {
        let text = format!("server_tls = {{ mode = \"explicit\", roots_file = \"{roots}\" }}");
        let (line, column, message) = folder.read(&text).expect_err("it cannot be used");
        assert!(message.contains(expected), "{message}");
        assert_eq!((line, column), (LINE, 48), "{message}");
    }
}

#[test]
fn keys_that_contradict_are_refused_where_they_stand() {
    let folder = Folder::new("tls-contradictions");
    for (text, column, expected) in [
        (
            "tls = { mode = \"maybe\" }",
            16,
            "unknown tls mode \"maybe\"",
        ),
        (
            "tls = { mode = \"explicit\", cert_file = \"c\" }",
            40,
            "needs key_file",
        ),
        (
            "tls = { mode = \"explicit\", key_file = \"k\" }",
            39,
            "needs cert_file",
        ),
        (
            "tls = { mode = \"off\", cert_file = \"c\" }",
            35,
            "needs tls mode",
        ),
        (
            "server_tls = { mode = \"pass-through\" }",
            23,
            "unknown server_tls mode",
        ),
        (
            "server_tls = { mode = \"off\", pin = \"ab\" }",
            36,
            "nothing to verify",
        ),
        (
            "server_tls = { mode = \"off\", roots_file = \"r\" }",
            43,
            "nothing to verify",
        ),
        (
            "server_tls = { mode = \"explicit\", pin = \"ab\" }",
            41,
            "64 hex digits",
        ),
        (
            "server_tls = { mode = \"explicit\", verify = false, pin = \"ab\" }",
            57,
            "contradicts verify = false",
        ),
        (
            "server_tls = { mode = \"explicit\", verify = false, roots_file = \"r\" }",
            64,
            "contradicts verify = false",
        ),
        (
            "server_tls = { mode = \"explicit\", roots_file = \"r\", pin = \"ab\" }",
            59,
            "one of them",
        ),
    ] {
        let (line, at, message) = folder.read(text).expect_err("a contradiction");
        assert!(message.contains(expected), "{text}: {message}");
        assert_eq!((line, at), (LINE, column), "{text}: {message}");
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let folder = Folder::new("tls-key-mode");
    let tls = "tls = { mode = \"implicit\", cert_file = \"cert.pem\", key_file = \"key.pem\" }";
    folder.read(tls).expect("0600");
    set_mode(&folder.0.join("key.pem"), 0o640);
    folder.read(tls).expect("0640, as of Debian's ssl-cert");
    for mode in [0o604, 0o660, 0o644] {
        set_mode(&folder.0.join("key.pem"), mode);
        let (line, column, message) = folder.read(tls).expect_err("others can read it");
        let at = tls.find("\"key.pem\"").expect("the key") + 1;
        assert_eq!((line, column), (LINE, at));
        assert!(
            message.contains("key.pem") && message.contains("chmod 640"),
            "{message}"
        );
    }
}

#[test]
fn rules_for_clients_are_read_and_need_tls() {
    let folder = Folder::new("tls-rules");
    let read = |keys: &str| {
        let text = format!("{HEAD}target = \"10.0.0.1\"\ntls = {{ {keys} }}\n");
        let file: File = toml::from_str(&text).expect("well-formed");
        rules(&file.ftp[0], &folder.0)
    };
    let default = read("mode = \"explicit\"").ok().expect("the defaults");
    assert_eq!(default, TlsRules::default());
    assert!(default.must_resume && !default.is_required);
    let all = "mode = \"explicit\", required = true, min_version = \"1.3\", \
               client_roots_file = \"ca.pem\", require_reuse = false";
    let all = read(all).ok().expect("well-formed");
    assert!(all.is_required && !all.must_resume);
    assert_eq!(all.version_min, TlsVersion::Tls13);
    assert_eq!(all.client_roots.map(|roots| roots.len()), Some(1));
    for (keys, expected) in [
        (
            "mode = \"explicit\", min_version = \"1.1\"",
            "\"1.2\" or \"1.3\"",
        ),
        (
            "mode = \"explicit\", client_roots_file = \"empty.pem\"",
            "there is none",
        ),
        (
            "mode = \"explicit\", client_roots_file = \"cert.pem\"",
            "is not that of a CA",
        ),
        (
            "mode = \"explicit\", client_roots_file = \"absent.pem\"",
            "absent.pem",
        ),
    ] {
        let Err(problem) = read(keys) else {
            panic!("{keys} is no mistake");
        };
        assert!(problem.message.contains(expected), "{}", problem.message);
    }
    for key in [
        "required = true",
        "min_version = \"1.2\"",
        "require_reuse = true",
    ] {
        let off = format!("tls = {{ mode = \"off\", {key} }}");
        let (_, _, message) = folder.read(&off).expect_err("no TLS");
        assert!(message.contains("needs tls mode"), "{key}: {message}");
    }
}
