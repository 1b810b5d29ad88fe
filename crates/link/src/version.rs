//! Protocol versions of the link.

/// Version of the frame format of a connection.
///
/// In its TLS transport parameters, each side states the oldest and the highest version that it
/// supports. The connection uses the highest version that both sides support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameVersion {
    /// Version in which a receiver may grant credit with PACED_CREDIT frames according to its
    /// reader's drain rate.
    V2,
    /// Version in which every receiver grants credit with CREDIT frames.
    V3,
}

impl FrameVersion {
    /// Oldest version that this program supports: the highest version of the previous release.
    pub(crate) const OLDEST: Self = Self::V2;

    /// Highest version that this program supports.
    pub(crate) const LATEST: Self = Self::V3;

    /// Returns the byte that encodes the version.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// Returns the highest version that both sides support, or `None` if there is none. The peer
    /// supports all versions from `oldest` to `latest`.
    pub(crate) fn common(oldest: u8, latest: u8) -> Option<Self> {
        [Self::V3, Self::V2]
            .into_iter()
            .find(|version| (oldest..=latest).contains(&version.byte()))
    }
}
