use super::*;

fn networks(texts: &[&str]) -> Vec<Network> {
    let network = |text: &&str| text.parse().expect("a network");
    texts.iter().map(network).collect()
}

#[test]
fn networks_that_lie_in_others_are_left_out_of_sets() {
    let all = networks(&[
        "10.1.0.0/16",
        "10.0.0.0/8",
        "192.168.0.0/24",
        "10.0.0.0/8",
        "2001:db8::/32",
        "2001:db8:1::/48",
    ]);
    assert_eq!(
        outermost(all.iter()),
        networks(&["10.0.0.0/8", "192.168.0.0/24", "2001:db8::/32"])
    );
}

#[test]
fn the_closest_network_decides_whether_a_connection_is_intercepted() {
    let peer = |name: &str, serves: &[&str]| crate::config::PeerSettings {
        origin: crate::config::PeerOrigin::File,
        id: link::PeerId(0),
        name: name.to_owned(),
        serves: Some(
            networks(serves)
                .into_iter()
                .map(net::target::ServesPattern::Network)
                .collect(),
        ),
        allow: net::target::AllowList::default(),
        compresses: true,
        deduplicates: true,
        tenants: Vec::new(),
    };
    let peers = [
        peer("wide", &["10.0.0.0/8"]),
        peer("close", &["10.20.0.5", "10.20.0.0/16"]),
        peer("other", &["10.20.0.0/16"]),
    ];
    let clients = networks(&["192.168.0.0/16"]);
    let listen = "0.0.0.0:2125".parse().expect("an address");
    let rules = Ruleset {
        listen,
        intercepted: Intercepted::new(&peers, None, listen, &clients),
        clients,
    };
    let text = rules.install();
    let order = [
        "saddr != { 192.168.0.0/16 } return",
        "daddr 10.20.0.5/32 tcp dport @up_1 tproxy ip to :2125 meta mark set 0x4c48084d accept",
        "daddr 10.20.0.5/32 return",
        "daddr 10.20.0.0/16 tcp dport @up_1 ",
        "daddr 10.20.0.0/16 tcp dport @up_2 ",
        "daddr 10.20.0.0/16 return",
        "daddr 10.0.0.0/8 tcp dport @up_0 ",
        "daddr 10.0.0.0/8 return",
    ];
    let places = order.map(|line| text.find(line).unwrap_or_else(|| panic!("{line}: {text}")));
    assert!(places.is_sorted(), "{text}");
    assert!(!text.contains("ip6"), "{text}");
    assert_eq!(
        rules.refresh(|peer| peer == 2),
        "flush set inet longhaul_2125 up_0\n\
         flush set inet longhaul_2125 up_1\n\
         flush set inet longhaul_2125 up_2\n\
         add element inet longhaul_2125 up_2 { 21 timeout 3s }\n"
    );
}
