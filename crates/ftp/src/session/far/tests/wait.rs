//! Tests of `SITE LONGHAUL WAIT`. The far gateway itself replies to this command, in the order of
//! the client's commands.

use super::*;

#[test]
fn the_gateway_takes_note_of_how_long_a_client_waits() {
    let mut far = session();
    let said = client(&mut far, 1, "SITE LONGHAUL WAIT 60");
    assert_eq!(said, ["wait 60 s", "> 200 LONGHAUL WAIT"]);
    assert_eq!(client(&mut far, 2, "CWD x"), ["< CWD x"]);
    assert!(client(&mut far, 3, "SITE LONGHAUL WAIT 20").is_empty());
    assert_eq!(
        server(&mut far, "250 ok"),
        ["> 250 ok", "wait 20 s", "> 200 LONGHAUL WAIT"]
    );
}

#[test]
fn a_wrong_time_goes_to_no_server() {
    let mut far = session();
    let said = client(&mut far, 1, "SITE LONGHAUL WAIT for me");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("> 501 gateway: expected SITE LONGHAUL WAIT"),
        "{said:?}"
    );
}
