//! Host keys, log-ins and refusals.

use ssh::PublicKeyWay;

use crate::common::{World, assert_success, errors, free_address, read, run_async};

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
    let fingerprint = |file: &std::path::Path| {
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
async fn a_server_that_is_down_or_not_allowed_is_named() {
    let mut world = World::start().await;
    world.server = None;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("127.0.0.1:"), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    let allow = free_address().to_string();
    let world = World::with(|settings| settings.allow = Some(allow)).await;
    let output = run_async(world.ssh(&["true"])).await;
    let text = errors(&output);
    assert!(text.contains("not allowed"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_agent_the_client_reads_what_to_do() {
    let world = World::with(|it| it.listener.public_key = vec![PublicKeyWay::Agent]).await;
    let output = run_async(world.ssh(&["true"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("-A"), "{text}");
}
