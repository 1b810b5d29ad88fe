//! Versions of the link.

/// Version of the frames of a connection.
///
/// Each end names the oldest and the latest version that it speaks in its TLS transport parameters.
/// Both ends speak the latest version that they have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameVersion {
    /// A receiver may measure its reader and grant slots by PACED_CREDIT.
    V2,
    /// Every receiver grants slots by CREDIT.
    V3,
}

impl FrameVersion {
    /// The oldest version that this end speaks, which is the latest of the previous release.
    pub(crate) const OLDEST: Self = Self::V2;

    /// The latest version.
    pub(crate) const LATEST: Self = Self::V3;

    /// Returns the byte that stands for the version.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// Returns the latest version that this end has in common with a peer that speaks the versions
    /// from `oldest` to `latest`. `None` if there is none.
    pub(crate) fn common(oldest: u8, latest: u8) -> Option<Self> {
        [Self::V3, Self::V2]
            .into_iter()
            .find(|version| (oldest..=latest).contains(&version.byte()))
    }
}
