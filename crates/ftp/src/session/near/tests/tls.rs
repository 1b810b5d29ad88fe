use super::*;

fn explicit() -> NearSession {
    greeted(NearSetup {
        tls: ClientTlsMode::Explicit { is_required: false },
        ..STRICT
    })
}

#[test]
fn a_client_that_goes_before_auth_is_answered_gets_no_tls() {
    let mut near = explicit();
    client(&mut near, "NOOP");
    client(&mut near, "AUTH TLS");
    near.handle(NearInput::ClientClosed);
    let done = drain(&mut near);
    assert_eq!(done.last().map(String::as_str), Some("close"), "{done:?}");
}

#[test]
fn tls_begins_behind_its_reply_and_before_the_next_command() {
    let mut near = explicit();
    client(&mut near, "NOOP");
    assert!(
        client(&mut near, "AUTH TLS").is_empty(),
        "NOOP has not been answered"
    );
    assert!(!near.wants_client());
    assert_eq!(
        reply(&mut near, 1, 0, "200 ok"),
        ["> 200 ok", "> 234 gateway: TLS may begin", "tls"]
    );
    assert!(!near.wants_client());
    near.handle(NearInput::TlsBegun);
    assert!(drain(&mut near).is_empty() && near.wants_client());
}

#[test]
fn data_connections_are_private_where_the_client_says_so() {
    let mut near = explicit();
    client(&mut near, "AUTH TLS");
    near.handle(NearInput::TlsBegun);
    client(&mut near, "PBSZ 0");
    client(&mut near, "PROT P");
    client(&mut near, "EPSV");
    data_ready(&mut near, 1);
    assert_eq!(drain(&mut near), ["listen 1 private"]);
    listening(&mut near, 1);
    assert_eq!(
        client(&mut near, "PROT C")[0],
        "1 Kill",
        "it was set up for TLS"
    );
    client(&mut near, "PORT 127,0,0,1,4,1");
    data_ready(&mut near, 2);
    assert_eq!(drain(&mut near)[0], "dial 2 127.0.0.1:1025");
}

#[test]
fn features_are_the_gateways() {
    let mut near = explicit();
    client(&mut near, "FEAT");
    let out = ["211-Features", "211 End"].map(|line| reply(&mut near, 1, 0, line));
    assert_eq!(out[0], ["> 211-Features"]);
    assert_eq!(
        out[1],
        [
            ">  AUTH TLS",
            ">  AUTH SSL",
            ">  PBSZ",
            ">  PROT",
            "> 211 End"
        ]
    );
    client(&mut near, "FEAT");
    assert_eq!(reply(&mut near, 2, 0, "211 none"), ["> 211 none"]);
}

#[test]
fn where_tls_is_required_no_account_and_no_data_goes_without() {
    let mut near = greeted(NearSetup {
        tls: ClientTlsMode::Explicit { is_required: true },
        ..STRICT
    });
    let required = [
        "> 530 gateway: TLS is required here: choose explicit TLS (ftpes:// or --ssl-reqd), AUTH TLS comes first",
    ];
    for line in ["USER joe", "PASS x", "PASV", "RETR a"] {
        assert_eq!(client(&mut near, line), required, "{line}");
    }
    client(&mut near, "AUTH TLS");
    near.handle(NearInput::TlsBegun);
    assert_eq!(client(&mut near, "USER joe").len(), 1, "it is relayed");
    reply(&mut near, 1, 0, "230 in");
    assert!(client(&mut near, "PASV")[0].starts_with("> 521 "));
    client(&mut near, "PBSZ 0");
    assert!(client(&mut near, "PROT C")[0].starts_with("> 534 "));
}
