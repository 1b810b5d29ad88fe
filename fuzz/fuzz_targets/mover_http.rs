#![no_main]
longhaul_fuzz::target!(longhaul_fuzz::mover_http);
