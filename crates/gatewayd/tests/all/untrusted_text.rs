//! Property tests of texts that people paste or edit: invites and registers. No text causes a
//! panic. A gateway can read every text that it has written.

use gatewayd::{
    enrolment::Invite,
    register::{DismissedPeer, EnrolledPeer, OpenInvite, Register},
};
use link::PublicKey;
use net::target::HostPort;
use proptest::{collection::vec, option, prelude::*};

fn keys() -> impl Strategy<Value = PublicKey> {
    any::<[u8; 32]>().prop_map(PublicKey)
}

/// Generates times in seconds of Unix time that TOML can express.
fn times() -> impl Strategy<Value = u64> {
    0..=i64::MAX as u64
}

fn peers() -> impl Strategy<Value = EnrolledPeer> {
    let fields = (any::<String>(), keys(), option::of(any::<String>()));
    (fields, vec(any::<String>(), 0..3), times()).prop_map(
        |((name, public_key, endpoint), serves, since_unix_s)| EnrolledPeer {
            name,
            public_key,
            endpoint,
            serves,
            since_unix_s,
        },
    )
}

fn invites() -> impl Strategy<Value = OpenInvite> {
    let fields = (option::of(any::<String>()), keys(), option::of(keys()));
    (fields, times(), any::<bool>()).prop_map(
        |((name, public_key, used_by), expires_unix_s, withdrawn)| OpenInvite {
            name,
            serves: Vec::new(),
            public_key,
            expires_unix_s,
            used_by,
            withdrawn,
        },
    )
}

fn removals() -> impl Strategy<Value = DismissedPeer> {
    (keys(), times()).prop_map(|(public_key, since_unix_s)| DismissedPeer {
        public_key,
        since_unix_s,
    })
}

fn registers() -> impl Strategy<Value = Register> {
    let lists = (
        vec(peers(), 0..4),
        vec(invites(), 0..4),
        vec(removals(), 0..4),
    );
    (option::of(any::<String>()), lists).prop_map(|(endpoint, (peers, invites, dismissed))| {
        Register {
            endpoint,
            peers,
            invites,
            dismissed,
        }
    })
}

proptest! {
    #[test]
    fn a_register_reads_back_as_it_was_printed(register in registers()) {
        let text = register.print().expect("proper times");
        let removals = Register::removals(&text);
        prop_assert_eq!(removals.len(), register.dismissed.len());
        prop_assert_eq!(Register::parse(&text), Ok(register));
    }

    #[test]
    fn any_text_is_a_register_or_is_refused(bytes in vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = Register::parse(&text);
        let _ = Register::removals(&text);
    }

    #[test]
    fn a_damaged_register_is_read_or_refused(
        register in registers(), at in any::<prop::sample::Index>(), byte in any::<u8>(), is_cut in any::<bool>(),
    ) {
        let mut bytes = register.print().expect("proper times").into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if is_cut {
                bytes.truncate(at);
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(read) = Register::parse(&text) {
            let printed = read.print().expect("its times came from TOML");
            prop_assert_eq!(Register::parse(&printed), Ok(read));
        }
    }

    #[test]
    fn an_invite_reads_back_whatever_its_endpoint(
        far in keys(), host in "[a-z0-9]{1,60}(\\.[a-z0-9]{1,60}){0,3}", port in any::<u16>(),
    ) {
        let Ok(endpoint) = format!("{host}:{port}").parse::<HostPort>() else {
            // The host consists of digits and dots, and is no address.
            return Ok(());
        };
        let invite = Invite::new(far, &endpoint);
        prop_assert_eq!(invite.to_string().parse(), Ok(invite));
    }

    #[test]
    fn an_endpoint_behind_a_right_checksum_is_read_or_refused(far in keys(), endpoint in ".*") {
        let mut invite = Invite::new(far, &"far.example:4810".parse().expect("an endpoint"));
        invite.endpoint = endpoint;
        if let Ok(read) = invite.to_string().parse::<Invite>() {
            prop_assert_eq!(read.identity(), invite.identity());
            prop_assert!(read.endpoint.parse::<HostPort>().is_ok());
        }
    }
}
