//! Enrolment: a gateway becomes a peer of another one by an invite. An invite is a line of text
//! that is valid once, and for a short time.
//!
//! The invite contains the far gateway's endpoint and public key, and a token. Both gateways derive
//! the same key pair from the token. The invited gateway connects with it. Its handshake is thus
//! encrypted, and the far gateway stays silent towards all others.
//!
//! On the first stream the invited gateway sends its own public key. The far gateway adds that key
//! to its peers, and the invite is used up. The private key of a gateway never leaves its machine.
//! The far gateway stores only the public key of the token.

pub(crate) mod far;
mod invite;
mod near;

pub use self::{
    invite::{Invite, InviteError},
    near::{EnrolError, enrol},
};
