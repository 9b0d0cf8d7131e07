//! Signatures of Slack and Discord: what their makers' own packages take, the program takes, and nothing else (T8, T10).

use serde_json::{Value, json};
use standfast_testkit::{Http, text};

use super::*;

/// One request with a signature that may be wrong.
struct Vector {
    name: String,
    at: String,
    body: String,
    signature: String,
}

/// Sixty requests: some are right, the others differ in time, body, secret, or how the signature is written.
fn vectors(now: i64) -> Vec<Vector> {
    let bodies = [
        "payload=%7B%7D",
        "payload=%7B%22type%22%3A%22none%22%7D",
        "ssl_check=1",
        "",
        "payload=%E2%80%AE%F0%9F%98%80",
        "a=1&payload=%7B%7D&b=:",
    ];
    // Not near the ends of the window, as the machine may be busy in between; those are a test of their own.
    let times = [0, -1, -100, 60, 150, -600, -3_600, -86_400, 900, 86_400];
    let mut wanted = Vec::new();
    for body in bodies {
        wanted.extend(times.map(|by| (body.to_owned(), (now + by).to_string())));
    }
    let asked: Vec<Value> =
        wanted.iter().map(|(body, at)| json!({"secret": SECRET, "at": at, "body": body})).collect();
    let said = slack_says(&json!(asked), now);
    let signature = |no: usize| text(&said[no]["signature"]).to_owned();
    let mut vectors: Vec<Vector> = wanted
        .iter()
        .enumerate()
        .map(|(no, (body, at))| Vector {
            name: format!("{body:?} at {at}"),
            at: at.clone(),
            body: body.clone(),
            signature: signature(no),
        })
        .collect();
    let (body, at) = wanted[0].clone();
    let right = signature(0);
    let other =
        text(&slack_says(&json!([{"secret": "x", "at": at, "body": body}]), now)[0]["signature"]).to_owned();
    let change = |name: &str, at: &str, body: &str, signature: &str| Vector {
        name: name.to_owned(),
        at: at.to_owned(),
        body: body.to_owned(),
        signature: signature.to_owned(),
    };
    vectors.extend([
        change("of another secret", &at, &body, &other),
        change("of another body", &at, "payload=%7B%22%22%7D", &right),
        change("with more body", &at, &format!("{body}&x=1"), &right),
        change("with less body", &at, &body[1..], &right),
        change("of another second", &(now + 1).to_string(), &body, &right),
        change("another version", &at, &body, &right.replace("v0=", "v1=")),
        change("no version", &at, &body, &right[3..]),
        change("cut", &at, &body, &right[..right.len() - 2]),
        change("longer", &at, &body, &format!("{right}00")),
        change("nothing", &at, &body, ""),
        change("only a version", &at, &body, "v0="),
        change("no letters of hex", &at, &body, &format!("v0={}", "zz".repeat(32))),
    ]);
    for place in [3, 20, 40, 66] {
        let mut letters = right.clone().into_bytes();
        letters[place] = if letters[place] == b'0' { b'1' } else { b'0' };
        vectors.push(change(&format!("letter {place}"), &at, &body, &String::from_utf8(letters).unwrap()));
    }
    vectors
}

/// T8, T10: of more than sixty signed requests the program takes exactly those that Slack's package for Python takes, and none that Bolt
/// refuses.
#[tokio::test]
async fn t10_signatures_count_as_slacks_own_packages_say() {
    let folder = Site::folder(SCRIPT);
    let slack = Service::start("slack.py", folder.path());
    let site = Site::new(folder, &slack_channel(&slack, ""), TASK);
    let now = now();
    let vectors = vectors(now);
    assert!(vectors.len() >= 60, "{}", vectors.len());
    let requests: Vec<Value> = vectors
        .iter()
        .map(|one| json!({"secret": SECRET, "at": one.at, "body": one.body, "signature": one.signature}))
        .collect();
    let by_python = slack_says(&json!(requests), now);
    let by_bolt = judged(&json!({"what": "slack", "requests": requests, "now": now}));
    let mut taken = 0;
    for (no, one) in vectors.iter().enumerate() {
        let status = send_click(&site.base, &one.body, &one.at, &one.signature).await.status;
        let is_taken = by_python[no]["is_taken"] == true;
        taken += usize::from(is_taken);
        assert_eq!(status, if is_taken { 200 } else { 401 }, "{}", one.name);
        assert!(!is_taken || by_bolt[no] == true, "{}", one.name);
    }
    assert!(taken >= 20 && taken < vectors.len() / 2 + 5, "{taken}");
    assert!(!site.log().contains(SECRET));
}

/// T8, T10: the same of Discord's package, with requests that Discord would sign.
#[tokio::test]
async fn t10_signatures_count_as_discords_own_package_says() {
    let bodies = ["{\"type\":1}", "{\"type\": 1, \"id\": \"9\"}", "{\"type\":1,\"x\":\"\u{202e}😀\"}"];
    let now = now();
    let at = now.to_string();
    let made = judged(&json!({"what": "discord", "bodies": bodies, "at": at}));
    let (key, seed) = (text(&made["key"]).to_owned(), made["seed"].clone());
    let late = (now - 400).to_string();
    let old = judged(&json!({"what": "discord", "bodies": bodies, "at": late, "seed": seed}));
    let stranger = judged(&json!({"what": "discord", "bodies": bodies, "at": at}));
    let folder = Site::folder(SCRIPT);
    let channel = format!(
        "[{{type: discord, room: '77', token: canary-token, public_key: '{key}', team: '55', api_url: 'http://127.0.0.1:9/api'}}]"
    );
    let site = Site::new(folder, &channel, TASK);
    let signature = |from: &Value, no: usize| text(&from["signed"][no]["signature"]).to_owned();
    let mut requests = Vec::new();
    for no in 0..bodies.len() {
        let right = signature(&made, no);
        requests.push((bodies[no], at.clone(), right.clone(), true));
        requests.push((bodies[no], at.clone(), signature(&stranger, no), false));
        requests.push((bodies[no], (now + 1).to_string(), right.clone(), false));
        requests.push((bodies[(no + 1) % 3], at.clone(), right.clone(), false));
        requests.push((bodies[no], at.clone(), right[2..].to_owned(), false));
        requests.push((bodies[no], at.clone(), right.replace(['a', 'b'], "c"), false));
        requests.push((bodies[no], at.clone(), String::new(), false));
    }
    let asked: Vec<Value> = requests
        .iter()
        .map(|(body, at, signature, _)| json!({"body": body, "at": at, "signature": signature}))
        .collect();
    let by_discord = judged(&json!({"what": "takes", "key": key, "requests": asked}));
    let send = async |body: &str, at: &str, signature: &str| {
        let headers = [("x-signature-timestamp", at), ("x-signature-ed25519", signature)];
        Http::new(&site.base).send("POST", "/chat/discord/discord", &headers, body).await
    };
    for (no, (body, at, signature, is_right)) in requests.iter().enumerate() {
        let answer = send(body, at, signature).await;
        assert_eq!(by_discord[no] == true, *is_right, "{body} {at} {signature}");
        assert_eq!(answer.status, if *is_right { 200 } else { 401 }, "{body} {at} {signature}");
        assert!(!is_right || answer.body == json!({"type": 1}), "{answer:?}");
    }
    // Signed long ago: Discord's package does not look at the time, the program does.
    assert_eq!(send(bodies[0], &late, &signature(&old, 0)).await.status, 401);
}
