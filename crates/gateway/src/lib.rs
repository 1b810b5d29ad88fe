//! Placeholder, filled in the next commit.
