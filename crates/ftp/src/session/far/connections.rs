//! What became of the server's data connections: whether everything from the client has been
//! written to the server.

use std::collections::BTreeMap;

use crate::{
    command::Direction,
    session::{TransferId, data::far::Event},
};

/// The data connections of a session that are open, and those whose transfer has not been answered.
#[derive(Debug, Default)]
pub(super) struct Connections {
    connections: BTreeMap<TransferId, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    is_upload: bool,
    /// Whether everything has been written; `None` while that is open.
    is_whole: Option<bool>,
    is_closed: bool,
    /// The server does not take it.
    is_refused: bool,
    worth: Worth,
}

/// The server's final reply to the transfer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Worth {
    #[default]
    None,
    /// A success, whose worth the near half has not heard.
    Success,
    /// The near half needs to hear nothing more.
    Done,
}

impl Connections {
    /// A data connection is being opened.
    pub(super) fn opened(&mut self, id: TransferId) {
        // Those that no command has used are used by none any more.
        self.connections.retain(|_, c| !c.is_closed || c.is_upload);
        self.connections.insert(id, Connection::default());
    }

    /// A transfer uses it.
    pub(super) fn commanded(&mut self, id: TransferId, direction: Direction) {
        let connection = self.connections.entry(id).or_insert(Connection {
            is_whole: Some(false),
            is_closed: true,
            ..Connection::default()
        });
        connection.is_upload = direction == Direction::Upload;
    }

    /// The server has answered for the transfer. Returns what its success is worth, if that is known.
    pub(super) fn answered(&mut self, id: TransferId, succeeded: bool) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        if connection.worth == Worth::None {
            connection.worth = match succeeded && connection.is_upload {
                true => Worth::Success,
                false => Worth::Done,
            };
        }
        self.report(id)
    }

    /// Something happened to it. Returns what the server's success is worth, if that is news.
    pub(super) fn on_event(&mut self, id: TransferId, event: Event) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        match event {
            Event::Refused => connection.is_refused = true,
            Event::Delivered => connection.is_whole = connection.is_whole.or(Some(true)),
            Event::Lost => connection.is_whole = Some(false),
            Event::Closed => {
                connection.is_closed = true;
                connection.is_whole.get_or_insert(false);
            }
        }
        self.report(id)
    }

    /// Whether the data connection of a transfer is open, or may open.
    pub(super) fn is_open(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_closed && !c.is_refused)
    }

    /// Whether the data connection of a download is open, or may open.
    pub(super) fn is_open_download(&self, id: TransferId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|c| !c.is_upload && !c.is_closed)
    }

    /// Whether a data connection is open.
    pub(super) fn any_open(&self) -> bool {
        self.connections.values().any(|c| !c.is_closed)
    }

    /// Whether the near half has to hear what a success is worth.
    pub(super) fn any_unreported(&self) -> bool {
        let mut connections = self.connections.values();
        connections.any(|c| c.worth == Worth::Success)
    }

    fn report(&mut self, id: TransferId) -> Option<bool> {
        let connection = self.connections.get_mut(&id)?;
        let is_awaited = connection.worth == Worth::Success;
        let news = connection.is_whole.filter(|_| is_awaited);
        if news.is_some() {
            connection.worth = Worth::Done;
        }
        if connection.is_closed && connection.worth == Worth::Done {
            self.connections.remove(&id);
        }
        news
    }
}
