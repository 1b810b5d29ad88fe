//! Checks of what may become of bytes on the link.

use toml::Spanned;

use super::{
    file::FtpSection,
    problem::{Problem, problem},
};

/// Whether to compress; `None` if the file does not say.
pub(super) fn compress(text: Option<&Spanned<String>>) -> Result<Option<bool>, Problem> {
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

/// Whether data at an FTP front door may be compressed.
///
/// Who uses TLS wants nobody on the way to learn anything of the data, and how far bytes shrink says something of them. So
/// with TLS the operator must say it.
pub(super) fn door(section: &FtpSection, has_tls: bool) -> Result<bool, Problem> {
    let compress = compress(section.compress.as_ref())?;
    let optimises_tls = match &section.optimise_tls {
        Some(key) if !has_tls => {
            let message = "optimise_tls is for a door with tls, and this one has none";
            return Err(problem(key, message));
        }
        Some(key) => *key.get_ref(),
        None => false,
    };
    match (&section.compress, compress) {
        (Some(key), Some(true)) if has_tls && !optimises_tls => {
            let message = "at a door with tls, compress = \"auto\" needs optimise_tls = true: how far data \
                shrinks tells something of it to whoever sees the link's packets";
            Err(problem(key, message))
        }
        _ => Ok(compress.unwrap_or(!has_tls || optimises_tls)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::File;

    fn read(rest: &str, has_tls: bool) -> Result<bool, String> {
        let text = format!(
            "[identity]\nkey_file = \"a.key\"\n[[ftp]]\nlisten = \"127.0.0.1:21\"\ntarget = \"10.0.0.1\"\n{rest}"
        );
        let file: File = toml::from_str(&text).expect("well-formed");
        door(&file.ftp[0], has_tls).map_err(|problem| {
            assert!(text[problem.span.clone()].len() > 1, "it has a place");
            problem.message
        })
    }

    #[test]
    fn a_door_compresses_unless_it_has_tls() {
        assert_eq!(read("", false), Ok(true));
        assert_eq!(read("compress = \"auto\"", false), Ok(true));
        assert_eq!(read("compress = \"off\"", false), Ok(false));
        assert_eq!(read("", true), Ok(false));
        assert_eq!(read("compress = \"off\"", true), Ok(false));
    }

    #[test]
    fn with_tls_the_operator_must_say_it() {
        assert_eq!(read("optimise_tls = true", true), Ok(true));
        assert_eq!(read("optimise_tls = false", true), Ok(false));
        assert_eq!(
            read("optimise_tls = true\ncompress = \"auto\"", true),
            Ok(true)
        );
        assert_eq!(
            read("optimise_tls = true\ncompress = \"off\"", true),
            Ok(false)
        );
        let error = read("compress = \"auto\"", true).expect_err("it is not said");
        assert!(error.contains("needs optimise_tls = true"), "{error}");
        let error = read("optimise_tls = true", false).expect_err("no TLS");
        assert!(error.contains("this one has none"), "{error}");
    }

    #[test]
    fn unknown_values_are_refused() {
        let error = read("compress = \"9\"", false).expect_err("no value");
        assert_eq!(error, "unknown value \"9\", expected \"auto\" or \"off\"");
    }
}
