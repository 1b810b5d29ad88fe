//! TLS with the client (RFC 4217): the start of TLS on the control connection, and the use of TLS
//! on data connections.

use crate::command::{Command, CommandKind};

/// TLS mode of a listener for its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientTlsMode {
    /// No TLS. The gateway refuses `AUTH`.
    #[default]
    Off,
    /// TLS starts after `AUTH TLS`, for clients that send this command.
    Explicit {
        /// Whether every client must use TLS. If so, the gateway accepts few commands before TLS,
        /// and no data connection without TLS.
        is_required: bool,
    },
    /// TLS starts with the first byte of the control connection. Data connections use TLS unless
    /// the client sends `PROT C`.
    Implicit {
        /// Whether data connections must use TLS.
        is_required: bool,
    },
}

impl ClientTlsMode {
    fn is_required(self) -> bool {
        match self {
            Self::Off => false,
            Self::Explicit { is_required } | Self::Implicit { is_required } => is_required,
        }
    }
}

#[derive(Debug)]
pub(super) struct ClientProtection {
    tls: ClientTlsMode,
    /// Whether the control connection uses TLS.
    is_on: bool,
    /// Whether the client has sent `PBSZ`.
    has_size: bool,
    /// Whether data connections use TLS.
    is_private: bool,
}

/// The gateway's reply to a command that controls TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TlsReply {
    Text(&'static str),
    /// This reply is sent, and then TLS starts.
    Begin(&'static str),
}

impl ClientProtection {
    pub(super) fn new(tls: ClientTlsMode) -> Self {
        let is_on = matches!(tls, ClientTlsMode::Implicit { .. });
        Self {
            tls,
            is_on,
            has_size: is_on,
            is_private: is_on,
        }
    }

    /// Whether clients may request TLS.
    pub(super) fn is_offered(&self) -> bool {
        self.tls != ClientTlsMode::Off
    }

    /// Whether data connections use TLS.
    pub(super) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Records the start of TLS on the control connection.
    pub(super) fn begun(&mut self) {
        self.is_on = true;
    }

    /// Returns the refusal of a command that the client may send only after the start of TLS, or
    /// only after `PROT P`. Returns `None` if the command is permitted.
    pub(super) fn refusal(&self, command: &Command<'_>) -> Option<&'static str> {
        if !self.tls.is_required() {
            return None;
        }
        match command.kind() {
            CommandKind::Protection => None,
            _ if !self.is_on && !BEFORE_TLS.contains(&command.verb()) => Some(
                "530 gateway: TLS is required here: choose explicit TLS (ftpes:// or --ssl-reqd), AUTH TLS comes first",
            ),
            CommandKind::Passive(_) | CommandKind::Active(_) | CommandKind::Transfer(_)
                if !self.is_private =>
            {
                Some("521 gateway: data connections need TLS here, PROT P comes first")
            }
            _ => None,
        }
    }

    pub(super) fn answer(&mut self, command: &Command<'_>) -> TlsReply {
        let argument = command.argument().trim_ascii().to_ascii_uppercase();
        TlsReply::Text(match (command.verb(), argument.as_slice()) {
            _ if !self.is_offered() => "502 gateway: TLS is not offered here",
            ("AUTH", _) if self.is_on => "503 gateway: TLS has begun already",
            ("AUTH", b"TLS" | b"TLS-C" | b"SSL" | b"TLS-P") => {
                return TlsReply::Begin("234 gateway: TLS may begin");
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
            ("PROT", b"C") if self.tls.is_required() => {
                "534 gateway: data connections need TLS here"
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

/// Commands that the gateway accepts before TLS starts. These commands reveal no user and no file.
/// Most clients send some of the commands before `AUTH`.
const BEFORE_TLS: [&str; 7] = ["FEAT", "QUIT", "HELP", "NOOP", "SYST", "OPTS", "HOST"];

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(protection: &mut ClientProtection, line: &str) -> String {
        match protection.answer(&Command::parse(line.as_bytes())) {
            TlsReply::Text(text) => text[..3].to_owned(),
            TlsReply::Begin(text) => format!("{} begin", &text[..3]),
        }
    }

    #[test]
    fn the_steps_of_rfc_4217_come_in_their_order() {
        let mut protection = ClientProtection::new(ClientTlsMode::Explicit { is_required: false });
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
        let mut protection = ClientProtection::new(ClientTlsMode::Off);
        for line in ["AUTH TLS", "PBSZ 0", "PROT P", "CCC"] {
            assert_eq!(ask(&mut protection, line), "502", "{line}");
        }
    }

    #[test]
    fn implicit_tls_has_begun_and_holds_for_data() {
        let mut protection = ClientProtection::new(ClientTlsMode::Implicit { is_required: false });
        assert!(protection.is_private());
        assert_eq!(ask(&mut protection, "PROT C"), "200");
        assert!(!protection.is_private());
    }

    #[test]
    fn where_tls_is_required_little_passes_before_it() {
        let is_required = true;
        let mut protection = ClientProtection::new(ClientTlsMode::Explicit { is_required });
        let refused = |protection: &ClientProtection, line: &str| {
            let text = protection.refusal(&Command::parse(line.as_bytes()));
            text.map_or("", |text| &text[..3]).to_owned()
        };
        for line in [
            "AUTH TLS",
            "PBSZ 0",
            "FEAT",
            "QUIT",
            "HELP",
            "NOOP",
            "SYST",
            "OPTS UTF8 ON",
            "HOST a",
        ] {
            assert_eq!(refused(&protection, line), "", "{line}");
        }
        for line in [
            "USER joe",
            "PASS x",
            "PWD",
            "PASV",
            "RETR a",
            "SITE HELP",
            "REIN",
            "STAT",
            "",
        ] {
            assert_eq!(refused(&protection, line), "530", "{line}");
        }
        ask(&mut protection, "AUTH TLS");
        protection.begun();
        for line in ["USER joe", "PASS x", "PWD", "STAT", "QUIT"] {
            assert_eq!(refused(&protection, line), "", "{line}");
        }
        let data = [
            "PASV", "EPSV", "PORT 1", "EPRT x", "RETR a", "STOR a", "LIST", "MLSD",
        ];
        for line in data {
            assert_eq!(refused(&protection, line), "521", "{line}");
        }
        ask(&mut protection, "PBSZ 0");
        assert_eq!(ask(&mut protection, "PROT C"), "534");
        assert_eq!(ask(&mut protection, "PROT P"), "200");
        assert_eq!(ask(&mut protection, "PROT C"), "534");
        assert!(protection.is_private());
        for line in data {
            assert_eq!(refused(&protection, line), "", "{line}");
        }
        let mut implicit = ClientProtection::new(ClientTlsMode::Implicit { is_required });
        assert_eq!(refused(&implicit, "PASV"), "");
        assert_eq!(ask(&mut implicit, "PROT C"), "534");
    }
}
