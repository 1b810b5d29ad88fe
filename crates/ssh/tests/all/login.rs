//! Host keys, log-ins and refusals.

use std::{io, path::Path};

use ssh::PublicKeyWay;

use crate::{
    agent::Agent,
    common::{World, assert_success, errors, free_address, read, run_async, run_async_with},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_sees_the_host_key_of_the_gateway() {
    let world = World::start().await;
    assert_success(&run_async(world.ssh(&["true"])).await);
    let known = String::from_utf8(read(&world.path("client_known_hosts"))).expect("text");
    let key = ssh::HostKey::load_or_create(&world.path("near_host_key")).expect("a key");
    let public = key.public_key();
    let public = public.split(' ').nth(1).expect("a key");
    assert!(known.contains(public), "{known}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_key_that_the_server_knows_is_refused() {
    let world = World::start().await;
    std::fs::copy(world.path("stranger"), world.path("id")).expect("copied");
    std::fs::copy(world.path("stranger.pub"), world.path("id.pub")).expect("copied");
    let command = world.ssh(&["true"]);
    let output = run_async(command).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("Permission denied (publickey)"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_host_key_receives_no_credential() {
    let world = World::with(|settings| {
        let known = settings.far.known_hosts.clone().expect("set");
        let target = settings.listener.target.clone().expect("set");
        let other = read(&known.with_file_name("stranger.pub"));
        let other = String::from_utf8(other).expect("a key");
        let line = format!("[{}]:{} {other}", target.host, target.port);
        std::fs::write(known, line).expect("written");
    })
    .await;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("has changed"), "{text}");
    assert!(text.contains("line 1 of known_hosts"), "{text}");
    let log = String::from_utf8(read(&world.path("sshd.log"))).expect("text");
    assert!(!log.contains("publickey"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_with_a_server_takes_its_name_and_explains_another() {
    let world = World::start().await;
    let server = world.server.as_ref().expect("it runs").address;
    let user = format!("{}%{server}", world.user);
    assert_success(&run_async(world.ssh_as(&user, &["true"])).await);
    let other = format!("{}%files.example:22", world.user);
    let output = run_async(world.ssh_as(&other, &["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    let reason = format!("this listener leads only to {server}, and not to files.example:22");
    assert!(text.contains(&reason), "{text}");
    let log = String::from_utf8(read(&world.path("sshd.log"))).expect("text");
    assert!(!log.contains("files.example"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_host_key_is_refused_and_learned_only_on_request() {
    let forget = |settings: &mut crate::common::WorldSettings| {
        std::fs::write(settings.far.known_hosts.as_ref().expect("set"), "").expect("written");
    };
    let world = World::with(forget).await;
    let output = run_async(world.ssh(&["true"])).await;
    let text = errors(&output);
    assert!(text.contains("has no host key of"), "{text}");
    let world = World::with(|settings| {
        forget(settings);
        settings.far.trust_on_first_use = true;
    })
    .await;
    assert_success(&run_async(world.ssh(&["true"])).await);
    let known = String::from_utf8(read(&world.path("known_hosts"))).expect("text");
    assert_eq!(known.lines().count(), 1, "{known}");
    assert_success(&run_async(world.ssh(&["true"])).await);
    let same = String::from_utf8(read(&world.path("known_hosts"))).expect("text");
    assert_eq!(same, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_host_key_is_the_only_permitted_one() {
    let fingerprint = |file: &Path| {
        let mut keygen = std::process::Command::new("ssh-keygen");
        let output = crate::common::run(keygen.arg("-lf").arg(file));
        let text = String::from_utf8(output.stdout).expect("text");
        text.split(' ').nth(1).expect("a fingerprint").to_owned()
    };
    for (name, is_right) in [("host_key.pub", true), ("stranger.pub", false)] {
        let world = World::with(|settings| {
            let known = settings.far.known_hosts.take().expect("set");
            settings.far.host_key = Some(fingerprint(&known.with_file_name(name)));
        })
        .await;
        let output = run_async(world.ssh(&["true"])).await;
        assert_eq!(output.status.success(), is_right, "{}", errors(&output));
        if !is_right {
            let text = errors(&output);
            assert!(text.contains("permits only SHA256:"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_names_its_server_in_the_user_name() {
    let world = World::with(|settings| settings.listener.target = None).await;
    let server = world.server.as_ref().expect("a server").address;
    for separator in ['%', '+'] {
        let user = format!("{}{separator}{server}", world.user);
        assert_success(&run_async(world.ssh_as(&user, &["true"])).await);
    }
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("name the server in the user name"), "{text}");
    let user = format!("{}%127.0.0.1:1", world.user);
    let output = run_async(world.ssh_as(&user, &["true"])).await;
    let text = errors(&output);
    assert!(text.contains("not allowed"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_refused_after_the_key_exchange_sees_no_successful_log_in() {
    let world = World::with(|settings| settings.listener.target = None).await;
    let closed = free_address();
    let user = format!("{}%{closed}", world.user);
    for options in [&["-v"][..], &["-v", "-o", "PubkeyAuthentication=no"]] {
        let mut command = std::process::Command::new("ssh");
        let common = world.options();
        command.args(common.iter().map(|it| match it.as_str() {
            "BatchMode=yes" => "NumberOfPasswordPrompts=1",
            other => other,
        }));
        command.args(options);
        command.args(["-p", &world.listener.port().to_string(), "-l", &user]);
        command.arg(world.listener.ip().to_string()).arg("true");
        let output = run_async(command).await;
        assert_eq!(output.status.code(), Some(255));
        let text = errors(&output);
        assert!(text.contains("is not allowed: add \""), "{text}");
        assert!(!text.contains("Authenticated to"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_reaches_no_server_and_is_disconnected() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    server.set_nonblocking(true).expect("set");
    let address = server.local_addr().expect("bound").to_string();
    let world = World::with(|settings| {
        settings.listener.target = Some(address.parse().expect("a server"));
        settings.allow = Some(address);
    })
    .await;
    let mut client = tokio::net::TcpStream::connect(world.listener)
        .await
        .expect("open");
    let mut text = String::new();
    let ended = tokio::io::AsyncReadExt::read_to_string(&mut client, &mut text);
    let ended = tokio::time::timeout(crate::common::TIMEOUT, ended).await;
    ended.expect("disconnected").expect("text");
    assert!(text.starts_with("SSH-2.0-"), "{text}");
    let accepted = server.accept().map_err(|error| error.kind());
    assert_eq!(accepted.err(), Some(io::ErrorKind::WouldBlock));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_or_not_allowed_is_named() {
    let mut world = World::start().await;
    world.server = None;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("127.0.0.1:"), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    assert!(text.contains("longhaul doctor at the far"), "{text}");
    let allow = free_address().to_string();
    let world = World::with(|settings| settings.allow = Some(allow)).await;
    let output = run_async(world.ssh(&["true"])).await;
    let text = errors(&output);
    assert!(text.contains("is not allowed: add \"127.0.0.1:"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_agent_the_client_reads_what_to_do() {
    let world = World::with(|it| it.listener.public_key = vec![PublicKeyWay::Agent]).await;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("-A"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_gcm_use_it_and_others_connect_too() {
    let world = World::start().await;
    for (ciphers, expected) in [
        (None, "aes128-gcm@openssh.com"),
        (Some("aes256-ctr,aes128-ctr"), "aes256-ctr"),
        (
            Some("chacha20-poly1305@openssh.com"),
            "chacha20-poly1305@openssh.com",
        ),
    ] {
        let mut command = std::process::Command::new("ssh");
        command.args(world.options()).arg("-v");
        if let Some(ciphers) = ciphers {
            command.args(["-c", ciphers]);
        }
        command.args(["-p", &world.listener.port().to_string()]);
        command.arg(world.destination()).arg("true");
        let output = run_async(command).await;
        assert_success(&output);
        let text = errors(&output);
        assert!(text.contains(&format!("cipher: {expected}")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_the_client_signs_the_log_in_at_the_server() {
    for algorithm in ["ed25519", "rsa", "ecdsa"] {
        let world = World::with(|it| it.listener.public_key = vec![PublicKeyWay::Agent]).await;
        replace_client_key(&world, algorithm);
        let agent = Agent::start(&world);
        let mut command = std::process::Command::new("ssh");
        command.args(world.options()).arg("-A");
        command.args(["-p", &world.listener.port().to_string()]);
        command.arg(world.destination()).arg("echo done");
        command.env("SSH_AUTH_SOCK", &agent.socket);
        let output = run_async(command).await;
        assert_success(&output);
        assert_eq!(output.stdout, b"done\n");
        let mut sftp = std::process::Command::new("sftp");
        sftp.args(world.options()).args(["-A", "-b", "-"]);
        sftp.args(["-P", &world.listener.port().to_string()]);
        sftp.arg(world.destination())
            .env("SSH_AUTH_SOCK", &agent.socket);
        assert_success(&run_async_with(sftp, b"pwd\n".to_vec()).await);
        let log = String::from_utf8(read(&world.path("sshd.log"))).expect("text");
        let key = algorithm.to_uppercase();
        assert!(log.contains(&format!("Accepted key {key}")), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_log_in_failed_does_not_run_after_a_later_log_in() {
    let world = World::with(|it| it.listener.public_key = vec![PublicKeyWay::Agent]).await;
    let agent = Agent::start(&world);
    let refusing = agent.refuse_once(&world, false);
    let control = format!("ControlPath={}", world.path("control").display());
    let ssh = |options: &[&str], command: &str| {
        let mut ssh = std::process::Command::new("ssh");
        ssh.args(world.options()).args(["-o", &control]);
        ssh.args(options)
            .args(["-p", &world.listener.port().to_string()]);
        ssh.arg(world.destination()).arg(command);
        ssh.env("SSH_AUTH_SOCK", &refusing);
        ssh
    };
    // On a shared connection, OpenSSH forwards the agent only if the first process also forwards
    // it.
    let mut first = ssh(&["-M", "-N", "-A"], "")
        .stdin(std::process::Stdio::null())
        .spawn()
        .expect("ssh is installed");
    let deadline = std::time::Instant::now() + crate::common::TIMEOUT;
    while !world.path("control").exists() {
        assert!(std::time::Instant::now() < deadline, "no connection");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let marker = world.path("marker");
    let touch = format!("touch {}", marker.display());
    let refused = run_async(ssh(&["-A"], &touch)).await;
    let output = run_async(ssh(&["-A"], "sleep 1; echo done")).await;
    let _ = first.kill();
    let _ = first.wait();
    assert_eq!(refused.status.code(), Some(255), "{}", errors(&refused));
    assert_success(&output);
    assert_eq!(output.stdout, b"done\n");
    assert!(!marker.exists(), "the refused command ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_at_the_far_gateway_replaces_an_agent_that_is_not_forwarded() {
    let ways = vec![PublicKeyWay::Agent, PublicKeyWay::Key];
    let world = World::with(|it| it.listener.public_key = ways).await;
    assert_success(&run_async(world.ssh(&["true"])).await);
    let ways = vec![PublicKeyWay::Certificate, PublicKeyWay::Agent];
    let world = World::with(|it| it.listener.public_key = ways).await;
    let agent = Agent::start(&world);
    let mut command = std::process::Command::new("ssh");
    command.args(world.options()).arg("-A");
    command.args(["-p", &world.listener.port().to_string()]);
    command.arg(world.destination()).arg("true");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    assert_success(&run_async(command).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_gateway_logs_in_only_users_whose_key_the_server_knows() {
    let authority = |settings: &mut crate::common::WorldSettings| {
        settings.listener.public_key = vec![PublicKeyWay::Certificate];
        let known = settings.far.known_hosts.as_ref().expect("set");
        let path = known.with_file_name("stranger");
        settings.server_options = format!("TrustedUserCAKeys {}.pub", path.display());
        settings.far.user_ca = Some(path);
        settings.far.user_keys = None;
    };
    let world = World::with(authority).await;
    assert_success(&run_async(world.ssh(&["true"])).await);
    let log = String::from_utf8(read(&world.path("sshd.log"))).expect("text");
    assert!(log.contains("ED25519-CERT"), "{log}");
    let world = World::with(authority).await;
    let other = read(&world.path("gateway_key.pub"));
    std::fs::write(world.path("authorized_keys"), other).expect("written");
    let output = run_async(world.ssh(&["true"])).await;
    assert!(
        errors(&output).contains("Permission denied"),
        "{}",
        errors(&output)
    );
    let log = String::from_utf8(read(&world.path("sshd.log"))).expect("text");
    assert!(!log.contains("CERT"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_command_replaces_each_program_of_a_log_in_by_certificate() {
    let world = World::with(|settings| {
        settings.listener.public_key = vec![PublicKeyWay::Certificate];
        let known = settings.far.known_hosts.as_ref().expect("set");
        let path = known.with_file_name("stranger");
        settings.server_options = format!("TrustedUserCAKeys {}.pub", path.display());
        settings.far.user_ca = Some(path);
        settings.far.user_ca_force_command =
            Some("echo \"forced $SSH_ORIGINAL_COMMAND\"".to_owned());
    })
    .await;
    let output = run_async(world.ssh(&["echo other"])).await;
    assert_success(&output);
    assert_eq!(output.stdout, b"forced echo other\n");
}

/// Replaces the client's key by a key of another algorithm.
fn replace_client_key(world: &World, algorithm: &str) {
    for name in ["id", "id.pub"] {
        std::fs::remove_file(world.path(name)).expect("a file");
    }
    let mut keygen = std::process::Command::new("ssh-keygen");
    keygen.args(["-q", "-N", "", "-t", algorithm, "-f"]);
    assert_success(&crate::common::run(keygen.arg(world.path("id"))));
    std::fs::copy(world.path("id.pub"), world.path("authorized_keys")).expect("copied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_down_is_named() {
    let world = World::with(|_| {}).await;
    let listener = crate::common::listener_without_a_peer(&world).await;
    let mut command = std::process::Command::new("ssh");
    command
        .args(world.options())
        .args(["-p", &listener.port().to_string()]);
    command.arg(world.destination()).arg("true");
    let output = run_async(command).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("does not answer"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_banner_of_the_server_reaches_only_the_client_of_its_session() {
    let world = World::with(|settings| {
        let known = settings.far.known_hosts.as_ref().expect("set");
        let banner = known.with_file_name("banner");
        std::fs::write(&banner, "authorized use only\n").expect("written");
        settings.server_options = format!("Banner {}", banner.display());
    })
    .await;
    let output = run_async(world.ssh(&["echo done"])).await;
    assert_success(&output);
    assert_eq!(output.stdout, b"done\n");
    let text = errors(&output);
    assert_eq!(text.matches("authorized use only").count(), 1, "{text}");
    // Banners may contain text for one user, so a client without an account reads none.
    std::fs::copy(world.path("stranger"), world.path("id")).expect("copied");
    std::fs::copy(world.path("stranger.pub"), world.path("id.pub")).expect("copied");
    let output = run_async(world.ssh(&["echo done"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(!text.contains("authorized use only"), "{text}");
    assert!(text.contains("Permission denied"), "{text}");
}
