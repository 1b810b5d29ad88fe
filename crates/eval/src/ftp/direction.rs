//! The direction of a transfer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The direction of a transfer, from the view of the client at site A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialDirection {
    /// A download from the server at site B.
    Down,
    /// An upload to the server at site B.
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
