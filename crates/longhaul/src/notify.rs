//! Notifications to systemd when the gateway is up, works or ends. Without systemd, they have no
//! effect.

use gatewayd::daemon::{GatewayState, ServiceManager};
use sd_notify::NotifyState;
use tracing::debug;

/// Creates the connection to the service manager that has started this process, if there is one.
pub(crate) fn service_manager() -> ServiceManager {
    ServiceManager {
        watchdog_timeout: sd_notify::watchdog_enabled(),
        report: Box::new(report),
    }
}

fn report(state: GatewayState) {
    let state = match state {
        GatewayState::Up => NotifyState::Ready,
        GatewayState::Working => NotifyState::Watchdog,
        GatewayState::Ending => NotifyState::Stopping,
        GatewayState::Succeeded(pid) => NotifyState::MainPid(pid),
    };
    if let Err(error) = sd_notify::notify(&[state]) {
        debug!(%error, "the message to the service manager failed");
    }
}
