//! Tests of the server certificates that the gateway accepts, and of the certificate that it sends
//! to clients.

use std::{fs, io, os::unix::fs::PermissionsExt, sync::Arc};

use net::tls::{
    Acceptor, AcceptorError, CertError, CertSource, CertificateCheck, CertificateRejection,
    ConnectionKind, Connector, Fingerprint, RootsError,
};
use rustls::version::{TLS12, TLS13};

use crate::tls_common::{
    Authority, Folder, Issued, NAME, TlsServer, acceptor, client, handshake, server_tls, soon,
    tcp_pair,
};

/// Connects to a server that has the certificate `issued`. `name` is the expected host name.
/// Returns the result.
async fn connect(issued: &Issued, verify: CertificateCheck, name: &str) -> Result<(), io::Error> {
    let mut results = Vec::new();
    for version in [&TLS12, &TLS13] {
        let server = TlsServer::new(issued, &[version]);
        let connector = Connector::new(&server_tls(verify.clone())).expect("roots");
        let (near, far) = tcp_pair().await;
        let both = async {
            tokio::join!(
                connector.connect(near, name, ConnectionKind::Control),
                server.accept(far, ConnectionKind::Control)
            )
        };
        results.push(soon(both).await.0.map(drop));
    }
    let (newer, older) = (results.pop().expect("two"), results.pop().expect("two"));
    assert_eq!(
        newer.is_ok(),
        older.is_ok(),
        "the version makes no difference"
    );
    newer
}

fn rejection(result: Result<(), io::Error>) -> CertificateRejection {
    let error = result.expect_err("the certificate is not accepted");
    let inner = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<CertificateRejection>());
    inner.unwrap_or_else(|| panic!("{error}")).clone()
}

#[tokio::test]
async fn roots_decide_the_trusted_servers() {
    let (ours, other) = (Authority::new(), Authority::new());
    let issued = ours.issue();
    let roots = |authority: &Authority| CertificateCheck::Roots(Some(vec![authority.root()]));
    connect(&issued, roots(&ours), NAME)
        .await
        .expect("our root");
    connect(&issued, roots(&ours), "127.0.0.1")
        .await
        .expect("its address");
    let both = CertificateCheck::Roots(Some(vec![other.root(), ours.root()]));
    connect(&issued, both, NAME)
        .await
        .expect("one of two roots");

    let wrong = rejection(connect(&issued, roots(&other), NAME).await);
    let fingerprint = Fingerprint::of(&issued.cert);
    assert!(
        matches!(wrong, CertificateRejection::Untrusted { fingerprint: got, .. } if got == fingerprint)
    );
    assert!(
        wrong
            .to_string()
            .contains("is not trusted: none of the roots"),
        "{wrong}"
    );
    let system = connect(&issued, CertificateCheck::Roots(None), NAME);
    if Connector::new(&server_tls(CertificateCheck::Roots(None))).is_ok() {
        assert!(matches!(
            rejection(system.await),
            CertificateRejection::Untrusted { .. }
        ));
    }
}

#[tokio::test]
async fn a_certificate_of_another_name_or_time_says_so() {
    let authority = Authority::new();
    let roots = CertificateCheck::Roots(Some(vec![authority.root()]));
    let name = rejection(connect(&authority.issue(), roots.clone(), "ftp.example.org").await);
    let text = name.to_string();
    assert!(
        text.contains(
            "name mismatch, it is for ftp.example.com, 127.0.0.1, not for ftp.example.org"
        ),
        "{text}"
    );
    let address = rejection(connect(&authority.issue(), roots.clone(), "[::1]").await);
    assert!(
        matches!(address, CertificateRejection::Name { .. }),
        "{address}"
    );

    let expired = rejection(connect(&authority.issue_until(2001), roots.clone(), NAME).await);
    assert!(
        expired
            .to_string()
            .contains("expired on 2001-01-01T00:00:00Z"),
        "{expired}"
    );

    let error = connect(&authority.issue(), roots, "a b")
        .await
        .expect_err("no name");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn a_pin_replaces_roots_names_and_dates() {
    let authority = Authority::new();
    let (issued, other) = (authority.issue_until(2001), authority.issue());
    let pin = Fingerprint::of(&issued.cert);
    connect(&issued, CertificateCheck::Pin(pin), "a_b")
        .await
        .expect("the pinned certificate");
    let wrong = rejection(connect(&other, CertificateCheck::Pin(pin), NAME).await);
    let got = Fingerprint::of(&other.cert);
    assert!(
        wrong
            .to_string()
            .contains(&format!("pin differs: got {got}")),
        "{wrong}"
    );
}

#[tokio::test]
async fn without_verification_everybody_is_trusted() {
    let issued = Authority::new().issue_until(2001);
    connect(&issued, CertificateCheck::Off, "whoever it is")
        .await
        .expect("anybody");
}

#[tokio::test]
async fn roots_that_are_none_are_refused_at_once() {
    let none = Connector::new(&server_tls(CertificateCheck::Roots(Some(Vec::new()))));
    assert_eq!(none.expect_err("no roots"), RootsError::None);
    let odd = CertificateCheck::Roots(Some(vec![b"odd".to_vec().into()]));
    let odd = Connector::new(&server_tls(odd)).expect_err("no certificate");
    assert!(matches!(odd, RootsError::Unusable(_)), "{odd}");
}

#[tokio::test]
async fn a_client_that_does_not_trust_us_is_said_to() {
    let folder = Folder::new("untrusted");
    let authority = Authority::new();
    let files = (folder.path("cert.pem"), folder.path("key.pem"));
    let acceptor = acceptor(authority.issue().write(&files.0, &files.1)).expect("files");
    let config = Arc::new(client(&Authority::new(), &[&TLS13]));
    let (client, leg) = handshake(&config, &acceptor, ConnectionKind::Control).await;
    client.expect_err("an unknown root");
    let error = leg.expect_err("the client leaves");
    assert!(error.to_string().contains("does not trust"), "{error}");
}

/// Returns the fingerprint of the certificate that the acceptor sends to clients.
async fn shown(acceptor: &Acceptor, authority: &Authority) -> Fingerprint {
    let config = Arc::new(client(authority, &[&TLS13]));
    let (client, leg) = handshake(&config, acceptor, ConnectionKind::Control).await;
    leg.expect("accepted");
    let client = client.expect("connected");
    let chain = client
        .get_ref()
        .1
        .peer_certificates()
        .expect("certificates");
    Fingerprint::of(&chain[0])
}

#[tokio::test]
async fn a_changed_certificate_is_taken_on_and_a_broken_one_is_not() {
    let folder = Folder::new("reload");
    let authority = Authority::new();
    let files = (folder.path("cert.pem"), folder.path("key.pem"));
    let (first, second) = (authority.issue(), authority.issue());
    let acceptor = acceptor(first.write(&files.0, &files.1)).expect("files");
    assert_eq!(
        shown(&acceptor, &authority).await,
        Fingerprint::of(&first.cert)
    );

    // Between the two writes the key does not match the certificate.
    fs::write(&files.0, &second.pem).expect("a file");
    assert_eq!(
        shown(&acceptor, &authority).await,
        Fingerprint::of(&first.cert)
    );
    fs::write(&files.1, second.key.serialize_pem()).expect("a file");
    assert_eq!(
        shown(&acceptor, &authority).await,
        Fingerprint::of(&second.cert)
    );

    fs::write(&files.0, "-----BEGIN CERTIFICATE-----\nodd").expect("a file");
    assert_eq!(
        shown(&acceptor, &authority).await,
        Fingerprint::of(&second.cert)
    );
    fs::remove_file(&files.1).expect("a file");
    acceptor.reload();
    assert_eq!(acceptor.fingerprint(), Fingerprint::of(&second.cert));
    first.write(&files.0, &files.1);
    let open_to_all = PermissionsExt::from_mode(0o644);
    fs::set_permissions(&files.1, open_to_all).expect("chmod");
    acceptor.reload();
    assert_eq!(
        acceptor.fingerprint(),
        Fingerprint::of(&second.cert),
        "others can read the new key"
    );
    first.write(&files.0, &files.1);
    acceptor.reload();
    assert_eq!(
        shown(&acceptor, &authority).await,
        Fingerprint::of(&first.cert)
    );
}

#[tokio::test]
async fn a_session_outlives_a_change_of_certificate() {
    let folder = Folder::new("outlives");
    let authority = Authority::new();
    let files = (folder.path("cert.pem"), folder.path("key.pem"));
    let acceptor = acceptor(authority.issue().write(&files.0, &files.1)).expect("files");
    let config = Arc::new(client(&authority, &[&TLS12]));
    let (control, leg) = handshake(&config, &acceptor, ConnectionKind::Control).await;
    let _control = (control.expect("connected"), leg.expect("accepted"));
    authority.issue().write(&files.0, &files.1);
    acceptor.reload();
    let (data, leg) = handshake(&config, &acceptor, ConnectionKind::Data).await;
    data.expect("connected");
    assert!(leg.expect("accepted").is_resumed());
}

#[test]
fn a_self_signed_certificate_is_made_once() {
    let folder = Folder::new("self-signed");
    let source = CertSource {
        cert_file: folder.path("site-a.key.ftps.pem"),
        key_file: folder.path("site-a.key.ftps.key"),
        self_signed: true,
    };
    let start = || acceptor(source.clone()).map(|acceptor| acceptor.fingerprint());
    let first = start().expect("made");
    let mode = fs::metadata(&source.key_file)
        .expect("a key file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(start().expect("reused"), first);
    let key = fs::read(&source.key_file).expect("a key file");

    fs::remove_file(&source.cert_file).expect("a certificate file");
    start().expect("a new certificate for the same key");
    assert_eq!(fs::read(&source.key_file).expect("a key file"), key);

    fs::remove_file(&source.key_file).expect("a key file");
    assert_ne!(start().expect("both are new"), first);

    fs::write(&source.key_file, "odd").expect("a key file");
    let error = start().expect_err("never written over");
    let AcceptorError::Certificate(error) = error else {
        panic!("{error}");
    };
    assert!(matches!(error, CertError::NotAKey { .. }), "{error}");
    assert_eq!(error.path(), source.key_file);
}

#[tokio::test]
async fn a_self_signed_certificate_can_be_pinned() {
    let folder = Folder::new("pinned");
    let source = CertSource {
        cert_file: folder.path("k.ftps.pem"),
        key_file: folder.path("k.ftps.key"),
        self_signed: true,
    };
    let acceptor = acceptor(source).expect("made");
    let pin = CertificateCheck::Pin(acceptor.fingerprint());
    let connector = Connector::new(&server_tls(pin)).expect("a pin");
    let (near, far) = tcp_pair().await;
    let both = async {
        tokio::join!(
            connector.connect(near, NAME, ConnectionKind::Control),
            acceptor.accept(far, ConnectionKind::Control)
        )
    };
    let (near, far) = soon(both).await;
    near.expect("connected");
    far.expect("accepted");
}
