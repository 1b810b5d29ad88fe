//! Tests of attacks on a near gateway. The hostile peer acts as far gateway and server.

use std::{
    io::Read as _,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use ftp::session::{
    CommandId, MessageToFar, MessageToNear, ReplyStage, ReplyTag, ServerRequest, TransferId,
};
use relay::wire::{ChunkRequest, CutParameters, FarMessage, NearMessage, Service, encode};

use crate::{
    common::{
        Control, Gateway, connect, expect_reset, expect_silence, folder, noise, passive_port,
    },
    hostile_chunks::peer::{Messages, Peer, end, key, literal, reference, references, stored},
};

/// The attacked near gateway. Its client downloads through the hostile peer.
pub(crate) struct Victim {
    pub(crate) peer: Arc<Peer>,
    pub(crate) near: Gateway,
    folder: std::path::PathBuf,
}

/// A transfer after the preliminary reply to the client.
pub(crate) struct NearTransfer {
    _session: Messages,
    _client: Control,
    pub(crate) client_data: TcpStream,
    pub(crate) data: Messages,
}

impl Victim {
    pub(crate) fn start() -> Self {
        let (folder, _, key_b) = folder();
        let theirs = key(&folder, "a").public_key();
        let peer = Peer::start(key(&folder, "b"), theirs, None);
        let endpoint: SocketAddr = peer.link.local_addr();
        let rest = format!(
            "[store]\nfolder = \".\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"{key_b}\"\nendpoint = \"{endpoint}\"\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:21\"\n"
        );
        Self {
            near: Gateway::start(&folder, "a.key", &rest),
            peer,
            folder,
        }
    }

    fn download(&self) -> NearTransfer {
        let client = Control::connect(self.near.ftp[0]);
        let (service, session) = self.peer.accept();
        self.transfer(client, service, session, "RETR a")
    }

    /// Starts a transfer with `command` in the client's open session.
    pub(crate) fn transfer(
        &self,
        mut client: Control,
        service: Service,
        mut session: Messages,
        command: &str,
    ) -> NearTransfer {
        let Service::FtpSession {
            session: number,
            coding: Some(coding),
            ..
        } = service
        else {
            panic!("no session: {service:?}");
        };
        assert!(coding.store.is_some());
        let cutting = CutParameters {
            id: optimiser::chunk::CUTTER_ID,
            secret: [0; 32],
        };
        session.say(encode(&FarMessage::Store(cutting)));
        reply(&mut session, None, None, 220, "220 ready");
        client.expect("220 ready");
        client.send("PASV");
        let transfer = loop {
            match session.next() {
                NearMessage::Session(MessageToFar::Request(ServerRequest::Data {
                    id,
                    transfer,
                    answered,
                })) => {
                    let said = match answered {
                        true => MessageToNear::AnsweredAhead,
                        false => MessageToNear::DataReady(id),
                    };
                    session.say(encode(&FarMessage::Session(said)));
                    break transfer;
                }
                NearMessage::Session(MessageToFar::Request(ServerRequest::Command {
                    id,
                    line,
                    ..
                })) => {
                    self.refuse(&mut session, id, &line);
                }
                NearMessage::Session(MessageToFar::Abandon(_)) => panic!("abandoned"),
                NearMessage::Waiting(..) => {}
            }
        };
        let client_data = connect(passive_port(&client.line()));
        client.send(command);
        let mut data = None;
        loop {
            match session.next() {
                NearMessage::Session(MessageToFar::Request(ServerRequest::Command {
                    id,
                    line,
                    ..
                })) => {
                    if line == command.as_bytes() {
                        reply(&mut session, Some(id), Some(transfer), 150, "150 go");
                        break;
                    }
                    self.refuse(&mut session, id, &line);
                }
                NearMessage::Waiting(..) => {}
                other => panic!("{other:?}"),
            }
        }
        while data.is_none() {
            let (service, stream) = self.peer.accept();
            let its = Service::FtpData {
                session: number,
                transfer,
            };
            data = (service == its).then_some(stream);
        }
        client.expect("150 go");
        NearTransfer {
            _session: session,
            _client: client,
            client_data,
            data: data.expect("it was opened"),
        }
    }

    fn refuse(&self, session: &mut Messages, id: CommandId, line: &[u8]) {
        let text = format!("502 {}", String::from_utf8_lossy(line));
        reply(session, Some(id), None, 502, &text);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn reply(
    session: &mut Messages,
    command: Option<CommandId>,
    transfer: Option<TransferId>,
    code: u16,
    line: &str,
) {
    let stage = match code {
        100..200 => ReplyStage::Preliminary,
        _ => ReplyStage::Final,
    };
    let tag = ReplyTag {
        command,
        transfer,
        stage,
        code,
        last: true,
        prefetches: false,
    };
    let line = line.as_bytes().to_vec();
    session.say(encode(&FarMessage::Session(MessageToNear::Reply {
        tag,
        line,
    })));
}

#[test]
fn a_client_gets_no_orderly_end_of_what_is_wrong() {
    let victim = Victim::start();
    let content = noise(1, 9_000);
    for wrong in [
        end(b"other"),
        Vec::new(),
        [end(&content), stored(b"more")].concat(),
    ] {
        let mut download = victim.download();
        download.data.say([literal(&content), wrong].concat());
        download.data.send.finish();
        expect_reset(&download.client_data);
    }
}

#[test]
fn a_client_waits_for_what_nobody_has_and_gets_nothing_else() {
    let victim = Victim::start();
    let content = noise(1, 9_000);
    let frames = [references(&[reference(&content)]), end(&content)].concat();
    let mut download = victim.download();
    download.data.say(frames.clone());
    download.data.send.finish();
    let mut asks = victim.peer.asks();
    assert_eq!(asks.asked(), [ChunkRequest::Missing(0)]);
    expect_silence(&download.client_data);
    asks.say(stored(&noise(2, 9_000)));
    expect_reset(&download.client_data);
    // A correct chunk is accepted afterwards.
    let mut download = victim.download();
    download.data.say(frames);
    download.data.send.finish();
    let mut asks = victim.peer.asks();
    assert_eq!(asks.next::<ChunkRequest>(), ChunkRequest::Missing(0));
    asks.say(stored(&content));
    let mut received = Vec::new();
    download
        .client_data
        .read_to_end(&mut received)
        .expect("an orderly end");
    assert_eq!(received, content);
}
