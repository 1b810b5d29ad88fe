//! Tests with servers of unusual behaviour. They refuse commands, reply early, hide files, or send
//! superfluous text. An incomplete file must never have its final name, and every other file must
//! be moved.
#![allow(
    clippy::disallowed_methods,
    reason = "waits until a server has taken what was on its way"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::Write as _,
    net::TcpStream,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use fake_ftp::{Behaviour, FakeServer, Overwrites};
use ftp::listing::{ModifiedTime, TimePrecision};
use mover::{
    job::Job,
    journal::{Journal, PartOrigin, PartRecord},
    plan::{File, RelativePath},
    server::{GatewayListener, Route},
};

use crate::common::{FakeServerExt as _, World, content, write};

const LARGE: usize = 3_000_000;

fn refusing(verb: &'static str, reply: &'static str) -> Behaviour {
    Behaviour {
        replies: BTreeMap::from([(verb, reply)]),
        ..Behaviour::default()
    }
}

/// Writes a directory with `count` small files.
fn small_files(world: &World, count: usize) {
    for number in 0..count {
        write(&world.here("tree").join(number.to_string()), b"small");
    }
}

/// Interrupts an upload after 1 MB, and resumes it. Returns the commands that the server received
/// in the second run.
fn interrupted_upload(server: &FakeServer) -> Vec<String> {
    let world = World::new();
    let large = content(LARGE);
    write(&world.here("large"), &large);
    let job = |rate| {
        let mut job = world.upload_by(server.dial(), &world.here("large"), "large");
        job.moving.rate_max = rate;
        job
    };
    let slow = units::BitRate::mbit(40);
    let first = world.run_until(job(Some(slow.into())), 1_000_000);
    assert!(first.summary.is_interrupted);
    // The server may still receive bytes in flight.
    let is_over = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !server.state().files.is_empty()
    });
    assert!(is_over, "a part was left");
    assert!(server.content("large").is_none(), "a part has another name");
    server.state().verbs.clear();
    let second = world.run(job(None));
    assert_eq!(second.failures(), [""; 0]);
    assert_eq!(server.content("large"), Some(large));
    assert_eq!(server.state().files.len(), 1, "no part is left");
    std::mem::take(&mut server.state().verbs)
}

#[test]
fn a_server_that_resumes_gets_the_rest() {
    let server = FakeServer::start(Behaviour::default());
    let verbs = interrupted_upload(&server);
    assert_eq!(
        verbs.iter().filter(|it| *it == "REST").count(),
        2,
        "{verbs:?}"
    );
}

fn upload(world: &World, server: &FakeServer, retries: u32) -> Job {
    let mut job = world.upload_by(server.dial(), &world.here("large"), "large");
    job.plan.retries = retries;
    job
}

/// Stores a part file with another content at the server. Only its first bytes differ from the
/// file.
fn put_old_part(world: &World, server: &FakeServer, bytes: usize) {
    let source = world.here("large").into_os_string().into_encoded_bytes();
    let part = upload(world, server, 0).moving.partial(&source, b"large");
    let mut old = content(LARGE)[..bytes].to_vec();
    old[..1000].fill(0);
    server.put(&String::from_utf8(part).expect("a name"), &old);
}

/// Bytes of an old part file must never count as bytes of the new upload. The test covers several
/// ways in which servers overwrite files.
#[test]
fn an_old_part_never_becomes_the_file() {
    for overwrites in [
        Overwrites::AtOnce,
        Overwrites::AtEnd,
        Overwrites::Aside,
        Overwrites::Never,
    ] {
        for (is_gateway, bytes, breaks) in [
            (false, LARGE, None),
            (true, LARGE, None),
            (true, LARGE / 2, Some(2_000_000)),
        ] {
            let world = World::new();
            let server = FakeServer::start(Behaviour {
                overwrites,
                is_gateway,
                ..Behaviour::default()
            });
            write(&world.here("large"), &content(LARGE));
            put_old_part(&world, &server, bytes);
            server.state().breaks_after = breaks.into_iter().collect();
            let mut job = upload(&world, &server, 3);
            job.moving.rate_max = Some(units::BitRate::mbit(80).into());
            let case = format!("{overwrites:?}, gateway: {is_gateway}, {bytes} bytes");
            assert_eq!(world.run(job).failures(), [""; 0], "{case}");
            assert!(server.content("large") == Some(content(LARGE)), "{case}");
        }
    }
}

/// pyftpdlib closes a data connection if bytes or the end of the data arrive before the transfer
/// command. The command may be delayed by earlier commands or by a lost packet.
#[test]
fn nothing_is_sent_before_an_unknown_server_says_that_the_upload_begins() {
    for old_part_bytes in [LARGE / 2, 0] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            rejects_early_data: true,
            ..Behaviour::default()
        });
        write(&world.here("large"), &content(LARGE));
        if old_part_bytes > 0 {
            put_old_part(&world, &server, old_part_bytes);
        }
        assert_eq!(world.run(upload(&world, &server, 0)).failures(), [""; 0]);
        assert!(server.content("large") == Some(content(LARGE)));
    }
}

/// In this test, the server permits uploads and refuses downloads.
#[test]
fn a_part_that_cannot_be_gone_on_with_is_removed() {
    for overwrites in [Overwrites::Aside, Overwrites::Never] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            overwrites,
            ..refusing("RETR", "550 you may put, and not get")
        });
        write(&world.here("large"), &content(LARGE));
        server.state().breaks_after = [2_000_000].into();
        assert!(!world.run(upload(&world, &server, 0)).failures().is_empty());
        assert_eq!(world.run(upload(&world, &server, 0)).failures(), [""; 0]);
        assert!(
            server.content("large") == Some(content(LARGE)),
            "{overwrites:?}"
        );
        assert_eq!(server.state().files.len(), 1, "no part is left");
    }
}

/// If the server's disk is full, the mover must not upload the file again from its beginning.
#[test]
fn a_part_outlives_a_server_that_breaks_off_at_once() {
    for announces_late in [false, true] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            announces_late,
            is_gateway: true,
            ..Behaviour::default()
        });
        write(&world.here("large"), &content(LARGE));
        server.state().breaks_after = [2_900_000, 50_000].into();
        for _ in 0..2 {
            assert!(!world.run(upload(&world, &server, 0)).failures().is_empty());
            let state = server.state();
            let left = state.files.values().map(|(it, _)| it.len()).max();
            assert!(
                left >= Some(2_900_000),
                "late: {announces_late}, {left:?} are left"
            );
        }
        server.state().verbs.clear();
        assert_eq!(world.run(upload(&world, &server, 0)).failures(), [""; 0]);
        assert!(
            server.state().verbs.contains(&"REST".to_owned()),
            "late: {announces_late}"
        );
        assert!(server.content("large") == Some(content(LARGE)));
    }
}

/// A part file with another content may end with the same bytes as the file.
#[test]
fn what_was_there_before_a_refused_upload_is_not_gone_on_with() {
    let (world, server) = (World::new(), FakeServer::start(Behaviour::default()));
    write(&world.here("large"), &content(LARGE));
    put_old_part(&world, &server, LARGE / 2);
    server.state().refused_uploads = 1;
    assert!(!world.run(upload(&world, &server, 0)).failures().is_empty());
    assert_eq!(world.run(upload(&world, &server, 0)).failures(), [""; 0]);
    assert!(
        server.content("large") == Some(content(LARGE)),
        "another content"
    );
}

#[test]
fn a_server_that_cannot_resume_gets_the_whole_file() {
    let behaviour = [
        refusing("REST", "502 what?"),
        refusing("RETR", "550 you may put, and not get"),
        Behaviour {
            refuses_to_append: true,
            ..Behaviour::default()
        },
    ];
    for behaviour in behaviour {
        let server = FakeServer::start(behaviour);
        interrupted_upload(&server);
    }
}

#[test]
fn small_files_are_commanded_ahead_and_all_arrive() {
    let world = World::new();
    let server = FakeServer::start(Behaviour::default());
    let files: Vec<(String, Vec<u8>)> = (0..200)
        .map(|it| (format!("f{it}"), content(it * 7)))
        .collect();
    for (name, bytes) in &files {
        write(&world.here("tree").join(name), bytes);
    }
    for is_active in [false, true] {
        server.state().files.clear();
        server.state().ahead = 0;
        let mut dial = server.dial();
        dial.is_active = is_active;
        let up = world.run(world.upload_by(dial.clone(), &world.here("tree"), "tree"));
        assert_eq!(up.failures(), [""; 0]);
        assert_eq!(server.state().files.len(), 200);
        for (name, bytes) in &files {
            assert_eq!(
                server.content(&format!("tree/{name}")).as_ref(),
                Some(bytes)
            );
        }
        let back = world.here(if is_active { "active" } else { "passive" });
        let down = world.run(world.download_by(dial, "tree", &back));
        assert_eq!(down.failures(), [""; 0]);
        for (name, bytes) in &files {
            assert_eq!(&fs::read(back.join(name)).expect("there"), bytes);
        }
        // The number of early commands for the 400 transfers depends on timing.
        let ahead = server.state().ahead;
        assert!(ahead > 20, "{ahead}");
    }
}

/// If tens of thousands of ports are closed within one minute, the kernel needs a long time to find
/// a free port.
#[test]
fn small_files_behind_a_gateway_share_ports_and_those_of_a_server_that_comes_itself_do_not() {
    for is_gateway in [true, false] {
        let world = World::new();
        let server = FakeServer::start(Behaviour {
            is_gateway,
            ..Behaviour::default()
        });
        small_files(&world, 500);
        let mut dial = server.dial();
        dial.is_active = !is_gateway;
        let mut job = world.upload_by(dial, &world.here("tree"), "tree");
        job.plan.lanes_max = 1;
        assert_eq!(world.run(job).failures(), [""; 0]);
        let state = server.state();
        let of_their_own: BTreeSet<_> = state.ports.iter().collect();
        // With a gateway, up to 128 files are in progress, each with its own port. The first file
        // moves alone and needs one more port.
        let ports_max = if is_gateway { 129 } else { 500 };
        assert!(of_their_own.len() <= ports_max, "{}", of_their_own.len());
        assert!(is_gateway || of_their_own.len() > 400);
        assert_eq!((state.ports.len() >= 499, state.files.len()), (true, 500));
    }
}

/// A stranger with the gateway's address may connect to the mover's port first. The stranger's
/// bytes must not count as a file.
#[test]
fn a_stranger_of_the_gateway_s_address_gives_no_file() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        is_gateway: true,
        connect_delay: Duration::from_millis(3),
        ..Behaviour::default()
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let stranger = thread::spawn({
        let (server, is_over) = (server.clone(), is_over.clone());
        move || {
            let (mut known, mut connected) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let told = server.state().ports.clone();
                for port in &told[known..] {
                    // The gateway may have been faster.
                    if let Ok(mut tcp) = TcpStream::connect(("127.0.0.1", *port)) {
                        connected += 1;
                        let _ = tcp.write_all(b"wrong");
                    }
                }
                known = told.len();
                thread::sleep(Duration::from_micros(100));
            }
            connected
        }
    });
    for number in 0..50 {
        server.put(&format!("tree/{number}"), b"right");
    }
    server.state().directories.insert("tree".to_owned());
    let down = world.run(world.download_by(server.dial(), "tree", &world.here("back")));
    is_over.store(true, Ordering::Relaxed);
    let connected = stranger.join().expect("no panic");
    assert!(connected > 0, "the stranger was there");
    assert_eq!(down.failures(), [""; 0]);
    for number in 0..50 {
        let file = fs::read(world.here("back").join(number.to_string())).expect("there");
        assert_eq!(file, b"right", "{number}");
    }
}

/// Pure-FTPd replies with 500 to commands during a transfer, and ignores these commands.
#[test]
fn pure_ftpd_is_commanded_nothing_behind_a_transfer() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        greeting: Some("220---------- Welcome to Pure-FTPd ----------\r\n220 in"),
        ..Behaviour::default()
    });
    small_files(&world, 20);
    let mut job = world.upload_by(server.dial(), &world.here("tree"), "tree");
    job.plan.lanes_max = 1;
    assert_eq!(world.run(job).failures(), [""; 0]);
    let state = server.state();
    assert_eq!((state.ahead, state.files.len()), (0, 20));
}

/// A rename must not be queued after transfers that wait for their ports. Otherwise the rename, and
/// then the next file, would wait for these transfers.
#[test]
fn at_a_server_that_names_ports_a_rename_waits_for_one_transfer() {
    let (world, server) = (World::new(), FakeServer::start(Behaviour::default()));
    small_files(&world, 20);
    let mut job = world.upload_by(server.dial(), &world.here("tree"), "tree");
    job.plan.lanes_max = 1;
    assert_eq!(world.run(job).failures(), [""; 0]);
    let state = server.state();
    let mut unnamed = 0;
    for verb in &state.verbs {
        match verb.as_str() {
            "STOR" => unnamed += 1,
            "RNTO" => unnamed -= 1,
            _ => {}
        }
        assert!(unnamed <= 2, "{:?}", state.verbs);
    }
    assert_eq!((unnamed, state.files.len()), (0, 20));
}

#[test]
fn a_refused_epsv_has_no_transfer_behind_it() {
    let world = World::new();
    let server = FakeServer::start(refusing("EPSV", "500 what?"));
    for it in 0..20 {
        write(&world.here("tree").join(format!("f{it}")), b"x");
    }
    let up = world.run(world.upload_by(server.dial(), &world.here("tree"), "tree"));
    assert_eq!(up.failures(), [""; 0]);
    assert_eq!(up.summary.tally.moved, 20);
}

/// A gateway confirms the start of a download before the server has accepted the download.
#[test]
fn a_file_that_is_refused_leaves_no_part() {
    for is_gateway in [true, false] {
        for bytes in [10, LARGE] {
            let world = World::new();
            let server = FakeServer::start(Behaviour {
                is_gateway,
                ..refusing("RETR", "550 you may not")
            });
            server.put("tree/secret", &content(bytes));
            server.state().directories.insert("tree".to_owned());
            let down = world.run(world.download_by(server.dial(), "tree", &world.here("back")));
            assert!(down.failures()[0].contains("550"), "{:?}", down.failures());
            let left: Vec<_> = fs::read_dir(world.here("back")).expect("there").collect();
            assert!(left.is_empty(), "{bytes}: {left:?}");
        }
    }
}

#[test]
fn a_rename_that_is_refused_costs_neither_file() {
    let world = World::new();
    for bytes in [10, LARGE] {
        let server = FakeServer::start(refusing("RNFR", "553 no"));
        server.put("file", b"the old one");
        write(&world.here("file"), &content(bytes));
        let up = world.run(world.upload_by(server.dial(), &world.here("file"), "file"));
        assert!(up.failures()[0].contains("RNFR"), "{:?}", up.failures());
        assert_eq!(server.content("file"), Some(b"the old one".to_vec()));
    }
}

#[test]
fn a_rename_that_the_account_may_not_make_is_reported_with_the_next_step() {
    let world = World::new();
    write(&world.here("file"), b"x");
    let refusal = |verb, reply| {
        let server = FakeServer::start(refusing(verb, reply));
        let up = world.run(world.upload_by(server.dial(), &world.here("file"), "file"));
        up.failures().join("\n")
    };
    for reply in [
        "550 Permission denied.",
        "500 Unknown command.",
        "502 RNFR not implemented.",
    ] {
        let said = refusal("RNFR", reply);
        let words = format!(
            "the server refused RNFR: {reply} (perhaps the account may not rename: permit RNFR and RNTO at the server, \
             or use --inplace. The part file stays, and copy --clean removes it)"
        );
        assert!(said.contains(&words), "{said}");
    }
    for (verb, reply) in [
        ("RNFR", "550 No such file or directory."),
        ("RNFR", "550 File NOT found."),
        ("RNFR", "553 File name not allowed."),
        ("RNTO", "550 Rename failed."),
    ] {
        let said = refusal(verb, reply);
        assert!(
            said.contains(reply) && !said.contains("may not rename"),
            "{said}"
        );
    }
}

#[test]
fn a_success_that_comes_too_early_is_none() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        confirms_early: true,
        ..Behaviour::default()
    });
    for (name, bytes) in [("small", 10_000), ("large", LARGE)] {
        write(&world.here(name), &content(bytes));
        let mut job = world.upload_by(server.dial(), &world.here(name), name);
        job.plan.retries = 1;
        let up = world.run(job);
        assert_eq!(up.summary.tally.failed, 1, "{:?}", up.notes);
        assert_eq!(server.content(name), None);
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_named() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        hides: Some("tree/secret"),
        ..Behaviour::default()
    });
    server
        .state()
        .directories
        .extend(["tree".to_owned(), "tree/secret".to_owned()]);
    server.put("tree/open", b"x");
    server.put("tree/secret/file", b"y");
    let down = world.run(world.download_by(server.dial(), "tree", &world.here("back")));
    assert_eq!(down.failures().len(), 1, "{:?}", down.notes);
    assert!(down.failures()[0].contains("may not be readable"));
    assert_eq!(down.summary.tally.moved, 1);
}

#[test]
fn a_server_that_leaves_after_each_log_in_ends_the_job() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        ends_after_login: true,
        ..Behaviour::default()
    });
    let mut job = world.download_by(server.dial(), "tree", &world.here("back"));
    job.plan.retries = 1;
    let down = world.run(job);
    assert_eq!(down.summary.tally.failed, 1);
    assert!(server.state().connections <= 4, "with pauses");
}

#[test]
fn a_reply_that_nothing_asked_for_ends_the_connection_and_not_the_job() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        confirms_twice: true,
        ..Behaviour::default()
    });
    for it in 0..3 {
        write(
            &world.here("tree").join(format!("f{it}")),
            &content(LARGE / 2),
        );
    }
    let mut job = world.upload_by(server.dial(), &world.here("tree"), "tree");
    job.plan.lanes_max = 1;
    let up = world.run(job);
    for it in 0..3 {
        let there = server.content(&format!("tree/f{it}"));
        assert!(there.is_none() || there == Some(content(LARGE / 2)), "{it}");
    }
    assert_eq!(up.summary.tally.moved + up.summary.tally.failed, 3);
}

#[test]
fn a_listener_of_a_gateway_that_leads_to_one_server_is_named_with_the_cure() {
    let world = World::new();
    write(&world.here("a"), b"x");
    let server = FakeServer::start(Behaviour {
        refuses_password: Some("530 Login incorrect"),
        ..Behaviour::default()
    });
    let mut dial = server.dial();
    let listener = format!("{}:{}", dial.server.host, dial.server.port);
    dial.route = Route::Gateway(GatewayListener {
        host: dial.server.host.clone(),
        port: dial.server.port,
        has_tls: false,
        is_ours: false,
        network: None,
    });
    let job = world.upload_by(dial, &world.here("a"), "a");
    let copied = world.run(job);
    let failures = copied.failures();
    let said = failures.first().expect("it fails");
    let words = format!("the listener {listener} has a fixed server");
    assert!(said.contains(&words), "{said}");
    assert!(
        said.contains("[[ftp]]") && said.contains("530 Login incorrect"),
        "{said}"
    );
    // Without a gateway the hint concerns the user.
    let job = world.upload_by(server.dial(), &world.here("a"), "a");
    let copied = world.run(job);
    assert!(copied.failures()[0].contains("is the user in the URL right"));
}

#[test]
fn a_missing_password_is_reported_in_place_of_an_empty_log_in() {
    let world = World::new();
    write(&world.here("a"), b"x");
    for is_gateway in [false, true] {
        let server = FakeServer::start(Behaviour {
            is_gateway,
            ..Behaviour::default()
        });
        let mut dial = server.dial();
        dial.password = None;
        dial.netrc = "/my/netrc".into();
        let copied = world.run(world.upload_by(dial, &world.here("a"), "a"));
        let said = copied.failures().join("\n");
        let words = "no password for me at 127.0.0.1: not in /my/netrc, no --password-file, no LONGHAUL_PASSWORD, \
                     and none typed on a terminal; to send an empty password, set LONGHAUL_PASSWORD to an empty text";
        assert!(said.contains(words), "{said}");
        let verbs = server.state().verbs.clone();
        assert!(!verbs.iter().any(|it| it == "PASS"), "{verbs:?}");
    }
}

#[test]
fn an_empty_password_is_sent() {
    let world = World::new();
    write(&world.here("a"), b"x");
    for is_gateway in [false, true] {
        let server = FakeServer::start(Behaviour {
            is_gateway,
            ..Behaviour::default()
        });
        let mut dial = server.dial();
        dial.password = Some(mover::server::Password(Vec::new()));
        let copied = world.run(world.upload_by(dial, &world.here("a"), "a"));
        assert_eq!(copied.failures(), [""; 0]);
        let verbs = server.state().verbs.clone();
        assert!(verbs.iter().any(|it| it == "PASS"), "{verbs:?}");
    }
}

#[test]
fn a_server_that_asks_for_no_password_needs_none() {
    let world = World::new();
    write(&world.here("a"), b"x");
    for is_gateway in [false, true] {
        let server = FakeServer::start(Behaviour {
            is_gateway,
            ..refusing("USER", "230 in")
        });
        let mut dial = server.dial();
        dial.password = None;
        let copied = world.run(world.upload_by(dial, &world.here("a"), "a"));
        assert_eq!(copied.failures(), [""; 0]);
        assert_eq!(server.content("a"), Some(b"x".to_vec()));
    }
}

#[test]
fn a_source_that_changes_while_it_is_read_is_read_again() {
    let world = World::new();
    let server = FakeServer::start(Behaviour {
        replaces_after_download: Some("tree/file"),
        ..Behaviour::default()
    });
    server.state().directories.insert("tree".to_owned());
    server.put("tree/file", &content(5_000));
    let mut job = world.download_by(server.dial(), "tree", &world.here("back"));
    job.plan.retries = 2;
    let down = world.run(job);
    assert_eq!(down.failures(), [""; 0]);
    let there = fs::read(world.here("back/file")).expect("there");
    assert_eq!(there, b"another content");
}

/// A file, such as a log, may have grown since it was listed.
#[test]
fn a_small_upload_that_has_become_large_is_moved_alone() {
    let (world, server) = (World::new(), FakeServer::start(Behaviour::default()));
    write(&world.here("tree").join("first"), b"small");
    write(&world.here("tree").join("log"), &content(LARGE));
    let file = |name: &[u8]| File {
        root: 0,
        path: RelativePath::default().join(name),
        size_bytes: Some(5),
        modified: Some(ModifiedTime {
            unix_s: 1_000,
            precision: TimePrecision::Second,
        }),
        link: None,
    };
    let mut job = world.upload_by(server.dial(), &world.here("tree"), "tree");
    job.plan.lanes_max = 1;
    job.plan.retries = 0;
    // The first file of a lane moves alone in any case.
    job.files = Some(vec![file(b"first"), file(b"log")]);
    assert_eq!(world.run(job).failures(), [""; 0]);
    assert!(server.content("tree/log") == Some(content(LARGE)));
}

/// The record states which bytes were synced before a restart of the machine. If the download
/// starts again from its beginning, the part file contains other bytes.
#[test]
fn a_download_that_begins_anew_renews_the_entry_of_its_part() {
    let (world, server) = (
        World::new(),
        FakeServer::start(refusing("REST", "502 what?")),
    );
    server.put("large", &content(LARGE));
    let back = world.here("back");
    let mut job = world.download_by(server.dial(), "large", &back);
    job.plan.lanes_max = 1;
    job.moving.rate_max = Some(units::BitRate::mbit(40).into());
    let path = back.into_os_string().into_encoded_bytes();
    let key = job.moving.partial(b"large", &path);
    write(
        Path::new(OsStr::from_bytes(&key)),
        &content(LARGE)[..2_000_000],
    );
    let origin = PartOrigin {
        size_bytes: LARGE as u64,
        // All files of the server have this time.
        modified_unix_s: 1_767_323_045,
        modified_ns: 0,
    };
    let earlier = PartRecord {
        synced_bytes: 2_000_000,
        ..PartRecord::new(origin, Some(1))
    };
    let open = || Journal::open(&world.here("../state"), "job").expect("a journal");
    open().begin(&key, earlier).expect("room");
    assert!(world.run_until(job, 1_000_000).summary.is_interrupted);
    let verbs = server.state().verbs.clone();
    assert!(verbs.contains(&"REST".to_owned()), "{verbs:?}");
    let now = open().part(&key).expect("read").expect("an entry");
    assert_eq!((now.origin, now.synced_bytes), (origin, 0));
    assert_ne!(now.boot, Some(1));
}
