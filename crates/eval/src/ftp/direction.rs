//! Which way files go.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which way files go, seen from the client at site A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the server at site B.
    Down,
    /// To it.
    Up,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "download",
            Self::Up => "upload",
        })
    }
}
