//! Tests of `longhaul store`: the chunk stores of a gateway are listed, verified and cleared. The
//! gateway runs in some tests and is stopped in others.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader},
    net::TcpStream,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use fake_ftp::{Behaviour, FakeServer};
use optimiser::{
    chunk::ChunkName,
    store::{IdentitySeed, Store, StoreSettings},
};
use serde_json::Value;

use crate::common::{
    self,
    side::{Running, Side, TIMEOUT, assert_refused, is_up, printed},
};

/// Adds `count` chunks of 5,000 bytes to the store in a folder.
fn fill(folder: &Path, count: u32) {
    let settings = StoreSettings {
        folder: folder.to_owned(),
        size_max_bytes: 64 << 20,
        queue_max_bytes: 32 << 20,
        pause: Duration::from_secs(1),
        seed: [7; 16],
    };
    let fresh = IdentitySeed {
        id: [1; 16],
        secret: [2; 32],
    };
    let store = Store::open(settings, fresh).expect("nobody has it");
    for number in 0..count {
        let content: Vec<u8> = number.to_le_bytes().repeat(1250);
        store.put(ChunkName::of(&content), content.into());
    }
    store.settle();
}

/// Creates a gateway whose configuration has a folder for stores. Returns the gateway and the
/// folder.
fn side(name: &str) -> (Side, PathBuf) {
    let side = Side::new(name);
    let stores = PathBuf::from(side.folder.path("stores"));
    fs::create_dir(&stores).expect("room");
    append(
        &side.config(),
        &format!("\n[store]\nfolder = \"{}\"\n", stores.display()),
    );
    (side, stores)
}

fn append(config: &str, text: &str) {
    let before = fs::read_to_string(config).expect("written");
    fs::write(config, before + text).expect("room");
}

/// Creates a gateway with stores and a key, but without peers.
fn alone(name: &str) -> (Side, PathBuf) {
    let (side, stores) = side(name);
    let key = side.folder.path("a.key");
    printed(&common::longhaul(&["keygen", &key]));
    append(
        &side.config(),
        &format!("[identity]\nkey_file = \"{key}\"\n"),
    );
    (side, stores)
}

fn store(side: &Side, rest: &[&str]) -> Output {
    side.run(&["store"], rest, "")
}

fn listed(side: &Side) -> Value {
    let text = printed(&store(side, &["ls", "--json"]));
    let list: Value = serde_json::from_str(&text).expect("an object");
    list["stores"].clone()
}

const OSLO: &str = "oslo-0123456789abcdef";
const NEWS: &str = "site%2Db-0123456789abcdef-news";

#[test]
fn stores_are_listed_and_cleared_without_a_gateway() {
    let (side, stores) = alone("store-alone");
    let none = printed(&store(&side, &["ls"]));
    assert!(none.contains("has no store yet"), "{none}");
    fill(&stores.join(OSLO), 100);
    fill(&stores.join(NEWS), 10);
    fs::create_dir(stores.join("lost+found")).expect("room");
    let list = listed(&side);
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    let [oslo, news] = [&list[0], &list[1]];
    assert_eq!(
        (&oslo["peer"], &oslo["tenant"]),
        (&"oslo".into(), &Value::Null)
    );
    assert_eq!(
        (&oslo["chunks"], &oslo["segments"]),
        (&100.into(), &1.into())
    );
    assert_eq!(oslo["content_bytes"], 500_000);
    assert_eq!(oslo["is_open"], false);
    assert_eq!(
        (&news["peer"], &news["tenant"]),
        (&"site-b".into(), &"news".into())
    );
    let text = printed(&store(&side, &["ls"]));
    assert!(
        text.contains("peer site-b, tenant news, 10 chunks"),
        "{text}"
    );

    let unknown = store(&side, &["clear", "bern"]);
    assert_refused(&unknown, 2, "there is no store \"bern\"");
    assert_refused(&unknown, 2, OSLO);
    assert_refused(&store(&side, &["clear"]), 2, "STORE");
    let told = printed(&store(&side, &["clear", "oslo"]));
    assert_eq!(told, format!("{OSLO}: cleared"));
    assert_eq!(listed(&side)[0]["chunks"], 0);
    assert_eq!(listed(&side)[1]["chunks"], 10);
    printed(&store(&side, &["clear", "--all"]));
    assert_eq!(listed(&side)[1]["chunks"], 0);
    assert_eq!(printed(&store(&side, &["verify"])).lines().count(), 2);
}

#[test]
fn damage_is_reported_with_its_position_and_exit_code_1() {
    let (side, stores) = alone("store-damage");
    fill(&stores.join(OSLO), 100);
    fill(&stores.join(NEWS), 10);
    let intact = printed(&store(&side, &["verify"]));
    assert_eq!(intact.matches("nothing is damaged").count(), 2, "{intact}");
    let mut files = fs::read_dir(stores.join(OSLO)).expect("there").flatten();
    let mut segments = files.by_ref().filter(|it| {
        let name = it.file_name();
        name.to_string_lossy().ends_with(".segment")
    });
    let segment = segments.next().expect("one").path();
    let file = OpenOptions::new().write(true).open(&segment).expect("ours");
    // The header of the file has 64 bytes, and the header of the record 40.
    file.write_all_at(b"x", 64 + 40 + 1000).expect("room");
    let found = store(&side, &["verify", OSLO]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout);
    for words in ["1 chunk damaged", ".segment at offset 64\n", "never a byte"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let found = store(&side, &["verify", "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&found.stdout).expect("an object");
    assert_eq!(found["stores"][0]["damage"][0]["offset_bytes"], 64);
    assert_eq!(found["stores"][1]["damaged_chunks"], 0);
    printed(&store(&side, &["verify", "site-b"]));
    // The segment cannot be read as one.
    file.write_all_at(b"x", 0).expect("room");
    let found = store(&side, &["verify", "oslo"]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(text.contains("1 further segment damaged"), "{text}");
}

#[test]
fn without_a_section_there_is_nothing_to_ask_for() {
    let side = Side::new("store-none");
    let key = side.folder.path("a.key");
    printed(&common::longhaul(&["keygen", &key]));
    append(
        &side.config(),
        &format!("[identity]\nkey_file = \"{key}\"\n"),
    );
    for command in [&["ls"][..], &["verify"], &["clear", "--all"]] {
        assert_refused(&store(&side, command), 2, "there is no [store]");
    }
}

/// A pair of gateways. The near gateway has opened its store, because a client has connected.
struct Open {
    near: Side,
    stores: PathBuf,
    near_runs: Running,
    _far: (Side, Running),
    _client: TcpStream,
}

/// Starts the pair. If `token` is set, it protects the near gateway's admin address.
fn open(name: &str, token: Option<&str>) -> Open {
    let far = Side::new(&format!("{name}-far"));
    let server = FakeServer::start(Behaviour::default());
    let target = server.address().to_string();
    let invite = printed(&far.far(&["--allow", &target]));
    let far_runs = far.start();
    let (near, stores) = side(&format!("{name}-near"));
    if let Some(token) = token {
        let path = near.folder.path("admin.token");
        fs::write(&path, format!("{token}\n")).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        let config = fs::read_to_string(near.config()).expect("there");
        let line = format!("[admin]\ntoken_file = \"{path}\"\n");
        fs::write(near.config(), config.replace("[admin]\n", &line)).expect("room");
    }
    printed(&near.near(&invite, &["--target", &target]));
    let come = || {
        let client = TcpStream::connect(near.ftp).expect("the listener");
        client.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let mut line = String::new();
        let mut reader = BufReader::new(client.try_clone().expect("a socket"));
        reader.read_line(&mut line).expect("a line");
        assert!(line.starts_with("220"), "{line}");
        client
    };
    // The first start creates the store, which is then filled.
    let runs = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    drop(come());
    drop(runs);
    let mut made = fs::read_dir(&stores).expect("there").flatten();
    fill(&made.next().expect("a store").path(), 100);
    let near_runs = near.start();
    near.wait("a link", |it| is_up(it, "far"));
    let client = come();
    near.wait("its chunks", |it| it["stores"][0]["chunks"] == 100);
    Open {
        near,
        stores,
        near_runs,
        _far: (far, far_runs),
        _client: client,
    }
}

#[test]
fn a_gateway_that_has_a_store_open_clears_it_itself() {
    for token in [None, Some("0123456789abcdef0123456789abcdef")] {
        let world = open(&format!("store-open-{}", token.is_some()), token);
        let list = listed(&world.near);
        assert_eq!(
            (&list[0]["chunks"], &list[0]["is_open"]),
            (&100.into(), &true.into())
        );
        let text = printed(&common::longhaul(&[
            "status",
            "--admin",
            &world.near.admin.to_string(),
        ]));
        assert!(text.contains("store far: 100 chunks, "), "{text}");
        printed(&store(&world.near, &["verify"]));
        printed(&store(&world.near, &["clear", "far"]));
        world
            .near
            .wait("an empty store", |it| it["stores"][0]["chunks"] == 0);
        let list = listed(&world.near);
        assert_eq!(
            (&list[0]["chunks"], &list[0]["is_open"]),
            (&0.into(), &true.into())
        );
    }
}

#[test]
fn an_unreachable_gateway_is_reported() {
    let mut world = open("store-deaf", None);
    // The socket is another one, where no process listens.
    let config = fs::read_to_string(world.near.config()).expect("there");
    assert!(config.contains("[admin]\n"), "{config}");
    let moved = config.replace("[admin]\n", "[admin]\nsocket = \"elsewhere.sock\"\n");
    fs::write(world.near.config(), moved).expect("room");
    let refused = store(&world.near, &["clear", "--all"]);
    assert_refused(&refused, 1, "a gateway has it open, and cannot be asked");
    assert_eq!(listed(&world.near)[0]["chunks"], 100);
    // Without a gateway the command clears the store itself.
    world.near_runs.0.kill().expect("it runs");
    world.near_runs.0.wait().expect("it ends");
    printed(&store(&world.near, &["clear", "--all"]));
    assert_eq!(listed(&world.near)[0]["chunks"], 0);
    assert!(world.stores.exists());
}
