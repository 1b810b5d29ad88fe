//! Log-ins by passwords and questions. The server runs in this process, since a real server would
//! need an account.

use std::{borrow::Cow, process::Command};

use russh::{
    Channel, ChannelId, MethodKind,
    server::{Auth, ChannelOpenHandle, Handler, Msg, Response, Session},
};

use crate::{
    common::{World, errors, run_async},
    own_server,
};

/// Server with one password, one question after the password of some users, and no programs.
#[derive(Debug, Clone)]
struct PasswordServer;

impl Handler for PasswordServer {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        match (user, password) {
            ("me", "right") => Ok(Auth::Accept),
            // The connection ends without a message.
            ("lost", _) => Err(russh::Error::Disconnect),
            ("two", "right") => Ok(Auth::Reject {
                proceed_with_methods: Some((&[MethodKind::KeyboardInteractive][..]).into()),
                partial_success: true,
            }),
            _ => Ok(Auth::Reject {
                proceed_with_methods: Some((&[MethodKind::Password][..]).into()),
                partial_success: false,
            }),
        }
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _: &str,
        _: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let Some(answers) = response else {
            return Ok(Auth::Partial {
                name: "Second factor".into(),
                instructions: "Look at your token.".into(),
                prompts: Cow::Owned(vec![("Code: ".into(), true), ("Pin: ".into(), false)]),
            });
        };
        let answers: Vec<_> = answers.collect();
        Ok(
            match answers.iter().map(|it| &it[..]).collect::<Vec<_>>()[..] {
                [b"right", b"right"] => Auth::Accept,
                _ => Auth::reject(),
            },
        )
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        session.data(channel, command.to_vec())?;
        session.exit_status_request(channel, 5)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

async fn world() -> World {
    own_server::world(PasswordServer, |_| {}).await
}

/// Returns a client that answers each question by a line of `answers`.
fn client(world: &World, user: &str, answers: &[&str]) -> Command {
    let script = world.path("askpass");
    let log = world.path("asked");
    let _ = std::fs::remove_file(&log);
    let answers = answers.join(" ");
    let body = format!(
        "#!/bin/sh\necho \"$1\" >>{0}\nn=$(wc -l <{0})\nset -- {answers}\nshift $((n - 1))\n\
         echo \"$1\"\n",
        log.display()
    );
    std::fs::write(&script, body).expect("written");
    let mut mode = std::fs::metadata(&script).expect("a file").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o700);
    std::fs::set_permissions(&script, mode).expect("own file");
    let mut command = Command::new("ssh");
    let options = world.options();
    let options = options.iter().map(|it| match it.as_str() {
        "BatchMode=yes" => "NumberOfPasswordPrompts=2",
        other => other,
    });
    command
        .args(options)
        .args(["-o", "PubkeyAuthentication=no"]);
    command.args([
        "-o",
        "PreferredAuthentications=password,keyboard-interactive",
    ]);
    command.args(["-p", &world.listener.port().to_string(), "-l", user]);
    command
        .arg(world.listener.ip().to_string())
        .arg("a command");
    command
        .env("SSH_ASKPASS", script)
        .env("SSH_ASKPASS_REQUIRE", "force");
    command.env("DISPLAY", "none").env_remove("SSH_AUTH_SOCK");
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_of_the_server_to_a_password_is_the_answer_to_the_client() {
    let world = world().await;
    let output = run_async(client(&world, "me", &["right"])).await;
    assert_eq!(output.status.code(), Some(5), "{}", errors(&output));
    assert_eq!(output.stdout, b"a command");
    let output = run_async(client(&world, "me", &["wrong", "right"])).await;
    assert_eq!(output.status.code(), Some(5), "{}", errors(&output));
    let output = run_async(client(&world, "me", &["wrong", "wrong"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(text.contains("Permission denied (password"), "{text}");
    let link = world.near.link().snapshot();
    let snapshot = world.near.registry().snapshot(&link, String::new());
    assert_eq!(snapshot.logins_failed_total, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_during_the_log_in_is_no_failed_log_in() {
    let world = world().await;
    let output = run_async(client(&world, "lost", &["right"])).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(!text.contains("Permission denied"), "{text}");
    let link = world.near.link().snapshot();
    let snapshot = world.near.registry().snapshot(&link, String::new());
    assert_eq!(snapshot.logins_failed_total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_of_the_server_reach_the_client_after_a_password() {
    let world = world().await;
    let output = run_async(client(&world, "two", &["right", "right", "right"])).await;
    assert_eq!(output.status.code(), Some(5), "{}", errors(&output));
    let asked = std::fs::read_to_string(world.path("asked")).expect("a file");
    assert!(
        asked.contains("Code: ") && asked.contains("Pin: "),
        "{asked}"
    );
    let output = run_async(client(&world, "two", &["right", "wrong", "wrong"])).await;
    assert_eq!(output.status.code(), Some(255), "{}", errors(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_guesses_passwords_is_kept_out() {
    let world = world().await;
    let mut text = String::new();
    for _ in 0..11 {
        let output = run_async(client(&world, "me", &["wrong", "wrong"])).await;
        assert_eq!(output.status.code(), Some(255));
        text = errors(&output);
    }
    assert!(text.contains("too many failed logins"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_failed_log_ins_applies_to_open_connections() {
    let world = world().await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(own_server::connect(&world).await);
    }
    let address = "127.0.0.1:1".parse().expect("an address");
    for _ in 1..world.near.limits().failed_logins_per_minute_max {
        let _ = world.near.record_failed_login(address, "server", "me");
    }
    let last = clients[0].authenticate_password("me", "wrong").await;
    last.expect("an answer");
    for client in &mut clients {
        let _ = client.authenticate_password("me", "right").await;
        assert!(client.channel_open_session().await.is_err());
    }
}
