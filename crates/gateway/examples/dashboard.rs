//! A pair of gateways whose dashboard tests fill with made-up transfers: `dashboard FOLDER` makes keys in the folder, and prints
//! the admin address of the near one. It ends with its standard input.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the program around the gateways"
)]

use std::{io, path::Path};

use gateway::{
    config::Config,
    daemon::{self, Bound, Reloads, Watch},
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
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let far = start(folder, &format!(
        "[identity]\nkey_file = \"b.key\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[link]\nlisten = \"127.0.0.1:0\"\n\
         [[peer]]\nname = \"site-a\"\npublic_key = \"{near}\"\n"
    ), far).0;
    let (_, admin) = start(
        folder,
        &format!(
            "[identity]\nkey_file = \"a.key\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[link]\nlisten = \"127.0.0.1:0\"\n\
         [[peer]]\nname = \"site-b\"\npublic_key = \"{}\"\nendpoint = \"{}\"\n",
            far.1, far.0
        ),
        near,
    );
    println!("{admin}");
    let _ = io::read_to_string(io::stdin());
    std::process::exit(0);
}

type Link = (std::net::SocketAddr, link::PublicKey);

fn start(folder: &Path, text: &str, key: link::PublicKey) -> (Link, std::net::SocketAddr) {
    let config = Config::parse(text, &folder.join("test.toml")).expect("a configuration");
    let bound = Bound::bind(&config).expect("free ports");
    let link = bound.link.local_addr().expect("a bound socket");
    let admin = bound.admin.as_ref().expect("an admin address");
    let admin = admin.local_addr().expect("a bound socket");
    let (reloads, orders) = Reloads::never(&config);
    tokio::spawn(async move {
        let _orders = orders;
        daemon::run(
            config,
            bound,
            reloads,
            Watch::none(),
            std::future::pending(),
        )
        .await
    });
    ((link, key), admin)
}
