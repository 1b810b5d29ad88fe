//! Tests of a listener's rules for TLS with clients: mandatory TLS, TLS versions, client
//! certificates, and TLS session resumption on data connections.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use net::tls::{ConnectionKind, Connector, Leg};
use rustls::{
    ClientConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    version::{TLS12, TLS13},
};
use tokio::{io::AsyncReadExt, runtime::Runtime};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    common::{self, Control, World, connect, expect_reset, passive_port},
    ftps_common::{self, EXPLICIT, Secured, runtime, secure, secured_client, trusting},
    tls_common::{self, Authority, Folder, NAME},
};

/// Starts a download of the bytes "all". The gateways keep the bytes until the client starts TLS.
/// Returns the client's data connection and the server's data listener.
fn downloading(client: &mut Secured<'_>, server: &mut Control) -> (TcpStream, TcpListener) {
    client.send("PASV");
    let listener = server.open_data_port();
    let data = connect(passive_port(&client.line()));
    client.send("RETR a");
    server.expect("RETR a");
    server.send("150 go");
    client.expect("150 go");
    let mut server_data = common::accept(&listener);
    server_data.write_all(b"all").expect("the gateway reads");
    (data, listener)
}

fn read_all(runtime: &Runtime, data: &mut Leg) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    runtime.block_on(data.read_to_end(&mut bytes))?;
    Ok(bytes)
}

/// Opens a data connection with `other`, and asserts that no bytes are transferred. The client or
/// the gateway may abort the handshake.
fn expect_refused(runtime: &Runtime, data: TcpStream, other: &Connector) {
    data.set_nonblocking(true).expect("a socket option");
    let read = runtime.block_on(tls_common::soon(async {
        let tcp = tokio::net::TcpStream::from_std(data).expect("a connection");
        let mut leg = other.connect(tcp, NAME, ConnectionKind::Data).await?;
        leg.read_to_end(&mut Vec::new()).await
    }));
    assert!(read.is_err(), "{read:?}");
}

/// Asserts that `other` cannot open the data connection in place of the client.
fn taken_by(other: &Connector) {
    let (world, runtime) = (World::start_with("", EXPLICIT), runtime());
    let connector = trusting();
    let (mut client, mut server) = secured_client(&world, &runtime, &connector);
    let (data, _listener) = downloading(&mut client, &mut server);
    expect_refused(&runtime, data, other);
    server.send("226 done");
    let reply = client.expect("426 gateway: ");
    assert!(reply.contains("require_reuse = false"), "{reply}");
}

#[test]
fn a_data_connection_with_a_tls_session_of_its_own_is_reset() {
    taken_by(&trusting());
}

#[test]
fn a_data_connection_of_another_session_of_the_same_listener_is_reset() {
    let (world, runtime) = (World::start_with("", EXPLICIT), runtime());
    let (own, other) = (trusting(), trusting());
    let (mut client, mut server) = secured_client(&world, &runtime, &own);
    let (_neighbour, _its_server) = secured_client(&world, &runtime, &other);
    let (data, _listener) = downloading(&mut client, &mut server);
    expect_refused(&runtime, data, &other);
    server.send("226 done");
    client.expect("426 gateway: ");
    // The client's own next data connection is accepted.
    let (data, _listener) = downloading(&mut client, &mut server);
    let mut data = secure(&runtime, data, |tcp| {
        own.connect(tcp, NAME, ConnectionKind::Data)
    });
    assert!(data.is_resumed());
    server.send("226 done");
    assert_eq!(
        read_all(&runtime, &mut data).expect("an orderly end"),
        b"all"
    );
    client.expect("226 done");
}

#[test]
fn a_listener_can_accept_data_connections_without_resumption() {
    let listener = "tls = { mode = \"explicit\", require_reuse = false }";
    let (world, runtime) = (World::start_with("", listener), runtime());
    let (mut client, mut server) = secured_client(&world, &runtime, &trusting());
    let (data, _listener) = downloading(&mut client, &mut server);
    let other = trusting();
    let mut data = secure(&runtime, data, |tcp| {
        other.connect(tcp, NAME, ConnectionKind::Data)
    });
    assert!(!data.is_resumed());
    server.send("226 done");
    assert_eq!(
        read_all(&runtime, &mut data).expect("an orderly end"),
        b"all"
    );
    client.expect("226 done");
}

#[test]
fn where_tls_is_required_a_client_without_gets_nowhere() {
    let listener = "tls = { mode = \"explicit\", required = true }";
    let (world, runtime) = (World::start_with("", listener), runtime());
    let (mut client, mut server) = world.session();
    client.send("USER joe");
    client.expect("530 gateway: TLS is required here: choose explicit TLS (ftpes:// or --ssl-reqd), AUTH TLS comes first");
    client.send("SYST");
    server.expect("SYST");
    server.send("215 UNIX");
    client.expect("215 UNIX");
    let connector = trusting();
    let mut client = ftps_common::protected(client, &runtime, &connector);
    client.send("PROT C");
    client.expect("534 gateway: ");
    client.send("USER joe");
    server.expect("USER joe");
}

/// Creates a client configuration of the TLS library itself.
fn client_of(
    authority: &Authority,
    versions: tls_common::Versions<'_>,
    has_certificate: bool,
) -> Arc<ClientConfig> {
    let mut config = tls_common::client(authority, versions);
    if has_certificate {
        let issued = authority.issue();
        let key: PrivateKeyDer<'static> =
            PrivatePkcs8KeyDer::from(issued.key.serialize_der()).into();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).expect("a key");
        let certified = rustls::sign::CertifiedKey::new(vec![issued.cert], key);
        config.client_auth_cert_resolver =
            Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    }
    Arc::new(config)
}

/// Runs a TLS handshake. Continues until the gateway sends an alert, or replies to a command.
fn begin(
    runtime: &Runtime,
    mut client: Control,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    client.send("AUTH TLS");
    client.expect_code("234 ");
    client
        .stream
        .set_nonblocking(true)
        .expect("a socket option");
    runtime.block_on(tls_common::soon(async {
        let tcp = tokio::net::TcpStream::from_std(client.stream).expect("a connection");
        let name = ServerName::try_from(NAME).expect("a name");
        let mut tls = TlsConnector::from(config.clone())
            .connect(name, tcp)
            .await?;
        tokio::io::AsyncWriteExt::write_all(&mut tls, b"PBSZ 0\r\n").await?;
        let mut answer = [0; 12];
        tls.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"200 PBSZ=0\r\n");
        Ok(tls)
    }))
}

/// Returns the TLS keys of a listener. `authority` signs the listener's certificate, and `keys` are
/// further keys.
fn listener(folder: &Folder, authority: &Authority, keys: &str) -> String {
    let (cert, key) = (folder.path("listener.pem"), folder.path("listener.key"));
    authority.issue().write(&cert, &key);
    std::fs::write(folder.path("roots.pem"), authority.pem()).expect("a file");
    format!(
        "tls = {{ mode = \"explicit\", cert_file = \"{}\", key_file = \"{}\", {} }}",
        cert.display(),
        key.display(),
        keys.replace("ROOTS", &folder.path("roots.pem").display().to_string())
    )
}

#[test]
fn clients_without_a_certificate_of_the_roots_get_an_alert() {
    let (folder, authority, runtime) = (Folder::new("client-cert"), Authority::new(), runtime());
    let listener = listener(&folder, &authority, "client_roots_file = \"ROOTS\"");
    let world = World::start_with("", &listener);
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let config = client_of(&authority, versions, false);
        let error = begin(&runtime, world.session().0, &config).expect_err("no certificate");
        let text = format!("{error:?}");
        let is_alert = text.contains("CertificateRequired") || text.contains("HandshakeFailure");
        assert!(text.contains("AlertReceived") && is_alert, "{text}");

        let strange = client_of(&Authority::new(), versions, true);
        let mut config = ClientConfig::clone(&client_of(&authority, versions, false));
        config.client_auth_cert_resolver = strange.client_auth_cert_resolver.clone();
        let error = begin(&runtime, world.session().0, &Arc::new(config));
        let text = format!("{:?}", error.expect_err("of another authority"));
        assert!(text.contains("AlertReceived"), "{text}");

        let config = client_of(&authority, versions, true);
        begin(&runtime, world.session().0, &config).expect("its certificate is verified");
    }
}

#[test]
fn a_listener_can_require_tls_1_3() {
    let (folder, authority, runtime) = (Folder::new("min-version"), Authority::new(), runtime());
    let listener = listener(&folder, &authority, "min_version = \"1.3\"");
    let world = World::start_with("", &listener);
    let config = client_of(&authority, &[&TLS12], false);
    let error = begin(&runtime, world.session().0, &config).expect_err("too old");
    let text = format!("{error:?}");
    assert!(text.contains("AlertReceived(ProtocolVersion)"), "{text}");
    let config = client_of(&authority, &[&TLS13], false);
    begin(&runtime, world.session().0, &config).expect("TLS 1.3");
}

#[test]
fn clients_get_the_version_whose_session_resumes_any_number_of_times() {
    let (folder, authority, runtime) = (Folder::new("version"), Authority::new(), runtime());
    for (keys, tls12, tls13) in [
        ("require_reuse = true", true, true),
        ("require_reuse = false", false, true),
    ] {
        let world = World::start_with("", &listener(&folder, &authority, keys));
        let version = |versions: tls_common::Versions<'_>| {
            let config = client_of(&authority, versions, false);
            let tls = begin(&runtime, world.session().0, &config).expect("TLS");
            tls.get_ref().1.protocol_version().expect("a version")
        };
        let is_tls12 = version(&[&TLS13, &TLS12]) == rustls::ProtocolVersion::TLSv1_2;
        assert_eq!(is_tls12, tls12, "{keys}");
        let is_tls13 = version(&[&TLS13]) == rustls::ProtocolVersion::TLSv1_3;
        assert_eq!(is_tls13, tls13, "{keys}");
    }
}

/// The client detects the end of the data connection immediately, and not only after a timeout.
#[test]
fn in_clear_nothing_changes() {
    let world = World::start_with("", EXPLICIT);
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    server_data.write_all(b"all").expect("the gateway reads");
    drop(server_data);
    server.send("226 done");
    assert_eq!(common::read_all(&client_data), b"all");
    client.expect("226 done");
    let (_client, mut server, client_data, server_data) = world.mid_download();
    common::reset(server_data);
    expect_reset(&client_data);
    server.send("426 broken");
}
