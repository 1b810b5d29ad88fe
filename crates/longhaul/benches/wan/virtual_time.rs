//! The trials of the bench in virtual time: two endpoints of the link over the paths of a
//! [`PathPair`].
//!
//! The simulation has no kernel, no sockets, no TCP and no other load on the machine. If a result
//! over the kernel differs, one of these missing parts is the cause.

use std::time::Duration;

use bench_kit::jobs;
use link::{
    StreamClass,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::ByteCount;

use crate::path_pair::PathPair;

/// Runs `trial` once for each seed. Returns one list for each of the `N` figures. A list has one
/// result for each seed.
pub fn by_seeds<const N: usize>(trial: impl Fn(u64) -> [f64; N] + Sync) -> [Vec<f64>; N] {
    let found = jobs::map(&SEEDS, |seed| trial(*seed));
    std::array::from_fn(|index| found.iter().map(|figures| figures[index]).collect())
}

/// Configures two sites with default gateways.
pub fn config(route: &PathPair, seed: u64) -> WorldConfig {
    WorldConfig {
        backward: route.backward.clone(),
        ..WorldConfig::symmetric(route.forward.clone(), seed)
    }
}

/// Creates a world whose link is connected and has settled, like
/// [`crate::setting::Setting::settle`].
pub fn world(route: &PathPair, seed: u64) -> SimWorld {
    let mut world = SimWorld::new(&config(route, seed));
    settle(&mut world);
    world
}

/// Waits until the link is connected, and then for the same time as the trials over the kernel.
pub fn settle(world: &mut SimWorld) {
    world.run_until(LIMIT, |world| world.endpoint(SimSite::A).is_up(0));
    world.run_for(crate::setting::SETTLE);
}

/// Returns the duration of a transfer in seconds. Returns infinity if the transfer fails.
pub fn transfer_s(world: &mut SimWorld, size: ByteCount) -> f64 {
    let id = world.send(SimSite::A, StreamClass::Bulk, size);
    let took = world.run_to_end(id, LIMIT);
    took.map_or(f64::INFINITY, |took| took.as_secs_f64())
}

/// Time after which a transfer or a handshake counts as failed.
const LIMIT: Duration = Duration::from_secs(300);
const SEEDS: [u64; 3] = [1, 2, 3];
