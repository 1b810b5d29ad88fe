//! Requests of the client for a data connection. The accepted commands depend on the addresses of
//! the client's control connection.

use std::net::{IpAddr, SocketAddr};

use crate::address::{
    ActiveError, ActiveForm, EpsvArgument, PassiveForm, active_address, epsv_argument,
};

/// Properties of the client's control connection. They restrict the client's data connections.
#[derive(Debug)]
pub(super) struct DataPort {
    client: IpAddr,
    is_v6: bool,
    /// Whether the client has sent `EPSV ALL`.
    epsv_only: bool,
}

/// Method by which the client's data connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataMethod {
    /// The client connects to the gateway.
    Passive(PassiveForm),
    /// The gateway connects to the client.
    Active(SocketAddr),
}

impl DataPort {
    pub(super) fn new(local: IpAddr, client: IpAddr) -> Self {
        Self {
            client: client.to_canonical(),
            is_v6: local.to_canonical().is_ipv6(),
            epsv_only: false,
        }
    }

    /// Returns the method for a passive data connection. If the gateway refuses the request, or if
    /// the command is `EPSV ALL`, returns the gateway's own reply.
    pub(super) fn passive(
        &mut self,
        form: PassiveForm,
        argument: &[u8],
    ) -> Result<DataMethod, &'static str> {
        let epsv = match form {
            PassiveForm::Epsv => epsv_argument(argument),
            PassiveForm::Pasv | PassiveForm::Lpsv if self.epsv_only => return Err(ONLY_EPSV),
            PassiveForm::Pasv | PassiveForm::Lpsv if !argument.trim_ascii().is_empty() => {
                return Err("501 gateway: no argument is expected");
            }
            PassiveForm::Pasv if self.is_v6 => {
                return Err("425 gateway: PASV cannot carry an IPv6 address, use EPSV");
            }
            PassiveForm::Pasv | PassiveForm::Lpsv => return Ok(DataMethod::Passive(form)),
        };
        match (epsv, self.is_v6) {
            (EpsvArgument::All, _) => {
                self.epsv_only = true;
                Err("200 gateway: EPSV ALL accepted")
            }
            (EpsvArgument::V4 | EpsvArgument::Unknown, true)
            | (EpsvArgument::V6 | EpsvArgument::Unknown, false) => Err(self.other_family()),
            _ => Ok(DataMethod::Passive(form)),
        }
    }

    /// Returns the method for a data connection to an address that the client has sent. The gateway
    /// accepts only the client's own address, and only ports from 1024 (RFC 2577).
    pub(super) fn active(
        &self,
        form: ActiveForm,
        argument: &[u8],
    ) -> Result<DataMethod, &'static str> {
        if self.epsv_only {
            return Err(ONLY_EPSV);
        }
        let at = active_address(form, argument).map_err(|error| match (error, form) {
            (ActiveError::UnknownFamily, ActiveForm::Lprt) => {
                "521 gateway: network protocol not supported, use (4,6)"
            }
            (ActiveError::UnknownFamily, _) => self.other_family(),
            (ActiveError::Malformed, _) => "501 gateway: malformed address",
        })?;
        if at.is_ipv6() != self.is_v6 {
            return Err(self.other_family());
        }
        if at.ip().to_canonical() != self.client {
            return Err("501 gateway: data connections go to your own address only");
        }
        if at.port() < PORT_MIN {
            return Err("501 gateway: data connections go to ports from 1024 only");
        }
        Ok(DataMethod::Active(at))
    }

    fn other_family(&self) -> &'static str {
        if self.is_v6 {
            "522 gateway: network protocol not supported, use (2)"
        } else {
            "522 gateway: network protocol not supported, use (1)"
        }
    }
}

const ONLY_EPSV: &str = "501 gateway: only EPSV is allowed after EPSV ALL";

/// Lowest port to which the gateway connects. Lower ports belong to system services (RFC 2577
/// section 3).
const PORT_MIN: u16 = 1024;
