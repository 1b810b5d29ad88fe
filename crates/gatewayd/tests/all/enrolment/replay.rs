//! Tests of a replay attack: an attacker on the path captures all datagrams of an enrolment and
//! sends them again.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use gatewayd::register::Register;
use link::Identity;

use super::{World, invite, key};

/// An attacker that forwards the datagrams between an invited gateway and the far gateway.
struct Eavesdropper {
    address: SocketAddr,
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Eavesdropper {
    /// Starts to capture the datagrams to `far`. If `passes` is false, the attacker does not
    /// forward them.
    fn start(far: SocketAddr, passes: bool) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        let step = Some(Duration::from_millis(20));
        socket.set_read_timeout(step).expect("settable");
        let captured = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (captured, stopped) = (captured.clone(), stopped.clone());
            move || {
                let (mut near, mut buffer) = (None, [0; 65_536]);
                while !stopped.load(Ordering::SeqCst) {
                    let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                        continue;
                    };
                    let datagram = &buffer[..length];
                    let to = if from == far {
                        near
                    } else {
                        near = Some(from);
                        captured.lock().expect("no panic").push(datagram.to_vec());
                        passes.then_some(far)
                    };
                    if let Some(to) = to {
                        socket.send_to(datagram, to).expect("sent");
                    }
                }
            }
        });
        Self {
            address,
            captured,
            stopped,
            thread: Some(thread),
        }
    }

    fn captured(&self) -> Vec<Vec<u8>> {
        self.captured.lock().expect("no panic").clone()
    }
}

impl Drop for Eavesdropper {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("no panic");
    }
}

fn replay(datagrams: &[Vec<u8>], to: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for datagram in datagrams {
        socket.send_to(datagram, to).expect("sent");
    }
}

fn register(world: &World) -> Register {
    Register::read(&Register::path(&world.folder.join("b.key"))).expect("it is there")
}

#[test]
fn a_replayed_enrolment_changes_nothing_and_is_counted() {
    let world = World::start("");
    let eavesdropper = Eavesdropper::start(world.far.link, true);
    let invite = invite(&world.folder.join("b.key"), eavesdropper.address);
    assert_eq!(world.far.reload_and_tell(str::to_owned).error, None);
    let ours = Identity::generate();
    let name = world.enrol(&invite, ours.public_key(), "oslo");
    assert_eq!(name.expect("taken"), "oslo");
    let (before, counted) = (register(&world), world.far.snapshot().dropped);
    let captured = eavesdropper.captured();
    assert!(captured.len() >= 3, "{}", captured.len());
    for _ in 0..3 {
        replay(&captured, world.far.link);
    }
    world
        .far
        .wait_for("the first flight is counted as a replay", |now| {
            now.dropped.replayed > counted.replayed
        });
    let is_counted = |now: &relay::status::GatewaySnapshot| {
        let refused = |it: &relay::status::DroppedDatagrams| {
            it.replayed + it.unknown_connection + it.undecryptable + it.unknown_key + it.crowded
        };
        refused(&now.dropped) >= refused(&counted) + captured.len() as u64
    };
    world.far.wait_for("all are counted", is_counted);
    assert_eq!(register(&world), before);
    assert!(world.enrol(&invite, key(), "bern").is_err(), "it was used");
}

#[test]
fn an_enrolment_withheld_from_the_far_gateway_is_useless_to_its_holder() {
    let world = World::start("");
    let eavesdropper = Eavesdropper::start(world.far.link, false);
    let mut open = invite(&world.folder.join("b.key"), eavesdropper.address);
    assert_eq!(world.far.reload_and_tell(str::to_owned).error, None);
    let knocking = Duration::from_millis(1500);
    world.runtime.block_on(async {
        let asked = gatewayd::enrolment::enrol(&open, key(), "oslo");
        assert!(tokio::time::timeout(knocking, asked).await.is_err());
    });
    let captured = eavesdropper.captured();
    assert!(!captured.is_empty());
    replay(&captured, world.far.link);
    // The far gateway has sent all its answers by now.
    std::thread::sleep(Duration::from_millis(300));
    assert!(register(&world).peers.is_empty());
    open.endpoint = world.far.link.to_string();
    let name = world.enrol(&open, key(), "oslo").expect("still open");
    assert_eq!(name, "oslo");
}
