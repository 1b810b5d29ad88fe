//! Identifiers of listeners. An identifier is the same in successive configurations and in
//! successive processes, so a listener can keep its socket.

use std::{collections::HashMap, fmt, net::SocketAddr};

use crate::config::Config;

/// Identifier of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ListenerId {
    pub(crate) address: SocketAddr,
    /// Kind and index of the listener if its configured port is 0. In this case, the system chooses
    /// the port.
    chosen: Option<(&'static str, usize)>,
}

/// The identifiers of all listeners of a configuration, in the order of the file.
pub(crate) struct ListenerIds {
    pub(crate) ftp: Vec<ListenerId>,
    pub(crate) pass_through: Vec<(ListenerId, Vec<ListenerId>)>,
    pub(crate) ssh: Vec<ListenerId>,
    pub(crate) forwards: Vec<ListenerId>,
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chosen {
            None => self.address.fmt(f),
            Some((kind, number)) => write!(f, "{kind} {number} at {}", self.address),
        }
    }
}

impl ListenerIds {
    pub(crate) fn from_config(config: &Config) -> Self {
        let mut numbers = HashMap::<_, usize>::new();
        let mut id = |kind: &'static str, address: SocketAddr| {
            let chosen = (address.port() == 0).then(|| {
                let number = numbers.entry((kind, address)).or_default();
                *number += 1;
                (kind, *number)
            });
            ListenerId { address, chosen }
        };
        let ftp = config.ftp.iter().map(|listener| id("ftp", listener.listen));
        let ftp = ftp.collect();
        let pass_through = config.pass_through.iter().map(|listener| {
            let control = id("pass-through", listener.listen);
            (control, data_listener_ids(listener).collect())
        });
        let pass_through = pass_through.collect();
        let ssh = config.ssh.iter();
        let ssh = ssh.map(|listener| id("ssh", listener.listen)).collect();
        let forwards = config.forwards.iter();
        let forwards = forwards.map(|forward| id("forward", forward.listen));
        Self {
            ftp,
            pass_through,
            ssh,
            forwards: forwards.collect(),
        }
    }
}

pub(crate) fn data_listener_ids(
    listener: &crate::config::PassThrough,
) -> impl Iterator<Item = ListenerId> + use<> {
    let ip = listener.listen.ip();
    let address = move |port| SocketAddr::new(ip, port);
    listener.data_ports.clone().map(move |port| ListenerId {
        address: address(port),
        chosen: None,
    })
}
