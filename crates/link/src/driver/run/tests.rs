//! Tests of a driver that runs without its thread.

use std::task::{Wake, Waker};

use units::ByteCount;

use super::*;
use crate::{Identity, PeerConfig, Policy};

/// Returns a driver with one peer, at whose address no program listens.
fn driver() -> Driver {
    driver_with_peers(1)
}

fn peer(number: u16) -> PeerConfig {
    let mut seed = [2; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    PeerConfig {
        name: format!("peer {number}"),
        public_keys: vec![Identity::from_seed(seed).public_key()],
        endpoint: Some("127.0.0.1:9".into()),
        rate_max: None,
        is_guest: false,
    }
}

fn driver_with_peers(count: u16) -> Driver {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let (sender, commands) = mpsc::channel();
    let bell = Arc::new(Doorbell {
        commands: Mutex::new(sender),
        is_asleep: false.into(),
        event: nix::sys::eventfd::EventFd::new().expect("the system has an eventfd"),
    });
    let config = LinkConfig {
        identity: Identity::from_seed([1; 32]),
        peers: (0..count).map(peer).collect(),
        policy: Policy::Fair,
        rate_max: None,
        memory_max: ByteCount::mebibytes(16),
        idle_timeout: Duration::from_secs(30),
        memory_file: None,
    };
    let incoming = async_mpsc::channel(1).0;
    let driver = Driver::new(
        socket,
        config,
        bell,
        commands,
        incoming,
        Arc::default(),
        None,
    );
    driver.expect("the socket can be set up")
}

#[test]
fn a_guest_takes_no_memory_from_peers() {
    let mut config = driver_with_peers(3).config.clone();
    let third = ByteCount::new(config.memory_max.bytes() / 3);
    assert_eq!(memory_of_one(&config), third);
    config.peers[0].is_guest = true;
    config.peers[1].public_keys.clear();
    assert_eq!(memory_of_one(&config), config.memory_max);
}

#[test]
fn commands_that_come_before_it_sleeps_keep_their_order() {
    let mut driver = driver();
    for seconds in [1, 2] {
        let command = DriverCommand::KeepAlive(Duration::from_secs(seconds));
        driver.bell.command(command);
    }
    driver.sleep();
    let mut order = Vec::new();
    while let Some(DriverCommand::KeepAlive(every)) = driver.take_command() {
        order.push(every.as_secs());
    }
    assert_eq!(order, [1, 2]);
}

/// Returns a batch of datagrams that the kernel could not accept because its send buffer was full.
fn unsent() -> Option<(Transmit, Vec<u8>)> {
    let transmit = Transmit {
        to: ([127, 0, 0, 1], 9).into(),
        segment_bytes: 100,
    };
    Some((transmit, vec![0; 100]))
}

#[test]
fn while_the_kernel_has_no_room_what_is_due_does_not_wake_it() {
    let mut driver = driver();
    let now = driver.clock.now();
    driver.endpoint.handle_timeout(now);
    driver.handle_events(now);
    assert!(driver.wake(None, now) <= now, "a handshake is due");
    driver.unsent = unsent();
    assert_eq!(driver.wake(None, now), now + ROOM_TIMEOUT);
    let turn = Duration::from_millis(1);
    assert_eq!(driver.wake(Some(turn), now), now + turn, "datagrams come");
}

#[test]
fn the_socket_wakes_it_for_room_while_it_needs_some_and_for_datagrams_while_they_are_sparse() {
    let mut driver = driver();
    let turn = Some(Duration::from_millis(1));
    assert_eq!(driver.socket_events(None), PollFlags::POLLIN);
    assert_eq!(driver.socket_events(turn), PollFlags::empty());
    driver.unsent = unsent();
    let both = PollFlags::POLLIN | PollFlags::POLLOUT;
    assert_eq!(driver.socket_events(None), both);
    assert_eq!(driver.socket_events(turn), PollFlags::POLLOUT);
}

#[test]
fn deadlines_of_pending_opens_and_of_the_end_wake_the_driver() {
    let mut driver = driver();
    let now = driver.clock.now();
    // Only the reporter has work that is due.
    driver.endpoint.close();
    let quiet = driver.wake(None, now);
    let soon = now + Duration::from_secs(3);
    assert!(quiet > soon, "nothing is due");
    driver.pending_opens.push(PendingOpen {
        beside: None,
        peer: PeerId(0),
        class: StreamClass::Bulk,
        reply: oneshot::channel().0,
        deadline: soon,
    });
    assert_eq!(driver.wake(None, now), soon);
    let sooner = now + Duration::from_secs(1);
    driver.stopping = Some(PendingShutdown {
        deadline: sooner,
        reply: None,
        cut_short: None,
    });
    assert_eq!(driver.wake(None, now), sooner);
}

/// Waker that records whether it was called.
#[derive(Default)]
struct Sleeper(std::sync::atomic::AtomicBool);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_reader_that_waits_for_more_is_woken_in_time_though_nothing_more_arrives() {
    let mut driver = driver();
    let now = driver.clock.now();
    let key = StreamKey {
        connection: Default::default(),
        stream: 0,
    };
    let _handles = driver.add_stream(key, StreamClass::Bulk);
    let sleeper = Arc::new(Sleeper::default());
    let recv = driver.streams[&key].recv.clone();
    recv.lock().push(vec![1; 1000].into());
    recv.lock().waker = Some(Waker::from(sleeper.clone()));
    recv.lock().is_joining = true;
    driver.endpoint.close();
    let until = now + Duration::from_millis(2);
    driver.deferred_wakes.hold(key, until);
    assert_eq!(driver.wake(None, now), until, "it is among the deadlines");
    driver.wake_readers(until);
    assert!(sleeper.0.load(Ordering::SeqCst), "the reader is woken");
    assert!(!recv.lock().is_joining, "the next one may wait again");
}

#[test]
fn it_looks_at_what_has_come_before_all_is_sent() {
    let mut driver = driver_with_peers(TRANSMITS_MAX as u16);
    let now = driver.clock.now();
    driver.endpoint.handle_timeout(now);
    driver.handle_events(now);
    driver.transmit(now);
    assert!(driver.wake(None, now) <= now, "there is more to send");
    // The first flight of each peer is a few datagrams.
    for _ in 0..4 {
        driver.transmit(now);
    }
    assert!(driver.wake(None, now) > now, "everything is sent");
}

#[test]
fn the_state_of_a_stream_without_room_is_left_alone() {
    let mut driver = driver();
    let key = StreamKey {
        connection: Default::default(),
        stream: 0,
    };
    let _handles = driver.add_stream(key, StreamClass::Bulk);
    let send = driver.streams[&key].send.clone();
    let mut state = send.lock();
    state.queue.push(bytes::Bytes::from_static(b"waits"));
    state.queued_bytes = 5;
    drop(state);
    driver.look(key, driver.clock.now());
    assert!(driver.blocked.contains(&key), "nobody is connected");
    let state = send.lock();
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        driver.write_blocked();
        let _ = done.send(());
        driver
    });
    let in_time = is_done.recv_timeout(Duration::from_secs(10));
    drop(state);
    let mut driver = thread.join().expect("the driver works");
    assert!(in_time.is_ok(), "the driver waited for the lock");
    driver.end_send(key, Err(StreamError::Closed));
    assert!(driver.blocked.is_empty(), "nothing more is to be sent");
}
