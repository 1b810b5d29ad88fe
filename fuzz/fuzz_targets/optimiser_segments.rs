#![no_main]
longhaul_fuzz::target!(longhaul_fuzz::optimiser_segments);
