//! Notifications to systemd: the gateway is up, works, or ends. Without systemd they have no
//! effect.

use gatewayd::daemon::{State, Watch};
use sd_notify::NotifyState;
use tracing::debug;

/// Creates the notifications to the service manager that has started this process, if one has.
pub(crate) fn watch() -> Watch {
    Watch {
        patience: sd_notify::watchdog_enabled(),
        tell: Box::new(tell),
    }
}

fn tell(state: State) {
    let state = match state {
        State::Up => NotifyState::Ready,
        State::Working => NotifyState::Watchdog,
        State::Ending => NotifyState::Stopping,
        State::Succeeded(pid) => NotifyState::MainPid(pid),
    };
    if let Err(error) = sd_notify::notify(&[state]) {
        debug!(%error, "the message to the service manager failed");
    }
}
