//! A hostile peer. It uses the link with its own key, and builds arbitrary messages and frames.

use std::{
    fs,
    net::{TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use ftp::session::{
    CommandId, MessageToNear, ServerRequest, SessionMode, TransferId, far::DataOpener,
};
use link::{
    Identity, IncomingStream, Link, LinkConfig, PeerConfig, PeerId, Policy, RecvStream, SendStream,
    StreamClass, StreamError,
};
use net::target::HostPort;
use optimiser::{
    check::StreamCheck,
    chunk::ChunkName,
    frame::{self, ChunkReference, FrameHead},
    zstd_block,
};
use relay::wire::{
    ChunkRequest, CodingOffer, CutParameters, FarMessage, MessageDecoder, NearMessage, Service,
    StoreTerms, StreamHello, Version, WireMessage, encode,
};
use tokio::{runtime::Runtime, time::timeout};
use units::ByteCount;

use crate::common::{Control, Gateway, TIMEOUT, accept, folder};

/// A far gateway with a scripted server. The test holds the private keys of its peers `site-a` and
/// `site-c`.
pub(crate) struct PeerWorld {
    pub(crate) far: Gateway,
    pub(crate) server: TcpListener,
    pub(crate) folder: PathBuf,
}

impl PeerWorld {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts a world. `store` contains further keys of `[store]`.
    pub(crate) fn start_with(store: &str) -> Self {
        let (folder, key_a, _) = folder();
        let other = Identity::generate();
        other.write_new(&folder.join("c.key")).expect("a key file");
        let key_c = other.public_key();
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = server.local_addr().expect("a bound socket");
        let rest = format!(
            "[store]\nfolder = \".\"\n{store}\n\
             [[peer]]\nname = \"a\"\npublic_key = \"{key_a}\"\ntenants = [\"news\", \"sport\"]\n\
             [[peer]]\nname = \"c\"\npublic_key = \"{key_c}\"\n\
             [far]\nallow = [\"{target}\"]\n"
        );
        Self {
            far: Gateway::start(&folder, "b.key", &rest),
            server,
            folder,
        }
    }

    /// Starts the hostile peer with this name.
    pub(crate) fn peer(&self, name: &str) -> Arc<Peer> {
        let ours = key(&self.folder, name);
        let theirs = key(&self.folder, "b").public_key();
        Peer::start(ours, theirs, Some(self.far.link.to_string()))
    }

    /// For each of the gateway's stores, returns the folder and the size in bytes.
    pub(crate) fn stores(&self) -> Vec<(String, u64)> {
        let entries = fs::read_dir(&self.folder).expect("a folder");
        let folders = entries
            .map(|it| it.expect("an entry"))
            .filter(|it| it.path().is_dir());
        let size = |path: &Path| -> u64 {
            let entries = fs::read_dir(path).expect("a folder");
            let sizes = entries.filter_map(|it| it.ok()?.metadata().ok());
            sizes.map(|it| it.len()).sum()
        };
        let mut stores: Vec<_> = folders
            .map(|it| {
                (
                    it.file_name().to_string_lossy().into_owned(),
                    size(&it.path()),
                )
            })
            .collect();
        stores.sort();
        stores
    }

    pub(crate) fn accept(&self) -> Control {
        Control::new(accept(&self.server))
    }
}

impl Drop for PeerWorld {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn key(folder: &Path, name: &str) -> Identity {
    Identity::read(&folder.join(format!("{name}.key"))).expect("a key file")
}

/// The hostile peer of the attacked gateway. The peer violates the protocol.
pub(crate) struct Peer {
    pub(crate) runtime: Runtime,
    pub(crate) link: Link,
}

impl Peer {
    pub(crate) fn start(
        ours: Identity,
        theirs: link::PublicKey,
        endpoint: Option<String>,
    ) -> Arc<Self> {
        let runtime = Runtime::new().expect("a runtime");
        let config = LinkConfig {
            identity: ours,
            peers: vec![PeerConfig {
                name: "victim".to_owned(),
                public_keys: vec![theirs],
                endpoint,
                rate_max: None,
                is_guest: false,
            }],
            policy: Policy::Fair,
            rate_max: None,
            memory_max: ByteCount::mebibytes(64),
            idle_timeout: Duration::from_secs(60),
            memory_file: None,
        };
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let link = runtime.block_on(async { Link::start(socket, config) });
        let link = link.expect("a link");
        Arc::new(Self { runtime, link })
    }

    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { timeout(TIMEOUT, what).await })
            .expect("it comes in time")
    }

    pub(crate) fn open(&self, service: Service) -> (SendStream, RecvStream) {
        self.wait(async {
            let (mut send, recv) = self
                .link
                .open(PeerId(0), StreamClass::Bulk)
                .await
                .expect("up");
            send.write(encode(&StreamHello { service }))
                .await
                .expect("room");
            (send, recv)
        })
    }

    /// Accepts the next stream that the attacked gateway opens.
    pub(crate) fn accept(self: &Arc<Self>) -> (Service, Messages) {
        let IncomingStream { send, recv, .. } = self.wait(self.link.accept()).expect("a stream");
        let mut messages = Messages::new(self, send, recv);
        let StreamHello { service } = messages.next();
        (service, messages)
    }

    /// Accepts the stream on which the attacked gateway requests chunks.
    pub(crate) fn asks(self: &Arc<Self>) -> Messages {
        let (service, messages) = self.accept();
        assert!(matches!(service, Service::Chunks { .. }), "{service:?}");
        messages
    }

    /// Whether the attacked gateway opens no stream for a short time.
    pub(crate) fn is_left_alone(&self) -> bool {
        let accept = async { timeout(MOMENT, self.link.accept()).await };
        self.runtime.block_on(accept).is_err()
    }
}

/// A stream on which the test sends and receives messages.
pub(crate) struct Messages {
    pub(crate) peer: Arc<Peer>,
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    decoder: MessageDecoder,
}

impl Messages {
    pub(crate) fn new(peer: &Arc<Peer>, send: SendStream, recv: RecvStream) -> Self {
        Self {
            peer: peer.clone(),
            send,
            recv,
            decoder: MessageDecoder::default(),
        }
    }

    fn in_version(mut self, version: Version) -> Self {
        self.decoder.set_version(version);
        self
    }

    pub(crate) fn next<M: WireMessage>(&mut self) -> M {
        loop {
            if let Some(message) = self.decoder.next_message().expect("a message") {
                return message;
            }
            let read = self.peer.runtime.block_on(timeout_of(self.recv.read()));
            let bytes = read.expect("in time").expect("a stream").expect("no end");
            self.decoder.push(&bytes);
        }
    }

    pub(crate) fn say(&mut self, bytes: impl Into<bytes::Bytes>) {
        let write = self
            .peer
            .runtime
            .block_on(timeout_of(self.send.write(bytes.into())));
        write.expect("room").expect("a stream");
    }

    /// Returns all requests that arrive, until none arrives for a short time. If several
    /// acknowledgements follow each other, only the last is returned.
    pub(crate) fn asked(&mut self) -> Vec<ChunkRequest> {
        let mut asks = Vec::new();
        loop {
            while let Some(ask) = self.decoder.next_message().expect("a message") {
                if let (Some(ChunkRequest::Acknowledged(_)), ChunkRequest::Acknowledged(_)) =
                    (asks.last(), &ask)
                {
                    asks.pop();
                }
                asks.push(ask);
            }
            let time_max = if asks.is_empty() { TIMEOUT } else { MOMENT };
            let read = async { timeout(time_max, self.recv.read()).await };
            match self.peer.runtime.block_on(read) {
                Ok(Ok(Some(bytes))) => self.decoder.push(&bytes),
                _ => return asks,
            }
        }
    }

    /// Reads until the stream is reset, and returns the code of the reset.
    pub(crate) fn reset_code(&mut self) -> u32 {
        loop {
            let read = self.peer.runtime.block_on(timeout_of(self.recv.read()));
            match read.expect("in time") {
                Ok(Some(_)) => {}
                Err(StreamError::Reset { code }) => return code,
                other => panic!("no reset: {other:?}"),
            }
        }
    }
}

async fn timeout_of<F: Future>(future: F) -> Result<F::Output, ()> {
    timeout(TIMEOUT, future).await.map_err(|_| ())
}

/// An FTP session between a hostile near gateway and the scripted server.
pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) messages: Messages,
    pub(crate) server: Control,
    /// Parameters with which the attacked gateway's store cuts content into chunks.
    pub(crate) cutting: Option<CutParameters>,
    commands: u32,
    transfers: u32,
}

/// A data connection of the session: its stream on the link, and the server's socket.
pub(crate) struct Data {
    pub(crate) stream: Messages,
    pub(crate) server: TcpStream,
    pub(crate) transfer: TransferId,
}

impl Session {
    pub(crate) fn begin(world: &PeerWorld, peer: &Arc<Peer>, number: u64, tenant: &str) -> Self {
        Self::begin_in(Version::LATEST, world, peer, number, tenant)
    }

    pub(crate) fn begin_in(
        version: Version,
        world: &PeerWorld,
        peer: &Arc<Peer>,
        number: u64,
        tenant: &str,
    ) -> Self {
        let target = world.server.local_addr().expect("a bound socket");
        let target: HostPort = target.to_string().parse().expect("an endpoint");
        let cutting = CutParameters {
            id: optimiser::chunk::CUTTER_ID,
            // The smallest secret is used, so that the peer can compute the victim's cuts.
            secret: [0; 32],
        };
        let (send, recv) = peer.open(Service::FtpSession {
            version,
            session: number,
            target,
            logon: None,
            mode: SessionMode::Strict,
            server_data: DataOpener::Passive,
            tls: None,
            coding: Some(CodingOffer {
                compresses: true,
                store: Some(StoreTerms {
                    tenant: tenant.to_owned(),
                    downloads: true,
                    cutting,
                }),
            }),
        });
        let mut server = world.accept();
        server.send("220 ready");
        let mut session = Self {
            number,
            messages: Messages::new(peer, send, recv).in_version(version),
            server,
            cutting: None,
            commands: 0,
            transfers: 0,
        };
        let mut said = session.messages.next();
        if let FarMessage::Store(cutting) = said {
            session.cutting = Some(cutting);
            said = session.messages.next();
        }
        assert!(is_reply(&said, b"220 ready"));
        session
    }

    fn id(&mut self) -> CommandId {
        self.commands += 1;
        CommandId(self.commands)
    }

    fn ask(&mut self, request: ServerRequest) {
        let message = NearMessage::Session(request.into());
        self.messages.say(encode(&message));
    }

    /// Returns the next message that is not a report.
    fn said(&mut self) -> FarMessage {
        loop {
            match self.messages.next() {
                FarMessage::Waiting(..)
                | FarMessage::Delivered(..)
                | FarMessage::Granted(..)
                | FarMessage::FirstBudget(..) => {}
                other => return other,
            }
        }
    }

    /// Opens a data connection and starts a transfer with `command`. Returns after the server's
    /// preliminary reply.
    pub(crate) fn transfer(&mut self, command: &str) -> Data {
        self.transfers += 1;
        let transfer = TransferId(self.transfers);
        let (ask, id) = (self.id(), self.id());
        self.ask(ServerRequest::Data {
            id: ask,
            transfer,
            answered: false,
        });
        let listener = self.server.open_data_port();
        let server = accept(&listener);
        // A broken transfer may have caused an earlier reply.
        while self.said() != FarMessage::Session(MessageToNear::DataReady(ask)) {}
        let peer = self.messages.peer.clone();
        let (send, recv) = peer.open(Service::FtpData {
            session: self.number,
            transfer,
        });
        self.ask(ServerRequest::Command {
            id,
            synch: false,
            answered: false,
            line: command.as_bytes().to_vec(),
        });
        self.server.expect(command);
        self.server.send("150 go");
        while !is_reply(&self.said(), b"150 go") {}
        Data {
            stream: Messages::new(&peer, send, recv),
            server,
            transfer,
        }
    }

    /// Reads messages until the server's final reply arrives.
    pub(crate) fn skip_replies(&mut self) {
        while !is_reply(&self.said(), b"226 done") {}
    }

    /// Starts an upload, sends these frames and ends the data stream.
    pub(crate) fn upload(&mut self, frames: Vec<u8>) -> Data {
        let mut data = self.transfer("STOR a");
        data.stream.say(frames);
        data.stream.send.finish();
        data
    }

    /// Performs a complete upload of these frames. Returns the bytes that the server receives.
    pub(crate) fn whole_upload(&mut self, frames: Vec<u8>) -> Vec<u8> {
        let data = self.upload(frames);
        let received = crate::common::read_all(&data.server);
        drop(data);
        self.server.send("226 done");
        self.skip_replies();
        received
    }
}

pub(crate) fn reference(content: &[u8]) -> ChunkReference {
    ChunkReference {
        bytes: content.len(),
        name: ChunkName::of(content),
    }
}

/// Whether the message relays this reply line of the server.
fn is_reply(message: &FarMessage, text: &[u8]) -> bool {
    matches!(message, FarMessage::Session(MessageToNear::Reply { line, .. }) if line == text)
}

fn framed(head: FrameHead, body: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    head.encode(&mut bytes);
    bytes.extend_from_slice(body);
    bytes.to_vec()
}

pub(crate) fn stored(content: &[u8]) -> Vec<u8> {
    let blocks = content.chunks(zstd_block::BLOCK_MAX);
    let frame = |block: &[u8]| framed(FrameHead::Stored { bytes: block.len() }, block);
    blocks.flat_map(frame).collect()
}

/// Returns a compressed block that claims to have `bytes` bytes after decompression.
pub(crate) fn compressed(coded: &[u8], bytes: usize) -> Vec<u8> {
    let coded_bytes = coded.len();
    framed(FrameHead::Compressed { bytes, coded_bytes }, coded)
}

/// Returns a frame that contains the bytes of a chunk instead of a reference to the chunk.
pub(crate) fn literal(content: &[u8]) -> Vec<u8> {
    let mut length = BytesMut::new();
    frame::put_length(&mut length, content.len());
    [
        framed(FrameHead::Cuts { count: 1 }, &length),
        stored(content),
    ]
    .concat()
}

pub(crate) fn body(references: &[ChunkReference]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    for reference in references {
        frame::put_reference(&mut bytes, reference);
    }
    bytes.to_vec()
}

pub(crate) fn references(references: &[ChunkReference]) -> Vec<u8> {
    let count = references.len();
    framed(FrameHead::References { count }, &body(references))
}

pub(crate) fn lists(references: &[ChunkReference]) -> Vec<u8> {
    let count = references.len();
    framed(FrameHead::Lists { count }, &body(references))
}

/// Returns the final frame of a stream. `content` is the content of the complete stream.
pub(crate) fn end(content: &[u8]) -> Vec<u8> {
    let mut check = StreamCheck::default();
    check.update(content);
    framed(check.end(), &[])
}

/// Returns the memory that this process uses, in bytes.
pub(crate) fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = status.split(' ').nth(1).expect("a number");
    pages.parse::<usize>().expect("a number") * 4096
}

/// Checks the condition repeatedly until it holds. Panics after a timeout.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Short time that suffices for every event without a delay.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);
