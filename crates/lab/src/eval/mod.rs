//! `longhaul eval`: plans of trials, their records, and reports that are made from the records alone.

pub mod cell;
mod installed;
mod movers;
mod neighbour;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
mod server;
pub mod side;
mod stage;
