//! Tests of `longhaul wan` as users run it, with and without root.

/// Tests in real time, because packets and scripted changes take real time.
mod real_time {
    mod namespaces;
}
