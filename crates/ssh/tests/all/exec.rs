//! Commands and shells: exit status, streams, environment, signals and terminals.

use std::{
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use ssh::ChannelKind;

use crate::common::{World, assert_success, content, errors, run_async, run_async_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_returns_its_output_and_its_exit_status() {
    let world = World::start().await;
    let output = run_async(world.ssh(&["true"])).await;
    assert_success(&output);
    let output = run_async(world.ssh(&["echo out; echo err >&2; exit 7"])).await;
    assert_eq!(output.status.code(), Some(7), "{}", errors(&output));
    assert_eq!(output.stdout, b"out\n");
    assert!(errors(&output).contains("err\n"), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_in_both_directions_at_once() {
    let world = World::start().await;
    let sent = content(200_000_000);
    let output = run_async_with(world.ssh(&["cat"]), sent.clone()).await;
    assert_success(&output);
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_and_the_terminal_reach_the_server() {
    let world = World::start().await;
    let mut with_env = Command::new("ssh");
    with_env
        .args(world.options())
        .args(["-o", "SendEnv=GREETING"]);
    with_env.args(["-p", &world.listener.port().to_string()]);
    with_env.arg(world.destination()).arg("echo $GREETING");
    with_env
        .env("GREETING", "hello there")
        .env_remove("SSH_AUTH_SOCK");
    let output = run_async(with_env).await;
    assert_success(&output);
    assert_eq!(output.stdout, b"hello there\n");
    let output = run_async(world.ssh(&["tty; echo $TERM"])).await;
    assert!(output.stdout.starts_with(b"not a tty"), "{output:?}");
    let mut with_terminal = Command::new("ssh");
    with_terminal.args(world.options()).args(["-tt", "-p"]);
    with_terminal.arg(world.listener.port().to_string());
    with_terminal
        .arg(world.destination())
        .arg("tty; echo $TERM");
    with_terminal
        .env("TERM", "vt100")
        .env_remove("SSH_AUTH_SOCK");
    let output = run_async(with_terminal).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("/dev/pts/"), "{text} {}", errors(&output));
    assert!(text.contains("vt100"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_reads_commands_until_the_end_of_its_input() {
    let world = World::start().await;
    let output = run_async_with(world.ssh(&[]), b"echo from the shell\nexit 3\n".to_vec()).await;
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("from the shell"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_signal_that_ends_a_program_reaches_the_client() {
    let world = World::start().await;
    let output = run_async(world.ssh(&["kill -TERM $$"])).await;
    assert_eq!(output.status.code(), Some(255), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_whose_reader_has_stopped_stops_no_other() {
    let world = World::start().await;
    let control = world.path("control");
    let control = format!("ControlPath={}", control.display());
    let start = |extra: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(world.options()).args(["-o", &control]);
        command
            .args(["-p", &world.listener.port().to_string()])
            .args(extra);
        command.env_remove("SSH_AUTH_SOCK");
        command
    };
    let destination = world.destination();
    // The test does not read the output of this command.
    let mut stopped = start(&["-o", "ControlMaster=yes", &destination])
        .arg("head -c 30000000 /dev/zero; cat >/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut first = [0];
    let mut output = stopped.stdout.take().expect("piped");
    let (output, read) = tokio::task::spawn_blocking(move || {
        let read = output.read_exact(&mut first);
        (output, read)
    })
    .await
    .expect("no panic");
    read.expect("output");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = content(20_000_000);
    let mut second = start(&[&destination]);
    second.arg("cat");
    let echoed = run_async_with(second, sent.clone()).await;
    assert_success(&echoed);
    assert!(echoed.stdout == sent, "{} bytes", echoed.stdout.len());
    drop(output);
    let _ = stopped.kill();
    let _ = stopped.wait();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_ends_a_program_whose_client_is_gone() {
    let world = World::start().await;
    let marker = world.path("ended");
    let command = format!("cat >/dev/null; touch {}", marker.display());
    let mut client = world
        .ssh(&[&command])
        .stdin(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(b"a").expect("it is read");
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.kill().expect("a child");
    let _ = client.wait();
    let deadline = std::time::Instant::now() + crate::common::TIMEOUT;
    while !marker.exists() {
        assert!(std::time::Instant::now() < deadline, "the program goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rsync_and_scp_copy_files_both_ways() {
    let world = World::start().await;
    let content = content(5_000_000);
    std::fs::write(world.path("source"), &content).expect("written");
    let port = world.listener.port().to_string();
    let remote = |name: &str| format!("{}:{}", world.destination(), world.path(name).display());
    let local = |name: &str| world.path(name).display().to_string();
    for (from, to) in [
        (local("source"), remote("rsync_up")),
        (remote("rsync_up"), local("rsync_down")),
    ] {
        let mut rsync = Command::new("rsync");
        rsync.args(["-e", &world.remote_shell(), &from, &to]);
        assert_success(&run_async(rsync).await);
    }
    for (from, to) in [
        (local("source"), remote("scp_up")),
        (remote("scp_up"), local("scp_down")),
    ] {
        let mut scp = Command::new("scp");
        scp.args(world.options())
            .args(["-O", "-P", &port, &from, &to]);
        assert_success(&run_async(scp).await);
    }
    for name in ["rsync_up", "rsync_down", "scp_up", "scp_down"] {
        assert!(crate::common::read(&world.path(name)) == content, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_of_channels_that_the_listener_does_not_permit_are_refused() {
    let world = World::with(|it| it.listener.channels = vec![ChannelKind::Sftp]).await;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("does not permit"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarding_of_ports_is_refused_with_a_reason() {
    let world = World::start().await;
    let at = crate::common::free_address();
    let forward = format!("{at}:127.0.0.1:1");
    let mut command = Command::new("ssh");
    command
        .args(world.options())
        .args(["-o", "ExitOnForwardFailure=yes"]);
    command.args(["-R", &forward, "-p", &world.listener.port().to_string()]);
    command.arg(world.destination()).arg("true");
    command.env_remove("SSH_AUTH_SOCK");
    let output = run_async(command).await;
    assert_eq!(output.status.code(), Some(255), "{}", errors(&output));
    let mut command = Command::new("ssh");
    command.args(world.options());
    command.args([
        "-W",
        "127.0.0.1:1",
        "-p",
        &world.listener.port().to_string(),
    ]);
    command.arg(world.destination()).env_remove("SSH_AUTH_SOCK");
    let output = run_async(command).await;
    let text = errors(&output);
    assert!(text.contains("forwards no ports"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_exchanged_again_during_a_transfer() {
    let world = World::start().await;
    let sent = content(50_000_000);
    let mut command = Command::new("ssh");
    command
        .args(world.options())
        .args(["-o", "RekeyLimit=4M", "-p"]);
    command.arg(world.listener.port().to_string());
    command
        .arg(world.destination())
        .arg("cat")
        .env_remove("SSH_AUTH_SOCK");
    let output = run_async_with(command, sent.clone()).await;
    assert_success(&output);
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_read_stops_no_other_channel() {
    let world = World::start().await;
    let control = format!("ControlPath={}", world.path("control").display());
    let start = |extra: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(world.options()).args(["-o", &control]);
        command
            .args(["-p", &world.listener.port().to_string()])
            .args(extra);
        command.env_remove("SSH_AUTH_SOCK");
        command
    };
    let destination = world.destination();
    let mut stopped = start(&["-o", "ControlMaster=yes", &destination])
        .arg("sleep 1000")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("ssh is installed");
    let mut input = stopped.stdin.take().expect("piped");
    let written = std::thread::spawn(move || input.write_all(&content(20_000_000)));
    let deadline = std::time::Instant::now() + crate::common::TIMEOUT;
    while !world.path("control").exists() {
        assert!(std::time::Instant::now() < deadline, "no master");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut second = start(&[&destination]);
    second.arg("cat");
    let sent = content(5_000_000);

    let echoed = run_async_with(second, sent.clone()).await;
    assert_success(&echoed);
    assert!(echoed.stdout == sent, "{} bytes", echoed.stdout.len());
    let _ = stopped.kill();
    let _ = stopped.wait();
    let _ = written.join().expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_whose_client_does_not_read_stops_no_later_channel() {
    let world = World::start().await;
    let control = format!("ControlPath={}", world.path("control").display());
    let start = |extra: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(world.options()).args(["-o", &control]);
        command
            .args(["-p", &world.listener.port().to_string()])
            .args(extra);
        command.env_remove("SSH_AUTH_SOCK");
        command
    };
    let destination = world.destination();
    let mut master = start(&["-M", "-N", &destination])
        .spawn()
        .expect("ssh is installed");
    let deadline = std::time::Instant::now() + crate::common::TIMEOUT;
    while !world.path("control").exists() {
        assert!(std::time::Instant::now() < deadline, "no master");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The test does not read the output of this program.
    let mut stopped = start(&[&destination])
        .arg("cat /dev/zero")
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    // When the gateway has stopped reading, the buffers of the link are full.
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let open = world.near.registry().open_transfers();
        let moved = open.first().map_or(0, |it| it.down_bytes);
        if moved > 0 && moved == before {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "it does not stop");
        before = moved;
    }
    let mut second = start(&[&destination]);
    second.arg("head -c 1000000 /dev/zero");
    let output = run_async(second).await;
    assert_success(&output);
    assert_eq!(output.stdout.len(), 1_000_000);
    for process in [&mut stopped, &mut master] {
        let _ = process.kill();
        let _ = process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_reads_that_the_server_has_closed_the_connection() {
    let world = World::start().await;
    // The parent of the shell is the process in which the server runs the session.
    let output = run_async(world.ssh(&["kill -9 $PPID; sleep 60"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("has closed the connection"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_reads_that_the_server_refuses_a_subsystem() {
    let world = World::start().await;
    let output = run_async(world.ssh(&["-s", "unknown"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("has refused to start"), "{text}");
}
