//! Fuzz target: the register of a gateway. Any text is either parsed as a register or refused.
//! Parsing a printed register must return the same register. No sequence of changes may add a
//! removed peer again.

use gatewayd::register::{DismissedPeer, EnrolledPeer, INVITES_MAX, OpenInvite, Register};
use link::PublicKey;

use crate::Tape;

/// Time at which the changes are made, in seconds since 1970.
const NOW_UNIX_S: u64 = 1_800_000_000;
/// Maximum number of changes that one input makes to the register.
const CHANGES_MAX: usize = 24;

/// Runs one input, which contains the length of the changes, the changes and the text of the
/// register.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let changes = tape.slice();
    let text = String::from_utf8_lossy(&data[(1 + changes.len()).min(data.len())..]);
    let removals = Register::removals(&text);
    let Ok(mut register) = Register::parse(&text) else {
        return;
    };
    let dismissed = register.dismissed.iter();
    let dismissed: Vec<_> = dismissed
        .map(|it| (it.public_key, it.since_unix_s))
        .collect();
    assert_eq!(removals, dismissed, "both readers agree");
    check_text(&register);
    let mut tape = Tape::new(changes);
    for _ in 0..CHANGES_MAX {
        if tape.is_over() {
            break;
        }
        change(&mut register, &mut tape);
    }
    check_text(&register);
}

fn check_text(register: &Register) {
    let text = register.print().expect("its times came from TOML");
    assert_eq!(Register::parse(&text).as_ref(), Ok(register));
}

fn change(register: &mut Register, tape: &mut Tape<'_>) {
    let kind = tape.byte() % 5;
    let (one, other) = (key(register, tape), key(register, tape));
    match kind {
        0 => {
            let count = register.peers.len();
            let enrolled = register.enrol(one, (other, "site"), (&[], None), NOW_UNIX_S);
            let is_new = matches!(enrolled, Ok((_, true)));
            assert_eq!(register.peers.len(), count + usize::from(is_new));
            if let Ok((name, _)) = enrolled {
                assert!(register.peers.iter().any(|it| it.name == name));
            }
        }
        1 => {
            register.dismiss("", &[other], NOW_UNIX_S);
            assert!(register.peers.iter().all(|it| it.public_key != other));
            let used: Vec<_> = register.invites.iter().map(|it| it.public_key).collect();
            let mut later = register.clone();
            for invite in used {
                let was_used =
                    |it: &OpenInvite| it.public_key == invite && it.used_by == Some(other);
                // If several invites have the same key, only the first invite counts.
                let first = register.invites.iter().find(|it| it.public_key == invite);
                if first.is_some_and(was_used) {
                    let again = later.enrol(invite, (other, "site"), (&[], None), NOW_UNIX_S);
                    assert!(again.is_err(), "a removed peer is in again");
                }
            }
        }
        2 => {
            register.withdraw_invites();
            let enrolled = register.enrol(one, (other, "site"), (&[], None), NOW_UNIX_S);
            assert!(enrolled.is_err(), "a withdrawn invite is used");
        }
        3 => {
            let invite = OpenInvite {
                name: None,
                serves: Vec::new(),
                public_key: one,
                expires_unix_s: NOW_UNIX_S + u64::from(tape.byte()),
                used_by: None,
                withdrawn: false,
            };
            let is_open = |it: &&OpenInvite| it.is_open(NOW_UNIX_S);
            let open_count = register.invites.iter().filter(is_open).count();
            let added = register.invite(invite, NOW_UNIX_S);
            assert_eq!(added.is_ok(), open_count < INVITES_MAX);
        }
        _ => register.withdraw(other),
    }
}

/// Returns a key from the register, or one of two other keys.
fn key(register: &Register, tape: &mut Tape<'_>) -> PublicKey {
    let mut keys = vec![PublicKey([1; 32]), PublicKey([2; 32])];
    keys.extend(register.peers.iter().map(|it| it.public_key));
    keys.extend(register.invites.iter().map(|it| it.public_key));
    keys.extend(register.invites.iter().filter_map(|it| it.used_by));
    keys[tape.below(keys.len())]
}

/// Returns first inputs for the fuzzer. They are an empty register, a register with one entry of
/// each kind, and a register with several entries of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let peer = |number: u8| EnrolledPeer {
        name: format!("site-{number}"),
        public_key: PublicKey([number; 32]),
        endpoint: number
            .is_multiple_of(2)
            .then(|| "far.example:4810".to_owned()),
        serves: vec!["*.example".to_owned()],
        since_unix_s: 1_700_000_000,
    };
    let invite = |number: u8| OpenInvite {
        name: number.is_multiple_of(2).then(|| "oslo".to_owned()),
        serves: Vec::new(),
        public_key: PublicKey([100 + number; 32]),
        expires_unix_s: NOW_UNIX_S + 60,
        used_by: number.is_multiple_of(3).then_some(PublicKey([number; 32])),
        withdrawn: number % 5 == 4,
    };
    let dismissed = |number: u8| DismissedPeer {
        public_key: PublicKey([200 + number; 32]),
        since_unix_s: NOW_UNIX_S - 60,
    };
    let changes: Vec<u8> = (0..48).collect();
    let registers = [0, 1, 6].map(|count: u8| Register {
        endpoint: (count > 0).then(|| "192.0.2.1:4810".to_owned()),
        peers: (0..count).map(peer).collect(),
        invites: (0..count).map(invite).collect(),
        dismissed: (0..count).map(dismissed).collect(),
    });
    let texts = registers.iter().map(|it| it.print().expect("proper times"));
    let seeds = texts.map(|text| [&[changes.len() as u8], &changes[..], text.as_bytes()].concat());
    seeds.collect()
}
