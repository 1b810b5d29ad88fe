//! Several transfers one after the other, by gateways that have never run before: over the kernel, and in virtual
//! time.

use std::{thread, time::Duration};

use bench_kit::machine::Moment;
use units::ByteCount;

use crate::{route::Route, setting::Setting, virtual_time};

/// What is sent over a route.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    pub transfers: usize,
    pub size: ByteCount,
    /// The link is idle for this long after each transfer.
    pub pause: Duration,
}

/// What came of a series over the kernel.
#[derive(Debug, Clone)]
pub struct Run {
    /// Of each transfer, the ideal time by the time that it took; zero for those that failed.
    pub fractions: Vec<f64>,
    /// The machine lost packets outside the model, or was late with more than 1 % of them.
    pub is_distorted: bool,
    /// Used share of all processors during the last transfer.
    pub busy: f64,
}

impl Series {
    /// `seed` is that of the emulator. What fails is told to `progress`, and is zero.
    pub fn over_kernel(
        &self,
        route: &Route,
        seed: u64,
        progress: impl Fn(&str),
    ) -> anyhow::Result<Run> {
        let setting = Setting::new(route.paths(), seed)?;
        let mut run = Run {
            fractions: vec![0.0; self.transfers],
            is_distorted: false,
            busy: 0.0,
        };
        if let Err(error) = self.fill(&setting, route, &mut run) {
            progress(&format!("failed: {error:#}\n{}", setting.said()));
        }
        Ok(run)
    }

    fn fill(&self, setting: &Setting, route: &Route, run: &mut Run) -> anyhow::Result<()> {
        setting.settle()?;
        let ideal = route.ideal(self.size);
        // What is cut off still counts at the rate that it reached.
        let limit = 4 * ideal + Duration::from_secs(20);
        let before = setting.report();
        for fraction in &mut run.fractions {
            let began = Moment::now()?;
            *fraction = ideal.as_secs_f64() / setting.transfer_s(self.size, limit)?;
            run.busy = began.load_since(Duration::ZERO)?.busy;
            thread::sleep(self.pause);
        }
        run.is_distorted = setting.report().distorted_since(&before);
        Ok(())
    }

    /// The ideal time by the time taken of each of the first `N` transfers, by some seeds.
    pub fn in_virtual_time<const N: usize>(&self, route: &Route) -> [Vec<f64>; N] {
        let ideal_s = route.ideal(self.size).as_secs_f64();
        virtual_time::by_seeds(|seed| {
            let mut world = virtual_time::world(route, seed);
            [(); N].map(|()| {
                let took_s = virtual_time::transfer_s(&mut world, self.size);
                world.run_for(self.pause);
                ideal_s / took_s
            })
        })
    }

    /// How long a run takes if all goes well.
    pub fn expected(&self, route: &Route) -> Duration {
        START + (route.ideal(self.size) + self.pause) * self.transfers as u32
    }
}

/// Until a link is up and has settled.
const START: Duration = Duration::from_secs(3);
