//! Addresses of data connections: the replies to `PASV`, `EPSV` and `LPSV`, and the arguments of
//! `PORT`, `EPRT` and `LPRT`.

mod active;
mod passive;

pub use active::{ActiveError, ActiveForm, active_address, active_line};
pub use passive::{
    EpsvArgument, PassiveForm, announced_port, epsv_argument, epsv_reply, passive_reply, pasv_reply,
};
