use super::*;
use proptest::prelude::*;

fn allow(entries: &[&str]) -> AllowList {
    AllowList(
        entries
            .iter()
            .map(|e| e.parse().expect("a valid entry"))
            .collect(),
    )
}

/// Checks a target whose host is an address.
fn check(list: &AllowList, target: &str) -> Result<(), DialRefusal> {
    let asked: HostPort = target.parse().expect("a valid target");
    let Host::Ip(ip) = asked.host else {
        panic!("{target} is no address")
    };
    list.check(&asked, ip, false)
}

fn serves(patterns: &[&str]) -> Vec<ServesPattern> {
    patterns
        .iter()
        .map(|p| p.parse().expect("a valid pattern"))
        .collect()
}

#[test]
fn odd_spellings_of_addresses_are_no_hosts() {
    let odd = [
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "localhost.",
        "fe80::1%eth0",
        "1.2.3.4.5",
        "1.2.3.0x4",
        "a..b",
        "-a.b",
        "",
        "a b",
        "[::1]",
        "ftp.example.com\r\nDELE",
        "exa\u{2024}mple.com",
    ];
    for text in odd {
        assert!(Host::parse(text).is_err(), "{text}");
    }
    for text in [
        "FTP.example.com",
        "10.0.0.1",
        "2001:db8::1",
        "a_b.local",
        "1and1.de",
        "0xcafe.org",
    ] {
        assert!(Host::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn an_ssh_server_without_a_port_has_the_port_of_ssh() {
    for (text, expected) in [
        ("10.20.0.5", "10.20.0.5:22"),
        ("10.20.0.5:2022", "10.20.0.5:2022"),
        ("[2001:db8::5]", "[2001:db8::5]:22"),
    ] {
        let parsed = HostPort::parse_ssh(text).expect(text);
        assert_eq!(parsed.to_string(), expected);
    }
    let error = HostPort::parse_ssh("a b").expect_err("a space");
    assert!(error.to_string().contains("10.20.0.5:22"), "{error}");
}

#[test]
fn an_entry_permits_its_port_only() {
    let list = allow(&[
        "10.20.0.0/16:21",
        "10.30.0.5:2121",
        "[2001:db8::/32]:21",
        "10.40.0.1",
    ]);
    assert_eq!(check(&list, "10.20.255.1"), Ok(()));
    assert_eq!(check(&list, "10.20.0.1:22"), Err(DialRefusal::NotListed));
    assert_eq!(check(&list, "10.21.0.1:21"), Err(DialRefusal::NotListed));
    assert_eq!(check(&list, "10.30.0.5:2121"), Ok(()));
    assert_eq!(check(&list, "[2001:db8::7]:21"), Ok(()));
    assert_eq!(check(&list, "10.40.0.1:21"), Ok(()));
    assert_eq!(
        check(&AllowList::default(), "10.0.0.1"),
        Err(DialRefusal::NotListed)
    );
}

#[test]
fn special_addresses_need_an_entry_of_their_own() {
    let wide = allow(&["0.0.0.0/0:21", "[::/0]:21"]);
    let special = [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.1.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
    ];
    for target in special {
        assert!(
            matches!(check(&wide, target), Err(DialRefusal::Special(_))),
            "{target}"
        );
    }
    assert_eq!(check(&wide, "10.0.0.1"), Ok(()));
    let list = allow(&["127.0.0.0/8:21", "[::1]:21", "[::ffff:10.0.0.0/104]:21"]);
    for target in ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]"] {
        assert_eq!(check(&list, target), Ok(()), "{target}");
    }
    assert_eq!(
        check(&list, "[::ffff:127.0.0.1]"),
        Err(DialRefusal::NotListed)
    );
}

#[test]
fn an_entry_may_hold_a_range_of_ports() {
    let list = allow(&[
        "10.0.0.1:50000-50099",
        "[2001:db8::1]:9-10",
        "a-b.example:7-8",
    ]);
    for (target, expected) in [
        ("10.0.0.1:50000", true),
        ("10.0.0.1:50099", true),
        ("10.0.0.1:50100", false),
        ("[2001:db8::1]:10", true),
        ("[2001:db8::1]:21", false),
    ] {
        assert_eq!(check(&list, target).is_ok(), expected, "{target}");
    }
    let named: HostPort = "a-b.example:8".parse().expect("a target");
    assert!(list.may_resolve(&named));
    for text in [
        "fd00::1-50",
        "[fd00::1]-100",
        "10.0.0.1:9-8",
        "10.0.0.1:0-8",
        "10.0.0.1:9-",
        "10.0.0.1:-9",
        "10.0.0.1:9-70000",
    ] {
        assert!(text.parse::<AllowEntry>().is_err(), "{text}");
    }
    assert!("my-host.example:21".parse::<AllowEntry>().is_ok());
}

#[test]
fn a_name_permits_that_name_and_not_its_address() {
    let list = allow(&["ftp.example.com:21"]);
    let by_name: HostPort = "FTP.example.com".parse().expect("a target");
    let other: HostPort = "www.example.com".parse().expect("a target");
    let address = IpAddr::from([192, 0, 2, 1]);
    assert_eq!(list.check(&by_name, address, false), Ok(()));
    assert_eq!(check(&list, "192.0.2.1"), Err(DialRefusal::NotListed));
    assert_eq!(
        list.check(&other, address, false),
        Err(DialRefusal::NotListed)
    );
    assert!(list.may_resolve(&by_name) && !list.may_resolve(&other));
    let loopback = IpAddr::from([127, 0, 0, 1]);
    assert!(
        list.check(&by_name, loopback, false).is_err(),
        "a name must not rebind to loopback"
    );
}

#[test]
fn a_name_does_not_open_internal_networks() {
    let list = allow(&["ftp.example.com:21"]);
    let by_name: HostPort = "ftp.example.com".parse().expect("a target");
    let at = |list: &AllowList, address: &str| {
        list.check(&by_name, address.parse().expect("an address"), false)
    };
    for address in [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "198.18.0.1",
        "fd00::1",
        "fc00::1",
        "fec0::1",
        "64:ff9b::c000:201",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2001:0:1::1",
        "::c0a8:101",
        // Addresses of 6to4 for 10.0.0.1, 127.0.0.1, 169.254.0.1, 192.168.0.1.
        "2002:a00:1::1",
        "2002:7f00:1::",
        "2002:a9fe:1::",
        "2002:c0a8:1:1::1",
    ] {
        let denied = at(&list, address);
        assert!(
            matches!(denied, Err(DialRefusal::Internal { .. })),
            "{address}"
        );
        let ip: IpAddr = address.parse().expect("an address");
        let text = denied.expect_err("it is denied").to_string();
        let entry = HostPort {
            host: Host::Ip(ip),
            port: 21,
        };
        assert!(
            text.ends_with(&format!("add \"{entry}\" to allow")),
            "{text}"
        );
        // The entry that the error text recommends permits the address.
        let both = allow(&["ftp.example.com:21", &entry.to_string()]);
        assert_eq!(at(&both, address), Ok(()), "{address}");
    }
    for address in [
        "192.0.2.1",
        "172.32.0.1",
        "100.128.0.1",
        "2001:db8::1",
        "2002:c000:201::1",
        "2600::1",
    ] {
        assert_eq!(at(&list, address), Ok(()), "{address}");
    }
    let network = allow(&["ftp.example.com:21", "10.20.0.0/16:21"]);
    assert_eq!(at(&network, "10.20.0.1"), Ok(()));
    assert!(at(&network, "10.21.0.1").is_err());
    assert!(
        at(
            &allow(&["ftp.example.com:21", "10.20.0.0/16:22"]),
            "10.20.0.1"
        )
        .is_err()
    );
}

#[test]
fn the_gateways_own_listener_needs_its_very_address() {
    let asked: HostPort = "10.0.0.1:21".parse().expect("a target");
    let ip = IpAddr::from([10, 0, 0, 1]);
    assert_eq!(
        allow(&["10.0.0.0/8:21"]).check(&asked, ip, true),
        Err(DialRefusal::Own)
    );
    assert_eq!(allow(&["10.0.0.1:21"]).check(&asked, ip, true), Ok(()));
}

#[test]
fn exact_beats_wildcard_beats_prefix_beats_everything() {
    let peers = [
        None,
        Some(serves(&["*.example.com", "10.0.0.0/8"])),
        Some(serves(&["ftp.example.com", "10.20.0.0/16"])),
        Some(serves(&["*.deep.example.com", "10.20.0.0/16"])),
        None,
    ];
    let chosen = |host: &str| {
        choose(
            &Host::parse(host).expect("a host"),
            peers.iter().map(|p| p.as_deref()),
        )
    };
    assert_eq!(chosen("ftp.example.com"), [2]);
    assert_eq!(chosen("www.example.com"), [1]);
    assert_eq!(chosen("a.deep.example.com"), [3]);
    assert_eq!(
        chosen("10.20.1.1"),
        [2, 3],
        "equals fail over in file order"
    );
    assert_eq!(chosen("10.99.1.1"), [1]);
    assert_eq!(chosen("example.org"), [0, 4]);
    assert_eq!(
        chosen("example.com"),
        [0, 4],
        "a wildcard needs a label in its place"
    );
    let none = choose(&Host::Name("x.org".into()), [Some(&serves(&["y.org"])[..])]);
    assert!(none.is_empty());
}

#[test]
fn networks_without_host_bits_only() {
    for text in [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "::1/64",
        "10.0.0.0/",
        "10.0.0.0/x",
        "10/8",
    ] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
    for text in [
        "0.0.0.0/0",
        "::/0",
        "10.0.0.1/32",
        "2001:db8::/32",
        "10.1.2.3",
    ] {
        assert!(text.parse::<Network>().is_ok(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_can_be_read(text in ".{0,60}") {
        let _ = text.parse::<HostPort>();
        let _ = text.parse::<AllowEntry>();
        let _ = text.parse::<ServesPattern>();
    }

    #[test]
    fn printed_endpoints_read_back(ip in any::<IpAddr>(), port in 1u16..) {
        let endpoint = HostPort { host: Host::Ip(ip), port };
        prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
}
