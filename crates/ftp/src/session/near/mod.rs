//! The half of a session beside the client.
//!
//! In: the client's lines, tagged reply lines from the far half, what became of data connections.
//! Out: bytes for the client, requests for the far half, orders for data connections. The caller
//! owns sockets and link streams; it drains [`NearSession::poll`] before the next
//! [`NearSession::handle`], and feeds no client line while [`NearSession::wants_client`] is false and
//! no reply while [`NearSession::wants_far`] is.
//!
//! Barriers: data reaches the client after the `1yz` reply of its transfer; the final `2yz` reply
//! reaches the client after its data and the end of the data have been delivered, and never when
//! they have not.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use super::{CommandId, PIPELINED_MAX, Stage, Tag, TransferId, refusal};
use crate::{
    address::{EpsvArgument, epsv_argument, passive_reply},
    command::{Command, Direction, Kind, PassiveForm},
    logon::{Logon, LogonError},
    reply::{Class, Code},
};

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client sent a line.
    ClientLine(&'a [u8]),
    /// The client sent a line above the bound.
    ClientLineTooLong,
    /// The client closed its control connection, or it broke.
    ClientClosed,
    /// The far half relays a line of the server.
    FarReply {
        /// What the line answers.
        tag: Tag,
        /// Without terminator.
        line: &'a [u8],
    },
    /// The server awaits a data connection.
    PassiveReady {
        /// Number of the command that asked for it.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
    },
    /// The client can be told to connect here.
    Listening {
        /// Number of the data connection.
        transfer: TransferId,
        /// Address and port to announce.
        at: SocketAddr,
    },
    /// No listener could be opened.
    NotListening(TransferId),
    /// The server's control connection could not be set up: the reply that says why.
    Refused {
        /// Code of the reply.
        code: u16,
        /// Text of the reply.
        text: &'a str,
    },
    /// The server's control connection has ended.
    ServerClosed,
    /// The link lost the session.
    LinkLost(&'a str),
    /// Something happened on a data connection.
    Data(TransferId, DataEvent<'a>),
}

/// What happens on the client's data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataEvent<'a> {
    /// The client has sent everything, and its end has been passed on.
    ClientEnded,
    /// Everything from the server, and its end, has reached the client.
    Delivered,
    /// The data connection failed; why.
    Failed(&'a str),
    /// The client did not connect in time.
    Expired,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Write this reply line to the client, in one write.
    ToClient(Vec<u8>),
    /// Leave the present server, connect to the one named, and log on there with this command.
    Connect {
        /// Number of the command.
        id: CommandId,
        /// Account and server.
        logon: Logon,
    },
    /// Send a command to the far half.
    Command {
        /// Its number.
        id: CommandId,
        /// The line without terminator and Telnet prefix.
        line: Vec<u8>,
        /// A Telnet Synch came with it.
        synch: bool,
    },
    /// Ask the far half for a passive data connection, and open a link stream for it.
    Passive {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// How the client asked.
        form: PassiveForm,
    },
    /// Listen for the client's data connection on the address that its control connection uses.
    Listen(TransferId),
    /// An order for a data connection.
    Order(TransferId, Order),
    /// The client is gone: end the far half in an orderly way, once the data that may still be
    /// delivered has been.
    LeaveServer,
    /// Close the client's control connection. Nothing follows.
    Close,
}

/// What a data connection has to know of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A transfer in this direction has been commanded.
    Start(Option<Direction>),
    /// The `1yz` reply has been written: data may flow to the client.
    Release,
    /// The final reply has come.
    Finish {
        /// It was a `4yz` or `5yz`.
        failed: bool,
    },
    /// The client has closed its control connection during an upload: go on while data or
    /// its end comes, else reset.
    ClientGone,
    /// Reset the client's data connection and the stream now.
    Kill,
}

/// Where the server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontDoor {
    /// One server for all clients.
    Fixed,
    /// The client names it: `USER name@server`.
    Logon,
}

#[derive(Debug)]
enum Pending {
    /// Waits for the far half.
    Remote(CommandId, Option<(TransferId, PassiveForm)>),
    /// The gateway's own reply, waiting for its turn.
    Local(Vec<u8>),
}

#[derive(Debug, Default)]
struct Transfer {
    /// A transfer command has used it.
    used: bool,
    upload: bool,
    client_ended: bool,
    ended: Option<Result<(), String>>,
    /// The server's final reply was relayed.
    answered: bool,
}

/// One session beside the client.
#[derive(Debug)]
pub struct NearSession {
    front: FrontDoor,
    client_is_v6: bool,
    connected: bool,
    commands: u32,
    transfers_begun: u32,
    pending: VecDeque<Pending>,
    transfers: BTreeMap<TransferId, Transfer>,
    /// Replies behind a transfer's final reply that waits for its data.
    held: VecDeque<(Tag, Vec<u8>)>,
    held_bytes: usize,
    last_code: u16,
    server_gone: bool,
    closed: bool,
    out: VecDeque<Output>,
}

impl NearSession {
    /// A session with a client that just connected; `local` is the address that it connected to.
    /// With a fixed server its far half exists already.
    pub fn new(front: FrontDoor, local: IpAddr) -> Self {
        let mut session = Self {
            front,
            client_is_v6: local.to_canonical().is_ipv6(),
            connected: front == FrontDoor::Fixed,
            commands: 0,
            transfers_begun: 0,
            pending: VecDeque::new(),
            transfers: BTreeMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            last_code: 0,
            server_gone: false,
            closed: false,
            out: VecDeque::new(),
        };
        if front == FrontDoor::Logon {
            session.write(b"220 Longhaul gateway: log in as USER name@server[:port]");
        }
        session
    }

    /// Whether the next line of the client may come.
    pub fn wants_client(&self) -> bool {
        self.pending.len() < PIPELINED_MAX && !self.server_gone && !self.closed
    }

    /// Whether the next reply of the far half may come. It waits while too many are held behind the
    /// final reply of a transfer whose data the client does not read.
    pub fn wants_far(&self) -> bool {
        self.held_bytes < HELD_MAX_BYTES
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, input: Input<'_>) {
        if self.closed {
            if let Input::Data(transfer, _) = input {
                self.transfers.remove(&transfer);
            }
            return;
        }
        match input {
            Input::ClientLine(line) => self.client_line(line),
            Input::ClientLineTooLong => self.answer("500 Command line too long"),
            Input::ClientClosed => self.client_closed(),
            Input::FarReply { tag, line } => self.far_reply(tag, line),
            Input::PassiveReady { id, transfer } => {
                if self.awaits(id) {
                    self.out.push_back(Output::Listen(transfer));
                }
            }
            Input::Listening { transfer, at } => self.listening(transfer, Some(at)),
            Input::NotListening(transfer) => self.listening(transfer, None),
            Input::Refused { code, text } => self.refused(code, text),
            Input::ServerClosed => self.server_closed(),
            Input::LinkLost(why) => self.link_lost(why),
            Input::Data(transfer, event) => self.data_event(transfer, event),
        }
        self.settle();
    }

    /// The next thing to do; `None` until the next input.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn client_line(&mut self, line: &[u8]) {
        let command = Command::parse(line);
        if self.front == FrontDoor::Logon {
            match (command.kind(), Logon::parse(command.argument())) {
                (Kind::User, Ok(logon)) => return self.log_on(logon),
                (Kind::User, Err(LogonError::Malformed)) => {
                    return self.answer("501 gateway: expected USER name@server[:port]");
                }
                _ if !self.connected => return self.before_logon(&command),
                _ => {}
            }
        }
        match command.kind() {
            Kind::Passive(form) => match self.passive_refusal(form, command.argument()) {
                Some(text) => self.answer(text),
                None if epsv_argument(command.argument()) == EpsvArgument::All
                    && form == PassiveForm::Epsv =>
                {
                    self.relay(&command);
                }
                None => self.ask_passive(form),
            },
            Kind::Transfer(direction) => {
                self.start_transfer(Some(direction));
                self.relay(&command);
            }
            Kind::Abort => {
                self.abort_prepared();
                self.relay(&command);
            }
            _ => self.relay(&command),
        }
    }

    fn log_on(&mut self, logon: Logon) {
        self.kill_transfers();
        self.release_held();
        // The server that would have answered is left.
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Local(line) => self.write(&line),
                Pending::Remote(..) => self.write(b"503 gateway: given up for a new USER"),
            }
        }
        self.connected = true;
        let id = self.next_command();
        self.pending.push_back(Pending::Remote(id, None));
        self.out.push_back(Output::Connect { id, logon });
    }

    /// Proxy logons with an account on the gateway come as `USER`, `PASS`, `USER name@server`;
    /// there are no accounts here, and any is as good as another.
    fn before_logon(&mut self, command: &Command<'_>) {
        let text = match command.kind() {
            Kind::User => "331 gateway: any password, then USER name@server[:port]",
            Kind::Pass => "230 gateway: go on with USER name@server[:port]",
            Kind::Quit => "221 Goodbye",
            Kind::Protection => refusal(command, false).unwrap_or("502 gateway: not offered"),
            _ => match command.verb() {
                "NOOP" => "200 NOOP ok",
                _ => "530 gateway: log in as USER name@server[:port] first",
            },
        };
        self.answer(text);
        if command.kind() == Kind::Quit {
            self.server_gone = true;
            self.last_code = 221;
        }
    }

    fn passive_refusal(&self, form: PassiveForm, argument: &[u8]) -> Option<&'static str> {
        match (form, epsv_argument(argument), self.client_is_v6) {
            (PassiveForm::Pasv, _, true) => {
                Some("425 gateway: PASV cannot carry an IPv6 address, use EPSV")
            }
            (PassiveForm::Epsv, EpsvArgument::V4, true) => {
                Some("522 gateway: network protocol not supported, use (2)")
            }
            (PassiveForm::Epsv, EpsvArgument::V6, false) => {
                Some("522 gateway: network protocol not supported, use (1)")
            }
            (PassiveForm::Epsv, EpsvArgument::Unknown, true) => {
                Some("522 gateway: network protocol not supported, use (2)")
            }
            (PassiveForm::Epsv, EpsvArgument::Unknown, false) => {
                Some("522 gateway: network protocol not supported, use (1)")
            }
            _ => None,
        }
    }

    fn ask_passive(&mut self, form: PassiveForm) {
        self.abort_prepared();
        let id = self.next_command();
        self.transfers_begun += 1;
        let transfer = TransferId(self.transfers_begun);
        self.transfers.insert(transfer, Transfer::default());
        self.pending
            .push_back(Pending::Remote(id, Some((transfer, form))));
        self.out.push_back(Output::Passive { id, transfer, form });
    }

    fn start_transfer(&mut self, direction: Option<Direction>) {
        if let Some((&id, transfer)) = self.transfers.iter_mut().rfind(|(_, t)| !t.used) {
            transfer.used = true;
            transfer.upload = direction == Some(Direction::Upload);
            self.out
                .push_back(Output::Order(id, Order::Start(direction)));
        }
    }

    /// A data connection that no command has used gives way.
    fn abort_prepared(&mut self) {
        let unused: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, t)| !t.used)
            .map(|(&id, _)| id)
            .collect();
        for id in unused {
            self.transfers.remove(&id);
            self.out.push_back(Output::Order(id, Order::Kill));
        }
    }

    fn relay(&mut self, command: &Command<'_>) {
        let id = self.next_command();
        self.pending.push_back(Pending::Remote(id, None));
        let (line, synch) = (command.line().to_vec(), command.synch());
        self.out.push_back(Output::Command { id, line, synch });
    }

    fn far_reply(&mut self, tag: Tag, line: &[u8]) {
        if let (Some(transfer), Stage::Final) = (tag.transfer, tag.stage) {
            // The answer to a command that a newer PASV or an ABOR has made void changes nothing.
            self.out.push_back(Output::Order(
                transfer,
                Order::Finish {
                    failed: failed(tag),
                },
            ));
        }
        self.held_bytes += line.len() + HELD_ENTRY_BYTES;
        self.held.push_back((tag, line.to_vec()));
    }

    /// Relays what no barrier holds back any more.
    fn settle(&mut self) {
        while let Some((tag, _)) = self.held.front() {
            let ended = match tag
                .transfer
                .filter(|_| tag.stage == Stage::Final && !failed(*tag))
            {
                None => Some(Ok(())),
                // Unknown here: it was given up, and the failure has been told.
                Some(id) => self
                    .transfers
                    .get(&id)
                    .map_or(Some(Ok(())), |t| t.ended.clone()),
            };
            let Some(ended) = ended else { return };
            let Some((tag, line)) = self.held.pop_front() else {
                return;
            };
            self.held_bytes -= line.len() + HELD_ENTRY_BYTES;
            match ended {
                Ok(()) => self.write(&line),
                Err(why) if tag.last => {
                    self.write(format!("426 gateway: data connection failed: {why}").as_bytes());
                }
                Err(_) => {}
            }
            if tag.last {
                self.reply_relayed(tag);
            }
        }
        self.flush_local();
        if self.server_gone && !self.closed {
            self.close();
        }
    }

    fn reply_relayed(&mut self, tag: Tag) {
        self.last_code = tag.code;
        if let Some(transfer) = tag.transfer {
            match tag.stage {
                Stage::Preliminary => {
                    self.start_transfer_if_new(transfer);
                    self.out.push_back(Output::Order(transfer, Order::Release));
                }
                Stage::Final => self.transfer_answered(transfer),
            }
        }
        if tag.stage == Stage::Final
            && let Some(id) = tag.command
        {
            self.answered(id);
        }
    }

    /// A verb unknown to both halves has started a transfer.
    fn start_transfer_if_new(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id).filter(|t| !t.used) {
            transfer.used = true;
            self.out.push_back(Output::Order(id, Order::Start(None)));
        }
    }

    fn transfer_answered(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.answered = true;
            if transfer.ended.is_some() {
                self.transfers.remove(&id);
            }
        }
    }

    fn answered(&mut self, id: CommandId) {
        let at = self
            .pending
            .iter()
            .position(|p| matches!(p, Pending::Remote(other, _) if *other == id));
        let Some(Pending::Remote(_, passive)) = at.and_then(|at| self.pending.remove(at)) else {
            return;
        };
        // Answered by a reply line and not by a listener: there is no data connection.
        if let Some((transfer, _)) = passive
            && self.transfers.remove(&transfer).is_some()
        {
            self.out.push_back(Output::Order(transfer, Order::Kill));
        }
    }

    fn awaits(&self, id: CommandId) -> bool {
        self.pending
            .iter()
            .any(|p| matches!(p, Pending::Remote(other, _) if *other == id))
    }

    fn listening(&mut self, transfer: TransferId, at: Option<SocketAddr>) {
        let index = self
            .pending
            .iter()
            .position(|p| matches!(p, Pending::Remote(_, Some((other, _))) if *other == transfer));
        let Some(Pending::Remote(_, Some((_, form)))) = index.and_then(|i| self.pending.remove(i))
        else {
            return;
        };
        match at.and_then(|at| passive_reply(form, at)) {
            Some(line) => self.write(line.as_bytes()),
            None => {
                self.transfers.remove(&transfer);
                self.out.push_back(Output::Order(transfer, Order::Kill));
                self.write(b"425 gateway: no port to listen on");
            }
        }
    }

    fn refused(&mut self, code: u16, text: &str) {
        self.kill_transfers();
        self.release_held();
        self.connected = false;
        self.last_code = code;
        self.write(format!("{code} gateway: {text}").as_bytes());
        self.drop_first_remote();
        while self.drop_first_remote() {
            self.write(b"530 gateway: log in as USER name@server[:port] first");
        }
        if self.front == FrontDoor::Fixed || code == 421 {
            self.server_gone = true;
            self.last_code = 421;
        }
    }

    /// Forgets the replies that wait for a transfer.
    fn release_held(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Writes local replies up to the next command that waits for the far half, and drops it.
    fn drop_first_remote(&mut self) -> bool {
        self.flush_local();
        self.pending.pop_front().is_some()
    }

    fn server_closed(&mut self) {
        let unfinished: Vec<_> = self
            .transfers
            .iter()
            .filter(|(id, t)| {
                !t.answered && !self.held.iter().any(|(tag, _)| tag.transfer == Some(**id))
            })
            .map(|(&id, _)| id)
            .collect();
        for id in unfinished {
            self.transfers.remove(&id);
            self.out.push_back(Output::Order(id, Order::Kill));
        }
        self.server_gone = true;
    }

    fn link_lost(&mut self, why: &str) {
        let transferring = self.transfers.values().any(|t| t.used && !t.answered);
        self.kill_transfers();
        self.release_held();
        if transferring {
            self.write(format!("426 gateway: transfer broken off: {why}").as_bytes());
        }
        self.write(format!("421 gateway: {why}").as_bytes());
        self.pending.clear();
        self.last_code = 421;
        self.server_gone = true;
    }

    fn data_event(&mut self, id: TransferId, event: DataEvent<'_>) {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return;
        };
        match event {
            DataEvent::ClientEnded => transfer.client_ended = true,
            DataEvent::Delivered => transfer.ended = Some(Ok(())),
            DataEvent::Failed(why) => transfer.ended = Some(Err(why.to_owned())),
            DataEvent::Expired if transfer.used => {
                transfer.ended = Some(Err("the client did not connect".to_owned()));
            }
            DataEvent::Expired => {
                self.transfers.remove(&id);
                return;
            }
        }
        if transfer.answered && transfer.ended.is_some() {
            self.transfers.remove(&id);
        }
    }

    fn client_closed(&mut self) {
        #[cfg(fuzz_canary)]
        assert!(
            !self
                .transfers
                .values()
                .any(|t| matches!(t.ended, Some(Err(_)))),
            "canary: behind a broken transfer"
        );
        // RFC 959: losing the control connection aborts, unless the client had sent everything.
        let unfinished: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, t)| !t.client_ended)
            .map(|(&id, t)| match t.upload {
                true => (id, Order::ClientGone),
                false => (id, Order::Kill),
            })
            .collect();
        for (id, order) in unfinished {
            self.out.push_back(Output::Order(id, order));
        }
        self.out.push_back(Output::LeaveServer);
        self.closed = true;
        self.out.push_back(Output::Close);
    }

    fn kill_transfers(&mut self) {
        for id in std::mem::take(&mut self.transfers).into_keys() {
            self.out.push_back(Output::Order(id, Order::Kill));
        }
    }

    fn close(&mut self) {
        if !matches!(self.last_code, 221 | 421) {
            self.write(b"421 gateway: the server closed its control connection");
        }
        self.kill_unanswered();
        self.out.push_back(Output::LeaveServer);
        self.closed = true;
        self.out.push_back(Output::Close);
    }

    fn kill_unanswered(&mut self) {
        let unanswered: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, t)| !t.answered)
            .map(|(&id, _)| id)
            .collect();
        for id in unanswered {
            self.out.push_back(Output::Order(id, Order::Kill));
        }
    }

    /// The gateway's own reply, in the order of the commands.
    fn answer(&mut self, text: &str) {
        self.pending
            .push_back(Pending::Local(text.as_bytes().to_vec()));
    }

    fn flush_local(&mut self) {
        while let Some(Pending::Local(_)) = self.pending.front() {
            if let Some(Pending::Local(line)) = self.pending.pop_front() {
                self.write(&line);
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        let mut bytes = Vec::with_capacity(line.len() + 2);
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\n");
        self.out.push_back(Output::ToClient(bytes));
    }

    fn next_command(&mut self) -> CommandId {
        self.commands += 1;
        CommandId(self.commands)
    }
}

/// Replies held behind a transfer's final reply; more wait in the link.
const HELD_MAX_BYTES: usize = 1 << 20;

/// What an entry of `held` costs beside its text.
const HELD_ENTRY_BYTES: usize = size_of::<(Tag, Vec<u8>)>();

fn failed(tag: Tag) -> bool {
    Code(tag.code).class() == Class::Failed
}

#[cfg(test)]
mod tests;
