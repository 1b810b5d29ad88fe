//! Checks of compression and deduplication on the link.

use std::path::Path;

use toml::Spanned;

use super::{
    Config, check_folder,
    file::{FtpSection, SshSection, StoreSection},
    peer_name::may_be_name,
    problem::{Problem, problem},
};
use relay::{optimise::StoresSettings, settings::ListenerCoding};

/// Coding (compression and deduplication) that a listener permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Optimised {
    pub(super) compresses: bool,
    /// Whether the gateways deduplicate uploads.
    pub(super) deduplicates: bool,
    /// Whether the gateways deduplicate downloads.
    pub(super) caches: bool,
}

impl Optimised {
    pub(super) fn coding(self, tenant: Option<String>) -> ListenerCoding {
        ListenerCoding {
            compresses: self.compresses,
            deduplicates: self.deduplicates,
            caches: self.caches,
            tenant,
        }
    }
}

/// Whether the value is "auto". Returns `None` if the key is not set.
pub(super) fn is_auto(text: Option<&Spanned<String>>) -> Result<Option<bool>, Problem> {
    let Some(text) = text else { return Ok(None) };
    match text.get_ref().as_str() {
        "auto" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => {
            let message = format!("unknown value {other:?}, expected \"auto\" or \"off\"");
            Err(problem(text, message))
        }
    }
}

/// Returns the coding (compression and deduplication) that an FTP listener permits.
///
/// With coding, the number of bytes on the link reveals some of the content. Users of TLS want to
/// hide their content from everyone on the path. With TLS, the operator must therefore permit
/// coding explicitly.
pub(super) fn listener(
    section: &FtpSection,
    has_tls: bool,
    has_store: bool,
) -> Result<Optimised, Problem> {
    let optimises_tls = match &section.optimise_tls {
        Some(key) if !has_tls => {
            let message = "optimise_tls is for a listener with tls, and this one has none: leave it out, or add tls";
            return Err(problem(key, message));
        }
        Some(key) => *key.get_ref(),
        None => false,
    };
    let is_allowed = !has_tls || optimises_tls;
    let done = |name: &str, key: Option<&Spanned<String>>| match (key, is_auto(key)?) {
        (Some(key), Some(true)) if !is_allowed => {
            Err(problem(key, needs_word(&format!("{name} = \"auto\""))))
        }
        (_, done) => Ok(done.unwrap_or(is_allowed)),
    };
    let deduplicates = done("dedup", section.dedup.as_ref())?;
    let cache = section.cache.as_ref();
    if let Some(key) = cache.filter(|key| *key.get_ref() && !is_allowed) {
        return Err(problem(key, needs_word("cache = true")));
    }
    Ok(Optimised {
        compresses: done("compress", section.compress.as_ref())?,
        deduplicates,
        caches: caches(cache, deduplicates, has_store)?,
    })
}

/// Returns the coding (compression and deduplication) that an SSH listener permits.
///
/// Users of SSH, like users of TLS, want to hide their content. The operator must therefore permit
/// coding explicitly.
pub(super) fn ssh_listener(section: &SshSection, has_store: bool) -> Result<Optimised, Problem> {
    let deduplicates = is_auto(section.dedup.as_ref())?.unwrap_or(false);
    Ok(Optimised {
        compresses: is_auto(section.compress.as_ref())?.unwrap_or(false),
        deduplicates,
        caches: caches(section.cache.as_ref(), deduplicates, has_store)?,
    })
}

/// Returns whether a listener deduplicates downloads.
fn caches(
    key: Option<&Spanned<bool>>,
    deduplicates: bool,
    has_store: bool,
) -> Result<bool, Problem> {
    match key {
        Some(key) if *key.get_ref() && !has_store => {
            let message = "cache = true needs [store], the folder for the chunks";
            Err(problem(key, message))
        }
        Some(key) => Ok(*key.get_ref()),
        None => Ok(deduplicates),
    }
}

/// Returns the error for a key that a listener with TLS accepts only with explicit permission.
fn needs_word(key: &str) -> String {
    format!(
        "at a listener with tls, {key} needs optimise_tls = true: the number of bytes on the link reveals something of \
         the data to an observer of its packets"
    )
}

/// Checks the names of a peer's tenants, and returns them.
pub(super) fn tenants(names: &[Spanned<String>]) -> Result<Vec<String>, Problem> {
    let mut tenants: Vec<String> = Vec::new();
    for name in names {
        if !may_be_name(name.get_ref()) {
            let message = "expected a name of 1 to 64 printable characters";
            return Err(problem(name, message));
        }
        if tenants.contains(name.get_ref()) {
            return Err(problem(name, "this tenant is there twice: name it once"));
        }
        tenants.push(name.get_ref().clone());
    }
    Ok(tenants)
}

/// Returns the tenant of a listener. At least one peer that the listener can use must have this
/// tenant.
pub(super) fn tenant(
    name: Option<&Spanned<String>>,
    via: Option<usize>,
    config: &Config,
) -> Result<Option<String>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let mut peers = config.relay.peers.iter().enumerate();
    let is_known = peers
        .any(|(at, peer)| via.is_none_or(|via| via == at) && peer.tenants.contains(name.get_ref()));
    match is_known {
        true => Ok(Some(name.get_ref().clone())),
        false => {
            let message = "no [[peer]] of this listener has this name in its tenants: add it there";
            Err(problem(name, message))
        }
    }
}

/// Returns the settings of the chunk store, if the file has the section `[store]`.
pub(super) fn store(
    section: Option<&StoreSection>,
    folder: &Path,
) -> Result<Option<StoresSettings>, Problem> {
    let Some(section) = section else {
        return Ok(None);
    };
    Ok(Some(StoresSettings {
        folder: check_folder::folder(&section.folder, folder),
        size_max: check_folder::size_max(section.size_max.as_ref())?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::File;

    const BOTH: Optimised = Optimised {
        compresses: true,
        deduplicates: true,
        caches: true,
    };
    const NONE: Optimised = Optimised {
        compresses: false,
        deduplicates: false,
        caches: false,
    };

    fn read(rest: &str, has_tls: bool) -> Result<Optimised, String> {
        let text = format!(
            "[identity]\nkey_file = \"a.key\"\n[[ftp]]\nlisten = \"127.0.0.1:21\"\ntarget = \"10.0.0.1\"\n{rest}"
        );
        let file: File = toml::from_str(&text).expect("well-formed");
        listener(&file.ftp[0], has_tls, true).map_err(|problem| {
            assert!(text[problem.span.clone()].len() > 1, "it has a place");
            problem.message
        })
    }

    #[test]
    fn a_listener_optimises_unless_it_has_tls() {
        assert_eq!(read("", false), Ok(BOTH));
        assert_eq!(read("compress = \"auto\"", false), Ok(BOTH));
        let compressed = Optimised {
            deduplicates: false,
            caches: false,
            ..BOTH
        };
        let cached = Optimised {
            caches: true,
            ..compressed
        };
        assert_eq!(read("dedup = \"off\"\ncache = true", false), Ok(cached));
        let uploaded = Optimised {
            caches: false,
            ..BOTH
        };
        assert_eq!(read("cache = false", false), Ok(uploaded));
        assert_eq!(read("dedup = \"off\"", false), Ok(compressed));
        let deduplicated = Optimised {
            compresses: false,
            ..BOTH
        };
        assert_eq!(read("compress = \"off\"", false), Ok(deduplicated));
        assert_eq!(read("", true), Ok(NONE));
        assert_eq!(read("compress = \"off\"\ndedup = \"off\"", true), Ok(NONE));
    }

    #[test]
    fn with_tls_the_operator_must_say_it() {
        assert_eq!(read("optimise_tls = true", true), Ok(BOTH));
        assert_eq!(read("optimise_tls = false", true), Ok(NONE));
        assert_eq!(
            read("optimise_tls = true\ncompress = \"auto\"", true),
            Ok(BOTH)
        );
        for key in ["compress", "dedup"] {
            let error = read(&format!("{key} = \"auto\""), true).expect_err("it is not said");
            assert!(
                error.contains(&format!("{key} = \"auto\" needs optimise_tls = true")),
                "{error}"
            );
        }
        let error = read("cache = true", true).expect_err("it is not said");
        assert!(
            error.contains("cache = true needs optimise_tls = true"),
            "{error}"
        );
        let error = read("optimise_tls = true", false).expect_err("no TLS");
        assert!(error.contains("this one has none"), "{error}");
    }

    #[test]
    fn unknown_values_are_refused() {
        let error = read("compress = \"9\"", false).expect_err("no value");
        assert_eq!(error, "unknown value \"9\", expected \"auto\" or \"off\"");
    }
}
