use super::super::{Config, ConfigError};
use link::Identity;

/// Parses a file with two peers. `serves` is a key of the first peer. The second peer serves all
/// servers.
fn parse(name: &str, serves: &str, listener: &str) -> Result<Config, ConfigError> {
    let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let _ = std::fs::remove_file(folder.join("a.key"));
    Identity::generate()
        .write_new(&folder.join("a.key"))
        .expect("a new key file");
    let keys = [(); 2].map(|()| Identity::generate().public_key());
    let text = format!(
        "[identity]\nkey_file = \"a.key\"\n\
         [[peer]]\nname = \"site-b\"\npublic_key = \"{}\"\n{serves}\n\
         [[peer]]\nname = \"site-c\"\npublic_key = \"{}\"\n{listener}",
        keys[0], keys[1]
    );
    let parsed = Config::parse(&text, &folder.join("a.toml"));
    let _ = std::fs::remove_dir_all(&folder);
    parsed
}

const SERVES: &str = "serves = [\"10.20.0.0/16\", \"ftp.example.com\", \"2001:db8::/32\"]";
const LISTENER: &str = "[[ftp]]\nlisten = \"[::]:2125\"\ntransparent = true\n\
                    clients = [\"10.0.0.0/8\", \"fd00::/8\"]\n";

#[test]
fn a_listener_tells_its_tls() {
    let listener = "[[ftp]]\nlisten = \"127.0.0.1:2121\"\ntarget = \"10.20.0.5\"\n";
    for (tls, words) in [
        ("", "ftp on 127.0.0.1:2121 to 10.20.0.5:21\n"),
        (
            "tls = { mode = \"explicit\" }\n",
            "10.20.0.5:21, with optional TLS\n",
        ),
        (
            "tls = { mode = \"explicit\", required = true }\n",
            "10.20.0.5:21, with required TLS\n",
        ),
        (
            "tls = { mode = \"implicit\" }\n",
            "10.20.0.5:21, with TLS from the first byte\n",
        ),
    ] {
        let config =
            parse("tls-told", SERVES, &format!("{listener}{tls}")).expect("a valid configuration");
        let shown = config.to_string();
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn a_transparent_listener_shows_the_destinations_that_it_intercepts() {
    let config = parse("transparent", SERVES, LISTENER).expect("a valid configuration");
    assert!(config.ftp[0].transparent);
    let shown = config.to_string();
    assert!(
        shown.contains("ftp on [::]:2125 to intercepted servers: 10.20.0.0/16, 2001:db8::/32"),
        "{shown}"
    );
    let ipv4 = LISTENER.replace("[::]", "0.0.0.0");
    let shown = parse("transparent-4", SERVES, &ipv4)
        .expect("valid")
        .to_string();
    assert!(!shown.contains("2001:db8"), "{shown}");
}

#[test]
fn what_cannot_be_intercepted_is_an_error_with_its_place() {
    let names = "serves = [\"ftp.example.com\", \"*.example.com\"]";
    for (serves, listener, at, expected) in [
        (names, LISTENER.to_owned(), (12, 15), "nothing to intercept"),
        ("", LISTENER.to_owned(), (12, 15), "nothing to intercept"),
        (
            SERVES,
            format!("{LISTENER}via = \"site-c\"\n"),
            (12, 15),
            "nothing to intercept",
        ),
        (
            SERVES,
            LISTENER.replace("\"10.0.0.0/8\", \"fd00::/8\"", ""),
            (12, 15),
            "nothing to intercept",
        ),
        (
            SERVES,
            format!("{LISTENER}target = \"10.20.0.5\"\n"),
            (14, 10),
            "target contradicts",
        ),
        (
            SERVES,
            format!("{LISTENER}external_address = \"10.0.0.1\"\n"),
            (14, 20),
            "external_address contradicts",
        ),
        (
            SERVES,
            format!("{LISTENER}passive_ports = \"3000-3010\"\n"),
            (14, 17),
            "passive_ports contradicts",
        ),
        (
            SERVES,
            LISTENER.replace("2125", "0"),
            (11, 10),
            "expected a fixed port",
        ),
        (
            SERVES,
            LISTENER.replace("2125", "21"),
            (11, 10),
            "other than 21",
        ),
        (
            SERVES,
            format!("{LISTENER}{}", LISTENER.replace("[::]", "127.0.0.1")),
            (15, 10),
            "another transparent listener",
        ),
        (
            SERVES,
            "[[ftp]]\nlisten = \"[::]:2125\"\ntransparent = true\n".to_owned(),
            (11, 10),
            "needs clients",
        ),
    ] {
        let error = parse("not-transparent", serves, &listener).expect_err("it is wrong");
        let text = error.to_string();
        let place = format!(":{}:{}: ", at.0, at.1);
        assert!(
            text.contains(&place) && text.contains(expected),
            "{listener}: {text}"
        );
    }
}
