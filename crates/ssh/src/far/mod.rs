//! Far gateway: the SSH client of servers.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use relay::{
    Relay,
    service::{FarService, ServiceStream},
};

use crate::settings::FarSsh;

/// Returns the far halves of SSH sessions and of their channels. They share their sessions.
pub fn far_services(settings: FarSsh) -> Vec<Arc<dyn FarService>> {
    let settings = Arc::new(settings);
    vec![Arc::new(SshFar(settings))]
}

/// Far half of SSH sessions.
#[derive(Debug)]
struct SshFar(Arc<FarSsh>);

impl FarService for SshFar {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn serve(self: Arc<Self>, stream: ServiceStream, _: Relay) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = &self.0;
            drop(stream);
        })
    }
}
