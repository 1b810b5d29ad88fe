//! `longhaul wan` as its users see it, root or not.

/// Packets and scripts of changes take real time.
mod real_time {
    mod namespaces;
}
