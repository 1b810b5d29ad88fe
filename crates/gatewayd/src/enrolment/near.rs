//! Enrolment at the invited gateway: it connects with the key of the invite and sends its own
//! public key.
#![allow(
    clippy::disallowed_methods,
    reason = "owns a socket for as long as it knocks"
)]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use link::{Link, LinkConfig, LinkError, PeerConfig, PeerId, Policy, PublicKey, StreamClass};
use tokio::{net::lookup_host, time::timeout};
use units::ByteCount;

use super::Invite;
use relay::wire::{EnrolReply, MessageDecoder, Service, StreamHello, encode};

/// Error: the far gateway has not added this gateway to its peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// The host name of the endpoint has no address.
    #[error(
        "the far gateway {endpoint} has no known address (its name comes from the invite: check the name resolution \
         of this machine, or make an invite with an IP address by longhaul peer invite --endpoint at the far gateway)"
    )]
    Resolve {
        /// The endpoint of the invite.
        endpoint: String,
        /// The error of the name resolution.
        source: io::Error,
    },
    /// No socket could be created.
    #[error("a UDP socket cannot be opened")]
    Socket(#[from] io::Error),
    /// The link could not be started.
    #[error("the link did not start")]
    Link(#[from] LinkError),
    /// The far gateway does not answer.
    #[error(
        "the far gateway {0} does not answer. It does not answer invites that it does not know. Check that the whole \
         line was copied, that the invite was not withdrawn, that its firewall lets UDP in at this port, and that this \
         machine reaches {0}"
    )]
    Silent(String),
    /// The far gateway refuses the invite.
    #[error("the far gateway refuses: {0}")]
    Refused(String),
    /// The far gateway sends no valid reply.
    #[error("the far gateway closed the connection: its version may be older than this one")]
    Broken,
}

/// Enrols a gateway with this key and name at the far gateway of an invite. Returns the name that
/// the far gateway has assigned.
///
/// # Errors
/// [`EnrolError`] with the far gateway's refusal, or with the reason why the far gateway is
/// unreachable.
pub async fn enrol(
    invite: &Invite,
    public_key: PublicKey,
    name: &str,
) -> Result<String, EnrolError> {
    let link = Link::start(socket(&invite.endpoint).await?, config(invite))?;
    let asked = timeout(
        ENROL_TIMEOUT,
        request_enrolment(&link, invite, public_key, name),
    )
    .await;
    link.shutdown(CLOSE_TIMEOUT).await;
    asked.unwrap_or_else(|_| Err(EnrolError::Silent(invite.endpoint.clone())))
}

async fn request_enrolment(
    link: &Link,
    invite: &Invite,
    public_key: PublicKey,
    name: &str,
) -> Result<String, EnrolError> {
    // One or two lost packets do not mean that the far gateway is silent.
    let mut tries = TRIES;
    let (mut send, mut recv) = loop {
        match link.open(PeerId(0), StreamClass::Control).await {
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
    let hello = encode(&StreamHello { service });
    send.write(hello).await.map_err(|_| EnrolError::Broken)?;
    send.finish();
    let mut decoder = MessageDecoder::default();
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
        idle_timeout: ENROL_TIMEOUT,
        memory_file: None,
    }
}

/// Number of attempts to connect. Each attempt takes up to three seconds.
const TRIES: usize = 3;

/// Timeout of the reply. The far gateway writes the peer to its disk before it replies.
const ENROL_TIMEOUT: Duration = Duration::from_secs(20);

const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
