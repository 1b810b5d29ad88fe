//! Remedies for failures. Servers and disks suggest them, and the plan applies them.

/// Action that may cure a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAction {
    /// Repeat the command on the same connection, later.
    Retry,
    /// Open a new connection, later.
    Reconnect,
    /// Open fewer connections to this server.
    FewerConnections,
    /// Repeat the command on fewer parallel connections. The server has not tried it.
    FewerTransfers,
    /// Give up this file. Other files may succeed.
    GiveUpFile,
    /// Open a new connection, later, if a log-in has succeeded before, since the server may be
    /// full. Otherwise give up this server.
    LogInAgain,
    /// Give up this server.
    GiveUpServer,
}

impl RetryAction {
    /// Whether the connection is still usable after the failure.
    pub fn keeps_connection(self) -> bool {
        match self {
            Self::Retry | Self::GiveUpFile => true,
            Self::Reconnect
            | Self::FewerConnections
            | Self::FewerTransfers
            | Self::LogInAgain
            | Self::GiveUpServer => false,
        }
    }
}
