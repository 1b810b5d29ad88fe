//! Direction of a packet on a path.

/// One of the two directions of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathDirection {
    /// Direction from site A to site B.
    Forward,
    /// Direction from site B to site A.
    Backward,
}

impl PathDirection {
    /// Returns the opposite direction.
    pub fn other(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}
