//! Tests of the permissions to read the dashboard and to make changes.

use super::*;

#[test]
fn a_page_that_rebinds_its_name_gets_nothing() {
    let world = World::start();
    let evil = ["Host: evil.example".to_owned(), JSON.to_owned()];
    for path in [
        "/",
        "/dashboard/events",
        "/dashboard/recent",
        "/dashboard/main.js",
    ] {
        assert_eq!(
            ask(world.near.admin, "GET", path, &evil, "").code,
            421,
            "{path}"
        );
    }
    for path in [
        "/dashboard/rate",
        "/dashboard/stop",
        "/dashboard/clear",
        "/dashboard/invite",
        "/dashboard/login",
    ] {
        assert_eq!(
            ask(world.near.admin, "POST", path, &evil, "{}").code,
            421,
            "{path}"
        );
    }
}

const CHANGES: [&str; 6] = [
    "/dashboard/rate",
    "/dashboard/stop",
    "/dashboard/clear",
    "/dashboard/invite",
    "/dashboard/login",
    "/dashboard/logout",
];

#[test]
fn another_page_changes_nothing() {
    let world = World::start();
    let admin = world.near.admin;
    let (host, json) = (host(admin), JSON.to_owned());
    for path in CHANGES {
        for line in [
            "Origin: http://evil.example".to_owned(),
            "Origin: null".to_owned(),
            format!("Origin: http://{admin}.evil.example"),
            // This is another program on the same machine.
            format!("Origin: http://127.0.0.1:{}", admin.port() ^ 1),
            "Sec-Fetch-Site: cross-site".to_owned(),
            "Referer: http://evil.example/".to_owned(),
        ] {
            let lines = [host.clone(), json.clone(), line.clone()];
            let answer = ask(admin, "POST", path, &lines, "{}");
            assert_eq!(answer.code, 403, "{path}, {line}: {}", answer.body);
        }
        // These are the types that a form can send.
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            let kind = format!("Content-Type: {kind}");
            let own = format!("Origin: http://{admin}");
            let answer = ask(admin, "POST", path, &[host.clone(), kind, own], "{}");
            assert_eq!(answer.code, 415, "{path}: {}", answer.body);
        }
        let code = get(admin, path).code;
        assert!(
            (400..500).contains(&code),
            "no change by GET: {path}: {code}"
        );
    }
}

#[test]
fn an_address_that_is_not_loopback_needs_a_token() {
    let (folder, ..) = folder();
    let (off, at) = alone(&folder, "listen = \"0.0.0.0:0\"\n");
    for path in ["/", "/dashboard/events", "/dashboard/recent"] {
        let answer = get(at, path);
        assert_eq!(answer.code, 403, "{path}");
        assert!(answer.error().contains("token_file"), "{}", answer.body);
    }
    assert_eq!(
        post(at, "/dashboard/stop", &json!({ "transfer": 1 })).code,
        403
    );
    assert_eq!(get(at, "/status.json").code, 200, "outside checks go on");
    drop(off);
    let keys = format!("listen = \"0.0.0.0:0\"\n{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    let login_page = get(at, "/");
    assert_eq!(login_page.code, 401);
    assert!(login_page.body.contains("login.js") && !login_page.body.contains("main.js"));
    for path in [
        "/dashboard/events",
        "/dashboard/recent",
        "/dashboard/history?peer=a&span=day",
    ] {
        assert_eq!(get(at, path).code, 401, "{path}");
    }
    assert_eq!(
        post(at, "/dashboard/stop", &json!({ "transfer": 1 })).code,
        401
    );
    assert_eq!(get(at, "/metrics").code, 200);
    let wrong = json!({ "token": TOKEN.replace('0', "1") });
    assert_eq!(post(at, "/dashboard/login", &wrong).code, 401);
    let right = post(at, "/dashboard/login", &json!({ "token": TOKEN }));
    assert_eq!(right.code, 204);
    let cookie = right
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie");
    assert!(
        cookie.ends_with("Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().expect("a pair");
    let cookie = format!("Cookie: {pair}");
    let with_cookie = |method, path, more: &[String], body| {
        let lines = [&[host(at), cookie.clone()], more].concat();
        ask(at, method, path, &lines, body).code
    };
    assert_eq!(with_cookie("GET", "/", &[], ""), 200);
    let stop = "{\"transfer\": 1}";
    // A request with a cookie comes from a browser, but the `Origin` header is missing.
    assert_eq!(
        with_cookie("POST", "/dashboard/stop", &[JSON.to_owned()], stop),
        403
    );
    let own = [JSON.to_owned(), format!("Origin: http://{at}")];
    assert_eq!(
        with_cookie("POST", "/dashboard/stop", &own, stop),
        404,
        "no transfer"
    );
    let bearer = |token: &str| {
        let line = format!("Authorization: Bearer {token}");
        ask(
            at,
            "POST",
            "/dashboard/stop",
            &[host(at), JSON.to_owned(), line],
            stop,
        )
        .code
    };
    assert_eq!((bearer(TOKEN), bearer("x")), (404, 401));
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn an_invite_takes_a_token_even_at_loopback() {
    let (folder, ..) = folder();
    let wish = json!({ "endpoint": "203.0.113.9:4810", "name": "oslo", "minutes": 30 });
    let (without, at) = alone(&folder, "listen = \"127.0.0.1:0\"\n");
    let refused = post(at, "/dashboard/invite", &wish);
    assert_eq!(refused.code, 403);
    assert!(refused.error().contains("token_file"), "{}", refused.body);
    assert_eq!(get(at, "/dashboard/access").json()["invite"], false);
    drop(without);
    let keys = format!("listen = \"127.0.0.1:0\"\n{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    assert_eq!(get(at, "/").code, 200, "loopback may look");
    assert_eq!(post(at, "/dashboard/invite", &wish).code, 401);
    let invite = |wish: &Value| {
        let lines = [
            host(at),
            JSON.to_owned(),
            format!("Authorization: Bearer {TOKEN}"),
        ];
        ask(at, "POST", "/dashboard/invite", &lines, &wish.to_string())
    };
    let unknown = invite(&json!({ "minutes": 30 }));
    assert_eq!(unknown.code, 422, "no endpoint is known: {}", unknown.body);
    let made = invite(&wish);
    assert_eq!(made.code, 200, "{}", made.body);
    assert!(made.head.contains("no-store"), "{}", made.head);
    let text = made.json()["invite"].as_str().expect("a text").to_owned();
    let read: gatewayd::enrolment::Invite = text.parse().expect("an invite");
    assert_eq!(read.endpoint, "203.0.113.9:4810");
    let register = Register::read(&Register::path(&folder.join("a.key"))).expect("there");
    assert_eq!(register.invites.len(), 1);
    assert_eq!(register.invites[0].public_key, read.identity().public_key());
    assert_eq!(register.invites[0].name.as_deref(), Some("oslo"));
    // The endpoint is known from now on.
    assert_eq!(invite(&json!({ "minutes": 1 })).code, 200);
    for wish in [
        json!({ "minutes": 0 }),
        json!({ "minutes": 50_000 }),
        json!({ "minutes": 1, "name": "a\nb" }),
        json!({ "minutes": 1, "endpoint": "nowhere" }),
    ] {
        assert_eq!(invite(&wish).code, 422, "{wish}");
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn another_token_ends_what_the_first_one_opened() {
    let (folder, ..) = folder();
    let keys = format!("listen = \"127.0.0.1:0\"\n{}", token_file(&folder));
    let (gateway, at) = alone(&folder, &keys);
    let lines = [
        host(at),
        JSON.to_owned(),
        format!("Authorization: Bearer {TOKEN}"),
    ];
    let stop = || ask(at, "POST", "/dashboard/stop", &lines, "{\"transfer\": 1}").code;
    assert_eq!(stop(), 404);
    fs::write(folder.join("admin.token"), TOKEN.replace('0', "7")).expect("room");
    let outcome = gateway.reload_and_tell(str::to_owned);
    assert_eq!(outcome.taken, ["[admin] token_file"]);
    assert_eq!(stop(), 401);
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn odd_questions_are_answered_and_break_nothing() {
    let world = guarded_world("");
    let admin = world.near.admin;
    for (path, code) in [
        ("/dashboard/recent?words=%00%ff%C3", 200),
        ("/dashboard/recent?before=-1", 400),
        ("/dashboard/recent?nonsense=1", 400),
        ("/dashboard/history?peer=%F0%9F%92%A9&span=day", 404),
        ("/dashboard/history?peer=site-b&span=year", 400),
        ("/dashboard/history", 400),
    ] {
        assert_eq!(look(admin, path).code, code, "{path}");
    }
    let long = "x".repeat(300);
    assert_eq!(
        look(admin, &format!("/dashboard/recent?words={long}")).code,
        422
    );
    let lines = [host(admin), JSON.to_owned(), bearer()];
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"transfer\": 1e99}",
        "{\"transfer\": -1}",
        "\u{0}",
    ] {
        assert_eq!(
            ask(admin, "POST", "/dashboard/stop", &lines, body).code,
            400,
            "{body:?}"
        );
    }
    let large = "x".repeat(100_000);
    assert_eq!(
        ask(admin, "POST", "/dashboard/stop", &lines, &large).code,
        413
    );
}

#[test]
fn names_take_the_token_and_changes_too() {
    let build = "1.2.3 (0123456789ab)";
    gatewayd::set_build(build);
    for is_guarded in [false, true] {
        let world = match is_guarded {
            true => guarded_world(""),
            false => World::start(),
        };
        let admin = world.near.admin;
        let _open = world.mid_upload();
        let shown = world.near.snapshot();
        assert_eq!(shown.transfers[0].path, "a", "by the socket");
        let client = shown.transfers[0].client.clone();
        assert!(!client.is_empty() && !shown.hides_names);
        assert_eq!(shown.build, build);
        let hidden = get(admin, "/status.json");
        let transfer = &hidden.json()["transfers"][0];
        assert_eq!(
            (&transfer["path"], &transfer["client"]),
            (&json!(""), &json!(""))
        );
        assert!(!hidden.body.contains(&client), "{}", hidden.body);
        assert_eq!(hidden.json()["build"], "");
        assert!(!hidden.body.contains("0123456789ab"), "{}", hidden.body);
        assert_eq!(hidden.json()["hides_names"], true);
        assert_eq!(get(admin, "/metrics").code, 200);
        assert_eq!(get(admin, "/dashboard/recent").code, 200);
        let found = get(admin, "/dashboard/recent?words=alice");
        assert_eq!(found.code, 401, "what is found tells names");
        let stop = json!({ "transfer": 1 });
        let code = post(admin, "/dashboard/stop", &stop).code;
        assert_eq!(code, if is_guarded { 401 } else { 403 });
        let mut page = TcpStream::connect(admin).expect("the admin address");
        write!(
            page,
            "GET /dashboard/events HTTP/1.1\r\n{}\r\n\r\n",
            host(admin)
        )
        .expect("a request");
        page.set_read_timeout(Some(TIMEOUT))
            .expect("a socket option");
        let mut page = Page {
            stream: page,
            text: String::new(),
        };
        assert_eq!(page.next("transfers")["opened"][0]["path"], "");
        if is_guarded {
            let shown = look(admin, "/status.json").json();
            assert_eq!(shown["transfers"][0]["path"], "a");
            assert_eq!(order(admin, "/dashboard/stop", &stop).code, 404);
            let mut page = Page::open(admin);
            assert_eq!(page.next("transfers")["opened"][0]["path"], "a");
        }
    }
}

#[test]
fn a_client_behind_a_proxy_is_no_program_on_this_machine() {
    let (folder, ..) = folder();
    let keys = "listen = \"127.0.0.1:0\"\nhosts = [\"gw.example\"]\n";
    let (open, at) = alone(&folder, keys);
    let signs = [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "x-forwarded-proto: https",
        "X-Real-IP: 192.0.2.1",
        "Via: 1.1 proxy",
    ];
    for sign in signs {
        let lines = [host(at), sign.to_owned()];
        for (path, code) in [
            ("/", 403),
            ("/dashboard/recent", 403),
            ("/trace?peer=a", 403),
            ("/healthz", 200),
        ] {
            assert_eq!(ask(at, "GET", path, &lines, "").code, code, "{sign} {path}");
        }
        let answer = ask(at, "POST", "/reload", &lines, "");
        assert_eq!(answer.code, 403, "{sign}");
    }
    let named = ["Host: gw.example".to_owned()];
    assert_eq!(ask(at, "GET", "/", &named, "").code, 403, "a name in hosts");
    assert_eq!(get(at, "/").code, 200);
    drop(open);
    let keys = format!("{keys}{}", token_file(&folder));
    let (_guarded, at) = alone(&folder, &keys);
    for sign in signs {
        let lines = [host(at), sign.to_owned()];
        assert_eq!(ask(at, "GET", "/dashboard/recent", &lines, "").code, 401);
        let with_token = [&lines[..], &[bearer()]].concat();
        assert_eq!(
            ask(at, "GET", "/dashboard/recent", &with_token, "").code,
            200
        );
    }
    let _ = fs::remove_dir_all(&folder);
}
