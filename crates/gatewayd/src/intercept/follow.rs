//! Thread that informs the kernel which peers are up, for as long as the gateway runs.
#![allow(clippy::disallowed_methods, reason = "drives the kernel in real time")]

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use link::{Link, PeerState};
use tracing::{info, warn};

use super::{InterceptError, install, program::nft, routing, ruleset::Ruleset};

/// Updates the kernel until a message arrives on `stop`. If the sender of `stop` is dropped, the
/// function first ends the interception of new connections.
pub(super) fn follow(rulesets: &[Ruleset], link: &Link, stop: &Receiver<()>) {
    let mut sent: Vec<bool> = Vec::new();
    let mut sent_at = Instant::now();
    let mut is_working = true;
    loop {
        match stop.recv_timeout(LOOK_EVERY) {
            Ok(()) => return,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let peers = link.snapshot().peers;
        let is_up = |state| matches!(state, PeerState::Up { .. });
        let up: Vec<bool> = peers.iter().map(|peer| is_up(peer.state)).collect();
        if up == sent && sent_at.elapsed() < REFRESH_EVERY {
            continue;
        }
        sent_at = Instant::now();
        let result = refresh(rulesets, &up, true);
        match &result {
            Err(error) if is_working => {
                warn!(%error, "nothing is intercepted, connections pass directly");
            }
            Ok(()) if !is_working => info!("interception works again"),
            _ => {}
        }
        is_working = result.is_ok();
        for (index, peer) in peers.iter().enumerate() {
            let was_up = sent.get(index).copied().unwrap_or_default();
            let is_used = |rules: &Ruleset| rules.intercepted().peers().contains(&index);
            if up[index] == was_up || !rulesets.iter().any(is_used) {
                continue;
            }
            let peer = &peer.name;
            if up[index] {
                info!(peer, "connections to its servers are intercepted");
            } else {
                warn!(peer, "not up: connections to its servers pass directly");
            }
        }
        sent = up;
    }
    if let Err(error) = refresh(rulesets, &[], false) {
        warn!(%error, "the intercepted connections end only with the gateway");
    }
}

/// Updates the kernel's set of peers that are up. If rules are missing in the kernel, installs them
/// again. Checks the routing only if `checks_routing` is set.
fn refresh(rulesets: &[Ruleset], up: &[bool], checks_routing: bool) -> Result<(), InterceptError> {
    for rules in rulesets {
        let text = rules.refresh(|peer| up.get(peer).copied().unwrap_or_default());
        // Without routing, an intercepted connection would not be delivered, so this check comes
        // first.
        let routed = !checks_routing || routing::is_installed(rules)?;
        if !routed || nft(&text).is_err() {
            // Another program has removed the rules or the policy routing, as a firewall does at a
            // reload.
            warn!(
                table = rules.table(),
                what = if routed { "rules" } else { "policy routing" },
                "missing, installing them again"
            );
            install(rules, &[])?;
            nft(&text)?;
        }
    }
    Ok(())
}

/// Interval at which the thread checks which peers are up. Changes reach the kernel at most 0.1 s
/// late.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval at which the thread renews elements of the kernel's sets. The elements expire without a
/// renewal.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
