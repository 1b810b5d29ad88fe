//! Entry points for `fuzz-targets`.

use bytes::Bytes;

use crate::{
    near,
    settings::PublicKeyWay,
    wire::{
        Frame, FrameSplitter, WireError,
        channel::{Channel, ChannelMessage, DATA, Program, Terminal, TerminalSize},
        frame_header,
        session::{EndReason, Method, ToFar, ToNear},
    },
};

/// Parses the input as the first packets of a client. Returns whether the client supports AES-GCM.
///
/// # Panics
/// Panics if the result depends on the amount of data that has arrived.
pub fn has_client_gcm(input: &[u8]) -> bool {
    near::has_client_gcm(input)
}

/// Returns the first packets of a client that supports AES-GCM.
pub fn greeting() -> Vec<u8> {
    near::greeting(["aes256-gcm@openssh.com"; 2])
}

/// Reads the input as a stream between the two halves of a session. The first byte selects the kind
/// of the stream, and the second byte the length of the received pieces. Returns the number of
/// valid messages. The data of frames are not decoded, because coded data need the state of a link.
///
/// # Panics
/// Panics if an encoded message does not read back, or if the length of the pieces changes the
/// result.
pub fn read_stream(input: &[u8]) -> usize {
    let [kind, piece_bytes, bytes @ ..] = input else {
        return 0;
    };
    let kind = StreamKind::ALL[usize::from(*kind) % StreamKind::ALL.len()];
    let whole = Contents::read(kind, bytes, bytes.len());
    let in_pieces = Contents::read(kind, bytes, usize::from(*piece_bytes));
    assert_eq!(in_pieces, whole, "the length of pieces changes the result");
    whole.messages
}

/// Kind of a stream between the two halves.
#[derive(Debug, Clone, Copy)]
enum StreamKind {
    SessionToFar,
    SessionToNear,
    Channel,
}

impl StreamKind {
    const ALL: [Self; 3] = [Self::SessionToFar, Self::SessionToNear, Self::Channel];
}

/// Valid contents of a stream, up to its first fault.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contents {
    messages: usize,
    /// Each data byte, after the type of its frame.
    data: Vec<(u8, u8)>,
    fault: Option<WireError>,
    ends_at_boundary: bool,
}

impl Contents {
    fn read(stream: StreamKind, bytes: &[u8], piece_bytes: usize) -> Self {
        let mut contents = Self::default();
        let mut splitter = FrameSplitter::default();
        for piece in bytes.chunks(piece_bytes.max(1)) {
            splitter.push(Bytes::copy_from_slice(piece));
            if let Err(fault) = contents.take_frames(stream, &mut splitter) {
                contents.fault = Some(fault);
                return contents;
            }
        }
        contents.ends_at_boundary = splitter.is_at_boundary();
        contents
    }

    fn take_frames(
        &mut self,
        stream: StreamKind,
        splitter: &mut FrameSplitter,
    ) -> Result<(), WireError> {
        while let Some(frame) = splitter.next_frame()? {
            match frame {
                Frame::Piece { kind, data } => self.data.extend(data.iter().map(|it| (kind, *it))),
                Frame::Whole { kind, body } => {
                    self.check(stream, kind, body.into_bytes())?;
                    self.messages += 1;
                }
            }
        }
        Ok(())
    }

    /// Decodes a message, and encodes it again.
    fn check(&self, stream: StreamKind, kind: u8, body: Bytes) -> Result<(), WireError> {
        match stream {
            StreamKind::SessionToFar => {
                let message = ToFar::decode(kind, body)?;
                assert!(reread(message.encode(), ToFar::decode) == message);
            }
            StreamKind::SessionToNear => {
                let message = ToNear::decode(kind, body)?;
                assert_eq!(reread(message.encode(), ToNear::decode), message);
            }
            StreamKind::Channel if self.messages == 0 => {
                let message = Channel::decode(kind, body)?;
                assert_eq!(reread(message.encode(), Channel::decode), message);
            }
            StreamKind::Channel => {
                let message = channel_message(kind, body)?;
                // Other targets read the messages of SFTP.
                if !matches!(message, ChannelMessage::Sftp(..)) {
                    assert_eq!(reread(message.encode(), channel_message), message);
                }
            }
        }
        Ok(())
    }
}

fn channel_message(kind: u8, body: Bytes) -> Result<ChannelMessage, WireError> {
    let body = body.into();
    ChannelMessage::decode(Frame::Whole { kind, body })
}

/// Returns the message in a frame that this gateway has encoded.
fn reread<T>(frame: Bytes, decode: impl Fn(u8, Bytes) -> Result<T, WireError>) -> T {
    let mut splitter = FrameSplitter::default();
    splitter.push(frame);
    let frame = splitter.next_frame();
    assert!(splitter.is_at_boundary(), "the length is wrong");
    let Ok(Some(Frame::Whole { kind, body })) = frame else {
        panic!("an encoded message is a whole frame");
    };
    decode(kind, body.into_bytes()).expect("an encoded message is valid")
}

/// Returns streams with messages of each type: to the far half, to the near half, and of two
/// channels.
pub fn streams() -> Vec<Vec<u8>> {
    let text = || "text".to_owned();
    let key = || Bytes::from_static(b"key");
    let to_far = [
        ToFar::Open {
            token: [7; 16],
            target: "[2001:db8::1]:22".parse().expect("a server"),
            client: "10.0.0.1:5".to_owned(),
            session: 9,
            coding: None,
        },
        ToFar::Methods { user: text() },
        ToFar::Password {
            user: text(),
            password: text(),
        },
        ToFar::Interactive {
            user: text(),
            submethods: String::new(),
        },
        ToFar::Answers {
            answers: vec![text(), String::new()],
        },
        ToFar::Offered {
            user: text(),
            key: key(),
            algorithm: text(),
        },
        ToFar::Proved {
            ways: vec![PublicKeyWay::Certificate, PublicKeyWay::Key],
        },
        ToFar::Signature { signature: key() },
    ];
    let to_near = [
        ToNear::Server {
            fingerprint: text(),
            cutting: None,
        },
        ToNear::Ended {
            reason: EndReason::HostKey,
            text: text(),
        },
        ToNear::Banner { text: text() },
        ToNear::Rejected {
            methods: vec![Method::PublicKey, Method::Interactive],
            is_partial: true,
        },
        ToNear::Authenticated,
        ToNear::Prompts {
            name: text(),
            instructions: String::new(),
            prompts: vec![(text(), false)],
        },
        ToNear::KeyKnown { to_sign: key() },
    ];
    let size = TerminalSize {
        columns: 80,
        rows: 24,
        width: 0,
        height: 1,
    };
    let channel = |program, terminal| Channel {
        token: [3; 16],
        program,
        terminal,
        environment: vec![("LANG".to_owned(), "C".to_owned())],
        coded: Some(7),
    };
    let terminal = Terminal {
        kind: "xterm".to_owned(),
        size,
        modes: vec![(1, 3), (53, 1)],
    };
    let later = [
        ChannelMessage::Started,
        ChannelMessage::Refused,
        ChannelMessage::Failed(text()),
        ChannelMessage::Resize(size),
        ChannelMessage::Signal("INT".to_owned()),
        ChannelMessage::ExitStatus(3),
        ChannelMessage::ExitSignal {
            name: "KILL".to_owned(),
            has_dumped_core: true,
            message: text(),
        },
        ChannelMessage::Eof,
        ChannelMessage::Close,
    ];
    let command = Program::Exec(Bytes::from_static(b"cat"));
    let mut commands = vec![channel(command, Some(terminal)).encode()];
    commands.extend([frame_header(DATA, 5), Bytes::from_static(b"bytes")]);
    commands.extend(later.iter().map(ChannelMessage::encode));
    let streams = [
        to_far.iter().map(ToFar::encode).collect(),
        to_near.iter().map(ToNear::encode).collect(),
        commands,
        vec![channel(Program::Sftp, None).encode()],
    ];
    streams
        .into_iter()
        .zip([0, 1, 2, 2])
        .map(|(frames, kind)| [&[kind, 3][..], &frames.concat()].concat())
        .collect()
}
