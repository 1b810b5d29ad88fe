//! A pair of gateways for the tests of the dashboard. The tests create synthetic transfers.
//!
//! Command line: `dashboard FOLDER [ADMIN]`. The program creates keys in FOLDER. ADMIN is text for
//! the section `[admin]` of the near gateway's configuration file. The first line of standard
//! output is the near gateway's admin address. With TLS, the second line is the TLS address. The
//! program ends at the end of its standard input.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the program around the gateways"
)]

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use gatewayd::{
    config::Config,
    daemon::{self, BoundSockets, ReloadChannels, ServiceManager},
};
use link::Identity;

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    let folder = Path::new(&folder);
    let [near, far] = ["a.key", "b.key"].map(|name| {
        let identity = Identity::generate();
        identity.write_new(&folder.join(name)).expect("a new file");
        identity.public_key()
    });
    let admin = std::env::args().nth(2);
    let admin = admin.as_deref().unwrap_or(LOOPBACK);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let peer = format!("[[peer]]\nname = \"site-a\"\npublic_key = \"{near}\"\n");
    let (at, ..) = start(folder, "b.key", LOOPBACK, &peer);
    let peer = format!(
        "[[peer]]\nname = \"site-b\"\npublic_key = \"{far}\"\nendpoint = \"{at}\"\n\
         [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:1\"\n[store]\nfolder = \".\"\n"
    );
    let (_, admin, https) = start(folder, "a.key", admin, &peer);
    println!("{admin}");
    if let Some(https) = https {
        println!("{https}");
    }
    let _ = io::read_to_string(io::stdin());
    std::process::exit(0);
}

/// Starts a gateway. Returns the addresses of its link, its admin interface and its admin interface
/// with TLS.
fn start(
    folder: &Path,
    key_file: &str,
    admin: &str,
    rest: &str,
) -> (SocketAddr, SocketAddr, Option<SocketAddr>) {
    let text = format!(
        "[identity]\nkey_file = \"{key_file}\"\n[admin]\n{admin}\n[link]\nlisten = \"127.0.0.1:0\"\n{rest}"
    );
    let path = folder.join("test.toml");
    let config = Config::parse(&text, &path).expect("a configuration");
    let bound = BoundSockets::bind(&config).expect("free ports");
    let link = bound.link.local_addr().expect("a bound socket");
    let admin = bound.admin.as_ref().expect("an admin address");
    let admin = admin.local_addr().expect("a bound socket");
    let https = bound.admin_https.as_ref();
    let https = https.map(|it| it.local_addr().expect("a bound socket"));
    let (orders, ordered) = tokio::sync::mpsc::channel(1);
    let reloads = ReloadChannels {
        orders: ordered,
        load: Arc::new(move || Config::parse(&text, &path)),
        on_applied: Box::new(|_| {}),
        set_log: None,
        program: None,
    };
    tokio::spawn(async move {
        let _orders = orders;
        let forever = std::future::pending();
        daemon::run(config, bound, reloads, ServiceManager::none(), forever).await
    });
    (link, admin, https)
}

const LOOPBACK: &str = "listen = \"127.0.0.1:0\"";
