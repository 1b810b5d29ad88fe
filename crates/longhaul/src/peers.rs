//! The user's file with names of far gateways. Each line has the form `studio =
//! "KEY@studio.example:4810"`.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use mover::embedded_gateway::FarGateway;
use toml::Spanned;

use crate::{exit, text_position::TextPosition};

/// Returns the far gateway that the option `--peer` selects. `text` is a key with an endpoint, or a
/// name from `file`.
///
/// # Errors
/// The mistake in the text or in the file.
pub(crate) fn find(text: &str, file: &Path) -> anyhow::Result<FarGateway> {
    if text.contains('@') {
        return FarGateway::parse(text).map_err(exit::wrong_use);
    }
    let named = match std::fs::read_to_string(file) {
        Ok(named) => named,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(exit::misuse(format!(
                "{text:?} is no peer: expected KEY@HOST:PORT, or a name that {} gives it by a line such as \
                 {text} = \"KEY@HOST:PORT\"; there is no such file",
                file.display()
            )));
        }
        Err(error) => {
            let file = file.display();
            return Err(exit::misuse(format!("{file}: cannot be read: {error}")));
        }
    };
    look_up(text, &named, file).map_err(exit::misuse)
}

fn look_up(name: &str, text: &str, file: &Path) -> Result<FarGateway, String> {
    let peers: BTreeMap<String, Spanned<String>> = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |it| it.start);
        let message = error.message().replace('`', "\"");
        format!("{}: {message}", TextPosition::of(text, offset, file))
    })?;
    let Some(peer) = peers.get(name) else {
        let names: Vec<_> = peers.into_keys().collect();
        let known = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let file = file.display();
        return Err(format!("{file} names no peer {name:?}; it names {known}"));
    };
    FarGateway::parse(peer.get_ref()).map_err(|error| {
        format!(
            "{}: {error}",
            TextPosition::of(text, peer.span().start, file)
        )
    })
}

/// Returns the default path of the file with names of far gateways.
pub(crate) fn default_file(home: &Path) -> PathBuf {
    home.join(".config/longhaul/peers.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Ours\nstudio = \"KEY@studio.example:4810\"\n\"oslo 2\" = 'KEY@[::1]:1'\nwrong = \"nowhere\"\n";

    fn found(name: &str, text: &str) -> Result<String, String> {
        let peer = look_up(name, text, Path::new("peers.toml"))?;
        Ok(format!("{}@{}", peer.public_key, peer.endpoint))
    }

    #[test]
    fn a_name_is_looked_up() {
        let studio = found("studio", FILE);
        assert_eq!(studio.as_deref(), Ok("KEY@studio.example:4810"));
        assert_eq!(found("oslo 2", FILE).as_deref(), Ok("KEY@[::1]:1"));
    }

    #[test]
    fn errors_have_their_position() {
        let told = |name, text| found(name, text).expect_err("no peer");
        let cases = [
            (
                told("wrong", FILE),
                "peers.toml:4:9: \"nowhere\" is no peer",
            ),
            (
                told("bern", FILE),
                "names no peer \"bern\"; it names oslo 2, studio, wrong",
            ),
            (told("bern", ""), "it names none"),
            (told("a", "a = 1\n"), "peers.toml:1:5: invalid type"),
            (told("a", "\na b\n"), "peers.toml:2:"),
        ];
        for (told, expected) in cases {
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn a_key_and_an_endpoint_need_no_file() {
        let nowhere = Path::new("/nonexistent");
        let peer = find("KEY@far.example:4810", nowhere).expect("a peer");
        assert_eq!(peer.endpoint, "far.example:4810");
        let told = find("far", nowhere).expect_err("no file").to_string();
        assert!(told.contains("there is no such file"), "{told}");
    }
}
