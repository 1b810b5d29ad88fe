//! `longhaul wan` as its users meet it, root and not.

/// Packets and scripts of changes take their time.
mod real_time {
    mod namespaces;
}
