//! Servers that end programs by unusual exit signals.

use russh::{
    Channel, ChannelId, ChannelMsg, Sig,
    client::Handle,
    server::{Auth, ChannelOpenHandle, Handler, Msg, Session},
};
use tokio::time::timeout;

use crate::{
    common::TIMEOUT,
    own_server::{self, AnyHostKey},
};

/// Server that ends each program by exit signals. The command selects the signals.
#[derive(Debug, Clone)]
struct SignallingServer;

impl Handler for SignallingServer {
    type Error = russh::Error;

    async fn auth_password(&mut self, _: &str, _: &str) -> Result<Auth, Self::Error> {
        Ok(Auth::Accept)
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
        let signals = match command {
            b"crash" => vec![("SEGV".to_owned(), "stack overflow".to_owned())],
            b"early" => {
                let signal = Sig::Custom("HUP".to_owned());
                session.exit_signal_request(channel, signal, false, "", "")?;
                Vec::new()
            }
            b"odd" => vec![
                (String::new(), String::new()),
                (
                    "\u{1b}[2J\0\r\n".to_owned(),
                    "\u{1b}]0;title\u{7}\0".to_owned(),
                ),
                ("x".repeat(20_000), "y".repeat(20_000)),
                ("KILL@openssh.com".to_owned(), "z".to_owned()),
            ],
            b"flood" => vec![("TERM".to_owned(), "y".repeat(1000)); 5000],
            _ => Vec::new(),
        };
        session.channel_success(channel)?;
        session.data(channel, b"output".to_vec())?;
        for (name, text) in signals {
            session.exit_signal_request(channel, Sig::Custom(name), true, &text, "en")?;
        }
        session.close(channel)
    }
}

/// Output of a program, and the exit signals with their texts.
#[derive(Debug, Default)]
struct Ended {
    output: Vec<u8>,
    signals: Vec<(String, bool, String)>,
    is_closed: bool,
}

async fn run(client: &Handle<AnyHostKey>, command: &str) -> Ended {
    let mut channel = client.channel_open_session().await.expect("a channel");
    channel.exec(true, command).await.expect("open");
    let mut ended = Ended::default();
    let read = async {
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => ended.output.extend_from_slice(&data),
                ChannelMsg::ExitSignal {
                    signal_name,
                    core_dumped,
                    error_message,
                    ..
                } => {
                    let name = match signal_name {
                        Sig::Custom(name) => name,
                        other => format!("{other:?}"),
                    };
                    ended.signals.push((name, core_dumped, error_message));
                }
                ChannelMsg::Close => ended.is_closed = true,
                _ => {}
            }
        }
    };
    timeout(TIMEOUT, read).await.expect("the channel ends");
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_signal_of_the_server_reaches_the_client() {
    let world = own_server::world(SignallingServer, |_| {}).await;
    let mut client = own_server::connect(&world).await;
    let accepted = client.authenticate_password("me", "any").await;
    assert!(accepted.expect("an answer").success());
    let ended = run(&client, "crash").await;
    assert_eq!(ended.output, b"output");
    let expected = ("SEGV".to_owned(), true, "stack overflow".to_owned());
    assert_eq!(ended.signals, [expected]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_exit_signals_end_the_channel_and_leave_the_session_usable() {
    let world = own_server::world(SignallingServer, |_| {}).await;
    let mut client = own_server::connect(&world).await;
    let accepted = client.authenticate_password("me", "any").await;
    assert!(accepted.expect("an answer").success());
    for command in ["odd", "early", "odd"] {
        let ended = run(&client, command).await;
        assert!(ended.is_closed, "{command}: {ended:?}");
        assert!(!ended.signals.is_empty(), "{command}: {ended:?}");
    }
    assert_eq!(run(&client, "crash").await.signals.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_floods_with_exit_signals_ends_only_its_own_session() {
    let world = own_server::world(SignallingServer, |_| {}).await;
    let mut flooded = own_server::connect(&world).await;
    let mut other = own_server::connect(&world).await;
    for client in [&mut flooded, &mut other] {
        let accepted = client.authenticate_password("me", "any").await;
        assert!(accepted.expect("an answer").success());
    }
    let ended = run(&flooded, "flood").await;
    assert!(ended.signals.len() < 5000, "{}", ended.signals.len());
    let closed = async {
        while !flooded.is_closed() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, closed).await.expect("the session ends");
    assert_eq!(run(&other, "crash").await.output, b"output");
}
