//! Enrolment at the far gateway: it adds gateways with a valid invite to its peers.
#![allow(clippy::disallowed_methods, reason = "reads the clock of the machine")]

use std::{sync::Arc, time::SystemTime};

use futures_util::future::BoxFuture;
use link::{PublicKey, SendStream};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::spawn_blocking,
    time::{Duration, timeout},
};
use tracing::{error, info, warn};

use super::invite;
use crate::{
    config::{Config, PeerOrigin, may_be_name},
    register::{InviteRefusal, Register, RegisterChangeError},
    reload::{self, ReloadOutcome},
    running::RunningGateway,
};
use relay::{
    far::{Candidate, Enroller},
    wire::{EnrolReply, encode},
};

/// Service that enrols gateways that have connected with an invite.
pub(crate) struct Enrolments {
    current: watch::Receiver<Arc<RunningGateway>>,
    reloads: mpsc::Sender<reload::ReloadRequest>,
}

impl Enrolments {
    /// Creates the service. It sends a request to `reloads` when the gateway must apply a new peer.
    pub(crate) fn new(
        current: watch::Receiver<Arc<RunningGateway>>,
        reloads: mpsc::Sender<reload::ReloadRequest>,
    ) -> Self {
        Self { current, reloads }
    }
}

impl Enroller for Enrolments {
    fn enrol(&self, candidate: Candidate, send: SendStream) -> BoxFuture<'static, ()> {
        let (config, reloads) = (self.current.borrow().config.clone(), self.reloads.clone());
        Box::pin(async move { serve(&config, &reloads, candidate, send).await })
    }
}

/// Enrols a gateway that has connected with an invite, and sends the reply.
async fn serve(
    config: &Config,
    reloads: &mpsc::Sender<reload::ReloadRequest>,
    candidate: Candidate,
    mut send: SendStream,
) {
    let public_key = candidate.public_key;
    let reply = match enrol(config, reloads, &candidate).await {
        Ok((name, is_new)) => {
            info!(peer = name, %public_key, is_new, "a gateway has become a peer by an invite");
            EnrolReply::Enrolled { name }
        }
        Err(error) => {
            let name = ftp::command::escape(candidate.name.as_bytes());
            warn!(%error, %public_key, name, "an invite was refused");
            EnrolReply::Refused {
                text: error.to_string(),
            }
        }
    };
    if send.write(encode(&reply)).await.is_ok() {
        send.finish();
        // The invited gateway ends the connection.
        let _ = timeout(CLOSE_TIMEOUT, send.closed()).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum EnrolmentRefusal {
    #[error(transparent)]
    Invite(#[from] InviteRefusal),
    #[error("a gateway has a name of 1 to 64 printable characters: --name")]
    Name,
    #[error("the far gateway cannot store the new peer: its log has the reason")]
    Register,
    #[error("the far gateway cannot accept another peer now: {0}")]
    NotTaken(String),
}

async fn enrol(
    config: &Config,
    reloads: &mpsc::Sender<reload::ReloadRequest>,
    candidate: &Candidate,
) -> Result<(String, bool), EnrolmentRefusal> {
    let Candidate {
        token,
        public_key,
        name,
    } = candidate;
    let public_key = *public_key;
    let own = config.relay.link.identity.public_key();
    if own == public_key {
        return Err(InviteRefusal::OwnKey.into());
    }
    if !may_be_name(name) {
        return Err(EnrolmentRefusal::Name);
    }
    let invited = invite::identity(own, token).public_key();
    let path = Register::path(&config.key_file);
    let name = name.to_owned();
    let configured: Vec<String> = configured_names(config).map(str::to_owned).collect();
    let known = known(config, public_key).map(str::to_owned);
    // Another enrolment must not see a state that is about to be undone.
    let _turn = TURN.lock().await;
    let changed = spawn_blocking({
        let path = path.clone();
        move || {
            let now = unix_s();
            Register::change(&path, now, |register| {
                let configured = (configured.as_slice(), known.as_deref());
                register.enrol(invited, (public_key, &name), configured, now)
            })
        }
    });
    let (name, is_new) = match changed.await.expect("the register does not panic") {
        Ok(enrolled) => enrolled,
        Err(RegisterChangeError::Refused(refusal)) => return Err(refusal.into()),
        Err(RegisterChangeError::File(error)) => {
            error!(%error, "the register of peers cannot be changed");
            return Err(EnrolmentRefusal::Register);
        }
    };
    // A reload would remove temporary settings of an operator.
    if !is_new && runs(config, public_key, &name) {
        return Ok((name, is_new));
    }
    let Some(error) = reload(reloads).await else {
        return Ok((name, is_new));
    };
    if !is_new {
        // The entry existed before, so this enrolment must not remove it.
        return Err(EnrolmentRefusal::NotTaken(error));
    }
    let undone = spawn_blocking(move || {
        Register::change(&path, unix_s(), |register| {
            register.withdraw(public_key);
            Ok::<_, InviteRefusal>(())
        })
    });
    if let Err(error) = undone.await.expect("the register does not panic") {
        error!(%error, "the register of peers cannot be changed back");
    }
    Err(EnrolmentRefusal::NotTaken(error))
}

/// Searches the configuration file for the peer with this key, and returns the peer's name. Returns
/// `None` if the file has no such peer.
fn known(config: &Config, public_key: PublicKey) -> Option<&str> {
    let mut peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    let known = peers.find(|(peer, of_link)| {
        peer.origin == PeerOrigin::File && of_link.public_keys.contains(&public_key)
    });
    known.map(|(peer, _)| peer.name.as_str())
}

/// Whether the running gateway already has a peer with this key and name.
fn runs(config: &Config, public_key: PublicKey, name: &str) -> bool {
    let mut peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    peers.any(|(peer, of_link)| {
        !peer.is_guest() && peer.name == name && of_link.public_keys.contains(&public_key)
    })
}

/// Returns the names of the peers in the configuration file.
fn configured_names(config: &Config) -> impl Iterator<Item = &str> {
    let peers = config
        .relay
        .peers
        .iter()
        .filter(|it| it.origin == PeerOrigin::File);
    peers.map(|it| it.name.as_str())
}

/// Makes the gateway reload the register. Returns the reason if the reload fails.
async fn reload(reloads: &mpsc::Sender<reload::ReloadRequest>) -> Option<String> {
    let (request, answered) = reload::ReloadRequest::new(reload::ReloadCause::Enrolment);
    let stopping = || Some("it hands over to another process, or shuts down: try again".to_owned());
    if reloads.send(request).await.is_err() {
        return stopping();
    }
    match answered.await {
        Ok(ReloadOutcome { error, .. }) => error,
        Err(_) => stopping(),
    }
}

/// Lock that serialises enrolments.
static TURN: Mutex<()> = Mutex::const_new(());

fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Timeout for the acknowledgement of a reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
