//! Open SSH sessions during upgrades of both gateways.
#![allow(
    clippy::disallowed_methods,
    reason = "runs programs and waits for them"
)]

use std::{fs, net::SocketAddr, sync::Arc};

use russh::{
    Channel, ChannelMsg,
    client::{self, Handle, Msg},
    keys::PublicKeyOrCertificate,
};
use tokio::time::timeout;

use crate::{
    common::{
        side::{Side, TIMEOUT, free, printed},
        ssh_server::{PASSWORD, SshServer},
    },
    upgrade::Gateway,
};

struct AnyHostKey;

impl client::Handler for AnyHostKey {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

async fn log_in(listener: SocketAddr) -> Handle<AnyHostKey> {
    let config = Arc::new(client::Config::default());
    let connected = client::connect(config, listener, AnyHostKey).await;
    let mut client = connected.expect("a connection");
    let answer = client.authenticate_password("joe", PASSWORD).await;
    assert!(answer.expect("an answer").success());
    client
}

async fn start_program(client: &Handle<AnyHostKey>) -> Channel<Msg> {
    let channel = client.channel_open_session().await.expect("a channel");
    channel.exec(true, "echo").await.expect("open");
    channel
}

/// Sends bytes to a program, and checks that the same bytes return.
async fn echo(channel: &mut Channel<Msg>) {
    let sent: Vec<u8> = (0..300_000_usize).map(|at| (at * 7 % 251) as u8).collect();
    channel.data_bytes(sent.clone()).await.expect("open");
    let mut came = Vec::new();
    let read = async {
        while came.len() < sent.len() {
            match channel.wait().await {
                Some(ChannelMsg::Data { data }) => came.extend_from_slice(&data),
                Some(ChannelMsg::Close) | None => panic!("the channel has ended"),
                Some(_) => {}
            }
        }
    };
    timeout(TIMEOUT, read).await.expect("the channel goes on");
    assert!(came == sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ssh_session_goes_on_through_upgrades_of_both_sides() {
    let server = SshServer::start();
    let target = server.address.to_string();
    let (far, near) = (Side::new("upgrade-ssh-far"), Side::new("upgrade-ssh-near"));
    let fingerprint = server.fingerprint();
    let allowed = far.far(&["--allow", &target, "--ssh", "--host-key", &fingerprint]);
    let invite = printed(&allowed);
    let mut far = Gateway::start(far);
    printed(&near.near(&invite, &[]));
    let listen = free();
    let config = near.config();
    let text = fs::read_to_string(&config).expect("it was written");
    let listener = format!("\n[[ssh]]\nlisten = \"{listen}\"\ntarget = \"{target}\"\n");
    fs::write(&config, text + &listener).expect("room");
    let mut near = Gateway::start(near);

    let first = log_in(listen).await;
    let mut channels = vec![start_program(&first).await];
    let mut clients = Vec::new();
    for round in 0..4 {
        match round % 2 {
            0 => near.succeed(),
            _ => far.succeed(),
        }
        // The first session can still open channels at the processes in which it started.
        channels.push(start_program(&first).await);
        let client = log_in(listen).await;
        channels.push(start_program(&client).await);
        clients.push(client);
        for channel in &mut channels {
            echo(channel).await;
        }
    }
    drop((channels, clients, first));
    near.wait_for_one();
    far.wait_for_one();
    let mut channel = start_program(&log_in(listen).await).await;
    echo(&mut channel).await;
}
