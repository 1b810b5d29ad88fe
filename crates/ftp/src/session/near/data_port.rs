//! The forms in which a client may ask for a data connection, given the address that it came to.

use std::net::IpAddr;

use crate::{
    address::{EpsvArgument, epsv_argument},
    command::PassiveForm,
};

/// The gateway's end of the client's control connection, as far as data connections depend on it.
#[derive(Debug)]
pub(super) struct DataPort {
    is_v6: bool,
}

/// What to do about a request for a data connection.
pub(super) enum Request {
    /// Ask the far half for one.
    Passive,
    /// `EPSV ALL` asks for none; it is for the server.
    Relay,
    /// The gateway answers.
    Refuse(&'static str),
}

impl DataPort {
    pub(super) fn new(local: IpAddr) -> Self {
        Self {
            is_v6: local.to_canonical().is_ipv6(),
        }
    }

    /// `argument` is that of the command.
    pub(super) fn passive(&self, form: PassiveForm, argument: &[u8]) -> Request {
        match (form, epsv_argument(argument), self.is_v6) {
            (PassiveForm::Pasv, _, true) => {
                Request::Refuse("425 gateway: PASV cannot carry an IPv6 address, use EPSV")
            }
            (PassiveForm::Pasv, _, false) => Request::Passive,
            (PassiveForm::Epsv, EpsvArgument::All, _) => Request::Relay,
            (PassiveForm::Epsv, EpsvArgument::V4 | EpsvArgument::Unknown, true) => {
                Request::Refuse("522 gateway: network protocol not supported, use (2)")
            }
            (PassiveForm::Epsv, EpsvArgument::V6 | EpsvArgument::Unknown, false) => {
                Request::Refuse("522 gateway: network protocol not supported, use (1)")
            }
            (PassiveForm::Epsv, ..) => Request::Passive,
        }
    }
}
