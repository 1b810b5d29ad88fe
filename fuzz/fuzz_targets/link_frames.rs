#![no_main]
longhaul_fuzz::target!(longhaul_fuzz::link_frames);
