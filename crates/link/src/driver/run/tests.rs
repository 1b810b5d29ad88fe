//! A driver without its thread.

use super::*;
use crate::{Identity, Policy};

/// A driver that knows a peer, at an address where nobody answers.
fn driver() -> Driver {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let (sender, commands) = mpsc::channel();
    let bell = Arc::new(Doorbell {
        commands: Mutex::new(sender),
        is_asleep: false.into(),
        event: nix::sys::eventfd::EventFd::new().expect("the system has an eventfd"),
    });
    let config = LinkConfig {
        identity: Identity::from_seed([1; 32]),
        peers: vec![PeerConfig {
            name: "other".into(),
            public_keys: vec![Identity::from_seed([2; 32]).public_key()],
            endpoint: Some("127.0.0.1:9".into()),
            rate_max: None,
        }],
        policy: Policy::Fair,
        rate_max: None,
        memory_max: ByteCount::mebibytes(16),
        idle_timeout: Duration::from_secs(30),
        memory_file: None,
    };
    let incoming = async_mpsc::channel(1).0;
    let driver = Driver::new(socket, config, bell, commands, incoming, Arc::default());
    driver.expect("the socket can be set up")
}

#[test]
fn commands_that_come_before_it_sleeps_keep_their_order() {
    let mut driver = driver();
    for seconds in [1, 2] {
        let command = Command::KeepAlive(Duration::from_secs(seconds));
        driver.bell.command(command);
    }
    driver.sleep();
    let mut order = Vec::new();
    while let Some(Command::KeepAlive(every)) = driver.take_command() {
        order.push(every.as_secs());
    }
    assert_eq!(order, [1, 2]);
}
