//! Two sites that are connected by a veth pair without an emulator. This set-up is the baseline for
//! measurements of the emulator's own cost.

use std::{ffi::OsStr, net::Ipv4Addr, os::fd::AsFd, process::Command};

use super::{
    config::Site,
    error::WanError,
    netlink::{Netlink, VethEnd},
    netns::Netns,
    sys,
};

/// Two network namespaces that are connected by a veth pair with its default segmentation offload.
/// Drop removes the veth pair.
#[derive(Debug)]
pub struct Cable {
    sites: [Netns; 2],
    links: [Netlink; 2],
}

impl Cable {
    /// IPv4 addresses of site A and site B.
    pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 1, 1), Ipv4Addr::new(10, 77, 1, 2)];

    /// Creates the two sites and connects them. `mtu` is in bytes.
    ///
    /// # Errors
    /// [`WanError::Forbidden`] names the setting that prevents this user from creating namespaces.
    pub fn plug(mtu: u32) -> Result<Self, WanError> {
        let sites = [Netns::anonymous()?, Netns::anonymous()?];
        let failed = |what: &str| WanError::io(format!("{what} a cable"));
        let open = |namespace: &Netns| {
            namespace
                .run(Netlink::open)?
                .map_err(failed("opening a netlink socket for"))
        };
        let mut cable = Self {
            links: [open(&sites[0])?, open(&sites[1])?],
            sites,
        };
        let end = |number: u8| VethEnd {
            name: "wire0",
            index: INDEX,
            mac: [0x02, 0x4c, 0x48, 0, 2, number],
        };
        let far = cable.sites[1].clone_fd()?;
        cable.links[0]
            .add_veth(end(1), end(2), far.as_fd(), mtu)
            .map_err(failed("making"))?;
        for (link, address) in cable.links.iter_mut().zip(Self::ADDRESSES) {
            let _ = link.disable_link_local(INDEX);
            link.set_up(INDEX, true).map_err(failed("setting up"))?;
            link.add_address(INDEX, address.into(), 24)
                .map_err(failed("giving an address to"))?;
        }
        Ok(cable)
    }

    /// Returns a command that runs `program` inside a site.
    ///
    /// # Errors
    /// [`WanError::Io`] if the process has no free file descriptor.
    pub fn command(&self, site: Site, program: impl AsRef<OsStr>) -> Result<Command, WanError> {
        let mut command = Command::new(program);
        sys::enter_before_exec(&mut command, self.sites[site.index()].clone_fd()?);
        Ok(command)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // Processes inside the sites may outlive this value, but this drop removes their network.
        let _ = self.links[0].delete_link(INDEX);
    }
}

/// Interface index of the veth in both sites.
const INDEX: u32 = 100;
