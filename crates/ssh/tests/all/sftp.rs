//! The subsystem `sftp` with OpenSSH's clients, lftp and sshfs.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use ssh::EarlyReplies;
use tokio::time::timeout;

use crate::{
    common::{TIMEOUT, World, assert_success, content, errors, read, run_async, sftp},
    raw_sftp::{answer, number, packet, string},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sftp_copies_files_both_ways_with_each_rule_of_early_replies() {
    for early in [EarlyReplies::Held, EarlyReplies::Off, EarlyReplies::All] {
        let world = World::with(|it| it.listener.early = early).await;
        let content = content(30_000_001);
        std::fs::write(world.path("source"), &content).expect("written");
        std::fs::write(world.path("empty"), b"").expect("written");
        let batch = format!(
            "cd {0}\nlcd {0}\nput source up\nget up down\nput empty empty_up\nget empty_up \
             empty_down\nls -l\nrename up renamed\nchmod 600 renamed\nmkdir sub\nput source \
             sub/up\nrm sub/up\nrmdir sub\n",
            world.folder.path().display()
        );
        let output = sftp(&world, &batch).await;
        assert_success(&output);
        assert!(read(&world.path("renamed")) == content, "{early:?}");
        assert!(read(&world.path("down")) == content, "{early:?}");
        assert_eq!(read(&world.path("empty_down")), b"", "{early:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("30000001"), "{text}");
        assert!(!world.path("sub").exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_the_server_is_the_failure_of_the_client() {
    let world = World::start().await;
    let output = sftp(&world, "get /nonexistent/file\n").await;
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    std::fs::write(world.path("source"), content(3_000_000)).expect("written");
    let batch = format!("put {} /dev/full\n", world.path("source").display());
    let output = sftp(&world, &batch).await;
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scp_copies_a_folder_both_ways() {
    let world = World::start().await;
    std::fs::create_dir(world.path("tree")).expect("a folder");
    for number in 0..30_usize {
        let name = world.path("tree").join(format!("file {number}"));
        std::fs::write(name, content(number * 10_000)).expect("written");
    }
    let remote = |name: &str| format!("{}:{}", world.destination(), world.path(name).display());
    let local = |name: &str| world.path(name).display().to_string();
    for (from, to) in [
        (local("tree"), remote("tree_up")),
        (remote("tree_up"), local("tree_down")),
    ] {
        let mut scp = Command::new("scp");
        let port = world.listener.port().to_string();
        scp.args(world.options())
            .args(["-rp", "-P", &port, &from, &to]);
        assert_success(&run_async(scp).await);
    }
    for number in 0..30_usize {
        let name = world.path("tree_down").join(format!("file {number}"));
        assert!(read(&name) == content(number * 10_000), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lftp_mirrors_a_folder_both_ways() {
    let world = World::start().await;
    std::fs::create_dir(world.path("tree")).expect("a folder");
    let content = content(5_000_000);
    for number in 0..5 {
        let name = world.path("tree").join(format!("file{number}"));
        std::fs::write(name, &content).expect("written");
    }
    let at = world.folder.path().display();
    let script = format!(
        "set sftp:connect-program '{} -a -x'; set net:max-retries 1; set cmd:fail-exit yes; \
         open sftp://{}:x@{}; mirror -R {at}/tree {at}/tree_up; mirror {at}/tree_up \
         {at}/tree_down; bye",
        world.remote_shell(),
        world.user,
        world.listener.ip(),
    );
    let mut lftp = Command::new("lftp");
    lftp.args(["-c", &script]).env_remove("SSH_AUTH_SOCK");
    lftp.env("HOME", world.folder.path());
    assert_success(&run_async(lftp).await);
    for number in 0..5 {
        let name = world.path("tree_down").join(format!("file{number}"));
        assert!(read(&name) == content, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sshfs_reads_and_writes_files() {
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("not tested: this machine has no /dev/fuse");
    }
    let world = World::start().await;
    std::fs::create_dir(world.path("mount")).expect("a folder");
    std::fs::create_dir(world.path("tree")).expect("a folder");
    let source = format!("{}:{}", world.destination(), world.path("tree").display());
    let mut sshfs = Command::new("sshfs");
    sshfs.arg(source).arg(world.path("mount"));
    sshfs.args(["-p", &world.listener.port().to_string()]);
    sshfs.args([
        "-o",
        &format!("ssh_command=ssh {}", world.options().join(" ")),
    ]);
    sshfs.env_remove("SSH_AUTH_SOCK");
    let output = run_async(sshfs).await;
    if errors(&output).contains("Operation not permitted") {
        return eprintln!("not tested: this user may not mount");
    }
    assert_success(&output);
    let content = content(10_000_000);
    let (mount, tree) = (world.path("mount"), world.path("tree"));
    let expected = content.clone();
    let copied = tokio::task::spawn_blocking(move || {
        std::fs::write(mount.join("file"), &expected)?;
        let stored = std::fs::read(tree.join("file"))?;
        let read = std::fs::read(mount.join("file"))?;
        Ok::<_, std::io::Error>((stored, read))
    });
    let copied = copied.await.expect("no panic");
    let mut unmount = Command::new("fusermount");
    unmount.arg("-uz").arg(world.path("mount"));
    let _ = run_async(unmount).await;
    let (stored, read) = copied.expect("copied");
    assert!(stored == content && read == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_shows_each_file() {
    let world = World::start().await;
    std::fs::write(world.path("source"), content(1_000_000)).expect("written");
    let up = world.path("up");
    let batch = format!(
        "put {0} {1}\nget {1} {2}\n",
        world.path("source").display(),
        up.display(),
        world.path("down").display()
    );
    assert_success(&sftp(&world, &batch).await);
    let deadline = Instant::now() + TIMEOUT;
    let finished = loop {
        let link = world.near.link().snapshot();
        let snapshot = world.near.registry().snapshot(&link, String::new());
        if snapshot.finished.len() == 2 {
            break snapshot.finished;
        }
        assert!(Instant::now() < deadline, "{:?}", snapshot.finished);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    for (record, verb) in finished.iter().rev().zip(["put", "get"]) {
        assert!(record.succeeded, "{record:?}");
        assert_eq!(record.verb, verb);
        assert_eq!(record.bytes, 1_000_000);
        assert_eq!(record.path, up.display().to_string());
        assert_eq!(record.user, world.user);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_before_close_and_the_end_of_the_input_have_answers() {
    const READS: u32 = 1000;
    let world = World::start().await;
    let content = content(READS as usize * 32_768);
    std::fs::write(world.path("large"), &content).expect("written");
    let mut client = world
        .ssh(&["-s", "sftp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    let mut output = client.stdout.take().expect("piped");
    let name = world.path("large").display().to_string().into_bytes();
    let read = tokio::task::spawn_blocking(move || {
        input.write_all(&packet(1, &[&number(3)]))?;
        answer(&mut output)?;
        let open = [number(0), string(&name), number(1), number(0)].concat();
        input.write_all(&packet(3, &[&open]))?;
        let handle = answer(&mut output)?.split_off(5);
        let mut requests = Vec::new();
        for index in 0..READS {
            let offset = u64::from(index) * 32_768;
            let range = [&offset.to_be_bytes()[..], &number(32_768)].concat();
            requests.extend(packet(5, &[&number(index), &handle, &range]));
        }
        requests.extend(packet(4, &[&number(READS), &handle]));
        let writer = std::thread::spawn(move || input.write_all(&requests));
        let mut data = vec![Vec::new(); READS as usize];
        for _ in 0..=READS {
            let mut answer = answer(&mut output)?;
            let id = u32::from_be_bytes(answer[1..5].try_into().expect("four bytes"));
            if id < READS {
                // The bytes follow the type, the number of the request and their length.
                data[id as usize] = answer.split_off(9);
            }
        }
        writer.join().expect("no panic")?;
        Ok::<_, std::io::Error>(data.concat())
    });
    let read = timeout(TIMEOUT, read).await.expect("answers in time");
    assert!(read.expect("no panic").expect("answers") == content);
    assert!(client.wait().expect("a child").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_waits_for_its_client_is_limited_by_the_client() {
    let world = World::start().await;
    std::fs::write(world.path("large"), content(20_000_000)).expect("written");
    let mut client = world
        .ssh(&["-s", "sftp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    let mut output = client.stdout.take().expect("piped");
    let name = world.path("large").display().to_string().into_bytes();
    let read = tokio::task::spawn_blocking(move || {
        input.write_all(&packet(1, &[&number(3)]))?;
        answer(&mut output)?;
        let open = [number(0), string(&name), number(1), number(0)].concat();
        input.write_all(&packet(3, &[&open]))?;
        // The handle follows the type and the number of the request.
        let handle = answer(&mut output)?.split_off(5);
        for index in 0..300_u32 {
            let offset = u64::from(index) * 32_768;
            let range = [&offset.to_be_bytes()[..], &number(32_768)].concat();
            input.write_all(&packet(5, &[&number(index), &handle, &range]))?;
            answer(&mut output)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok::<_, std::io::Error>(())
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    let open = world.near.registry().open_transfers();
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(open[0].down_bytes > 0, "{open:?}");
    assert_eq!(open[0].limit, "client", "{open:?}");
    read.await.expect("no panic").expect("answers");
    let _ = client.wait();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_open_files_reserves_no_memory() {
    let world = World::start().await;
    std::fs::write(world.path("file"), b"content").expect("written");
    let memory = world.near.session_memory().clone();
    let budget_bytes = memory.free_bytes();
    let mut client = world
        .ssh(&["-s", "sftp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    let mut output = client.stdout.take().expect("piped");
    let name = world.path("file").display().to_string().into_bytes();
    let read = tokio::task::spawn_blocking(move || {
        input.write_all(&packet(1, &[&number(3)]))?;
        answer(&mut output)?;
        let idle_bytes = memory.free_bytes();
        let open = [number(0), string(&name), number(1), number(0)].concat();
        input.write_all(&packet(3, &[&open]))?;
        let handle = answer(&mut output)?.split_off(5);
        let open_bytes = memory.free_bytes();
        input.write_all(&packet(4, &[&number(1), &handle]))?;
        answer(&mut output)?;
        let deadline = Instant::now() + TIMEOUT;
        while memory.free_bytes() != budget_bytes {
            assert!(Instant::now() < deadline, "the memory is not returned");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok::<_, std::io::Error>((idle_bytes, open_bytes))
    });
    let (idle_bytes, open_bytes) = read.await.expect("no panic").expect("answers");
    let _ = client.wait();
    assert_eq!(idle_bytes, budget_bytes);
    assert!(budget_bytes - open_bytes >= 64 << 20, "{open_bytes}");
}
