//! TLS beside the client (RFC 4217): when it begins, and whether data connections have it.

use crate::command::Command;

/// TLS with the clients of a front door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientTls {
    /// None; `AUTH` is refused.
    #[default]
    Off,
    /// From `AUTH TLS` on, for clients that ask for it.
    Explicit,
    /// From the first byte on, data connections too.
    Implicit,
}

#[derive(Debug)]
pub(super) struct Protection {
    tls: ClientTls,
    /// The control connection has TLS.
    is_on: bool,
    /// `PBSZ` came.
    has_size: bool,
    /// Data connections have TLS.
    is_private: bool,
}

/// The answer to a command about TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Text(&'static str),
    /// TLS begins behind this reply.
    Begin(&'static str),
}

impl Protection {
    pub(super) fn new(tls: ClientTls) -> Self {
        let is_on = tls == ClientTls::Implicit;
        Self {
            tls,
            is_on,
            has_size: is_on,
            is_private: is_on,
        }
    }

    /// Whether clients may ask for TLS.
    pub(super) fn is_offered(&self) -> bool {
        self.tls != ClientTls::Off
    }

    /// Whether data connections have TLS.
    pub(super) fn is_private(&self) -> bool {
        self.is_private
    }

    /// TLS has begun on the control connection.
    pub(super) fn begun(&mut self) {
        self.is_on = true;
    }

    pub(super) fn answer(&mut self, command: &Command<'_>) -> Answer {
        let argument = command.argument().trim_ascii().to_ascii_uppercase();
        Answer::Text(match (command.verb(), argument.as_slice()) {
            _ if !self.is_offered() => "502 gateway: TLS is not offered here",
            ("AUTH", _) if self.is_on => "503 gateway: TLS has begun already",
            ("AUTH", b"TLS" | b"TLS-C" | b"SSL" | b"TLS-P") => {
                return Answer::Begin("234 gateway: TLS may begin");
            }
            ("AUTH", _) => "504 gateway: expected AUTH TLS",
            ("PBSZ" | "PROT", _) if !self.is_on => "503 gateway: AUTH TLS comes first",
            ("PBSZ", _) => {
                self.has_size = true;
                "200 PBSZ=0"
            }
            ("PROT", _) if !self.has_size => "503 gateway: PBSZ comes first",
            ("PROT", b"P") => {
                self.is_private = true;
                "200 gateway: data connections have TLS"
            }
            ("PROT", b"C") => {
                self.is_private = false;
                "200 gateway: data connections are clear"
            }
            ("PROT", b"S" | b"E") => "536 gateway: expected PROT P or PROT C",
            ("PROT", _) => "504 gateway: expected PROT P or PROT C",
            ("CCC", _) => "534 gateway: the control connection keeps its TLS",
            _ => "502 gateway: of RFC 2228 only AUTH TLS, PBSZ and PROT are offered",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(protection: &mut Protection, line: &str) -> String {
        match protection.answer(&Command::parse(line.as_bytes())) {
            Answer::Text(text) => text[..3].to_owned(),
            Answer::Begin(text) => format!("{} begin", &text[..3]),
        }
    }

    #[test]
    fn the_steps_of_rfc_4217_come_in_their_order() {
        let mut protection = Protection::new(ClientTls::Explicit);
        for (line, code) in [
            ("PROT P", "503"),
            ("PBSZ 0", "503"),
            ("AUTH GSSAPI", "504"),
            ("AUTH tls", "234 begin"),
        ] {
            assert_eq!(ask(&mut protection, line), code, "{line}");
        }
        protection.begun();
        for (line, code, is_private) in [
            ("AUTH TLS", "503", false),
            ("PROT P", "503", false),
            ("PBSZ 0", "200", false),
            ("PROT p", "200", true),
            ("PROT S", "536", true),
            ("PROT C", "200", false),
            ("CCC", "534", false),
        ] {
            assert_eq!(ask(&mut protection, line), code, "{line}");
            assert_eq!(protection.is_private(), is_private, "{line}");
        }
    }

    #[test]
    fn where_tls_is_not_offered_nothing_of_it_is() {
        let mut protection = Protection::new(ClientTls::Off);
        for line in ["AUTH TLS", "PBSZ 0", "PROT P", "CCC"] {
            assert_eq!(ask(&mut protection, line), "502", "{line}");
        }
    }

    #[test]
    fn implicit_tls_has_begun_and_holds_for_data() {
        let mut protection = Protection::new(ClientTls::Implicit);
        assert!(protection.is_private());
        assert_eq!(ask(&mut protection, "PROT C"), "200");
        assert!(!protection.is_private());
    }
}
