//! Tests of `longhaul copy --peer`: its near gateway must not be reachable for other programs.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs, looks at their sockets and waits"
)]

use std::{
    collections::HashSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use crate::{
    common::{
        longhaul,
        side::{Side, printed},
    },
    overlap::serve,
};

/// Returns the listening TCP and Unix sockets of a process, as lines of the kernel's tables.
fn listening(process: u32) -> Vec<String> {
    let folder = format!("/proc/{process}");
    let Ok(open) = fs::read_dir(format!("{folder}/fd")) else {
        return Vec::new();
    };
    let links = open
        .flatten()
        .filter_map(|it| fs::read_link(it.path()).ok());
    let own: HashSet<String> = links
        .filter_map(|it| {
            let name = it.to_str()?.strip_prefix("socket:[")?;
            Some(name.trim_end_matches(']').to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("{folder}/net/{it}")));
    let tables = tables.map(Result::unwrap_or_default).concat();
    let is_ours = |line: &&str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns.get(3) == Some(&LISTEN) && columns.get(9).is_some_and(|it| own.contains(*it))
    };
    let unix = fs::read_to_string(format!("{folder}/net/unix")).unwrap_or_default();
    let accepts = |line: &&str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns.get(3) == Some(&ACCEPTS) && columns.get(6).is_some_and(|it| own.contains(*it))
    };
    let tcp = tables.lines().filter(is_ours);
    tcp.chain(unix.lines().filter(accepts))
        .map(str::to_owned)
        .collect()
}

/// Waits until the program ends, and asserts that it never listens. Returns the number of checks.
fn end_without_listener(mut program: Child) -> u32 {
    let mut looks = 0;
    loop {
        if let Some(status) = program.try_wait().expect("it is ours") {
            assert!(status.success(), "{status}");
            return looks;
        }
        let found = listening(program.id());
        assert!(found.is_empty(), "{found:?}");
        looks += 1;
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_copy_as_a_near_gateway_never_listens() {
    let side = Side::new("unheard");
    printed(&side.far(&["--allow", "127.0.0.1:1-65535"]));
    let key = side.folder.path("near.key");
    printed(&longhaul(&["keygen", &key]));
    let near = printed(&longhaul(&["pubkey", &key]));
    printed(&side.run(&["peer", "add", "mover", &near], &[], ""));
    let text = fs::read_to_string(side.config()).expect("it was written");
    let config: toml::Table = text.parse().expect("TOML");
    let far_key = config["identity"]["key_file"].as_str().expect("a path");
    let far_key = Path::new(&side.config()).with_file_name(far_key);
    let far = printed(&longhaul(&["pubkey", &far_key.display().to_string()]));
    let _running = side.start();
    let [root, from, to] = ["server", "from", "to"].map(|it| side.folder.path(it));
    for folder in [&root, &from] {
        fs::create_dir(folder).expect("room");
    }
    for number in 0..100 {
        fs::write(format!("{from}/{number}"), [number; 3_000]).expect("room");
    }
    fs::write(format!("{from}/film"), vec![7; 3_000_000]).expect("room");
    let port = serve(&root);
    let url = format!("ftp://anonymous@127.0.0.1:{port}/there/");
    let peer = format!("{far}@{}", side.link);
    // Small files arrive at ports of the mover, and large ones at ports of the gateway.
    for (source, destination) in [(format!("{from}/"), url.clone()), (url, format!("{to}/"))] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let program = program
            .args([
                "copy",
                &source,
                &destination,
                "--peer",
                &peer,
                "--key",
                &key,
            ])
            .args(["-q", "--bwlimit", "8M"])
            .env("HOME", side.folder.path(""))
            .stdin(Stdio::null())
            .spawn()
            .expect("the program");
        let looks = end_without_listener(program);
        assert!(looks >= 5, "looked {looks} times");
    }
    for name in ["0", "99", "film"] {
        let [there, here] = [&from, &to].map(|it| fs::read(format!("{it}/{name}")).expect(name));
        assert!(there == here, "{name}");
    }
}

/// Code for the state of a listening TCP socket in the kernel's table.
const LISTEN: &str = "0A";

/// Flags of a listening Unix socket in the kernel's table.
const ACCEPTS: &str = "00010000";
