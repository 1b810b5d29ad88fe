//! Tests of TLS connections over loopback: orderly and truncated ends, and session resumption.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use net::{
    Connection,
    pipe::Pipe,
    tls::{Acceptor, CertificateCheck, ConnectionKind, Connector, Leg},
};
use rustls::{
    HandshakeKind, NamedGroup, ProtocolVersion,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    },
    pki_types::ServerName,
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tls_common::{
    self, Authority, Folder, NAME, TlsServer, client, handshake, receive, say, send, server_tls,
    soon, tcp_pair,
};

/// Size of a transfer. It is larger than several TLS records and the socket buffers.
const BYTES: usize = 300_000;

/// Connects a connector to an acceptor.
async fn joined(connector: &Connector, acceptor: &Acceptor, kind: ConnectionKind) -> (Leg, Leg) {
    joined_over(tcp_pair().await, connector, acceptor, kind).await
}

/// Connects a connector to an acceptor over an existing connection.
async fn joined_over<C: Into<Connection>>(
    (near, far): (C, C),
    connector: &Connector,
    acceptor: &Acceptor,
    kind: ConnectionKind,
) -> (Leg, Leg) {
    let both = async {
        tokio::join!(
            connector.connect(near, NAME, kind),
            acceptor.accept(far, kind)
        )
    };
    let (near, far) = soon(both).await;
    (near.expect("connected"), far.expect("accepted"))
}

/// Ends the data with a TCP FIN but without `close_notify`, like some programs.
async fn end_without_notify(leg: &mut Leg) {
    leg.flush().await.expect("flushed");
    socket2::SockRef::from(leg.connection().tcp().expect("TCP"))
        .shutdown(std::net::Shutdown::Write)
        .expect("ended");
}

fn acceptor(folder: &Folder, authority: &Authority) -> Acceptor {
    let source = authority
        .issue()
        .write(&folder.path("cert.pem"), &folder.path("key.pem"));
    tls_common::acceptor(source).expect("a certificate")
}

fn connector(authority: &Authority) -> Connector {
    let roots = CertificateCheck::Roots(Some(vec![authority.root()]));
    Connector::new(&server_tls(roots)).expect("roots")
}

fn tls12_connector(authority: &Authority) -> Connector {
    let roots = CertificateCheck::Roots(Some(vec![authority.root()]));
    Connector::new_tls12(&server_tls(roots)).expect("roots")
}

#[tokio::test]
async fn a_server_sees_every_data_connection_resumed() {
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let authority = Authority::new();
        let server = TlsServer::new(&authority.issue(), versions);
        let connector = connector(&authority);
        let (near, far) = tcp_pair().await;
        let both = async {
            tokio::join!(
                connector.connect(near, NAME, ConnectionKind::Control),
                server.accept(far, ConnectionKind::Control)
            )
        };
        let (control, server_control) = soon(both).await;
        let (mut control, mut server_control) = (
            control.expect("connected"),
            server_control.expect("accepted"),
        );
        assert!(!control.is_resumed(), "the first handshake is a full one");
        say(&mut server_control, &mut control).await;
        for transfer in 0..50 {
            let (near, far) = tcp_pair().await;
            let both = async {
                tokio::join!(
                    connector.connect(near, NAME, ConnectionKind::Data),
                    server.accept(far, ConnectionKind::Data)
                )
            };
            let (data, server_data) = soon(both).await;
            let (mut data, mut server_data) =
                (data.expect("connected"), server_data.expect("accepted"));
            assert!(data.is_resumed(), "{versions:?}, transfer {transfer}");
            let kind = server_data.get_ref().1.handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::Resumed), "transfer {transfer}");
            let bytes = vec![transfer as u8; if transfer % 5 == 0 { 0 } else { BYTES }];
            let received = if transfer % 2 == 0 {
                let (received, ()) =
                    tokio::join!(receive(&mut server_data), send(&mut data, &bytes));
                send(&mut server_data, &[]).await;
                assert_eq!(
                    receive(&mut data).await,
                    b"",
                    "the tickets are read to the end"
                );
                received
            } else {
                let (received, ()) =
                    tokio::join!(receive(&mut data), send(&mut server_data, &bytes));
                send(&mut data, &[]).await;
                received
            };
            assert_eq!(received, bytes, "transfer {transfer}");
            assert!(!data.closed_without_notify());
        }
    }
}

#[tokio::test]
async fn a_client_resumes_its_control_connection_on_every_data_connection() {
    let folder = Folder::new("resumed");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    // Tickets may be used any number of times, but this TLS library offers a TLS 1.3 ticket only
    // once.
    for (version, transfers) in [(&TLS12, 50), (&TLS13, 2)] {
        let config = Arc::new(client(&authority, &[version]));
        let (control, leg) = handshake(&config, &acceptor, ConnectionKind::Control).await;
        let (mut control, mut leg) = (control.expect("connected"), leg.expect("accepted"));
        say(&mut leg, &mut control).await;
        for transfer in 0..transfers {
            let (data, leg) = handshake(&config, &acceptor, ConnectionKind::Data).await;
            let (mut data, mut leg) = (data.expect("connected"), leg.expect("accepted"));
            assert!(leg.is_resumed(), "{version:?}, transfer {transfer}");
            let bytes = vec![7; BYTES];
            let (received, ()) = if transfer % 2 == 0 {
                tokio::join!(receive(&mut leg), send(&mut data, &bytes))
            } else {
                tokio::join!(receive(&mut data), send(&mut leg, &bytes))
            };
            assert_eq!(received, bytes);
        }
    }
}

#[tokio::test]
async fn over_tls_1_2_a_server_needs_to_send_no_further_tickets() {
    let folder = Folder::new("no-further");
    let authority = Authority::new();
    // A gateway sends two tickets on the control connection, and none on data connections.
    let acceptor = acceptor(&folder, &authority);
    let (newer, older) = (connector(&authority), tls12_connector(&authority));
    for (connector, lasting) in [(newer, false), (older, true)] {
        let (mut near, mut far) = joined(&connector, &acceptor, ConnectionKind::Control).await;
        say(&mut far, &mut near).await;
        for transfer in 0..4 {
            let expected = lasting || transfer < 2;
            let (mut near, mut far) = joined(&connector, &acceptor, ConnectionKind::Data).await;
            assert_eq!(near.is_resumed(), expected, "transfer {transfer}");
            send(&mut far, b"x").await;
            assert_eq!(receive(&mut near).await, b"x");
        }
    }
}

/// A store of TLS sessions that counts the received tickets.
#[derive(Debug)]
struct Counting {
    inner: ClientSessionMemoryCache,
    tickets: AtomicUsize,
}

impl ClientSessionStore for Counting {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.inner.set_kx_hint(name, group);
    }
    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.inner.kx_hint(name)
    }
    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.inner.set_tls12_session(name, value);
    }
    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.inner.tls12_session(name)
    }
    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.inner.remove_tls12_session(name);
    }
    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.tickets.fetch_add(1, Ordering::Relaxed);
        self.inner.insert_tls13_ticket(name, value);
    }
    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.inner.take_tls13_ticket(name)
    }
}

#[tokio::test]
async fn clients_get_tickets_on_the_control_connection_and_none_on_data_connections() {
    let folder = Folder::new("tickets");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let counting = Arc::new(Counting {
        inner: ClientSessionMemoryCache::new(8),
        tickets: AtomicUsize::new(0),
    });
    let mut config = client(&authority, &[&TLS13]);
    config.resumption = Resumption::store(counting.clone());
    let config = Arc::new(config);
    // At the first data connection, the client has no TLS session to resume yet. The second data
    // connection resumes a session.
    let expected = [
        (ConnectionKind::Data, 0),
        (ConnectionKind::Control, 2),
        (ConnectionKind::Data, 2),
    ];
    for (kind, tickets) in expected {
        let (stream, leg) = handshake(&config, &acceptor, kind).await;
        let (mut stream, mut leg) = (stream.expect("connected"), leg.expect("accepted"));
        send(&mut leg, b"226 done\r\n").await;
        assert_eq!(receive(&mut stream).await, b"226 done\r\n");
        assert_eq!(
            counting.tickets.load(Ordering::Relaxed),
            tickets,
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn both_kinds_of_close_are_distinguished_and_mirrored() {
    let folder = Folder::new("ends");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let (newer, older) = (connector(&authority), tls12_connector(&authority));
    for (connector, with_notify) in [
        (&newer, true),
        (&newer, false),
        (&older, true),
        (&older, false),
    ] {
        let (mut near, mut far) = joined(connector, &acceptor, ConnectionKind::Data).await;
        for turn in 0..2 {
            let (from, to) = if turn == 0 {
                (&mut near, &mut far)
            } else {
                (&mut far, &mut near)
            };
            let bytes = vec![3; BYTES];
            let sending = async {
                from.write_all(&bytes).await.expect("written");
                if with_notify {
                    from.shutdown().await.expect("ended");
                } else {
                    end_without_notify(from).await;
                }
            };
            let (received, ()) = tokio::join!(receive(to), soon(sending));
            assert_eq!(received.len(), BYTES);
            assert_eq!(to.closed_without_notify(), !with_notify, "turn {turn}");
            let again = soon(to.read(&mut [0])).await.expect("still the end");
            assert_eq!(again, 0);
        }
    }
}

#[tokio::test]
async fn a_clients_tls_library_sees_our_close_notify() {
    let folder = Folder::new("notify");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let config = Arc::new(client(&authority, &[&TLS13]));
    let (stream, leg) = handshake(&config, &acceptor, ConnectionKind::Data).await;
    let (mut stream, mut leg) = (stream.expect("connected"), leg.expect("accepted"));
    send(&mut leg, b"x").await;
    assert_eq!(
        receive(&mut stream).await,
        b"x",
        "the library makes an error of a bare FIN"
    );

    let (stream, leg) = handshake(&config, &acceptor, ConnectionKind::Data).await;
    let (mut stream, mut leg) = (stream.expect("connected"), leg.expect("accepted"));
    soon(end_without_notify(&mut leg)).await;
    let error = soon(stream.read(&mut [0])).await.expect_err("a bare FIN");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn both_halves_move_at_once_and_a_plain_leg_is_plain() {
    let folder = Folder::new("halves");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let (near, far) = joined(&connector(&authority), &acceptor, ConnectionKind::Data).await;
    let (plain_near, plain_far) = tcp_pair().await;
    let plain = (Leg::plain(plain_near), Leg::plain(plain_far));
    for (is_tls, (near, far)) in [(true, (near, far)), (false, plain)] {
        assert_eq!(near.is_tls(), is_tls);
        let peer = far.connection().peer_addr().expect("connected");
        assert_eq!(near.connection().local_addr().expect("bound"), peer);
        let (mut near_reader, mut near_writer) = near.into_split();
        let (mut far_reader, mut far_writer) = far.into_split();
        let bytes = vec![9; 10 * BYTES];
        let (there, back, (), ()) = tokio::join!(
            receive(&mut far_reader),
            receive(&mut near_reader),
            send(&mut near_writer, &bytes),
            send(&mut far_writer, &bytes),
        );
        assert!(there == bytes && back == bytes);
        assert!(!near_reader.leg().closed_without_notify());
    }
}

#[tokio::test]
async fn tls_over_a_pipe_resumes_sessions_and_distinguishes_ends() {
    let folder = Folder::new("pipe");
    let authority = Authority::new();
    let (acceptor, connector) = (acceptor(&folder, &authority), connector(&authority));
    let over = Pipe::pair();
    let (mut near, mut far) =
        joined_over(over, &connector, &acceptor, ConnectionKind::Control).await;
    say(&mut far, &mut near).await;
    for has_notify in [true, false] {
        let over = Pipe::pair();
        let (mut near, mut far) =
            joined_over(over, &connector, &acceptor, ConnectionKind::Data).await;
        assert!(near.is_resumed() && far.is_resumed());
        let bytes = vec![9; 10 * BYTES];
        let sending = async {
            near.write_all(&bytes).await.expect("written");
            near.flush().await.expect("flushed");
            if has_notify {
                near.shutdown().await.expect("ended");
            }
            drop(near);
        };
        let (received, ()) = tokio::join!(receive(&mut far), sending);
        assert!(received == bytes);
        assert_eq!(far.closed_without_notify(), !has_notify);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_and_no_end() {
    let folder = Folder::new("broken");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let (near, mut far) = joined(&connector(&authority), &acceptor, ConnectionKind::Data).await;
    let zero = Some(std::time::Duration::ZERO);
    socket2::SockRef::from(near.connection().tcp().expect("TCP"))
        .set_linger(zero)
        .expect("an option");
    drop(near);
    let error = soon(far.read(&mut [0])).await.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(!far.closed_without_notify());
}

#[tokio::test]
async fn clients_are_not_refused_for_what_they_offer_beside_ftp() {
    let folder = Folder::new("alpn");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    for (offered, selected) in [
        (&["ftp", "x-filezilla-ftp"][..], Some("ftp")),
        (&["x-filezilla-ftp", "ftp"], Some("ftp")),
        (&["x-filezilla-ftp"], None),
        (&["ftp-data"], None),
        (&[], None),
    ] {
        let mut config = client(&authority, &[&TLS13, &TLS12]);
        config.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let (stream, leg) = handshake(&Arc::new(config), &acceptor, ConnectionKind::Control).await;
        let stream = stream.expect("connected");
        leg.expect("accepted");
        let got = stream.get_ref().1.alpn_protocol();
        assert_eq!(got, selected.map(str::as_bytes), "{offered:?}");
        let version = stream.get_ref().1.protocol_version();
        assert_eq!(version, Some(ProtocolVersion::TLSv1_3));
    }
}

#[tokio::test]
async fn what_is_no_tls_is_said_to_be_none() {
    let folder = Folder::new("no-tls");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let (mut near, far) = tcp_pair().await;
    near.write_all(b"USER anonymous\r\n")
        .await
        .expect("written");
    let error = soon(acceptor.accept(far, ConnectionKind::Control))
        .await
        .expect_err("no TLS");
    assert!(error.to_string().contains("does not send TLS"), "{error}");

    let (near, mut far) = tcp_pair().await;
    far.write_all(b"530 Please login\r\n")
        .await
        .expect("written");
    let connector = connector(&authority);
    let connecting = connector.connect(near, NAME, ConnectionKind::Control);
    let error = soon(connecting).await.expect_err("no TLS");
    assert!(error.to_string().contains("does not send TLS"), "{error}");
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    let folder = Folder::new("silence");
    let authority = Authority::new();
    let acceptor = acceptor(&folder, &authority);
    let connector = connector(&authority);
    let (near, far) = tcp_pair().await;
    let (_silent, data) = tcp_pair().await;
    let (server, _silent_server) = tcp_pair().await;
    // Virtual time jumps to the next timer as soon as all tasks wait.
    tokio::time::pause();
    let control = acceptor
        .accept(far, ConnectionKind::Control)
        .await
        .expect_err("silence");
    let data = acceptor
        .accept(data, ConnectionKind::Data)
        .await
        .expect_err("silence");
    let connecting = connector.connect(server, NAME, ConnectionKind::Control);
    let connecting = connecting.await.expect_err("silence");
    for error in [control, data, connecting] {
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    }
    drop(near);
}
