//! Predefined paths with names, each with the source of its values.

use std::time::Duration;

use units::{BitRate, ByteCount};

use crate::config::{GilbertElliott, PathConfig, Radio};

/// A predefined path with a name.
///
/// `forward` is the direction from site A to site B. Site A usually sends most of the data. If the
/// directions differ, `forward` is the uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of the profile in commands.
    pub name: &'static str,
    /// Description of the path in one line.
    pub summary: &'static str,
    /// Source of the values.
    pub source: &'static str,
    /// Direction from site A to site B.
    pub forward: PathConfig,
    /// Direction from site B to site A.
    pub backward: PathConfig,
    /// Medium that both directions share.
    pub radio: Option<Radio>,
}

impl Profile {
    /// Returns the profile called `name`, if it exists.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Returns all profiles.
    pub fn all() -> Vec<Self> {
        vec![
            Self::perfect(),
            Self::regional(),
            Self::transatlantic(),
            Self::transpacific(),
            Self::geo_satellite(),
            Self::leo_satellite(),
            Self::mobile(),
            Self::wifi_11b(),
        ]
    }

    /// A path without impairments. Traffic is then limited only by the machine itself.
    pub fn perfect() -> Self {
        Self::symmetric(
            "perfect",
            "no rate limit, no delay, no loss",
            "by definition",
            PathConfig::default(),
        )
    }

    /// A path between two sites in one country.
    pub fn regional() -> Self {
        Self::symmetric(
            "regional",
            "1 Gbit/s, 10 ms RTT, no loss",
            "ours: about 1,000 km of fibre, at 5 us per km",
            line(BitRate::gbit(1), Duration::from_millis(10)),
        )
    }

    /// A transatlantic path, as used by the demonstration.
    pub fn transatlantic() -> Self {
        let path = line(BitRate::mbit(300), Duration::from_millis(200));
        Self::symmetric(
            "transatlantic",
            "300 Mbit/s, 200 ms RTT, 0.1 % loss each way",
            "ours: Central Europe to the west coast of America, loss as on a busy transit link",
            PathConfig {
                loss: 0.001,
                ..path
            },
        )
    }

    /// A long path without loss.
    pub fn transpacific() -> Self {
        let path = line(BitRate::mbit(100), Duration::from_millis(173));
        Self::symmetric(
            "transpacific",
            "100 Mbit/s, 173 ms RTT, no loss",
            "the path of the throughput plan (docs/measuring.md): windows and parallel streams",
            path,
        )
    }

    /// An asymmetric path over a geostationary satellite.
    pub fn geo_satellite() -> Self {
        let rtt = Duration::from_millis(600);
        let path = |rate| PathConfig {
            loss: 0.0001,
            ..line(rate, rtt)
        };
        Self {
            name: "geo-satellite",
            summary: "10 Mbit/s up, 50 Mbit/s down, 600 ms RTT, 0.01 % loss each way",
            source: "rates and RTT of picoquic's satellite tests (satellite_test.c: 600 ms RTT, \
                     50/10 Mbit/s); loss from the range of CNES's GEO access measurements \
                     (IETF 106 slides: 0.01 to 0.5 %)",
            forward: path(BitRate::mbit(10)),
            backward: path(BitRate::mbit(50)),
            radio: None,
        }
    }

    /// An asymmetric path over low-orbit satellites, with losses in bursts. It does not model
    /// handovers.
    pub fn leo_satellite() -> Self {
        let rtt = Duration::from_millis(50);
        let path = |rate| PathConfig {
            bursts: Some(GilbertElliott::bursts_of(10.0, 0.005)),
            ..line(rate, rtt)
        };
        Self {
            name: "leo-satellite",
            summary: "20 Mbit/s up, 200 Mbit/s down, 50 ms RTT, 0.5 % loss in bursts of 10",
            source: "ours: round figures for a low-orbit access; handovers are not modelled",
            forward: path(BitRate::mbit(20)),
            backward: path(BitRate::mbit(200)),
            radio: None,
        }
    }

    /// A mobile access network with a large queue.
    pub fn mobile() -> Self {
        let rtt = Duration::from_millis(60);
        let deep = |rate: BitRate| PathConfig {
            queue: rate.bytes_in(Duration::from_millis(500)),
            loss: 0.001,
            ..line(rate, rtt)
        };
        Self {
            name: "mobile",
            summary: "10 Mbit/s up, 50 Mbit/s down, 60 ms RTT, 500 ms of queue, 0.1 % loss",
            source: "ours: round figures for a 4G access with a bloated buffer",
            forward: deep(BitRate::mbit(10)),
            backward: deep(BitRate::mbit(50)),
            radio: None,
        }
    }

    /// Two stations at one access point of IEEE 802.11b.
    ///
    /// The fixed airtime follows from the standard with long preambles. It is the sum of DIFS (50
    /// µs), a mean backoff of 15.5 slots of 20 µs, and preamble and header (192 µs). SIFS (10 µs)
    /// and the acknowledgement at 2 Mbit/s (248 µs) complete the sum of 810 µs.
    ///
    /// A value of 800 µs matches three measurements. FTP took 38.8 s, with segments of 1,448 bytes
    /// and an acknowledgement for every second segment. UDP took 31.6 s at 375 kB/s, which is the
    /// limit of the medium with 1,400 bytes per packet. A ping took 3.6 ms.
    pub fn wifi_11b() -> Self {
        let radio = Radio {
            rate: BitRate::mbit(11),
            frame_time: Duration::from_micros(800),
            hops: 2,
            queue: ByteCount::new(300_000),
        };
        Self {
            radio: Some(radio),
            ..Self::symmetric(
                "wifi-11b",
                "802.11b at 11 Mbit/s, half-duplex, relayed by an access point, no loss",
                "fitted to the study \"Wi-Fi Test Results\" (11,844,459 bytes between two laptops: \
                 38.8 s by FTP, 31.6 s by UFTP at 375 kB/s, ping 3.6 ms), within 1.5 % of all three; \
                 the fixed 0.80 ms a frame are those of IEEE 802.11b with long preambles (0.81); \
                 the queue of 300 kB is ours",
                PathConfig::default(),
            )
        }
    }

    fn symmetric(
        name: &'static str,
        summary: &'static str,
        source: &'static str,
        path: PathConfig,
    ) -> Self {
        Self {
            name,
            summary,
            source,
            forward: path.clone(),
            backward: path,
            radio: None,
        }
    }
}

/// Creates one direction of a path with a rate, a round-trip time and the default queue.
fn line(rate: BitRate, rtt: Duration) -> PathConfig {
    PathConfig {
        rate: Some(rate),
        queue: PathConfig::default_queue(rate, rtt),
        delay: rtt / 2,
        ..PathConfig::default()
    }
}
