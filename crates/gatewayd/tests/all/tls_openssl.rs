//! Tests of TLS connections with the program `openssl`. Most FTP clients and servers use the same
//! library.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use net::tls::{CertificateCheck, ConnectionKind, Connector, Fingerprint};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::spawn_blocking,
};

use crate::tls_common::{Authority, Folder, NAME, acceptor, receive, send, server_tls, soon};

const TRANSFERS: usize = 50;

/// Runs `openssl s_client` with `input` until the program ends. Returns the bytes that it has
/// received.
fn s_client(address: SocketAddr, arguments: &[&str], input: Option<Vec<u8>>) -> Vec<u8> {
    let stay = if input.is_some() {
        "-no_ign_eof"
    } else {
        "-ign_eof"
    };
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", stay, "-servername", NAME, "-connect"])
        .arg(address.to_string())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        if let Some(input) = input {
            stdin.write_all(&input).expect("written");
        }
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    output.stdout
}

/// A running `openssl s_server` process.
struct SServer {
    child: Child,
    address: SocketAddr,
}

impl SServer {
    fn start(cert_file: &Path, key_file: &Path, version: &str) -> Self {
        let mut child = Command::new("openssl")
            .args([
                "s_server",
                "-www",
                "-accept",
                "127.0.0.1:0",
                version,
                "-cert",
            ])
            .arg(cert_file)
            .arg("-key")
            .arg(key_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ")?.trim().parse().ok())
            .expect("it says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for SServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tests that need the program `openssl`.
mod installed {
    use super::*;

    #[tokio::test]
    async fn openssl_as_a_client_resumes_one_session_any_number_of_times() {
        let folder = Folder::new("s_client");
        let files = (folder.path("cert.pem"), folder.path("key.pem"));
        let acceptor = acceptor(Authority::new().issue().write(&files.0, &files.1));
        let acceptor = acceptor.expect("files");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        for version in [&["-tls1_3"][..], &["-tls1_2"], &["-tls1_2", "-no_ticket"]] {
            let session = folder.path("session.pem");
            let session = session.to_str().expect("UTF-8").to_owned();
            let arguments = |more: [&str; 2]| -> Vec<String> {
                version
                    .iter()
                    .copied()
                    .chain(more)
                    .map(str::to_owned)
                    .collect()
            };
            let run = |arguments: Vec<String>, input| {
                spawn_blocking(move || {
                    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
                    s_client(address, &arguments, input)
                })
            };
            let control = run(arguments(["-sess_out", &session]), None);
            let (tcp, _) = soon(listener.accept()).await.expect("a client");
            let mut leg = soon(acceptor.accept(tcp, ConnectionKind::Control))
                .await
                .expect("TLS");
            send(&mut leg, b"220 ready\r\n").await;
            assert_eq!(soon(control).await.expect("it ran"), b"220 ready\r\n");
            assert!(
                Path::new(&session).exists(),
                "the client has kept its session"
            );
            for transfer in 0..TRANSFERS {
                let bytes = vec![b'x'; if transfer % 5 == 0 { 0 } else { 200_000 }];
                let upload = (transfer % 2 == 0).then(|| bytes.clone());
                let data = run(arguments(["-sess_in", &session]), upload.clone());
                let (tcp, _) = soon(listener.accept()).await.expect("a client");
                let mut leg = soon(acceptor.accept(tcp, ConnectionKind::Data))
                    .await
                    .expect("TLS");
                assert!(leg.is_resumed(), "{version:?}, transfer {transfer}");
                if upload.is_some() {
                    assert_eq!(
                        receive(&mut leg).await,
                        bytes,
                        "{version:?}, transfer {transfer}"
                    );
                    assert!(!leg.closed_without_notify(), "transfer {transfer}");
                    send(&mut leg, &[]).await;
                    soon(data).await.expect("it ran");
                } else {
                    send(&mut leg, &bytes).await;
                    assert_eq!(
                        soon(data).await.expect("it ran"),
                        bytes,
                        "transfer {transfer}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn openssl_as_a_server_sees_every_data_connection_resumed() {
        let folder = Folder::new("s_server");
        let (cert, key) = (folder.path("cert.pem"), folder.path("key.pem"));
        let issued = Authority::new().issue();
        issued.write(&cert, &key);
        for version in ["-tls1_3", "-tls1_2"] {
            let server = SServer::start(&cert, &key, version);
            let pin = server_tls(CertificateCheck::Pin(Fingerprint::of(&issued.cert)));
            let connector = Connector::new(&pin).expect("a pin");
            for connection in 0..=TRANSFERS {
                let kind = if connection == 0 {
                    ConnectionKind::Control
                } else {
                    ConnectionKind::Data
                };
                let tcp = soon(TcpStream::connect(server.address)).await.expect("TCP");
                let mut leg = soon(connector.connect(tcp, NAME, kind)).await.expect("TLS");
                leg.write_all(b"GET / HTTP/1.0\r\n\r\n")
                    .await
                    .expect("written");
                leg.flush().await.expect("flushed");
                let page = String::from_utf8(receive(&mut leg).await).expect("UTF-8");
                let expected = if connection == 0 {
                    "\nNew, TLS"
                } else {
                    "\nReused, TLS"
                };
                assert!(
                    page.contains(expected),
                    "{version}, connection {connection}: {page}"
                );
                assert_eq!(leg.is_resumed(), connection != 0);
            }
        }
    }
}
