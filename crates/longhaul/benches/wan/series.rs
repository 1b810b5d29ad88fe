//! Series of transfers by new gateways, over the kernel and in virtual time.

use std::{thread, time::Duration};

use bench_kit::machine::Moment;
use units::ByteCount;

use crate::{path_pair::PathPair, setting::Setting, virtual_time};

/// Number and size of the transfers that a trial makes over a route.
#[derive(Debug, Clone, Copy)]
pub struct TransferSeries {
    pub transfers: usize,
    pub size: ByteCount,
    /// Time after each transfer in which the link is idle.
    pub pause: Duration,
}

/// Results of a series over the kernel.
#[derive(Debug, Clone)]
pub struct SeriesOutcome {
    /// Ideal time divided by the measured time, for each transfer. Zero if the transfer failed.
    pub fractions: Vec<f64>,
    /// Whether the emulator lost packets outside its model, or delayed more than 1 % of the packets
    /// too long.
    pub is_distorted: bool,
    /// Load of all processors during the last transfer, as a fraction.
    pub busy: f64,
}

impl TransferSeries {
    /// Runs the series over the kernel. `seed` determines the emulator's random numbers. If a
    /// transfer fails, the function calls `progress`. This transfer and all later transfers count
    /// as zero.
    pub fn over_kernel(
        &self,
        route: &PathPair,
        seed: u64,
        progress: impl Fn(&str),
    ) -> anyhow::Result<SeriesOutcome> {
        let setting = Setting::new(route.paths(), seed)?;
        let mut run = SeriesOutcome {
            fractions: vec![0.0; self.transfers],
            is_distorted: false,
            busy: 0.0,
        };
        if let Err(error) = self.fill(&setting, route, &mut run) {
            progress(&format!("failed: {error:#}\n{}", setting.said()));
        }
        Ok(run)
    }

    fn fill(
        &self,
        setting: &Setting,
        route: &PathPair,
        run: &mut SeriesOutcome,
    ) -> anyhow::Result<()> {
        setting.settle()?;
        let ideal = route.ideal(self.size);
        // A transfer that is cut off still counts at the rate that it reached.
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

    /// Runs the first `N` transfers in virtual time. Returns the ideal time divided by the measured
    /// time, for each transfer and for several seeds.
    pub fn in_virtual_time<const N: usize>(&self, route: &PathPair) -> [Vec<f64>; N] {
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

    /// Returns the duration of the series if no failure occurs.
    pub fn expected(&self, route: &PathPair) -> Duration {
        START + (route.ideal(self.size) + self.pause) * self.transfers as u32
    }
}

/// Time until a link is connected and has settled.
const START: Duration = Duration::from_secs(3);
