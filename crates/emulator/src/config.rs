//! The configuration of an emulated WAN: sites, paths, medium, and the emulator's own settings.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use units::BitRate;
use wansim::{PathConfig, PathDirection, Radio};

use super::error::WanError;

/// One of the two sites that the WAN connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Site {
    /// Site A, by convention the site of the clients.
    A,
    /// Site B, by convention the site of the servers.
    B,
}

/// One direction of the WAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Direction from site A to site B.
    AToB,
    /// Direction from site B to site A.
    BToA,
}

/// The configuration of an emulated WAN.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WanConfig {
    /// Names and addresses of site A, then of site B.
    pub sites: [SiteConfig; 2],
    /// Impairments of the direction from A to B, then of the direction from B to A.
    pub paths: [PathConfig; 2],
    /// Half-duplex medium that both directions share. Packets pass it before they enter `paths`.
    /// The medium cannot change while the emulator runs.
    pub radio: Option<Radio>,
    /// Seed of the random impairments. The default is 1, so that runs are repeatable.
    pub seed: u64,
    /// Name of the WAN interface in both sites.
    pub interface: String,
    /// MTU of the WAN interfaces in bytes. The default is 1500, the MTU of Ethernet.
    pub interface_mtu: u32,
    /// Whether the sites exchange super-packets of up to 64 KB with the emulator, like a network
    /// card with segmentation offload. The emulated path still treats each packet of a super-packet
    /// separately. The default is true, since super-packets need much less processor time.
    pub offload: bool,
    /// Longest time for which a due packet waits, so that several packets leave in one frame. A
    /// network card with interrupt moderation behaves in the same way. The first packet after an
    /// idle time does not wait. The default is 0.3 ms.
    pub coalesce: Duration,
    /// Whether `ip netns` shows the namespaces under the sites' names. Only root can enable this
    /// option.
    pub visible: bool,
}

/// Name and addresses of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    /// Name of the site and of its network namespace.
    pub name: String,
    /// IPv4 address. The addresses of both sites are in one /24 network.
    pub ipv4: Ipv4Addr,
    /// IPv6 address. The addresses of both sites are in one /64 network. `None` disables IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

impl WanConfig {
    /// Returns the impairments of a direction.
    pub fn path_mut(&mut self, direction: Direction) -> &mut PathConfig {
        &mut self.paths[direction.index()]
    }

    /// Checks the settings. [`Wan::up`](super::Wan::up) performs the same check.
    ///
    /// # Errors
    /// [`WanError::Invalid`] names the setting and the reason.
    pub fn validate(&self) -> Result<(), WanError> {
        let [a, b] = &self.sites;
        let invalid = |text: String| Err(WanError::Invalid(text));
        for site in [a, b] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if site.name.is_empty() || site.name.starts_with('.') || !site.name.chars().all(plain) {
                return invalid(format!(
                    "{:?} is no name for a network namespace",
                    site.name
                ));
            }
        }
        if a.name == b.name {
            return invalid(format!("both sites are called {}", a.name));
        }
        if a.ipv4 == b.ipv4 || a.ipv4.octets()[..3] != b.ipv4.octets()[..3] {
            let (a, b) = (a.ipv4, b.ipv4);
            return invalid(format!(
                "{a} and {b} are not two addresses of one /24 network"
            ));
        }
        if let (Some(a), Some(b)) = (a.ipv6, b.ipv6)
            && (a == b || a.segments()[..4] != b.segments()[..4])
        {
            return invalid(format!(
                "{a} and {b} are not two addresses of one /64 network"
            ));
        }
        if let Some(radio) = &self.radio
            && (radio.rate == BitRate::default() || radio.hops == 0)
        {
            return invalid("a radio medium of rate zero, or without hops, passes nothing".into());
        }
        if self.interface.is_empty() || self.interface.len() > INTERFACE_NAME_MAX_BYTES {
            return invalid(format!("{:?} is no name for an interface", self.interface));
        }
        if !INTERFACE_MTU.contains(&self.interface_mtu) {
            return invalid(format!(
                "MTU {} is not within {} to {}",
                self.interface_mtu,
                INTERFACE_MTU.start(),
                INTERFACE_MTU.end()
            ));
        }
        Ok(())
    }
}

impl Default for WanConfig {
    fn default() -> Self {
        let site = |name: &str, number: u8| SiteConfig {
            name: name.to_owned(),
            ipv4: Ipv4Addr::new(10, 77, 0, number),
            ipv6: Some(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number))),
        };
        Self {
            sites: [site("site-a", 1), site("site-b", 2)],
            paths: [PathConfig::default(), PathConfig::default()],
            radio: None,
            seed: 1,
            interface: "wan0".to_owned(),
            interface_mtu: 1500,
            offload: true,
            coalesce: Duration::from_micros(300),
            visible: false,
        }
    }
}

impl SiteConfig {
    /// Returns the site's addresses with their prefix lengths.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + use<> {
        let ipv4 = (IpAddr::V4(self.ipv4), 24);
        std::iter::once(ipv4).chain(self.ipv6.map(|ipv6| (IpAddr::V6(ipv6), 64)))
    }
}

impl Site {
    /// Site A, then site B.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Returns the opposite site.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl Direction {
    /// Direction from A to B, then direction from B to A.
    pub const BOTH: [Self; 2] = [Self::AToB, Self::BToA];

    /// Returns the site that sends in this direction.
    pub fn from(self) -> Site {
        match self {
            Self::AToB => Site::A,
            Self::BToA => Site::B,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn path_direction(self) -> PathDirection {
        match self {
            Self::AToB => PathDirection::Forward,
            Self::BToA => PathDirection::Backward,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AToB => "a-to-b",
            Self::BToA => "b-to-a",
        })
    }
}

impl FromStr for Direction {
    type Err = WanError;

    fn from_str(text: &str) -> Result<Self, WanError> {
        Self::BOTH
            .into_iter()
            .find(|direction| direction.to_string() == text)
            .ok_or_else(|| WanError::Invalid(format!("{text:?} is not a-to-b or b-to-a")))
    }
}

/// Range of MTUs that the interfaces may have. It extends from the minimum of IPv6 (RFC 8200
/// section 5) to the longest IPv4 packet.
const INTERFACE_MTU: std::ops::RangeInclusive<u32> = 1280..=65_535;
/// Maximum length of an interface name: `IFNAMSIZ` without the final zero byte.
const INTERFACE_NAME_MAX_BYTES: usize = 15;
