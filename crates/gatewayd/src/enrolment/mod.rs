//! Enrolment: a gateway becomes a peer of another gateway by means of an invite. An invite is a
//! line of text. It is valid for one use and for a short time.
//!
//! The invite contains the far gateway's endpoint, the far gateway's public key and a token. Both
//! gateways derive the same key pair from the token. The invited gateway connects with this key
//! pair. Its handshake is therefore encrypted. The far gateway sends no reply to gateways that are
//! neither peers nor invited.
//!
//! On the first stream, the invited gateway sends its own public key. The far gateway adds this key
//! to its peers. The invite is then no longer valid. The private key of a gateway never leaves its
//! machine. The far gateway stores only the public key of the token.

pub(crate) mod far;
mod invite;
mod near;

pub use self::{
    invite::{Invite, InviteError},
    near::{EnrolError, enrol},
};
