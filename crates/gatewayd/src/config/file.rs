//! The configuration file as written: keys, and the shapes of their values. This module makes no
//! checks across keys.
//!
//! The keys are a contract; `docs/configuration.md` lists them. A value whose check needs another
//! value carries its position in the file.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error};
use toml::Spanned;
use units::{BitRate, ByteCount};

use net::target::{AllowEntry, Endpoint, Network, ServesPattern};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) identity: IdentitySection,
    #[serde(default)]
    pub(super) link: LinkSection,
    #[serde(default, rename = "peer")]
    pub(super) peers: Vec<PeerSection>,
    #[serde(default, rename = "ftp")]
    pub(super) ftp: Vec<FtpSection>,
    #[serde(default, rename = "forward")]
    pub(super) forwards: Vec<ForwardSection>,
    #[serde(default)]
    pub(super) far: FarSection,
    #[serde(default)]
    pub(super) limits: LimitsSection,
    pub(super) spool: Option<SpoolSection>,
    pub(super) store: Option<StoreSection>,
    #[serde(default)]
    pub(super) log: LogSection,
    pub(super) admin: Option<AdminSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdentitySection {
    pub(super) key_file: Spanned<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkSection {
    pub(super) listen: Option<SocketAddr>,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) rate_reserved: Option<Spanned<BitRate>>,
    pub(super) rate_max: Option<Spanned<BitRate>>,
    pub(super) memory_max: Option<Spanned<ByteCount>>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) idle_timeout: Option<Spanned<Duration>>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) drain_max: Option<Spanned<Duration>>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) upgrade_drain_max: Option<Spanned<Duration>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerSection {
    pub(super) name: Spanned<String>,
    pub(super) public_key: Spanned<OneOrMore>,
    pub(super) endpoint: Option<Spanned<String>>,
    pub(super) serves: Option<Vec<ServesPattern>>,
    pub(super) allow: Option<Vec<AllowEntry>>,
    pub(super) rate_max: Option<Spanned<BitRate>>,
    pub(super) compress: Option<Spanned<String>>,
    pub(super) dedup: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) tenants: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a public key, or a list of public keys")]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FtpSection {
    pub(super) listen: Spanned<SocketAddr>,
    pub(super) target: Option<Spanned<Endpoint>>,
    pub(super) clients: Option<Vec<Network>>,
    pub(super) allow: Option<Spanned<Vec<AllowEntry>>>,
    pub(super) via: Option<Spanned<String>>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) transparent: Option<Spanned<bool>>,
    pub(super) passive_ports: Option<Spanned<String>>,
    pub(super) external_address: Option<Spanned<std::net::IpAddr>>,
    pub(super) server_data: Option<Spanned<String>>,
    pub(super) tls: Option<TlsSection>,
    pub(super) server_tls: Option<ServerTlsSection>,
    pub(super) compress: Option<Spanned<String>>,
    pub(super) dedup: Option<Spanned<String>>,
    pub(super) tenant: Option<Spanned<String>>,
    pub(super) cache: Option<Spanned<bool>>,
    pub(super) optimise_tls: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) mode: Spanned<String>,
    pub(super) cert_file: Option<Spanned<PathBuf>>,
    pub(super) key_file: Option<Spanned<PathBuf>>,
    pub(super) required: Option<Spanned<bool>>,
    pub(super) min_version: Option<Spanned<String>>,
    pub(super) client_roots_file: Option<Spanned<PathBuf>>,
    pub(super) require_reuse: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTlsSection {
    pub(super) mode: Spanned<String>,
    pub(super) roots_file: Option<Spanned<PathBuf>>,
    pub(super) verify: Option<Spanned<bool>>,
    pub(super) pin: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardSection {
    pub(super) listen: Spanned<SocketAddr>,
    pub(super) target: Spanned<Endpoint>,
    pub(super) clients: Option<Vec<Network>>,
    pub(super) via: Option<Spanned<String>>,
    pub(super) compress: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarSection {
    #[serde(default)]
    pub(super) allow: Vec<AllowEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsSection {
    pub(super) sessions_max: Option<Spanned<NonZeroUsize>>,
    pub(super) sessions_per_client_max: Option<NonZeroUsize>,
    pub(super) transfers_max: Option<Spanned<NonZeroUsize>>,
    pub(super) forwards_max: Option<Spanned<NonZeroUsize>>,
    pub(super) failed_logins_per_minute_max: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) login_timeout: Option<Spanned<Duration>>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) idle_timeout: Option<Spanned<Duration>>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) stall_timeout: Option<Spanned<Duration>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpoolSection {
    pub(super) folder: Spanned<PathBuf>,
    pub(super) size_max: Option<Spanned<ByteCount>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreSection {
    pub(super) folder: Spanned<PathBuf>,
    pub(super) size_max: Option<Spanned<ByteCount>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSection {
    pub(super) level: Option<Spanned<String>>,
    pub(super) format: Option<Spanned<String>>,
    pub(super) transfer_log: Option<PathBuf>,
    pub(super) transfer_log_format: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminSection {
    pub(super) listen: Option<SocketAddr>,
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) token_file: Option<Spanned<PathBuf>>,
    pub(super) socket: Option<PathBuf>,
    pub(super) https: Option<HttpsSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpsSection {
    pub(super) listen: Spanned<SocketAddr>,
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) client_ca: Option<Spanned<PathBuf>>,
}

/// Reads a duration above zero, with its position in the file.
fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Duration>>, D::Error> {
    let spanned = Spanned::<String>::deserialize(deserializer)?;
    let (span, text) = (spanned.span(), spanned.into_inner());
    match units::parse_duration(&text) {
        Ok(Duration::ZERO) => Err(Error::custom(format!("{text:?} is not above zero"))),
        Ok(time) => Ok(Some(Spanned::new(span, time))),
        Err(error) => Err(Error::custom(error)),
    }
}
