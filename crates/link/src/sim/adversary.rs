//! Adversary between the paths and the two sites of a simulation.
//!
//! The adversary sees every datagram that leaves a path. It has no private key of the sites. It has
//! both public keys only if the configuration grants them.
//!
//! The adversary also delivers datagrams of its own, at random. It repeats, changes, shortens and
//! invents datagrams, replays old datagrams, and reflects a site's datagrams to that site. The
//! source addresses of these datagrams belong to the sites or to strangers.
//!
//! The adversary also counts the bytes that strangers may receive. A stranger may receive three
//! times the bytes of new datagrams that arrived from its address. Invented datagrams do not count.
//! Replayed datagrams count only if the site may have lost its record of them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{SimSite, inbox::Datagram, pair::identity, random::Random};
use crate::{
    AMPLIFICATION_MAX,
    handshake::envelope::{EnvelopeKey, Hello, HelloSender, KeyId},
    wire::packet::{self, ConnectionId, DatagramKind, HANDSHAKE},
};

/// Configuration of an adversary.
#[derive(Debug, Clone, Copy)]
pub struct AdversaryConfig {
    /// Seed of all decisions of the adversary.
    pub seed: u64,
    /// Whether the adversary also drops, delays, changes and redirects the datagrams of the sites.
    /// If not, it only adds datagrams.
    pub meddles: bool,
    /// Whether the adversary has the public keys of both sites. With these keys it can create valid
    /// hellos.
    pub knows_public_keys: bool,
}

/// Adversary with counts of its actions.
#[derive(Debug)]
pub struct Adversary {
    config: AdversaryConfig,
    random: Random,
    is_resting: bool,
    mood: AdversaryMood,
    mood_ends: Option<Instant>,
    /// Datagrams to deliver later, sorted by delivery time and then by a sequence number.
    held: BTreeMap<(Instant, u64), HeldDatagram>,
    order: u64,
    /// Newest data datagrams that each site has received without a change.
    recorded: [VecDeque<Vec<u8>>; 2],
    recorded_handshakes: [VecDeque<Vec<u8>>; 2],
    /// Handshake datagrams that each site received before its last restart.
    old_handshakes: [VecDeque<Vec<u8>>; 2],
    /// Key for hellos from site A. `None` if the adversary does not have the public keys.
    envelope: Option<(EnvelopeKey, KeyId)>,
    deeds: BTreeMap<&'static str, u64>,
    accounts: HashMap<SocketAddr, StrangerAccount>,
}

/// Datagram that the adversary delivers later.
#[derive(Debug)]
pub(super) struct HeldDatagram {
    pub(super) to: SimSite,
    pub(super) datagram: Datagram,
    /// Whether the content of the datagram is unchanged.
    pub(super) is_original: bool,
}

/// Number of bytes that one stranger has received, and number of bytes that it may receive.
#[derive(Debug, Default, Clone, Copy)]
struct StrangerAccount {
    bytes_owed: u64,
    bytes_sent: u64,
    /// Whether the adversary also forwarded datagrams for this address to the peer. The gateway may
    /// then have validated the address as the peer's address.
    is_relayed: bool,
}

#[derive(Debug, Clone, Copy)]
enum AdversaryMood {
    /// The adversary delivers all datagrams of the sites.
    Calm,
    /// The adversary changes, delays or drops many datagrams.
    Wild,
    /// The adversary drops all datagrams from one site. `None` means both sites.
    Cut(Option<SimSite>),
    /// The adversary acts as a relay with this address: datagrams from site A arrive from the
    /// address, and datagrams to the address reach site A.
    Relay(SocketAddr),
}

impl Adversary {
    pub(super) fn new(config: AdversaryConfig) -> Self {
        Self {
            config,
            random: Random(config.seed),
            is_resting: false,
            mood: AdversaryMood::Calm,
            mood_ends: None,
            held: BTreeMap::new(),
            order: 0,
            recorded: Default::default(),
            recorded_handshakes: Default::default(),
            old_handshakes: Default::default(),
            envelope: config.knows_public_keys.then(|| {
                let [a, b] = [SimSite::A, SimSite::B].map(|side| identity(side).public_key());
                (EnvelopeKey::new(&b, &a), KeyId::of(&a))
            }),
            deeds: BTreeMap::new(),
            accounts: HashMap::new(),
        }
    }

    /// Stops all actions: from now on the adversary delivers every datagram.
    pub(super) fn rest(&mut self) {
        self.is_resting = true;
    }

    /// Records that a site has restarted. The site no longer remembers the handshake datagrams that
    /// it received.
    pub(super) fn on_restart(&mut self, side: SimSite) {
        let side = side as usize;
        self.old_handshakes[side] = std::mem::take(&mut self.recorded_handshakes[side]);
    }

    /// Returns the number of actions of each kind.
    pub fn deeds(&self) -> &BTreeMap<&'static str, u64> {
        &self.deeds
    }

    /// Returns the total number of actions. An action adds, changes, drops, delays or redirects one
    /// datagram.
    pub fn deeds_in_all(&self) -> u64 {
        self.deeds.values().sum()
    }

    /// Returns the strangers that received more bytes than permitted. Each entry holds the address,
    /// the permitted bytes and the received bytes.
    pub fn overpaid(&self) -> Vec<(SocketAddr, u64, u64)> {
        let accounts = self.accounts.iter();
        let over = accounts
            .filter(|(_, account)| account.bytes_sent > account.bytes_owed && !account.is_relayed);
        over.map(|(address, account)| (*address, account.bytes_owed, account.bytes_sent))
            .collect()
    }

    /// Returns the number of strangers that received at least one datagram.
    pub fn strangers_answered(&self) -> usize {
        let accounts = self.accounts.values();
        accounts.filter(|account| account.bytes_sent > 0).count()
    }

    /// Counts the bytes of a site's datagram if its destination is a stranger.
    pub(super) fn on_sent(&mut self, datagram: &Datagram) {
        if is_stranger(&datagram.to) {
            let account = self.accounts.entry(datagram.to).or_default();
            account.bytes_sent += datagram.bytes.len() as u64;
        }
    }

    /// Handles a datagram that site `from` sent and that has crossed the path.
    pub(super) fn take(
        &mut self,
        from: SimSite,
        datagram: Datagram,
        sites: [SocketAddr; 2],
        now: Instant,
    ) {
        let to = from.other();
        if self.is_resting {
            self.hand_over(to, datagram, true, now);
            return;
        }
        if self.mood_ends.is_none_or(|end| end <= now) {
            self.change_mood(now);
        }
        if datagram.to != sites[to as usize] {
            self.take_answer(to, datagram, sites, now);
            return;
        }
        let copy = datagram.clone();
        match self.mood {
            AdversaryMood::Calm => self.hand_over(to, datagram, true, now),
            AdversaryMood::Wild => self.mistreat(to, datagram, now),
            AdversaryMood::Cut(only) if only.is_none_or(|side| side == from) => {
                self.count("withheld")
            }
            AdversaryMood::Relay(address) if from == SimSite::A => {
                self.count("relayed");
                let from = address;
                self.hand_over(to, Datagram { from, ..datagram }, true, now);
            }
            AdversaryMood::Cut(_) | AdversaryMood::Relay(_) => {
                self.hand_over(to, datagram, true, now)
            }
        }
        while self.random.chance(0.5) {
            self.add(to, &copy, sites, now);
        }
    }

    /// Returns the delivery time of the next datagram. Returns `None` if no datagram is left.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns the next datagram with a delivery time of at most `now`.
    pub(super) fn poll(&mut self, now: Instant) -> Option<HeldDatagram> {
        let entry = self.held.first_entry().filter(|held| held.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Records an unchanged datagram that a site accepted, for later replays.
    ///
    /// A site may drop a datagram now because it has no keys yet, and accept the same datagram
    /// later. The caller therefore passes only accepted datagrams.
    pub(super) fn record(&mut self, held: HeldDatagram) {
        let kind = packet::classify(&held.datagram.bytes).map(|(kind, _)| kind);
        let recorded = match kind {
            Ok(DatagramKind::Data) => &mut self.recorded,
            _ => &mut self.recorded_handshakes,
        };
        let recorded = &mut recorded[held.to as usize];
        if recorded.len() == RECORDED_MAX {
            recorded.pop_front();
        }
        recorded.push_back(held.datagram.bytes);
    }

    fn count(&mut self, deed: &'static str) {
        *self.deeds.entry(deed).or_default() += 1;
    }

    fn hand_over(&mut self, to: SimSite, datagram: Datagram, is_original: bool, at: Instant) {
        self.order += 1;
        let held = HeldDatagram {
            to,
            datagram,
            is_original,
        };
        self.held.insert((at, self.order), held);
    }

    fn change_mood(&mut self, now: Instant) {
        let (mood, longest_ms) = match self.random.below(8) {
            _ if !self.config.meddles => (AdversaryMood::Calm, 1000),
            0..=3 => (AdversaryMood::Calm, 800),
            4 | 5 => (AdversaryMood::Wild, 800),
            6 => {
                let sides = [None, Some(SimSite::A), Some(SimSite::B)];
                (AdversaryMood::Cut(sides[self.random.below(3)]), 2500)
            }
            _ => {
                let port = 1 + self.random.below(60_000) as u16;
                (AdversaryMood::Relay((RELAYS, port).into()), 1500)
            }
        };
        self.mood = mood;
        let lasts = Duration::from_millis(20 + self.random.below(longest_ms) as u64);
        self.mood_ends = Some(now + lasts);
    }

    /// Handles a datagram that a site sent to an address other than the addresses of the sites.
    fn take_answer(
        &mut self,
        to: SimSite,
        datagram: Datagram,
        sites: [SocketAddr; 2],
        now: Instant,
    ) {
        let is_relayed =
            matches!(self.mood, AdversaryMood::Relay(address) if address == datagram.to);
        if is_relayed || self.random.chance(0.03) {
            self.accounts.entry(datagram.to).or_default().is_relayed = true;
            self.count(if is_relayed {
                "relayed"
            } else {
                "brought home"
            });
            let to_site = sites[to as usize];
            self.hand_over(
                to,
                Datagram {
                    to: to_site,
                    ..datagram
                },
                true,
                now,
            );
        } else if self.random.chance(0.2) {
            self.count("thrown back");
            let thrown = Datagram {
                from: datagram.to,
                to: datagram.from,
                bytes: datagram.bytes,
            };
            self.hand_over(to.other(), thrown, false, now);
        }
    }

    /// Delivers a site's datagram unchanged, late, changed, or from another address, or drops it.
    fn mistreat(&mut self, to: SimSite, mut datagram: Datagram, now: Instant) {
        match self.random.below(20) {
            0 | 1 => self.count("withheld"),
            2 | 3 => {
                self.count("delayed");
                let at = now + Duration::from_micros(self.random.below(300_000) as u64);
                self.hand_over(to, datagram, true, at);
            }
            4 | 5 => {
                self.count("changed");
                self.change(&mut datagram.bytes);
                self.hand_over(to, datagram, false, now);
            }
            // A handshake packet proves its source address.
            6 if datagram.bytes[0] != HANDSHAKE => {
                self.count("redirected");
                datagram.from = self.stranger();
                self.owe_for(&datagram);
                self.hand_over(to, datagram, true, now);
            }
            _ => self.hand_over(to, datagram, true, now),
        }
    }

    /// Delivers one more datagram to site `to`. `present` is the datagram that the other site has
    /// just sent.
    fn add(&mut self, to: SimSite, present: &Datagram, sites: [SocketAddr; 2], now: Instant) {
        let mut datagram = Datagram {
            from: sites[to.other() as usize],
            to: sites[to as usize],
            bytes: Vec::new(),
        };
        // A copy that comes from a stranger must be a copy of a datagram that has already arrived.
        let is_strange = self.random.chance(0.3);
        if is_strange {
            datagram.from = self.stranger();
        }
        let (of_peer, is_old) = match self.random.below(10) {
            0 | 1 => (self.pick_handshake(to), false),
            2 => (
                pick(&mut self.random, &self.old_handshakes[to as usize]),
                true,
            ),
            _ => (self.pick(to), false),
        };
        let name = match self.random.below(9) {
            0 | 1 => {
                datagram.bytes = of_peer;
                // The many forged datagrams displace records of accepted datagrams from a site's
                // memory. A restart has the same effect.
                if is_strange && (is_old || self.envelope.is_some()) {
                    self.owe_for(&datagram);
                }
                "replayed"
            }
            2 if !is_strange => {
                datagram.bytes.clone_from(&present.bytes);
                "repeated"
            }
            2..=4 => {
                datagram.bytes = of_peer;
                self.change(&mut datagram.bytes);
                "changed"
            }
            5 => {
                datagram.bytes = if self.random.chance(0.5) {
                    self.pick(to.other())
                } else {
                    self.pick_handshake(to.other())
                };
                "reflected"
            }
            6 if self.envelope.is_some() => {
                datagram.bytes = self.forge(to, present);
                if is_strange {
                    self.owe_for(&datagram);
                }
                "forged"
            }
            _ => {
                datagram.bytes = self.invent(&of_peer);
                "invented"
            }
        };
        self.count(name);
        let at = now + Duration::from_micros(self.random.below(50_000) as u64);
        self.hand_over(to, datagram, false, at);
    }

    /// Permits the source address of the datagram to receive three times the bytes of the datagram.
    fn owe_for(&mut self, datagram: &Datagram) {
        let account = self.accounts.entry(datagram.from).or_default();
        account.bytes_owed += AMPLIFICATION_MAX as u64 * datagram.bytes.len() as u64;
    }

    /// Returns the address of a random stranger. The number of strangers is small, so each address
    /// occurs repeatedly.
    fn stranger(&mut self) -> SocketAddr {
        (STRANGERS, 1 + self.random.below(1000) as u16).into()
    }

    fn pick(&mut self, to: SimSite) -> Vec<u8> {
        pick(&mut self.random, &self.recorded[to as usize])
    }

    fn pick_handshake(&mut self, to: SimSite) -> Vec<u8> {
        pick(&mut self.random, &self.recorded_handshakes[to as usize])
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let random = &mut self.random;
        let before = bytes.clone();
        match random.below(5) {
            0 | 1 => {
                for _ in 0..=random.below(4) {
                    let at = random.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            }
            // The changed byte is in the header.
            2 => {
                let at = random.below(bytes.len().min(21));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
            3 => bytes.truncate(random.below(bytes.len())),
            _ => {
                let len = random.below(40);
                bytes.extend((0..len).map(|_| random.below(256) as u8));
            }
        }
        if *bytes == before {
            bytes.push(0);
        }
    }

    /// Returns random bytes. A part of the header may be copied from `like`.
    fn invent(&mut self, like: &[u8]) -> Vec<u8> {
        let random = &mut self.random;
        let len = random.below(200) * random.below(8);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        let copied = random.below(22).min(len).min(like.len());
        bytes[..copied].copy_from_slice(&like[..copied]);
        bytes
    }

    /// Returns a hello with a valid MAC: from the initiator if `to` is site B, and from the
    /// responder otherwise.
    fn forge(&mut self, to: SimSite, present: &Datagram) -> Vec<u8> {
        let of_initiator = self.pick_handshake(SimSite::B);
        let seen = Hello::read(&of_initiator).ok();
        let Some((key, key_id)) = &self.envelope else {
            return Vec::new();
        };
        let random = &mut self.random;
        let noise: Vec<u8> = (0..random.below(300)).map(|at| at as u8).collect();
        let source = match seen {
            Some(seen) if self.config.meddles && random.chance(0.2) => seen.source,
            _ => ConnectionId((random.next() as u32).to_be_bytes()),
        };
        let timestamp = match (random.below(3), seen) {
            (0, Some(seen)) => seen.timestamp + random.below(1_000_000_000) as u64,
            (1, _) => random.next(),
            _ => 1_700_000_000_000_000_000,
        };
        let crypto = match seen {
            Some(seen) if random.chance(0.7) => seen.crypto,
            _ => &noise,
        };
        let from = match to {
            SimSite::B => HelloSender::Initiator(*key_id),
            SimSite::A => HelloSender::Responder(match present.bytes.get(1..5) {
                Some(id) if self.config.meddles => {
                    ConnectionId(id.try_into().expect("the slice has four bytes"))
                }
                _ => source,
            }),
        };
        let hello = Hello {
            from,
            timestamp,
            source,
            cookie: None,
            crypto_offset: if random.chance(0.8) { 0 } else { 1150 },
            crypto,
        };
        let mut out = Vec::new();
        hello.put(&mut out, key);
        out
    }
}

fn pick(random: &mut Random, from: &VecDeque<Vec<u8>>) -> Vec<u8> {
    let at = random.below(from.len());
    from.get(at).cloned().unwrap_or_default()
}

fn is_stranger(address: &SocketAddr) -> bool {
    address.ip() == STRANGERS
}

/// Address of all strangers.
const STRANGERS: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 66));
/// Address of all relays. A relay forwards all datagrams of site A for a limited time.
const RELAYS: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 66));
/// Maximum number of recorded data datagrams for each site. The same maximum applies to recorded
/// handshake datagrams.
const RECORDED_MAX: usize = 512;
