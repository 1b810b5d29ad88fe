//! Actions after failures. The server and disk code proposes an action, and the plan carries it
//! out.

/// Action that may remedy a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAction {
    /// Repeat the command later on the same connection.
    Retry,
    /// Open a new connection later.
    Reconnect,
    /// Open fewer connections to this server.
    FewerConnections,
    /// Repeat the command with fewer parallel connections. The server has refused the command
    /// without attempting it.
    FewerTransfers,
    /// Stop trying to move this file. Other files may succeed.
    GiveUpFile,
    /// Open a new connection later if a log-in has succeeded before, because the server may be
    /// full. If no log-in has succeeded, stop using this server.
    LogInAgain,
    /// Stop using this server.
    GiveUpServer,
}

impl RetryAction {
    /// Returns whether the connection is still usable after the failure.
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
