//! What may help after a failure: servers and disks say it, the plan acts upon it.

/// What may help after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The same command on the same connection, later.
    Retry,
    /// A new connection, later.
    Reconnect,
    /// Fewer connections to this server.
    FewerConnections,
    /// The same on fewer connections side by side: the server has not tried it.
    FewerTransfers,
    /// Nothing for this file; others may do.
    GiveUpFile,
    /// A new connection, later, if a log-in has worked before: the server may be full. Otherwise nothing for this server.
    LogInAgain,
    /// Nothing for this server.
    GiveUpServer,
}

impl Remedy {
    /// Whether the connection on which the failure came is of further use.
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
