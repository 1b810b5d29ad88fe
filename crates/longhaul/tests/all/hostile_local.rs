//! Tests with a malicious local user who listens at the gateway's admin address.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and plays a hostile one"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex},
    thread,
};

use crate::common::{
    longhaul,
    side::{Side, assert_refused, printed},
};

/// Answers every request as if the test were a gateway with this status. Returns the lines that
/// arrive.
fn squat(listener: TcpListener, status: String) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
            let head: Vec<_> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let body = match head.first() {
                Some(first) if first.starts_with("GET /status.json") => status.as_str(),
                _ => "{\"taken\":[],\"needs_restart\":[],\"error\":null,\"is_wrong\":false}",
            };
            hears.lock().expect("no panic").extend(head);
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}");
        }
    });
    heard
}

const KEY: &str = "rCW9n4E3pZ3Eo0UO4C1xOHxpSrHiVTmSlrOqDGpJcnE=";

#[test]
fn a_process_that_listens_at_the_gateways_address_gets_no_requests() {
    let side = Side::new("squatted");
    printed(&side.far(&["--allow", "127.0.0.1:1"]));
    let token = side.folder.path("admin.token");
    fs::write(&token, "0123456789abcdef".repeat(4)).expect("room");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("our file");
    let text = fs::read_to_string(side.config()).expect("there");
    let keys = format!("[admin]\ntoken_file = \"{token}\"\n");
    fs::write(side.config(), text.replace("[admin]\n", &keys)).expect("room");
    let running = side.start();
    printed(&side.run(&["peer", "add", "evil", KEY], &[], ""));
    let status = side.status().expect("it answers").to_string();
    drop(running);
    // The gateway is down for a moment.
    let listener = TcpListener::bind(side.admin).expect("nobody has it");
    let heard = squat(listener, status);
    // The impostor has our public key, which is no secret. It still must not count as a gateway
    // that could apply the change.
    let refused = side.run(&["peer", "rm", "evil"], &[], "");
    assert_refused(&refused, 1, "has not applied the change");
    let admin = side.admin.to_string();
    for order in [&["reload"][..], &["upgrade"], &["log", "off"]] {
        let output = longhaul(&[order, &["--admin", &admin]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let output = side.run(order, &[], "");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    let heard = heard.lock().expect("no panic").join("\n");
    assert!(heard.contains("GET /status.json"), "{heard}");
    assert!(
        !heard.contains("POST") && !heard.contains("Authorization"),
        "{heard}"
    );
}
