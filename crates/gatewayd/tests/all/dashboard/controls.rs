//! Tests of changes that web pages and programs make through the dashboard.

use super::*;

#[test]
fn its_own_page_and_programs_set_a_rate_until_a_reload() {
    let mut world = guarded_world("");
    let admin = world.near.admin;
    let mut page = Page::open(admin);
    page.until(|it| it["peers"][0]["state"] == "up");
    let own = [
        host(admin),
        JSON.to_owned(),
        format!("Origin: http://{admin}"),
        "Sec-Fetch-Site: same-origin".to_owned(),
        bearer(),
    ];
    let wish = json!({ "peer": "site-b", "rate_max": "8 Mbit/s" }).to_string();
    assert_eq!(ask(admin, "POST", "/dashboard/rate", &own, &wish).code, 204);
    let all = json!({ "peer": null, "rate_max": "1 Gbit/s" });
    assert_eq!(order(admin, "/dashboard/rate", &all).code, 204);
    let seen = page.until(|it| it["rate_max"]["is_by_hand"] == true);
    assert_eq!(seen["rate_max"]["now_bits_per_s"], 1_000_000_000);
    assert_eq!(seen["peers"][0]["rate_max"]["now_bits_per_s"], 8_000_000);
    assert_eq!(
        seen["peers"][0]["rate_max"]["configured_bits_per_s"],
        Value::Null
    );
    // The link applies the limit: 2 MB take two seconds.
    let begun = Instant::now();
    upload(&world, 2_000_000);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1_300), "{took:?}");
    assert_eq!(world.near.reload_and_tell(str::to_owned).error, None);
    page.until(|it| it["rate_max"]["is_by_hand"] == false);
    for (wish, code) in [
        (json!({ "peer": "nobody", "rate_max": null }), 404),
        (json!({ "peer": null, "rate_max": "1 bit/s" }), 422),
        (json!({ "peer": null, "rate_max": "fast" }), 422),
        (json!({ "peer": null, "rate_max": 7 }), 400),
        (json!({ "peer": null, "rate": "1 Gbit/s" }), 400),
    ] {
        let answer = order(admin, "/dashboard/rate", &wish);
        assert_eq!(answer.code, code, "{wish}: {}", answer.body);
        assert!(!answer.error().is_empty());
    }
    world.near.shut_down();
}

/// Sends `count` bytes through the forward. Returns when the server has received all bytes.
fn upload(world: &World, count: usize) {
    let mut client = world.forward(0);
    let mut server = world.accept().stream;
    let bytes = pattern(count);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&bytes).expect("the gateway reads");
            client.shutdown(std::net::Shutdown::Write).expect("open");
        });
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("an orderly end");
        assert!(all == bytes);
    });
}

#[test]
fn a_stopped_transfer_ends_on_both_sides_and_its_session_goes_on() {
    let world = guarded_world("");
    let admin = world.near.admin;
    let (mut client, mut server, client_data, server_data) = world.mid_upload();
    let transfer = world.near.snapshot().transfers[0].clone();
    assert_eq!(
        (transfer.path.as_str(), transfer.kind.as_str()),
        ("a", "ftp")
    );
    let stop = json!({ "transfer": transfer.id });
    assert_eq!(order(admin, "/dashboard/stop", &stop).code, 204);
    expect_reset(&client_data);
    expect_reset(&server_data);
    server.send("426 broken");
    client.expect_code("4");
    client.send("NOOP");
    server.expect("NOOP");
    server.send("200 ok");
    client.expect("200 ok");
    world.near.wait_for("the end", |it| it.transfers.is_empty());
    assert_eq!(order(admin, "/dashboard/stop", &stop).code, 404);
    let found = look(admin, "/dashboard/recent?words=failed+stor").json();
    assert_eq!(found["matching"], 1, "{found}");
}

#[test]
fn an_open_store_can_be_cleared_and_a_token_guards_it() {
    let world = guarded_world("\n[store]\nfolder = \".\"\n");
    let admin = world.near.admin;
    let mut page = Page::open(admin);
    let _open = world.mid_upload();
    let seen = page.until(|it| it["stores"][0]["peer"] == "site-b");
    assert_eq!(seen["stores"][0]["size_max_bytes"], 8_u64 << 30);
    let store = world.near.snapshot().stores[0].store.clone();
    assert!(store.starts_with("site%2Db-"), "{store}");
    for (wish, code) in [
        (json!({ "store": "../a.key" }), 404),
        (json!({ "store": "" }), 404),
        (json!({ "store": null }), 400),
        (json!({ "store": store, "all": true }), 400),
        (json!({ "store": store }), 204),
        (json!({ "store": store }), 204),
    ] {
        let answer = order(admin, "/dashboard/clear", &wish);
        assert_eq!(answer.code, code, "{wish}: {}", answer.body);
    }
    let (folder, ..) = folder();
    let keys = format!("listen = \"127.0.0.1:0\"\n{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    let clear = json!({ "store": store });
    assert_eq!(post(at, "/dashboard/clear", &clear).code, 401);
}

#[test]
fn a_forward_can_be_stopped_at_either_gateway() {
    for is_far in [false, true] {
        let world = guarded_world("");
        let mut client = world.forward(0);
        let server = world.accept();
        client.write_all(b"hello").expect("the gateway reads");
        let gateway = if is_far { &world.far } else { &world.near };
        let open = gateway.wait_for("a forward", |it| !it.transfers.is_empty());
        let stop = json!({ "transfer": open.transfers[0].id });
        assert_eq!(order(gateway.admin, "/dashboard/stop", &stop).code, 204);
        expect_reset(&client);
        expect_reset(&server.stream);
    }
}

#[test]
fn progress_is_shown_where_the_server_announces_a_size() {
    let world = guarded_world("");
    for (command, reply, size) in [
        (
            "RETR a",
            "150 Opening BINARY mode data connection for a (1000 bytes).",
            Some(1000),
        ),
        ("RETR a", "150 go", None),
    ] {
        let (mut client, mut server, _client_data, mut server_data) = world.prepared();
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
        server_data.write_all(&[0; 500]).expect("the gateway reads");
        let moved = world.near.wait_for("bytes", |it| {
            it.transfers.iter().any(|t| t.down_bytes == 500)
        });
        let transfer = moved.transfers.last().expect("one");
        assert_eq!(transfer.size_bytes, size, "{reply}");
    }
    let (mut client, mut server, _client_data, _server_data) = world.prepared();
    for (command, reply) in [
        ("REST 400", "350 at 400"),
        ("RETR a", "150 a (1000 bytes)."),
    ] {
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
    }
    let transfers = world.near.snapshot().transfers;
    assert_eq!(
        transfers.last().expect("one").size_bytes,
        None,
        "it begins inside"
    );
}
