use super::*;

fn listening(far: &mut FarSession, at: Option<&str>) -> Vec<String> {
    let at = at.map(|at| at.parse().expect("an address"));
    far.handle(FarInput::Listening(at))
        .expect("no limit is hit");
    drain(far)
}

fn active() -> FarSession {
    with(FarSetup {
        data: DataOpener::Active,
        ..STRICT
    })
}

#[test]
fn the_server_gets_the_address_on_which_the_gateway_listens() {
    let mut far = active();
    assert_eq!(pasv(&mut far, 1, 1), ["listen 1"]);
    assert!(client(&mut far, 2, "LIST").is_empty());
    assert_eq!(
        listening(&mut far, Some("10.0.0.9:1025")),
        ["< PORT 10,0,0,9,4,1"]
    );
    assert_eq!(
        server(&mut far, "200 ok"),
        ["ready 1", "Download 1", "< LIST"]
    );
    server(&mut far, "150 go");
    assert_eq!(server(&mut far, "226 done"), ["> 226 done"]);
}

#[test]
fn eprt_is_for_ipv6_and_for_servers_without_port() {
    let mut far = active();
    pasv(&mut far, 1, 1);
    assert_eq!(
        listening(&mut far, Some("[2001:db8::9]:1025")),
        ["< EPRT |2|2001:db8::9|1025|"]
    );
    assert_eq!(server(&mut far, "500 what"), ["unlisten 1", "> 500 what"]);

    let mut far = active();
    pasv(&mut far, 1, 1);
    listening(&mut far, Some("10.0.0.9:1025"));
    assert_eq!(server(&mut far, "502 no"), ["< EPRT |1|10.0.0.9|1025|"]);
    assert_eq!(server(&mut far, "200 ok"), ["ready 1"]);
}

#[test]
fn a_refused_transfer_is_not_waited_for() {
    let mut far = active();
    pasv(&mut far, 1, 1);
    listening(&mut far, Some("10.0.0.9:1025"));
    server(&mut far, "200 ok");
    client(&mut far, 2, "RETR a");
    assert_eq!(server(&mut far, "550 no"), ["> 550 no", "unlisten 1"]);
}

#[test]
fn without_a_port_to_listen_on_the_client_gets_an_error() {
    let mut far = active();
    pasv(&mut far, 1, 1);
    assert!(listening(&mut far, None)[0].starts_with("> 425 gateway"));
    assert_eq!(client(&mut far, 2, "NOOP"), ["< NOOP"]);
}
