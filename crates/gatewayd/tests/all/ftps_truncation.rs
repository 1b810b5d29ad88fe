//! Tests of truncated data. If a data connection with TLS ends without `close_notify`, the other
//! data connection must end without `close_notify`, too.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use net::tls::{Acceptor, ConnectionKind, Connector, Leg};
use socket2::SockRef;
use tokio::{io::AsyncWriteExt, runtime::Runtime};

use crate::{
    common::{Control, World, accept, connect, passive_port, read_all},
    ftps_common::{
        EXPLICIT, Secured, protected, runtime, secure, secured_client, secured_server, server_end,
        transferring, trusting,
    },
    tls_common::{self, Authority, Folder, NAME, receive},
};

/// A world whose client and server both use TLS.
struct Private {
    world: World,
    acceptor: Acceptor,
    connector: Connector,
    runtime: Runtime,
}

impl Private {
    fn start(name: &str) -> Self {
        let listener =
            format!("{EXPLICIT}\nserver_tls = {{ mode = \"explicit\", verify = false }}");
        Self {
            world: World::start_with("", &listener),
            acceptor: server_end(&Folder::new(name), &Authority::new()),
            connector: trusting(),
            runtime: runtime(),
        }
    }

    fn session(&self) -> (Secured<'_>, Secured<'_>) {
        let mut client = Control::connect(self.world.near.ftp[0]);
        let server = secured_server(self.world.accept(), &self.runtime, &self.acceptor);
        client.expect("220 ready");
        let client = protected(client, &self.runtime, &self.connector);
        (client, server)
    }

    /// Starts a transfer with `command`. Returns the data connections of client and server.
    fn data(
        &self,
        client: &mut Secured<'_>,
        server: &mut Secured<'_>,
        command: &str,
    ) -> (Leg, Leg) {
        let (client_data, server_data) = transferring(client, server, command);
        let server_data = secure(&self.runtime, server_data, |tcp| {
            self.acceptor.accept(tcp, ConnectionKind::Data)
        });
        (self.client_end(client_data), server_data)
    }

    fn client_end(&self, data: TcpStream) -> Leg {
        client_end(&self.runtime, &self.connector, data)
    }
}

fn client_end(runtime: &Runtime, connector: &Connector, data: TcpStream) -> Leg {
    secure(runtime, data, |tcp| {
        connector.connect(tcp, NAME, ConnectionKind::Data)
    })
}

/// Writes bytes, and ends the connection with a TCP FIN but without `close_notify`.
fn send_and_truncate(runtime: &Runtime, leg: &mut Leg, bytes: &[u8]) {
    runtime.block_on(async {
        leg.write_all(bytes).await.expect("TLS");
        leg.flush().await.expect("TLS");
    });
    SockRef::from(leg.connection().tcp().expect("TCP"))
        .shutdown(Shutdown::Write)
        .expect("a connection");
}

#[test]
fn an_upload_that_ends_without_close_notify_ends_so_at_the_server() {
    let private = Private::start("truncated-up");
    let (mut client, mut server) = private.session();
    let (mut client_data, mut server_data) = private.data(&mut client, &mut server, "STOR a");
    send_and_truncate(&private.runtime, &mut client_data, b"some");
    let got = private.runtime.block_on(receive(&mut server_data));
    assert_eq!(got, b"some");
    assert!(server_data.closed_without_notify());
    drop(server_data);
    server.send("426 not whole");
    client.expect("426 not whole");
    // An upload that ends in order is not treated as truncated.
    let (mut client_data, mut server_data) = private.data(&mut client, &mut server, "STOR a");
    private
        .runtime
        .block_on(tls_common::send(&mut client_data, b"all"));
    let got = private.runtime.block_on(receive(&mut server_data));
    assert_eq!(got, b"all");
    assert!(!server_data.closed_without_notify());
}

#[test]
fn a_download_that_ends_without_close_notify_ends_so_at_the_client() {
    let private = Private::start("truncated-down");
    let (mut client, mut server) = private.session();
    let (mut client_data, mut server_data) = private.data(&mut client, &mut server, "RETR a");
    send_and_truncate(&private.runtime, &mut server_data, b"some");
    server.send("226 all, says the server");
    let got = private.runtime.block_on(receive(&mut client_data));
    assert_eq!(got, b"some");
    assert!(client_data.closed_without_notify());
    client.expect("226 all, says the server");
}

#[test]
fn a_client_that_leaves_behind_its_data_has_it_judged_all_the_same() {
    let private = Private::start("truncated-left");
    let (mut client, mut server) = private.session();
    let (mut client_data, mut server_data) = private.data(&mut client, &mut server, "STOR a");
    send_and_truncate(&private.runtime, &mut client_data, b"some");
    drop((client_data, client));
    let got = private.runtime.block_on(receive(&mut server_data));
    assert_eq!(got, b"some");
    assert!(server_data.closed_without_notify());
}

#[test]
fn an_upload_that_is_over_before_the_server_has_a_port_for_it_is_judged_too() {
    let private = Private::start("truncated-early");
    let (mut client, mut server) = private.session();
    for (question, answer) in [("USER joe", "331 password"), ("PASS x", "230 in")] {
        client.send(question);
        server.expect(question);
        server.send(answer);
        client.expect(answer);
    }
    for (question, answer) in [
        ("SYST", "215 UNIX Type: L8"),
        ("FEAT", "211 none"),
        ("PWD", "257 \"/\""),
    ] {
        server.expect(question);
        server.send(answer);
    }
    client.send("PASV");
    let client_data = connect(passive_port(&client.line()));
    client.send("STOR a");
    let mut client_data = private.client_end(client_data);
    send_and_truncate(&private.runtime, &mut client_data, b"some");
    server.expect("PASV");
    // This time suffices for all actions of the near gateway.
    thread::sleep(Duration::from_secs(1));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a bound socket").port();
    server.send(&format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255));
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let server_data = accept(&listener);
    let mut server_data = secure(&private.runtime, server_data, |tcp| {
        private.acceptor.accept(tcp, ConnectionKind::Data)
    });
    let got = private.runtime.block_on(receive(&mut server_data));
    assert_eq!(got, b"some");
    assert!(server_data.closed_without_notify());
    drop(server_data);
    server.send("426 not whole");
    client.expect("426 not whole");
}

#[test]
fn to_a_server_without_tls_such_an_upload_ends_as_tcp_alone_would() {
    let (world, runtime) = (World::start_with("", EXPLICIT), runtime());
    let connector = trusting();
    let (mut client, mut server) = secured_client(&world, &runtime, &connector);
    client.send("PASV");
    let listener = server.open_data_port();
    let client_data = connect(passive_port(&client.line()));
    let server_data = accept(&listener);
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let mut client_data = client_end(&runtime, &connector, client_data);
    send_and_truncate(&runtime, &mut client_data, b"some");
    assert_eq!(read_all(&server_data), b"some");
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

#[test]
fn to_a_client_without_tls_such_a_download_ends_as_tcp_alone_would() {
    let private = Private::start("truncated-plain");
    let mut client = Control::connect(private.world.near.ftp[0]);
    let mut server = secured_server(private.world.accept(), &private.runtime, &private.acceptor);
    client.expect("220 ready");
    let (client_data, server_data) = transferring(&mut client, &mut server, "RETR a");
    let mut server_data = secure(&private.runtime, server_data, |tcp| {
        private.acceptor.accept(tcp, ConnectionKind::Data)
    });
    send_and_truncate(&private.runtime, &mut server_data, b"some");
    assert_eq!(read_all(&client_data), b"some");
    server.send("226 done");
    client.expect("226 done");
}
