//! Tests of gateways over real sockets: sessions, transfers, TLS, configuration, administration and
//! hostile peers.
//!
//! All tests are modules of one program, so the build compiles and links their shared code only
//! once.

mod admin;
mod bottleneck;
mod broken_transfers;
mod common;
mod dashboard;
mod data_ports;
mod enrolment;
mod fast;
mod ftps;
mod ftps_common;
mod ftps_rules;
mod ftps_tls13;
mod ftps_truncation;
mod hostile_chunks;
mod limits;
mod odd_servers;
mod optimiser;
mod optimiser_life;
mod pass_through;
mod passive_ports;
mod reload;
mod sessions;
mod ssh;
mod tls;
mod tls_certificates;
mod tls_common;
mod tls_openssl;
mod transfer_log;
mod transfers;
mod untrusted_text;
mod upload_tail;
