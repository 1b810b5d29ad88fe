//! Tests in which source and destination are the same files under different names. `longhaul sync
//! --delete` must not delete its source.
#![allow(clippy::disallowed_methods, reason = "runs programs and a server")]

use std::{fs, net::TcpListener, os::unix::fs::symlink, path::Path, thread, time::Duration};

use crate::common::{Folder, assert_ends};

/// Serves a folder over FTP until the process ends. Returns the port.
pub(crate) fn serve(folder: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let folder = folder.into();
    thread::spawn(move || {
        let never = std::future::pending();
        bench_kit::ftp_server::serve(folder, address, never).expect("the server serves");
    });
    let is_up = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        std::net::TcpStream::connect(address).is_ok()
    });
    assert!(is_up, "the server is up within 5 s");
    address.port()
}

#[test]
fn a_sync_never_deletes_its_own_source_whatever_both_are_called() {
    let folder = Folder::new("overlap");
    let root = folder.path("server");
    fs::create_dir_all(Path::new(&root).join("a/b")).expect("room");
    fs::write(Path::new(&root).join("a/b/x"), b"source").expect("room");
    fs::write(Path::new(&root).join("a/f"), b"other").expect("room");
    symlink("a", Path::new(&root).join("link")).expect("room");
    let port = serve(&root);
    let url = |host: &str, path: &str| format!("ftp://{host}:{port}/{path}");
    let within =
        "a directory cannot become equal to a directory within it: name another destination";
    for (from, to) in [
        (url("127.0.0.1", "a/b"), url("127.0.0.1", "a")),
        (url("127.0.0.1", "a/b"), url("127.0.0.1", "/a")),
        (url("127.0.0.1", "a/b"), url("127.0.0.1", "./a")),
        (url("127.0.0.1", "a/b"), url("localhost", "a")),
        (format!("{root}/a/b"), url("127.0.0.1", "a")),
        (url("127.0.0.1", "a/b"), format!("{root}/a")),
        (format!("{root}/link/b"), format!("{root}/a")),
    ] {
        let line = [
            "sync",
            "--delete",
            "--max-delete",
            "100%",
            &from,
            &to,
            "--resume",
            "never",
        ];
        assert_ends(&line, 2, within);
        assert!(Path::new(&root).join("a/b/x").exists(), "{from} {to}");
    }
    // The temporary directory is gone, and syncs without overlap succeed.
    assert_eq!(
        fs::read_dir(Path::new(&root).join("a"))
            .expect("there")
            .count(),
        2
    );
    let apart = [url("127.0.0.1", "a/b"), url("127.0.0.1", "c")];
    let line = [
        "sync", "--delete", &apart[0], &apart[1], "-q", "--resume", "never",
    ];
    assert_ends(&line, 0, "");
    assert!(Path::new(&root).join("c/x").exists());
    let into = [url("127.0.0.1", "a"), url("localhost", "/a/b/c")];
    assert_ends(
        &["copy", &into[0], &into[1]],
        2,
        "cannot be copied into itself",
    );
}
