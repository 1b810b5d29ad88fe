//! How a gateway becomes a peer of another one by an invite: a line of text that is good once, for a short while.
//!
//! The invite holds the far gateway's endpoint and public key, and a token. Both sides make the same key pair of the token:
//! the invited gateway knocks with it, so its handshake is encrypted and the far gateway stays silent towards everybody else.
//! On the first stream it tells its own public key. The far gateway takes that key among its peers, and the invite is used
//! up. The private key of a gateway never leaves its machine, and the far gateway keeps only the public key of the token.

pub(crate) mod far;
mod invite;
mod near;

pub use self::{
    invite::{Invite, InviteError},
    near::{EnrolError, enrol},
};
