//! The direction of a transfer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The direction of a transfer, seen from the client at site A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialDirection {
    /// From the server at site B to the client.
    Down,
    /// From the client to the server.
    Up,
}

impl fmt::Display for TrialDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "download",
            Self::Up => "upload",
        })
    }
}
