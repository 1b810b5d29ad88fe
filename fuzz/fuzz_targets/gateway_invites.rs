#![no_main]
longhaul_fuzz::target!(longhaul_fuzz::gateway_invites);
