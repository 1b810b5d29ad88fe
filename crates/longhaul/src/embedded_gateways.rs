//! Near gateways inside a process that runs several jobs. Each pair of far gateway and key has one
//! near gateway.

use std::{collections::HashMap, path::PathBuf};

use mover::embedded_gateway::{EmbeddedGateway, GatewayListeners};

use crate::{exit, moving::Settings};

/// Near gateways of this process. The map's key consists of the far gateway and the path of the
/// private key file.
#[derive(Default)]
pub(crate) struct EmbeddedGateways(HashMap<(String, PathBuf), EmbeddedGateway>);

impl EmbeddedGateways {
    /// Returns the listeners of a job's near gateway. Starts the near gateway unless an earlier job
    /// has started it. Returns `None` if the job names no far gateway.
    pub(crate) fn listeners(
        &mut self,
        settings: &mut Settings,
    ) -> anyhow::Result<Option<GatewayListeners>> {
        let Some((peer, key)) = settings.access.peer().cloned() else {
            return Ok(None);
        };
        let id = (format!("{}@{}", peer.public_key, peer.endpoint), key);
        let scheme = settings.scheme();
        if let Some(near) = self.0.get(&id) {
            let (their_scheme, their_verify) = near.tls_settings();
            let is_same = scheme.is_none_or(|it| it == *their_scheme)
                && settings.access.verify_tls() == their_verify;
            exit::ensure(
                is_same,
                "another job uses the same far gateway with another kind of TLS: give this job a key of its own",
            )?;
            return Ok(Some(near.listeners(0)));
        }
        let near = settings.access.start_near(scheme)?;
        let near = near.expect("a far gateway is named");
        let listeners = near.listeners(0);
        self.0.insert(id, near);
        Ok(Some(listeners))
    }

    /// Ends all near gateways.
    pub(crate) async fn end(self) {
        for near in self.0.into_values() {
            near.end().await;
        }
    }
}
