//! Detection of a source and a destination that contain the same files.
//!
//! Two different names may lead to the same files. Examples are two spellings of a server's name, a
//! link, and a local path that a server also serves. A sync that deletes extra files would then
//! delete its own source.
#![allow(
    clippy::disallowed_methods,
    reason = "looks which addresses are this machine's"
)]

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};

use mover::{
    location::{Location, Server},
    names::{join, parent},
    plan::JobPurpose,
    run::Browser,
};

use super::{Order, Settings};
use crate::exit;

/// Refuses a job whose source and destination overlap. Sends no request to a server if an overlap
/// is impossible.
pub(super) async fn check(order: &Order<'_>, settings: &Settings) -> anyhow::Result<()> {
    let (sources, destination) = settings.locations();
    let source = &sources[0];
    let deletes = matches!(&order.purpose, JobPurpose::Sync { deletion: Some(_) });
    let is_direct = settings.access.listeners().is_none();
    let is_same = match (source.server(), destination.server()) {
        (Some(ours), Some(theirs)) if !ours.scheme.is_web() && order.writing.is_some() => {
            let is_same_user = settings.access.user(ours) == settings.access.user(theirs);
            is_same_user && ours.port == theirs.port && is_same_host(ours, theirs, is_direct)
        }
        (Some(server), None) | (None, Some(server)) => {
            let is_own = || addresses(server).iter().any(is_own_address);
            deletes && !server.scheme.is_web() && is_direct && is_own()
        }
        _ => false,
    };
    if !is_same {
        return Ok(());
    }
    let mut there = Browser::open(&settings.access.site(destination), None).await?;
    if source.server().is_some() && destination.server().is_some() {
        let to = there.place(&destination.path()).await?;
        for source in sources {
            let from = there.place(&source.path()).await?;
            exit::ensure(!is_below(&from, &to), INTO_ITSELF)?;
            let is_sync = matches!(order.purpose, JobPurpose::Sync { .. });
            exit::ensure(!is_sync || !is_below(&to, &from), ONE_WITHIN)?;
        }
    }
    let checked = match deletes && !order.is_dry_run() {
        true => probe(settings, source, destination, &mut there).await,
        false => Ok(()),
    };
    there.close().await;
    checked
}

/// Creates a test directory at the destination, and searches for it in all directories above the
/// source. Paths alone are not enough, because links and servers hide the real paths.
async fn probe(
    settings: &Settings,
    source: &Location,
    destination: &Location,
    there: &mut Browser,
) -> anyhow::Result<()> {
    let name = format!(".longhaul-{:016x}", rand_number());
    let made = join(&destination.path(), name.as_bytes());
    // If the test directory cannot be made, the destination is missing or permits no changes. A
    // deletion would then also fail.
    if there.make_directory(&made).await.is_err() {
        return Ok(());
    }
    let is_seen = is_seen_above(settings, source, name.as_bytes()).await;
    there.remove_directory(&made).await?;
    exit::ensure(!is_seen?, ONE_WITHIN)
}

async fn is_seen_above(
    settings: &Settings,
    source: &Location,
    name: &[u8],
) -> anyhow::Result<bool> {
    let mut here = Browser::open(&settings.access.site(source), None).await?;
    let path = here.place(&source.path()).await?;
    let mut is_seen = false;
    for path in [path, source.path()] {
        let mut at = Some(path.as_slice());
        while let Some(above) = at.and_then(parent) {
            is_seen |= here.look(&join(above, name)).await?.is_some();
            at = (above != b"/").then_some(above);
        }
    }
    here.close().await;
    Ok(is_seen)
}

fn is_same_host(ours: &Server, theirs: &Server, is_direct: bool) -> bool {
    let is_same_name = ours.host.eq_ignore_ascii_case(&theirs.host);
    // If the job uses a gateway, the far gateway resolves the host name.
    is_same_name
        || is_direct && {
            let theirs = addresses(theirs);
            addresses(ours).iter().any(|it| theirs.contains(it))
        }
}

/// Returns the addresses of a server. Returns no address if the host name cannot be resolved. The
/// later connection to the server then reports this error.
fn addresses(server: &Server) -> Vec<IpAddr> {
    let found = (server.host.as_str(), server.port).to_socket_addrs();
    let addresses = found.into_iter().flatten();
    let addresses = addresses.map(|it| it.ip().to_canonical());
    // All loopback addresses usually lead to the same servers.
    addresses
        .map(|it| match it.is_loopback() {
            true => IpAddr::from([127, 0, 0, 1]),
            false => it,
        })
        .collect()
}

fn is_own_address(address: &IpAddr) -> bool {
    UdpSocket::bind((*address, 0)).is_ok()
}

fn is_below(outer: &[u8], inner: &[u8]) -> bool {
    let outer = outer.strip_suffix(b"/").unwrap_or(outer);
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.len() > 1 && rest.starts_with(b"/"))
}

/// Returns a random number for the name of a test directory.
fn rand_number() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

pub(super) const INTO_ITSELF: &str =
    "a directory cannot be copied into itself: name a destination outside of it";

pub(super) const ONE_WITHIN: &str =
    "a directory cannot become equal to a directory within it: name another destination";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_is_not_the_same_and_no_neighbour() {
        for (outer, inner, expected) in [
            ("/a", "/a/b", true),
            ("/a/", "/a/b/c", true),
            ("/", "/a", true),
            ("/a", "/a", false),
            ("/a", "/ab", false),
            ("/a/b", "/a", false),
        ] {
            let found = is_below(outer.as_bytes(), inner.as_bytes());
            assert_eq!(found, expected, "{outer} {inner}");
        }
    }
}
