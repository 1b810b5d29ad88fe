//! The invited gateway's part: it knocks with the key of the invite, and says by which key it shall be known.
#![allow(
    clippy::disallowed_methods,
    reason = "owns a socket for as long as it knocks"
)]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use link::{Class, Link, LinkConfig, LinkError, PeerConfig, PeerId, Policy, PublicKey};
use tokio::{net::lookup_host, time::timeout};
use units::ByteCount;

use super::Invite;
use relay::wire::{Decoder, EnrolReply, Hello, Service, encode};

/// The far gateway has not taken this one among its peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// The endpoint has no address.
    #[error("no address is known for the far gateway {endpoint}")]
    Resolve {
        /// Of the invite.
        endpoint: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No socket can be had.
    #[error("a UDP socket cannot be had")]
    Socket(#[from] io::Error),
    /// The link does not start.
    #[error("the link did not start")]
    Link(#[from] LinkError),
    /// Nobody answers.
    #[error(
        "the far gateway {0} does not answer. It is silent towards invites that it does not know: is the whole line \
         copied, and was the invite not withdrawn? Else UDP does not get through: see that its firewall lets UDP in at this port"
    )]
    Silent(String),
    /// The far gateway says no.
    #[error("the far gateway refuses: {0}")]
    Refused(String),
    /// The far gateway says something else.
    #[error("the far gateway broke the connection off: is its version an older one?")]
    Broken,
}

/// Has the far gateway of an invite take a gateway with this key and name among its peers. Returns the name that it gives.
///
/// # Errors
/// [`EnrolError`] with what the far gateway says, or why it cannot be asked.
pub async fn enrol(
    invite: &Invite,
    public_key: PublicKey,
    name: &str,
) -> Result<String, EnrolError> {
    let link = Link::start(socket(&invite.endpoint).await?, config(invite))?;
    let asked = timeout(PATIENCE, ask(&link, invite, public_key, name)).await;
    link.shutdown(CLOSE_PATIENCE).await;
    asked.unwrap_or_else(|_| Err(EnrolError::Silent(invite.endpoint.clone())))
}

async fn ask(
    link: &Link,
    invite: &Invite,
    public_key: PublicKey,
    name: &str,
) -> Result<String, EnrolError> {
    // A lost packet or two are no silence.
    let mut tries = TRIES;
    let (mut send, mut recv) = loop {
        match link.open(PeerId(0), Class::Control).await {
            Ok(opened) => break opened,
            Err(_) if tries > 1 => tries -= 1,
            Err(_) => return Err(EnrolError::Silent(invite.endpoint.clone())),
        }
    };
    let service = Service::Enrol {
        token: invite.token,
        public_key,
        name: name.to_owned(),
    };
    let hello = encode(&Hello { service });
    send.write(hello).await.map_err(|_| EnrolError::Broken)?;
    send.finish();
    let mut decoder = Decoder::default();
    loop {
        match recv.read().await {
            Ok(Some(bytes)) => decoder.push(&bytes),
            Ok(None) | Err(_) => return Err(EnrolError::Broken),
        }
        match decoder.next_message().map_err(|_| EnrolError::Broken)? {
            Some(EnrolReply::Enrolled { name }) => return Ok(name),
            Some(EnrolReply::Refused { text }) => return Err(EnrolError::Refused(text)),
            None => {}
        }
    }
}

async fn socket(endpoint: &str) -> Result<UdpSocket, EnrolError> {
    let unknown = |source| EnrolError::Resolve {
        endpoint: endpoint.to_owned(),
        source,
    };
    let mut addresses = lookup_host(endpoint).await.map_err(unknown)?;
    let none = || unknown(io::ErrorKind::NotFound.into());
    let any = match addresses.next().ok_or_else(none)? {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Ok(UdpSocket::bind((any, 0))?)
}

fn config(invite: &Invite) -> LinkConfig {
    LinkConfig {
        identity: invite.identity(),
        peers: vec![PeerConfig {
            name: "far".to_owned(),
            public_keys: vec![invite.far],
            endpoint: Some(invite.endpoint.clone()),
            rate_max: None,
            is_guest: false,
        }],
        policy: Policy::Fair,
        rate_max: None,
        memory_max: ByteCount::mebibytes(16),
        idle_timeout: PATIENCE,
        memory_file: None,
    }
}

/// Each is of three seconds.
const TRIES: usize = 3;

/// For the answer: the far gateway writes to its disk.
const PATIENCE: Duration = Duration::from_secs(20);

const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
