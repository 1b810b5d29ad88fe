//! Servers that answer late or never. The tests concern log-ins, and WRITEs that the server
//! confirms after the end of the channel.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use russh::{
    Channel, ChannelId, ChannelMsg,
    server::{Auth, ChannelOpenHandle, Handler, Msg, Session},
};
use ssh::EarlyReplies;
use tokio::{
    sync::watch,
    time::{Instant, advance, pause, resume, sleep, timeout},
};

use crate::{
    common::{TIMEOUT, World},
    own_server,
    raw_sftp::{number, packet, string, take_packet},
};

/// Event that a server has seen or caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    LoginStarted,
    Write,
    Confirmed,
    FileClosed,
    ChannelClosed,
}

/// Events with their times.
#[derive(Debug, Clone)]
struct Events(Arc<watch::Sender<Vec<(Event, Instant)>>>);

impl Events {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    fn add(&self, event: Event) {
        self.0.send_modify(|it| it.push((event, Instant::now())));
    }

    fn count(&self, event: Event) -> usize {
        count(&self.0.borrow(), event)
    }

    /// Waits until the event has occurred `count` times. Returns the time of the last one.
    async fn wait(&self, event: Event, count: usize) -> Instant {
        let mut events = self.0.subscribe();
        let seen = events.wait_for(|it| self::count(it, event) >= count);
        let seen = timeout(TIMEOUT, seen).await;
        let seen = seen.expect("the event occurs").expect("open");
        let mut times = seen.iter().filter(|it| it.0 == event);
        times.next_back().expect("an event").1
    }
}

fn count(events: &[(Event, Instant)], event: Event) -> usize {
    events.iter().filter(|it| it.0 == event).count()
}

/// SFTP server that confirms each WRITE after `delay`. With `None`, the server never confirms a
/// WRITE.
#[derive(Debug)]
struct SlowServer {
    events: Events,
    delay: Option<Duration>,
    answers_logins: bool,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Clone for SlowServer {
    fn clone(&self) -> Self {
        Self {
            events: self.events.clone(),
            delay: self.delay,
            answers_logins: self.answers_logins,
            received: Arc::default(),
        }
    }
}

impl SlowServer {
    fn new(events: &Events, delay: Option<Duration>) -> Self {
        Self {
            events: events.clone(),
            delay,
            answers_logins: true,
            received: Arc::default(),
        }
    }
}

impl Handler for SlowServer {
    type Error = russh::Error;

    async fn auth_password(&mut self, _: &str, _: &str) -> Result<Auth, Self::Error> {
        self.events.add(Event::LoginStarted);
        match self.answers_logins {
            true => Ok(Auth::Accept),
            false => std::future::pending().await,
        }
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

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let received = self.received.clone();
        let mut received = received.lock().expect("no panic");
        received.extend_from_slice(data);
        while let Some(request) = take_packet(&mut received) {
            // The number of the request follows the type.
            let id = request.get(1..5).unwrap_or_default();
            let status = packet(101, &[id, &number(0), &string(b""), &string(b"")]);
            match request[0] {
                1 => session.data(channel, packet(2, &[&number(3)]))?,
                3 => session.data(channel, packet(102, &[id, &string(b"file")]))?,
                4 => {
                    self.events.add(Event::FileClosed);
                    session.data(channel, status)?;
                }
                6 => {
                    self.events.add(Event::Write);
                    let Some(delay) = self.delay else {
                        continue;
                    };
                    let (handle, events) = (session.handle(), self.events.clone());
                    tokio::spawn(async move {
                        sleep(delay).await;
                        events.add(Event::Confirmed);
                        let _ = handle.data(channel, status).await;
                    });
                }
                _ => session.data(channel, status)?,
            }
        }
        Ok(())
    }

    async fn channel_close(&mut self, _: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.events.add(Event::ChannelClosed);
        Ok(())
    }
}

/// Opens a file by SFTP, sends [`WRITES`] WRITEs, and waits for the early answers to them. Then
/// sends CLOSE, if `closes_file` is true. Returns the channel.
async fn write_file(world: &World, closes_file: bool) -> (impl Sized, Channel<russh::client::Msg>) {
    let mut client = own_server::connect(world).await;
    let accepted = client.authenticate_password("me", "any").await;
    assert!(accepted.expect("an answer").success());
    let mut channel = client.channel_open_session().await.expect("a channel");
    channel.request_subsystem(true, "sftp").await.expect("open");
    let open = [number(0), string(b"name"), number(0x1a), number(0)].concat();
    let requests = [packet(1, &[&number(3)]), packet(3, &[&open])].concat();
    channel.data_bytes(requests).await.expect("open");
    let mut answers = Answers::default();
    answers.wait(&mut channel, 2).await;
    for id in 1..=WRITES {
        let fields = [number(id), string(b"file"), vec![0; 8], string(b"content")];
        let write = packet(6, &[&fields.concat()]);
        channel.data_bytes(write).await.expect("open");
    }
    answers.wait(&mut channel, 2 + WRITES as usize).await;
    if closes_file {
        let close = packet(4, &[&number(100), &string(b"file")]);
        channel.data_bytes(close).await.expect("open");
        answers.wait(&mut channel, 3 + WRITES as usize).await;
    }
    (client, channel)
}

/// Answers that a client has received.
#[derive(Debug, Default)]
struct Answers {
    bytes: Vec<u8>,
    count: usize,
}

impl Answers {
    async fn wait(&mut self, channel: &mut Channel<russh::client::Msg>, count: usize) {
        let read = async {
            while self.count < count {
                match channel.wait().await.expect("open") {
                    ChannelMsg::Data { data } => self.bytes.extend_from_slice(&data),
                    ChannelMsg::Close | ChannelMsg::Failure => panic!("the channel has ended"),
                    _ => {}
                }
                while take_packet(&mut self.bytes).is_some() {
                    self.count += 1;
                }
            }
        };
        timeout(TIMEOUT, read).await.expect("answers");
    }
}

async fn world(server: SlowServer) -> World {
    own_server::world(server, |it| it.listener.early = EarlyReplies::All).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_at_the_server_stays_open_until_the_last_confirmation() {
    let events = Events::new();
    let delay = Duration::from_secs(2);
    let world = world(SlowServer::new(&events, Some(delay))).await;
    let (client, channel) = write_file(&world, false).await;
    assert_eq!(events.count(Event::Confirmed), 0, "the answers were early");
    channel.close().await.expect("open");
    let closed = events.wait(Event::ChannelClosed, 1).await;
    assert_eq!(events.count(Event::Write), WRITES as usize);
    let confirmed = events.wait(Event::Confirmed, WRITES as usize).await;
    assert!(confirmed <= closed, "{events:?}");
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_close_of_a_file_reaches_the_server_after_the_last_confirmation() {
    let events = Events::new();
    let delay = Duration::from_secs(1);
    let world = world(SlowServer::new(&events, Some(delay))).await;
    let (_client, _channel) = write_file(&world, true).await;
    let closed = events.wait(Event::FileClosed, 1).await;
    let confirmed = events.wait(Event::Confirmed, WRITES as usize).await;
    assert!(confirmed <= closed, "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_the_close_of_its_file_and_not_with_the_program() {
    let events = Events::new();
    let world = world(SlowServer::new(&events, Some(Duration::from_secs(1)))).await;
    let (_client, mut channel) = write_file(&world, true).await;
    channel.eof().await.expect("open");
    let mut status = None;
    let end = async {
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::ExitStatus { exit_status } = message {
                status = Some(exit_status);
            }
        }
    };
    // The program of this server never ends.
    timeout(TIMEOUT, end).await.expect("the channel ends");
    assert_eq!(status, Some(0));
    assert_eq!(events.count(Event::Confirmed), WRITES as usize);
    events.wait(Event::ChannelClosed, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_an_open_upload_or_without_early_replies_ends_with_the_program() {
    for (early, closes_file) in [(EarlyReplies::All, false), (EarlyReplies::Off, true)] {
        let server = SlowServer::new(&Events::new(), Some(Duration::ZERO));
        let world = own_server::world(server, |it| it.listener.early = early).await;
        let (_client, mut channel) = write_file(&world, closes_file).await;
        channel.eof().await.expect("open");
        let end = async { while channel.wait().await.is_some() {} };
        let ended = timeout(Duration::from_secs(1), end).await;
        assert!(ended.is_err(), "{early:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_confirms_holds_its_channel_for_30_seconds() {
    let events = Events::new();
    let world = world(SlowServer::new(&events, None)).await;
    let (client, channel) = write_file(&world, false).await;
    channel.close().await.expect("open");
    events.wait(Event::Write, WRITES as usize).await;
    sleep(SETTLE).await;
    skip(Duration::from_secs(27)).await;
    assert_eq!(events.count(Event::ChannelClosed), 0);
    skip(Duration::from_secs(4)).await;
    events.wait(Event::ChannelClosed, 1).await;
    drop(client);
}

#[tokio::test]
async fn a_log_in_that_the_server_does_not_answer_ends_after_180_seconds() {
    let events = Events::new();
    let mut server = SlowServer::new(&events, None);
    server.answers_logins = false;
    let world = world(server).await;
    let mut client = own_server::connect(&world).await;
    let answer = tokio::spawn(async move {
        let answer = client.authenticate_password("me", "any").await;
        (answer, client)
    });
    events.wait(Event::LoginStarted, 1).await;
    sleep(SETTLE).await;
    skip(Duration::from_secs(178)).await;
    assert!(!answer.is_finished(), "the limit is 180 s");
    assert_eq!(world.far.registry().sessions_open(), 1);
    skip(Duration::from_secs(4)).await;
    let answered = timeout(TIMEOUT, answer).await.expect("an answer");
    let (answer, client) = answered.expect("no panic");
    let is_accepted = answer.is_ok_and(|it| it.success());
    assert!(!is_accepted, "the server has not accepted the log-in");
    drop(client);
    let ended = async {
        while world.far.registry().sessions_open() > 0 {
            sleep(SETTLE).await;
        }
    };
    timeout(TIMEOUT, ended).await.expect("the session ends");
}

/// Advances the virtual clock by `time` in one step. Tasks then have time to react to expired
/// timers.
async fn skip(time: Duration) {
    pause();
    advance(time).await;
    resume();
    sleep(SETTLE).await;
}

/// Number of WRITEs of a client.
const WRITES: u32 = 10;

/// Maximum time that the gateways of this process need to react.
const SETTLE: Duration = Duration::from_millis(500);
