//! Identifiers of listeners. They match the listeners of successive configurations, and of
//! successive processes.

use std::{collections::HashMap, fmt, net::SocketAddr};

use crate::config::Config;

/// Identifier of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// Kind and index of the listener, if the system chooses the port of its address.
    chosen: Option<(&'static str, usize)>,
}

/// The identifiers of a configuration, in the order of the file.
pub(crate) struct Places {
    pub(crate) ftp: Vec<Place>,
    pub(crate) pass_through: Vec<(Place, Vec<Place>)>,
    pub(crate) forwards: Vec<Place>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chosen {
            None => self.address.fmt(f),
            Some((kind, number)) => write!(f, "{kind} {number} at {}", self.address),
        }
    }
}

impl Places {
    pub(crate) fn of(config: &Config) -> Self {
        let mut numbers = HashMap::<_, usize>::new();
        let mut place = |kind: &'static str, address: SocketAddr| {
            let chosen = (address.port() == 0).then(|| {
                let number = numbers.entry((kind, address)).or_default();
                *number += 1;
                (kind, *number)
            });
            Place { address, chosen }
        };
        let ftp = config.ftp.iter().map(|door| place("ftp", door.listen));
        let ftp = ftp.collect();
        let pass_through = config.pass_through.iter().map(|door| {
            let control = place("pass-through", door.listen);
            (control, data_places(door).collect())
        });
        let pass_through = pass_through.collect();
        let forwards = config.forwards.iter();
        let forwards = forwards.map(|forward| place("forward", forward.listen));
        Self {
            ftp,
            pass_through,
            forwards: forwards.collect(),
        }
    }
}

pub(crate) fn data_places(
    door: &crate::config::PassThrough,
) -> impl Iterator<Item = Place> + use<> {
    let ip = door.listen.ip();
    let address = move |port| SocketAddr::new(ip, port);
    door.data_ports.clone().map(move |port| Place {
        address: address(port),
        chosen: None,
    })
}
