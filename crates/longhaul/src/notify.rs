//! What systemd hears of a gateway: that it is up, that it works, that it ends. Without systemd nobody does.

use gatewayd::daemon::{State, Watch};
use sd_notify::NotifyState;
use tracing::debug;

/// Tells the service manager that has started this process, if one has.
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
        debug!(%error, "the service manager was not told");
    }
}
