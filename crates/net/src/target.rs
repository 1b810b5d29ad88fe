//! Servers to which a gateway may connect, and the peers in front of these servers.
//!
//! The module contains the syntax of hosts, the `serves` patterns of peers, and the `allow` list of
//! the far gateway. It resolves no names and opens no sockets. The far gateway resolves a name
//! once, checks each address with [`AllowList::check`], and connects to an allowed address.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
};

use serde::{Deserialize, Deserializer};

/// Returns the address or network that counts as one client. An IPv6 client counts as its whole
/// network, since it can use any address of that network.
pub fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        v4 => v4,
    }
}

/// A host: an IP address in its standard form, or a DNS name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address. An IPv4-mapped IPv6 address is allowed only by an entry that lists it
    /// explicitly.
    Ip(IpAddr),
    /// A DNS name. Resolvers do not interpret it as a numeric address.
    Name(String),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The TCP port, which is never zero.
    pub port: u16,
}

/// A network in CIDR notation. The host bits of its base address are zero. A single address has the
/// full prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    base: IpAddr,
    prefix_bits: u8,
}

/// Error for a text with invalid syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct TargetSyntaxError {
    text: String,
    expected: &'static str,
}

/// One entry of a peer's `serves` patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServesPattern {
    /// Matches exactly this name.
    Name(String),
    /// Matches every name that ends in this suffix. The suffix starts with a dot.
    Wildcard(String),
    /// Matches every address in this network.
    Network(Network),
}

/// How specifically a pattern matches a host. Later variants take precedence over earlier variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchRank {
    /// The peer has no patterns, and serves every host.
    Everything,
    /// The pattern is a network that contains the address, and that has this prefix length.
    Prefix(u8),
    /// The pattern is a wildcard with a suffix of this length.
    Wildcard(usize),
    /// The pattern is exactly this name or address.
    Exact,
}

/// One entry of the `allow` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    host: AllowHost,
    ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowHost {
    Name(String),
    Network(Network),
}

/// The servers to which a gateway connects for its peers. An empty list allows no server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(pub Vec<AllowEntry>);

/// Reason why a gateway refuses to connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialRefusal {
    /// No entry of the list covers the address.
    #[error("not allowed")]
    NotListed,
    /// The address is loopback, link-local, multicast, unspecified or IPv4-mapped, and no entry
    /// lists it explicitly.
    #[error("not allowed: {0} addresses must be listed explicitly")]
    Special(&'static str),
    /// A listed name resolves to an address of an internal network, and no listed network contains
    /// this address. The refusal prevents the name's owner from choosing servers in the internal
    /// network.
    #[error(
        "not allowed: the name leads to {address}, a {kind} address; a name does not open such addresses, \
         add \"{}\" to allow", HostPort { host: Host::Ip(*address), port: *port }
    )]
    Internal {
        /// Kind of the internal network.
        kind: &'static str,
        /// Address to which the name resolves.
        address: IpAddr,
        /// The port of the target.
        port: u16,
    },
    /// The gateway itself listens at the address, and no entry lists the exact address.
    #[error("not allowed: that is the gateway itself")]
    Own,
}

impl Host {
    /// Parses a host.
    ///
    /// Zone identifiers and trailing dots are errors. Names such as `0x7f.1`, `2130706433`, `127.1`
    /// and octal digits are also errors, since resolvers interpret them as numeric addresses.
    ///
    /// # Errors
    /// [`TargetSyntaxError`] for every text that is neither an address nor a name.
    pub fn parse(text: &str) -> Result<Self, TargetSyntaxError> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        if is_name(text) {
            return Ok(Self::Name(text.to_ascii_lowercase()));
        }
        Err(TargetSyntaxError {
            text: text.to_owned(),
            expected: "an IP address in its standard form or a DNS name",
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for HostPort {
    type Err = TargetSyntaxError;

    /// Parses `host`, `host:port` and `[v6]:port`. Without a port, the port is 21.
    fn from_str(text: &str) -> Result<Self, TargetSyntaxError> {
        let expected = "a host with an optional port, such as \"10.20.0.5:21\"";
        Self::parse(text, PORT_DEFAULT, expected)
    }
}

impl HostPort {
    /// Parses the address of an SSH server, in the forms of [`FromStr`]. Without a port, the port
    /// is 22.
    ///
    /// # Errors
    /// [`TargetSyntaxError`] for a text that is no host, or whose port is invalid.
    pub fn parse_ssh(text: &str) -> Result<Self, TargetSyntaxError> {
        let expected = "a host with an optional port, such as \"10.20.0.5:22\"";
        Self::parse(text, SSH_PORT, expected)
    }

    fn parse(
        text: &str,
        port_default: u16,
        expected: &'static str,
    ) -> Result<Self, TargetSyntaxError> {
        let error = || TargetSyntaxError {
            text: text.to_owned(),
            expected,
        };
        let (host, port) = units::split_port(text).ok_or_else(error)?;
        if text.contains(' ') {
            return Err(error());
        }
        Ok(Self {
            host: Host::parse(host).map_err(|_| error())?,
            port: port.unwrap_or(port_default),
        })
    }

    /// Parses a host with a port. Returns `None` if the port is missing, or the text is invalid.
    pub fn with_port(text: &str) -> Option<Self> {
        let (_, port) = text.rsplit_once(':')?;
        port.parse::<u16>().ok()?;
        text.parse().ok()
    }
}

impl Network {
    /// Creates the network that contains only one address.
    fn single(ip: IpAddr) -> Self {
        Self {
            base: ip,
            prefix_bits: if ip.is_ipv4() { 32 } else { 128 },
        }
    }

    /// Returns the only address of the network, or `None` if it has several.
    fn only(&self) -> Option<IpAddr> {
        (*self == Self::single(self.base)).then_some(self.base)
    }

    /// Returns whether the network contains `ip`.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.base, ip) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix_bits);
                u32::from(base).checked_shr(shift) == u32::from(ip).checked_shr(shift)
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix_bits);
                u128::from(base).checked_shr(shift) == u128::from(ip).checked_shr(shift)
            }
            _ => false,
        }
    }

    /// Returns whether this is an IPv4 network.
    pub fn is_ipv4(&self) -> bool {
        self.base.is_ipv4()
    }

    /// Returns the prefix length in bits. The longest prefix is the most specific match.
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Returns whether this network contains all addresses of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix_bits <= other.prefix_bits && self.contains(other.base)
    }

    fn is_single(&self) -> bool {
        self.prefix_bits == if self.base.is_ipv4() { 32 } else { 128 }
    }

    fn has_host_bits(&self) -> bool {
        match self.base {
            IpAddr::V4(ip) => u32::from(ip)
                .checked_shl(u32::from(self.prefix_bits))
                .is_some_and(|rest| rest != 0),
            IpAddr::V6(ip) => u128::from(ip)
                .checked_shl(u32::from(self.prefix_bits))
                .is_some_and(|rest| rest != 0),
        }
    }
}

impl FromStr for Network {
    type Err = TargetSyntaxError;

    fn from_str(text: &str) -> Result<Self, TargetSyntaxError> {
        let error = || TargetSyntaxError {
            text: text.to_owned(),
            expected: "an address or network such as \"10.20.0.0/16\" (no bits set behind the prefix)",
        };
        let Some((base, prefix)) = text.split_once('/') else {
            return text.parse().map(Self::single).map_err(|_| error());
        };
        let base: IpAddr = base.parse().map_err(|_| error())?;
        let prefix_bits: u8 = prefix.parse().map_err(|_| error())?;
        let network = Self { base, prefix_bits };
        if prefix_bits > Self::single(base).prefix_bits || network.has_host_bits() {
            return Err(error());
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_bits)
    }
}

impl fmt::Display for ServesPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Wildcard(suffix) => write!(f, "*{suffix}"),
            Self::Network(network) if network.is_single() => write!(f, "{}", network.base),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl FromStr for ServesPattern {
    type Err = TargetSyntaxError;

    fn from_str(text: &str) -> Result<Self, TargetSyntaxError> {
        if let Some(suffix) = text.strip_prefix('*').filter(|s| s.starts_with('.')) {
            if is_name(&suffix[1..]) {
                return Ok(Self::Wildcard(suffix.to_ascii_lowercase()));
            }
        } else if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        } else if is_name(text) {
            return Ok(Self::Name(text.to_ascii_lowercase()));
        }
        Err(TargetSyntaxError {
            text: text.to_owned(),
            expected: "a name, a wildcard such as \"*.example.com\", an address or a network",
        })
    }
}

impl ServesPattern {
    /// Returns how specifically the pattern matches `host`. Returns `None` if it does not match.
    /// Resolves no names.
    fn rank(&self, host: &Host) -> Option<MatchRank> {
        match (self, host) {
            (Self::Name(name), Host::Name(host)) => (name == host).then_some(MatchRank::Exact),
            (Self::Wildcard(suffix), Host::Name(host)) => host
                .ends_with(suffix.as_str())
                .then_some(MatchRank::Wildcard(suffix.len())),
            (Self::Network(network), Host::Ip(ip)) => {
                network.contains(*ip).then_some(if network.is_single() {
                    MatchRank::Exact
                } else {
                    MatchRank::Prefix(network.prefix_bits)
                })
            }
            _ => None,
        }
    }
}

/// Returns the indices of the peers whose patterns match `host` most specifically, in the order of
/// `peers`.
///
/// A peer without patterns serves every host, with the lowest rank.
pub fn choose<'a>(
    host: &Host,
    peers: impl IntoIterator<Item = Option<&'a [ServesPattern]>>,
) -> Vec<usize> {
    let mut ranks: Vec<(MatchRank, usize)> = peers
        .into_iter()
        .enumerate()
        .filter_map(|(index, serves)| {
            let rank = match serves {
                None => Some(MatchRank::Everything),
                Some(patterns) => patterns.iter().filter_map(|p| p.rank(host)).max(),
            };
            rank.map(|rank| (rank, index))
        })
        .collect();
    let Some(best) = ranks.iter().map(|(rank, _)| *rank).max() else {
        return Vec::new();
    };
    ranks.retain(|(rank, _)| *rank == best);
    ranks.into_iter().map(|(_, index)| index).collect()
}

impl AllowEntry {
    /// Returns the server that the entry names. Returns `None` if the entry covers several servers.
    pub fn server(&self) -> Option<HostPort> {
        let host = match &self.host {
            AllowHost::Name(name) => Host::Name(name.clone()),
            AllowHost::Network(network) => Host::Ip(network.only()?),
        };
        let (first, last) = (*self.ports.start(), *self.ports.end());
        (first == last).then_some(HostPort { host, port: first })
    }
}

impl FromStr for AllowEntry {
    type Err = TargetSyntaxError;

    /// Parses `name:port`, `address:port`, `network:port`, `[v6]:port` and `[v6/64]:port`.
    ///
    /// Without a port, the port is 21. A range of ports such as `50000-50099` is also accepted.
    fn from_str(text: &str) -> Result<Self, TargetSyntaxError> {
        let error = || TargetSyntaxError {
            text: text.to_owned(),
            expected: "a server such as \"10.20.0.0/16:21\", \"ftp.example.com:21\", \
                       \"[2001:db8::/32]:21\" or \"10.20.0.5:50000-50099\"",
        };
        if text.contains(' ') {
            return Err(error());
        }
        let (first, last) = match text.rsplit_once('-') {
            Some((first, last)) if ends_in_a_port(first) && !last.contains(']') => {
                (first, Some(last.parse().map_err(|_| error())?))
            }
            _ => (text, None),
        };
        let (host, port) = units::split_port(first).ok_or_else(error)?;
        let port = port.unwrap_or(PORT_DEFAULT);
        let ports = port..=last.unwrap_or(port);
        if ports.is_empty() {
            return Err(error());
        }
        let host = match host.parse() {
            Ok(network) => AllowHost::Network(network),
            Err(_) if is_name(host) => AllowHost::Name(host.to_ascii_lowercase()),
            Err(_) => return Err(error()),
        };
        Ok(Self { host, ports })
    }
}

/// Returns whether `text` ends in a port. `text` is the part of an entry before a hyphen. A port
/// before a hyphen begins a range. The text `fd00::1` has no port.
fn ends_in_a_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => text.matches(':').count() == 1,
    }
}

impl AllowList {
    /// Returns whether an entry may permit `target` after its name is resolved. Always returns true
    /// if the host is an address.
    pub fn may_resolve(&self, target: &HostPort) -> bool {
        match &target.host {
            Host::Ip(_) => true,
            Host::Name(_) => self.0.iter().any(|entry| {
                entry.ports.contains(&target.port)
                    && (self.names(target) || matches!(entry.host, AllowHost::Network(_)))
            }),
        }
    }

    /// Returns whether an entry lists `target` itself. If the host of `target` is a name, an entry
    /// must have the same name. Resolves no names.
    pub fn lists(&self, target: &HostPort) -> bool {
        match target.host {
            Host::Ip(ip) => self.check(target, ip, false).is_ok(),
            Host::Name(_) => self.names(target),
        }
    }

    /// Checks whether the gateway may connect to `address` for `target`. `address` is the address
    /// in `target`, or an address to which its name resolves. `own` is true if the gateway itself
    /// listens at `address`.
    ///
    /// # Errors
    /// [`DialRefusal`] with the reason.
    pub fn check(&self, target: &HostPort, address: IpAddr, own: bool) -> Result<(), DialRefusal> {
        let networks = || {
            self.0
                .iter()
                .filter(|entry| entry.ports.contains(&target.port))
                .filter_map(|entry| match entry.host {
                    AllowHost::Network(network) => Some(network).filter(|n| n.contains(address)),
                    AllowHost::Name(_) => None,
                })
        };
        if !self.names(target) && networks().next().is_none() {
            return Err(DialRefusal::NotListed);
        }
        if own && !networks().any(|n| n.is_single()) {
            return Err(DialRefusal::Own);
        }
        if let Some((kind, range)) = special(address)
            && !networks().any(|n| range.contains(n.base) && n.prefix_bits >= range.prefix_bits)
        {
            return Err(DialRefusal::Special(kind));
        }
        match internal(address) {
            Some(kind) if networks().next().is_none() => Err(DialRefusal::Internal {
                kind,
                address,
                port: target.port,
            }),
            _ => Ok(()),
        }
    }

    fn names(&self, target: &HostPort) -> bool {
        let Host::Name(name) = &target.host else {
            return false;
        };
        self.0.iter().any(|entry| {
            entry.ports.contains(&target.port)
                && matches!(&entry.host, AllowHost::Name(n) if n == name)
        })
    }
}

/// Returns the special range that contains `ip`, and its kind. Returns `None` if no special range
/// contains `ip`.
///
/// An entry permits such an address only if the entry is a network within the special range. For
/// example, `0.0.0.0/0` does not permit loopback addresses.
fn special(ip: IpAddr) -> Option<(&'static str, Network)> {
    SPECIAL.iter().find_map(|(kind, range)| {
        let range: Network = range.parse().expect("the table holds networks");
        range.contains(ip).then_some((*kind, range))
    })
}

/// Returns the kind of the internal network that contains `ip`. Returns `None` for a public
/// address.
///
/// The function also detects addresses that reach an internal network through a translator (NAT64,
/// 6to4, Teredo).
fn internal(ip: IpAddr) -> Option<&'static str> {
    let of = |ip: IpAddr| {
        INTERNAL.iter().find_map(|(kind, range)| {
            let range: Network = range.parse().expect("the table holds networks");
            range.contains(ip).then_some(*kind)
        })
    };
    match ip {
        IpAddr::V6(v6) if v6.segments()[0] == SIX_TO_FOUR => {
            // In a 6to4 address, the IPv4 address of the router follows the first 16 bits (RFC 3056
            // section 2).
            let embedded = ((u128::from(v6) >> 80) as u32).to_be_bytes().into();
            (special(embedded).is_some() || of(embedded).is_some()).then_some("6to4")
        }
        _ => of(ip),
    }
}

/// Returns whether a text is a DNS name.
///
/// Each label of the name has 1 to 63 letters, digits, hyphens and underscores. The last label must
/// not look like a number, since resolvers would interpret the name as an address.
fn is_name(text: &str) -> bool {
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let last = text
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    text.len() <= NAME_MAX && text.split('.').all(label_ok) && !numeric
}

macro_rules! deserialize_from_str {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
deserialize_from_str!(HostPort, Network, ServesPattern, AllowEntry);

/// Special networks. An entry permits addresses of such a network only if the entry lies within
/// that network.
const SPECIAL: [(&str, &str); 10] = [
    ("unspecified", "0.0.0.0/8"),
    ("loopback", "127.0.0.0/8"),
    ("link-local", "169.254.0.0/16"),
    ("multicast", "224.0.0.0/4"),
    ("broadcast", "255.255.255.255/32"),
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("link-local", "fe80::/10"),
    ("multicast", "ff00::/8"),
    ("IPv4-mapped", "::ffff:0:0/96"),
];

/// Internal networks. A name in `allow` does not permit their addresses.
const INTERNAL: [(&str, &str); 11] = [
    ("private", "10.0.0.0/8"),
    ("private", "172.16.0.0/12"),
    ("private", "192.168.0.0/16"),
    ("shared (CGNAT)", "100.64.0.0/10"),
    ("benchmarking", "198.18.0.0/15"),
    ("unique-local", "fc00::/7"),
    ("site-local", "fec0::/10"),
    ("NAT64", "64:ff9b::/96"),
    ("NAT64", "64:ff9b:1::/48"),
    ("Teredo", "2001::/32"),
    ("IPv4-compatible", "::/96"),
];

/// First 16 bits of 6to4 addresses (RFC 3056).
const SIX_TO_FOUR: u16 = 0x2002;

/// Maximum length of a DNS name in text form (RFC 1035 section 2.3.4, without the root's dot and
/// the length bytes).
const NAME_MAX: usize = 253;

/// Port of a target that states no port: the port of FTP.
const PORT_DEFAULT: u16 = 21;

/// Port of SSH servers (RFC 4253).
pub const SSH_PORT: u16 = 22;

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
