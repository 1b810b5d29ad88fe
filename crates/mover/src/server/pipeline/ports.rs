//! Listening ports of the mover. Gateways connect to each port repeatedly, for one file after
//! another.

use std::{io, sync::Arc};

use net::Listener;
use socket2::SockRef;

use crate::server::Session;

/// A listening port of the mover.
pub(in crate::server) type Port = Arc<Listener>;

/// Listening ports of a session that are open and that no file is using.
///
/// The mover announces the same port again after a gateway has connected to it. Otherwise each of
/// tens of thousands of small files would need its own port, and a used port stays unavailable for
/// one minute. The kernel's search for free ports would then take longer than the transfer of a
/// file.
pub(in crate::server) type Ports = Vec<Port>;

impl Session {
    /// Returns an open listening port for a file.
    ///
    /// # Errors
    /// An error of the operating system if no port can be opened.
    pub(super) async fn free_port(&mut self) -> io::Result<Port> {
        while let Some(port) = self.ports.pop() {
            if nobody_waits(&port) {
                return Ok(port);
            }
        }
        self.listen().await.map(Arc::new)
    }

    /// Keeps a port for the next file after a gateway has connected to it. Without a gateway, the
    /// port is closed, because a server may be unable to connect to the same port twice.
    pub(super) fn free_again(&mut self, port: Port) {
        if self.dial.is_behind_gateway() {
            self.ports.push(port);
        }
    }

    /// Closes the listening ports that no file is using.
    pub(in crate::server) fn close_ports(&mut self) {
        self.ports.clear();
    }
}

/// Returns true if no connection is waiting at a port. After the data connection was accepted, a
/// waiting connection comes from a stranger.
pub(super) fn nobody_waits(port: &Listener) -> bool {
    let tcp = match port {
        Listener::Tcp(tcp) => tcp,
        Listener::Pipe(listener) => return !listener.has_waiting(),
    };
    let accepted = SockRef::from(&**tcp).accept();
    accepted.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use net::pipe::PipeNetwork;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_at_which_a_stranger_waits_is_of_no_more_use() {
        let port = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = Listener::from(port);
        assert!(nobody_waits(&port));
        let stranger = TcpStream::connect(port.local_addr().expect("bound"));
        let _stranger = stranger.expect("a connection");
        assert!(!nobody_waits(&port));
    }

    #[test]
    fn a_port_within_the_process_is_of_use_until_a_connection_waits() {
        let network = PipeNetwork::new();
        let port = Listener::from(network.listen().expect("a port"));
        assert!(nobody_waits(&port));
        let _waiting = network.connect(port.local_addr().expect("bound"));
        assert!(!nobody_waits(&port));
    }
}
