//! Fuzz target: lines of invites, which users paste. Any text is either parsed as an invite or
//! refused. Parsing a printed invite must return the same invite.

use gatewayd::enrolment::Invite;
use link::Identity;
use net::target::{Host, HostPort};

/// Text at the beginning of each invite.
const PREFIX: &str = "longhaul-invite-1-";

/// Runs one input in three ways. The input is parsed as a complete line, as the body of a line, and
/// as the endpoint of an invite with a correct checksum.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check(&text);
    check(&format!("{PREFIX}{text}"));
    let mut made = invite("far.example:4810");
    made.endpoint = text.into_owned();
    match made.to_string().parse::<Invite>() {
        Ok(read) => {
            assert_eq!(read.far, made.far);
            assert_eq!(read.identity(), made.identity(), "the token is the same");
            let read_again = read.to_string().parse();
            assert_eq!(read_again, Ok(read));
        }
        Err(_) => {
            // An endpoint that a gateway can have is never refused.
            if let Ok(endpoint) = made.endpoint.parse::<HostPort>() {
                let proper = Invite::new(made.far, &endpoint);
                assert_eq!(proper.to_string().parse(), Ok(proper));
            }
        }
    }
}

fn check(text: &str) {
    if let Ok(read) = text.parse::<Invite>() {
        assert_eq!(read.to_string().parse(), Ok(read.clone()));
        assert!(read.endpoint.parse::<HostPort>().is_ok());
    }
}

fn invite(endpoint: &str) -> Invite {
    let far = Identity::from_seed([7; 32]).public_key();
    Invite::new(far, &endpoint.parse().expect("an endpoint"))
}

/// Returns first inputs for the fuzzer. They are endpoints of each kind, one of them with a long
/// name, and a complete line for each endpoint.
pub fn seeds() -> Vec<Vec<u8>> {
    let label = "a".repeat(60);
    let longest = format!("{label}.{label}.{label}.{label}:65535");
    assert!(Host::parse(&longest[..243]).is_ok(), "a proper host");
    let endpoints = [
        "far.example:4810",
        "192.0.2.1:4810",
        "[2001:db8::1]:21",
        &longest,
    ];
    let mut seeds: Vec<_> = endpoints.iter().map(|it| it.as_bytes().to_vec()).collect();
    let lines = endpoints.iter().map(|it| invite(it).to_string());
    seeds.extend(lines.map(String::into_bytes));
    seeds
}
