//! Tests of enrolment: a gateway with an invite becomes a peer, and gains no other access.
#![allow(clippy::disallowed_methods, reason = "plays the gateways around it")]

mod replay;

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    time::{Duration, SystemTime},
};

use gatewayd::{
    enrolment::{EnrolError, Invite, enrol},
    register::{OpenInvite, Register},
};
use link::{Identity, Link, LinkConfig, PeerConfig, PeerId, Policy, PublicKey, StreamClass};
use relay::wire::{Service, StreamHello, encode};
use tokio::runtime::Runtime;
use units::ByteCount;

use crate::common::{Gateway, TIMEOUT, folder};

/// A far gateway with one open invite.
struct World {
    far: Gateway,
    folder: std::path::PathBuf,
    runtime: Runtime,
}

fn now_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// Adds an invite to the register in the folder of `key_file`.
fn invite(key_file: &Path, endpoint: SocketAddr) -> Invite {
    let own = Identity::read(key_file).expect("a key").public_key();
    let endpoint = endpoint.to_string().parse().expect("an endpoint");
    let invite = Invite::new(own, &endpoint);
    let open = OpenInvite {
        name: None,
        serves: Vec::new(),
        public_key: invite.identity().public_key(),
        expires_unix_s: now_unix_s() + 60,
        used_by: None,
        withdrawn: false,
    };
    let path = Register::path(key_file);
    let put = |register: &mut Register| {
        register.invites.push(open);
        Ok::<_, std::convert::Infallible>(())
    };
    Register::change(&path, now_unix_s(), put).expect("room");
    invite
}

impl World {
    fn start(rest: &str) -> Self {
        let (folder, key_a, _) = folder();
        let rest = format!("[[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n{rest}");
        Self {
            far: Gateway::start(&folder, "b.key", &rest),
            folder,
            runtime: Runtime::new().expect("a runtime"),
        }
    }

    fn invite(&self) -> Invite {
        let invite = invite(&self.folder.join("b.key"), self.far.link);
        let outcome = self.far.reload_and_tell(str::to_owned);
        assert_eq!(outcome.error, None);
        invite
    }

    fn enrol(&self, invite: &Invite, key: PublicKey, name: &str) -> Result<String, EnrolError> {
        self.runtime.block_on(enrol(invite, key, name))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn key() -> PublicKey {
    Identity::generate().public_key()
}

/// Starts a link to the far gateway of an invite. `identity` is the key pair of the link.
fn link(invite: &Invite, identity: Identity) -> Link {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let config = LinkConfig {
        identity,
        peers: vec![PeerConfig {
            name: "far".to_owned(),
            public_keys: vec![invite.far],
            endpoint: Some(invite.endpoint.clone()),
            rate_max: None,
            is_guest: false,
        }],
        policy: Policy::Fair,
        rate_max: None,
        memory_max: ByteCount::mebibytes(16),
        idle_timeout: Duration::from_secs(60),
        memory_file: None,
    };
    Link::start(socket, config).expect("a link")
}

#[test]
fn one_gateway_becomes_a_peer_and_is_one_after_a_restart() {
    let mut world = World::start("");
    let (invite, ours) = (world.invite(), Identity::generate());
    assert_eq!(
        world
            .enrol(&invite, ours.public_key(), "oslo")
            .expect("taken"),
        "oslo"
    );
    // The gateway may send its request again, because the reply may have been lost.
    assert_eq!(
        world
            .enrol(&invite, ours.public_key(), "oslo")
            .expect("taken"),
        "oslo"
    );
    let other = world.enrol(&invite, key(), "bern").expect_err("used");
    assert!(other.to_string().contains("was used before"), "{other}");
    // A name that is in use gets a number.
    let second = world.invite();
    assert_eq!(
        world.enrol(&second, key(), "site-a").expect("taken"),
        "site-a-2"
    );
    let text = world.far.text.clone();
    world.far.shut_down();
    let rest = text
        .split_once("drain_max = \"1 s\"\n")
        .expect("its keys")
        .1;
    world.far = Gateway::start(&world.folder, "b.key", rest);
    let endpoint = world.far.link.to_string().parse().expect("an endpoint");
    // The invite has another token, so the far gateway can recognise the gateway only by the
    // gateway's own key.
    let at = Invite::new(invite.far, &endpoint);
    let opened = world.runtime.block_on(async {
        let link = link(&at, ours);
        link.open(PeerId(0), StreamClass::Bulk).await.is_ok()
    });
    assert!(opened, "it is a peer by its own key");
}

#[test]
fn a_removed_peer_does_not_come_back_by_the_invite_that_it_used() {
    let world = World::start("");
    let (invite, ours) = (world.invite(), key());
    world.enrol(&invite, ours, "oslo").expect("taken");
    // The peer is removed by hand, without the command that invalidates its invite.
    let path = Register::path(&world.folder.join("b.key"));
    let remove = |register: &mut Register| {
        register.peers.clear();
        Ok::<_, std::convert::Infallible>(())
    };
    Register::change(&path, now_unix_s(), remove).expect("room");
    for _ in 0..2 {
        let refused = world.enrol(&invite, ours, "oslo").expect_err("removed");
        assert!(
            refused.to_string().contains("was removed since"),
            "{refused}"
        );
        // The refusal stays after the gateway has reloaded.
        assert_eq!(world.far.reload_and_tell(str::to_owned).error, None);
    }
    let register = Register::read(&path).expect("it is there");
    assert!(register.peers.is_empty(), "{register:?}");
}

#[test]
fn an_enrolment_that_is_repeated_reads_no_configuration() {
    let world = World::start("");
    let (invite, ours) = (world.invite(), key());
    world.enrol(&invite, ours, "oslo").expect("taken");
    // A reload would find this mistake.
    world.far.set_file(|text| format!("{text}\n[nonsense]\n"));
    for _ in 0..3 {
        world.enrol(&invite, ours, "oslo").expect("it is a peer");
    }
}

#[test]
fn what_is_no_invite_and_no_name_is_refused() {
    let world = World::start("");
    let invite = world.invite();
    for name in ["", "a\nb", "(invited)", &"x".repeat(65)] {
        let refused = world.enrol(&invite, key(), name).expect_err("no name");
        assert!(refused.to_string().contains("printable"), "{refused}");
    }
    let own = Identity::read(&world.folder.join("b.key")).expect("a key");
    let refused = world
        .enrol(&invite, own.public_key(), "b")
        .expect_err("its own");
    assert!(refused.to_string().contains("own key"), "{refused}");
    // These attempts have not used up the invite.
    world.enrol(&invite, key(), "oslo").expect("taken");
    // The far gateway is silent towards an unknown invite.
    let endpoint = invite.endpoint.parse().expect("an endpoint");
    let unknown = Invite::new(invite.far, &endpoint);
    let silent = world.enrol(&unknown, key(), "oslo").expect_err("unknown");
    assert!(matches!(silent, EnrolError::Silent(_)), "{silent}");
    let step = format!("and that this machine reaches {}", unknown.endpoint);
    assert!(silent.to_string().ends_with(&step), "{silent}");
    assert!(world.far.snapshot().dropped.unknown_key > 0);
}

#[test]
fn a_peer_that_cannot_be_taken_on_leaves_the_invite_as_it_was() {
    let world = World::start("");
    let invite = world.invite();
    // The next reload finds a wrong file.
    world.far.reload(|text| format!("{text}\n[nonsense]\n"));
    let refused = world
        .enrol(&invite, key(), "oslo")
        .expect_err("a wrong file");
    assert!(
        refused
            .to_string()
            .contains("cannot accept another peer now"),
        "{refused}"
    );
    world.far.reload_and_tell(str::to_owned);
    world.enrol(&invite, key(), "oslo").expect("taken");
}

#[test]
fn a_gateway_with_an_invite_reaches_no_server() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    server.set_nonblocking(true).expect("a socket");
    let target = server.local_addr().expect("bound");
    let world = World::start(&format!("[far]\nallow = [\"{target}\"]\n"));
    let invite = world.invite();
    world.runtime.block_on(async {
        let link = link(&invite, invite.identity());
        let (mut send, mut recv) = link
            .open(PeerId(0), StreamClass::Bulk)
            .await
            .expect("a stream");
        let target = target.to_string().parse().expect("an endpoint");
        let service = Service::Forward {
            target,
            coding: None,
        };
        let hello = encode(&StreamHello { service });
        send.write(hello).await.expect("a stream");
        let answer = tokio::time::timeout(TIMEOUT, recv.read()).await;
        assert!(answer.expect("an answer").is_err(), "it is reset");
    });
    assert!(server.accept().is_err(), "nobody has connected");
}

#[test]
fn invites_take_no_memory_from_peers() {
    // 16 MiB is the minimum memory for one peer.
    let (folder, key_a, _) = folder();
    let peer =
        format!("memory_max = \"16 MiB\"\n[[peer]]\nname = \"a\"\npublic_key = \"{key_a}\"\n");
    let far = Gateway::start(&folder, "b.key", &peer);
    invite(&folder.join("b.key"), far.link);
    assert_eq!(far.reload_and_tell(str::to_owned).error, None);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn several_gateways_become_peers_at_the_same_time() {
    let world = World::start("");
    let invites: Vec<_> = (0..6).map(|_| world.invite()).collect();
    let enrolled: Vec<_> = std::thread::scope(|scope| {
        let threads = invites.iter().map(|invite| {
            scope.spawn(|| {
                let runtime = Runtime::new().expect("a runtime");
                runtime.block_on(enrol(invite, key(), "oslo"))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .collect()
    });
    let mut names: Vec<_> = enrolled.into_iter().map(|it| it.expect("taken")).collect();
    names.sort();
    assert_eq!(
        names,
        ["oslo", "oslo-2", "oslo-3", "oslo-4", "oslo-5", "oslo-6"]
    );
}

#[test]
fn one_invite_makes_one_of_several_gateways_a_peer() {
    let world = World::start("");
    let invite = world.invite();
    let taken: usize = std::thread::scope(|scope| {
        let threads = (0..3).map(|_| {
            scope.spawn(|| {
                let runtime = Runtime::new().expect("a runtime");
                runtime.block_on(enrol(&invite, key(), "oslo")).is_ok()
            })
        });
        let threads: Vec<_> = threads.collect();
        let taken = threads.into_iter().map(|it| it.join().expect("no panic"));
        taken.filter(|it| *it).count()
    });
    // The link treats all candidates with the same invite as one peer. At most one candidate
    // succeeds.
    assert!(taken <= 1, "{taken}");
    let register =
        Register::read(&Register::path(&world.folder.join("b.key"))).expect("it is there");
    assert!(register.peers.len() <= 1, "{register:?}");
}

#[test]
fn invites_are_nobody_s_peers_in_what_operators_see() {
    let world = World::start("[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.9:1\"\n");
    let invite = world.invite();
    let link = world.runtime.block_on(async {
        let link = link(&invite, invite.identity());
        link.open(PeerId(0), StreamClass::Bulk)
            .await
            .expect("a stream");
        link
    });
    let names: Vec<_> = world
        .far
        .snapshot()
        .peers
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["site-a"]);
    assert_eq!(
        world.far.ask("GET", "/readyz", "").0,
        503,
        "no peer answers"
    );
    drop(link);
}
