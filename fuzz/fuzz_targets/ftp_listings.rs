#![no_main]
longhaul_fuzz::target!(longhaul_fuzz::ftp_listings);
