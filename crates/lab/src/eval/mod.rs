//! `longhaul eval`: plans of trials, their records, and reports that are made from the records alone.

pub mod cell;
pub mod plan;
pub mod record;
pub mod side;
