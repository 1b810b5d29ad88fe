//! Two relays on the loopback interface, for tests.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

use link::{Identity, Link, PeerConfig, PublicKey};
use net::target::AllowList;
use relay::{Relay, Sessions, far, service::FarService, settings::RelaySettings};
use tokio::sync::watch;

/// Two relays that are peers.
pub(crate) struct Pair {
    pub(crate) near: Relay,
    pub(crate) far: Relay,
    /// Sessions of the near relay and of the far relay. Dropping a value ends its sessions.
    pub(crate) sessions: [Sessions; 2],
}

/// Starts two relays that are peers. The far relay may connect to the servers in `allow`. If
/// `service` is given, the far relay also offers this service.
pub(crate) fn pair(allow: AllowList, service: Option<Arc<dyn FarService>>) -> Pair {
    let [near, far] = [(); 2].map(|()| Identity::generate());
    let keys = (near.public_key(), far.public_key());
    let (far, far_sessions) = relay(far, (keys.0, None), allow, service);
    let endpoint = Some(far.link().local_addr());
    let (near, near_sessions) = relay(near, (keys.1, endpoint), AllowList::default(), None);
    Pair {
        near,
        far,
        sessions: [near_sessions, far_sessions],
    }
}

/// Starts a relay with one peer.
#[allow(clippy::disallowed_methods, reason = "owns the link's socket")]
fn relay(
    identity: Identity,
    (peer, endpoint): (PublicKey, Option<SocketAddr>),
    allow: AllowList,
    service: Option<Arc<dyn FarService>>,
) -> (Relay, Sessions) {
    let of_link = PeerConfig {
        name: "other".to_owned(),
        public_keys: vec![peer],
        endpoint: endpoint.map(|it| it.to_string()),
        rate_max: None,
        is_guest: false,
    };
    let mut settings = RelaySettings::new(identity, vec![of_link]);
    settings.peers[0].allow = allow;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let link = Link::start(socket, settings.link.clone()).expect("a link");
    let (relay, sessions) = Relay::builder(link, settings).build();
    let (_, current) = watch::channel(relay.clone());
    tokio::spawn(far::serve(current, None, service));
    (relay, sessions)
}
