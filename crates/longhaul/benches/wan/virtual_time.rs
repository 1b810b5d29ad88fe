//! The same trials in virtual time: two link cores over the paths of a [`Route`].
//!
//! There are no kernel, sockets, TCP or other work on the machine. Differences from the kernel path
//! are due to these.

use std::time::Duration;

use bench_kit::jobs;
use link::{
    Class,
    sim::{SimSite, World, WorldConfig},
};
use units::ByteCount;

use crate::route::Route;

/// Returns the figures of `trial` for some seeds.
pub fn by_seeds<const N: usize>(trial: impl Fn(u64) -> [f64; N] + Sync) -> [Vec<f64>; N] {
    let found = jobs::map(&SEEDS, |seed| trial(*seed));
    std::array::from_fn(|index| found.iter().map(|figures| figures[index]).collect())
}

/// Configures two sites with default gateways.
pub fn config(route: &Route, seed: u64) -> WorldConfig {
    WorldConfig {
        backward: route.backward.clone(),
        ..WorldConfig::symmetric(route.forward.clone(), seed)
    }
}

/// Creates a world whose link is up and has settled, as after [`crate::setting::Setting::settle`].
pub fn world(route: &Route, seed: u64) -> World {
    let mut world = World::new(&config(route, seed));
    settle(&mut world);
    world
}

/// Waits until the link is up, and then for a while.
pub fn settle(world: &mut World) {
    world.run_until(LIMIT, |world| world.endpoint(SimSite::A).is_up(0));
    world.run_for(crate::setting::SETTLE);
}

/// Returns the seconds of a transfer. Infinite if it fails.
pub fn transfer_s(world: &mut World, size: ByteCount) -> f64 {
    let id = world.send(SimSite::A, Class::Bulk, size);
    let took = world.run_to_end(id, LIMIT);
    took.map_or(f64::INFINITY, |took| took.as_secs_f64())
}

/// Time after which a transfer or a handshake counts as failed.
const LIMIT: Duration = Duration::from_secs(300);
const SEEDS: [u64; 3] = [1, 2, 3];
