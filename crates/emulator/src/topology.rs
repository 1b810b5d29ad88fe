//! The two sites and their veth pairs to the emulator, with namespaces and addresses.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    thread,
    time::Duration,
};

use super::{
    config::{Site, WanConfig},
    error::WanError,
    netlink::{Netlink, VethEnd},
    netns::Netns,
    sys,
};

/// Two sites, each with one end of a veth pair. The opposite ends are in the emulator's own
/// namespace, the hub. Drop removes the veth pairs. It also removes the namespaces, unless another
/// process uses them.
#[derive(Debug)]
pub(super) struct Topology {
    sites: [Netns; 2],
    /// rtnetlink connections in the namespaces of site A and site B.
    site_links: [Netlink; 2],
    hub_link: Netlink,
    /// The emulator's own namespace. This field keeps it in existence.
    hub: Netns,
    config: WanConfig,
}

impl Topology {
    /// Builds the topology. Returns it with the emulator's packet sockets for site A and site B.
    pub(super) fn build(config: &WanConfig) -> Result<(Self, [OwnedFd; 2]), WanError> {
        config.validate()?;
        let make = |site: Site| {
            let name = &config.sites[site.index()].name;
            if config.visible {
                Netns::visible(name)
            } else {
                Netns::anonymous()
            }
        };
        let sites = [make(Site::A)?, make(Site::B)?];
        let hub = Netns::anonymous()?;
        let link = |namespace: &Netns| {
            namespace
                .run(Netlink::open)?
                .map_err(WanError::io("opening a netlink socket"))
        };
        let mut topology = Self {
            site_links: [link(&sites[0])?, link(&sites[1])?],
            hub_link: link(&hub)?,
            sites,
            hub,
            config: config.clone(),
        };
        for site in Site::BOTH {
            topology.add_wire(site)?;
        }
        let sockets = topology.hub.run(|| {
            let open = |site| sys::packet_socket(hub_index(site));
            io::Result::Ok([open(Site::A)?, open(Site::B)?])
        })?;
        let sockets = sockets.map_err(WanError::io("opening a packet socket"))?;
        for site in Site::BOTH {
            topology.set_interface_up(site, true)?;
        }
        Ok((topology, sockets))
    }

    pub(super) fn netns(&self, site: Site) -> &Netns {
        &self.sites[site.index()]
    }

    /// Sets the site's WAN interface down, or up again with its addresses.
    pub(super) fn set_interface_up(&mut self, site: Site, up: bool) -> Result<(), WanError> {
        let name = &self.config.sites[site.index()].name;
        let failed = |what: &str| WanError::io(format!("{what} the WAN interface of {name}"));
        let link = &mut self.site_links[site.index()];
        link.set_up(SITE_INDEX, up).map_err(failed("switching"))?;
        if !up {
            return Ok(());
        }
        // An interface that goes down loses its IPv6 addresses and all neighbours.
        for (address, prefix) in self.config.sites[site.index()].addresses() {
            link.add_address(SITE_INDEX, address, prefix)
                .map_err(failed("addressing"))?;
        }
        for (address, _) in self.config.sites[site.other().index()].addresses() {
            if address.is_ipv4() || self.config.sites[site.index()].ipv6.is_some() {
                link.add_neighbour(SITE_INDEX, address, mac(site.other()))
                    .map_err(failed("entering the neighbour on"))?;
            }
        }
        self.wait_for_ipv6(site)
    }

    /// Sets the congestion control of the site's IPv4 connections over the WAN.
    pub(super) fn set_congestion_control(
        &mut self,
        site: Site,
        name: &str,
    ) -> Result<(), WanError> {
        let config = &self.config.sites[site.index()];
        self.site_links[site.index()]
            .set_route_congestion_control(SITE_INDEX, config.ipv4, 24, name)
            .map_err(WanError::io(format!(
                "setting congestion control {name} at {}",
                config.name
            )))
    }

    /// Waits until the site accepts packets to its IPv6 address. The kernel adds the route some
    /// time after the address.
    fn wait_for_ipv6(&self, site: Site) -> Result<(), WanError> {
        let Some(address) = self.config.sites[site.index()].ipv6 else {
            return Ok(());
        };
        let address: String = address
            .octets()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let route = format!("{address} 80 ");
        let action = || WanError::io("waiting for a site's IPv6 address");
        self.sites[site.index()].run(|| {
            for _ in 0..IPV6_CHECKS {
                let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route");
                if routes
                    .map_err(action())?
                    .lines()
                    .any(|line| line.starts_with(&route))
                {
                    return Ok(());
                }
                thread::sleep(IPV6_CHECK_INTERVAL);
            }
            Err(action()(io::Error::from(io::ErrorKind::TimedOut)))
        })?
    }

    /// Adds the veth pair between the hub and one site. Sets the hub's end and the site's loopback
    /// interface up.
    fn add_wire(&mut self, site: Site) -> Result<(), WanError> {
        let SiteEnds { near, far } = ends(site, &self.config.interface);
        let namespace = &self.sites[site.index()];
        let hub_link = &mut self.hub_link;
        hub_link
            .add_veth(near, far, namespace.as_fd(), self.config.interface_mtu)
            .map_err(WanError::io("making a veth"))?;
        // A kernel without IPv6 has nothing to disable.
        let _ = hub_link.disable_link_local(near.index);
        hub_link
            .set_up(near.index, true)
            .map_err(WanError::io("setting up the emulator's end of a veth"))?;
        let link = &mut self.site_links[site.index()];
        let _ = link.disable_link_local(far.index);
        link.set_up(LOOPBACK_INDEX, true)
            .map_err(WanError::io("setting up a site's interfaces"))?;
        if !self.config.offload {
            let interface = self.config.interface.clone();
            namespace
                .run(move || {
                    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
                    sys::disable_offload(socket.as_fd(), &interface)
                })?
                .map_err(WanError::io("switching offload off"))?;
        }
        Ok(())
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // Processes inside the sites may outlive this value, but this drop removes their network.
        for site in Site::BOTH {
            let _ = self.hub_link.delete_link(hub_index(site));
        }
    }
}

struct SiteEnds<'a> {
    near: VethEnd<'a>,
    far: VethEnd<'a>,
}

fn ends(site: Site, interface: &str) -> SiteEnds<'_> {
    let (name, index) = match site {
        Site::A => ("a", hub_index(Site::A)),
        Site::B => ("b", hub_index(Site::B)),
    };
    let hub_mac = [0x02, 0x4c, 0x48, 0, 1, site.index() as u8 + 1];
    SiteEnds {
        near: VethEnd {
            name,
            index,
            mac: hub_mac,
        },
        far: VethEnd {
            name: interface,
            index: SITE_INDEX,
            mac: mac(site),
        },
    }
}

/// Returns the hardware address of a site. It is locally administered, and contains the letters
/// "LH".
fn mac(site: Site) -> [u8; 6] {
    [0x02, 0x4c, 0x48, 0, 0, site.index() as u8 + 1]
}

/// Returns the interface index of a site's veth in the hub. In a new namespace every index is free,
/// except the first few. The kernel may use the first indices for its default tunnels.
fn hub_index(site: Site) -> u32 {
    101 + site.index() as u32
}

const SITE_INDEX: u32 = 100;
const LOOPBACK_INDEX: u32 = 1;

/// Number of checks for the IPv6 route. The checks take five seconds in total. A busy machine
/// delays the kernel's worker threads for a shorter time.
const IPV6_CHECKS: u32 = 5000;
const IPV6_CHECK_INTERVAL: Duration = Duration::from_millis(1);
