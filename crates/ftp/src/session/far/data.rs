//! Opening of the server's data connections: requests, announcements and refusals.

use std::net::SocketAddr;

use super::{
    DataOpener, FarOutput, FarSession,
    in_flight::ExpectedReply,
    port_request::{PortAnswer, PortRequest},
};
use crate::{
    reply::ReplyCode,
    session::{CommandId, MessageToNear, TransferId, data::far::FarDataOrder},
};

impl FarSession {
    pub(super) fn request_data(&mut self, id: CommandId, transfer: TransferId, answered: bool) {
        self.abort_prepared();
        self.log_in.end();
        match self.setup.data {
            DataOpener::Passive if self.substitute.is_first_choice() => {
                self.substitute.begin(transfer, true);
                self.listen(Some(id), transfer, answered);
            }
            DataOpener::Passive => {
                let is_v6 = self.setup.server_is_v6;
                self.send_port_request(Some(id), PortRequest::passive(transfer, answered, is_v6));
            }
            DataOpener::Active => self.listen(Some(id), transfer, answered),
        }
    }

    fn listen(&mut self, id: Option<CommandId>, transfer: TransferId, answered: bool) {
        self.unbound = Some((id, transfer, answered));
        self.out.push_back(FarOutput::Listen(transfer));
    }

    pub(super) fn on_listening(&mut self, at: Option<SocketAddr>) {
        let Some((id, transfer, answered)) = self.unbound.take() else {
            return;
        };
        match at {
            Some(at) => {
                self.connections.opened(transfer);
                self.send_port_request(id, PortRequest::active(transfer, answered, at));
            }
            None => {
                let text = "425 gateway: no port to listen on beside the server";
                self.refuse_data(id, transfer, answered, text);
            }
        }
    }

    fn send_port_request(&mut self, id: Option<CommandId>, asked: PortRequest) {
        self.send_line(asked.line());
        let verb = asked.verb();
        self.in_flight
            .push(id, verb, ExpectedReply::DataPort(asked));
    }

    /// Refuses a data connection that cannot be opened. If the client already has a positive reply
    /// to `PASV` or `PORT`, the gateway refuses the next transfer command instead.
    fn refuse_data(
        &mut self,
        id: Option<CommandId>,
        transfer: TransferId,
        answered: bool,
        text: &str,
    ) {
        match id {
            Some(id) if !answered => self.answer(id, None, text),
            _ => {
                self.prepared.set_refused(transfer, text.to_owned());
                self.send_to_near(MessageToNear::AnsweredAhead);
            }
        }
    }

    /// Handles the reply to a request for a data connection. Returns the next expected reply.
    /// Returns `None` if the server will send no further reply.
    pub(super) fn on_data_reply(
        &mut self,
        id: Option<CommandId>,
        asked: PortRequest,
        code: ReplyCode,
    ) -> Option<ExpectedReply> {
        let (transfer, answered) = (asked.transfer, asked.answered);
        let is_active = asked.is_active();
        match asked.ended(code) {
            PortAnswer::Port(port) => {
                self.connections.opened(transfer);
                self.out.push_back(FarOutput::Connect { transfer, port });
                self.agreed(id, transfer, answered);
            }
            PortAnswer::Connects => {
                self.substitute.agreed(transfer);
                self.agreed(id, transfer, answered);
            }
            PortAnswer::NoPassive { is_unknown } => {
                self.substitute.begin(transfer, is_unknown);
                self.listen(id, transfer, answered);
            }
            PortAnswer::Again(asked) => {
                self.send_line(asked.line());
                return Some(ExpectedReply::DataPort(asked));
            }
            PortAnswer::Refused(held) => {
                self.unlisten(transfer, is_active);
                self.substitute_failed(transfer);
                if answered {
                    let reply = held.quoted();
                    let text = format!("425 gateway: the server offers no data port: {reply}");
                    self.prepared.set_refused(transfer, text);
                    self.send_to_near(MessageToNear::AnsweredAhead);
                } else {
                    self.relay_held(id, code, held);
                }
            }
            PortAnswer::Unreadable => {
                self.unlisten(transfer, is_active);
                let text = "425 gateway: the server's answer to PASV cannot be read";
                self.refuse_data(id, transfer, answered, text);
            }
        }
        None
    }

    fn agreed(&mut self, id: Option<CommandId>, transfer: TransferId, answered: bool) {
        self.prepared.set(transfer);
        self.send_to_near(match id {
            Some(id) if !answered => MessageToNear::DataReady(id),
            _ => MessageToNear::AnsweredAhead,
        });
    }

    pub(super) fn substitute_succeeded(&mut self, transfer: TransferId) {
        let learned_trait = self.substitute.succeeded(transfer);
        self.out.extend(learned_trait.map(FarOutput::Learned));
    }

    pub(super) fn substitute_failed(&mut self, transfer: TransferId) {
        let learned_trait = self.substitute.failed(transfer);
        self.out.extend(learned_trait.map(FarOutput::Learned));
    }

    fn unlisten(&mut self, transfer: TransferId, is_active: bool) {
        if is_active {
            self.order(transfer, FarDataOrder::Unlisten);
        }
    }
}
