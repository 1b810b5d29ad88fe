//! End of a program at the server.

use russh::ChannelMsg;

use crate::{signals::signal_name, wire::channel::ChannelMessage};

/// Returns the message for the near half about the end of a program or its output. Returns `None`
/// for other messages.
pub(super) fn exit_message(message: ChannelMsg) -> Option<ChannelMessage> {
    Some(match message {
        ChannelMsg::Eof => ChannelMessage::Eof,
        ChannelMsg::ExitStatus { exit_status } => ChannelMessage::ExitStatus(exit_status),
        ChannelMsg::ExitSignal {
            signal_name: signal,
            core_dumped,
            error_message,
            ..
        } => ChannelMessage::ExitSignal {
            name: signal_name(&signal).to_owned(),
            has_dumped_core: core_dumped,
            message: error_message,
        },
        _ => return None,
    })
}
