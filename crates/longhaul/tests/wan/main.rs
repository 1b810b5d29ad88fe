//! `longhaul wan` as its users meet it, root and not.

mod namespaces;
