//! The OpenAPI document as it is kept in the tree, and what a change of it must not do to clients of the last release.
//!
//! `docs/openapi.json` is what the server says; after a deliberate change write it again with
//! `STANDFAST_WRITE_EXPECTED=1 cargo nextest run -p standfast-e2e openapi_changes`. `docs/openapi-released.json` is that of the
//! last release, and replaced by a release alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

fn kept(name: &str) -> PathBuf {
    standfast_testkit::binary::repository_root().join("docs").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(kept(name)).unwrap()).unwrap()
}

/// What is in the tree is what the server says.
#[tokio::test]
async fn the_document_in_the_tree_is_the_servers() {
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command
        .args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env("RUST_LOG", "warn");
    let server = standfast_testkit::start(&mut command);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let said: Value =
        client.get(format!("{}/openapi.json", server.base)).send().await.unwrap().json().await.unwrap();
    if std::env::var_os("STANDFAST_WRITE_EXPECTED").is_some() {
        std::fs::write(kept("openapi.json"), format!("{said:#}\n")).unwrap();
    }
    assert!(said == read("openapi.json"), "docs/openapi.json is not what the server says; write it anew");
}

/// Whoever wrote a client for the last release still can use it.
#[test]
fn clients_of_the_last_release_still_work() {
    let found = breaks(&read("openapi-released.json"), &read("openapi.json"));
    assert!(found.is_empty(), "this breaks clients of the last release:\n{}", found.join("\n"));
}

/// What of a new document breaks clients of an old one.
fn breaks(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (path, methods) in members(&old["paths"]) {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let now = &new["paths"][path][method];
            let what = format!("{method} {path}");
            if now.is_null() {
                found.push(format!("{what} is gone"));
                continue;
            }
            let (before, after) = (parameters(operation), parameters(now));
            found.extend(
                before
                    .difference(&after)
                    .filter(|one| !one.ends_with('!'))
                    .map(|one| format!("{what}: the parameter {one} is gone")),
            );
            found.extend(
                after
                    .difference(&before)
                    .filter(|one| one.ends_with('!'))
                    .map(|one| format!("{what}: the parameter {one} is required now")),
            );
            for status in members(&operation["responses"]).map(|(status, _)| status) {
                if now["responses"][status].is_null() {
                    found.push(format!("{what}: the response {status} is gone"));
                }
            }
        }
    }
    let (sent, received) = (reachable(old, "requestBody"), reachable(old, "responses"));
    for (name, before) in members(&old["components"]["schemas"]) {
        let after = &new["components"]["schemas"][name];
        if after.is_null() {
            found.push(format!("the schema {name} is gone"));
            continue;
        }
        if before["type"] != after["type"] {
            found.push(format!("{name} is of another type: {} was {}", after["type"], before["type"]));
        }
        for (property, _) in members(&before["properties"]) {
            if after["properties"][property].is_null() {
                found.push(format!("{name}.{property} is gone"));
            }
        }
        let (was, is) = (words(&before["required"]), words(&after["required"]));
        if sent.contains(name) {
            found.extend(is.difference(&was).map(|one| format!("{name}.{one} is required now")));
        }
        if received.contains(name) {
            found.extend(was.difference(&is).map(|one| format!("{name}.{one} need not be there any more")));
        }
        let (was, is) = (words(&before["enum"]), words(&after["enum"]));
        if sent.contains(name) {
            found.extend(was.difference(&is).map(|one| format!("{name} does not take {one} any more")));
        }
    }
    found
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn words(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// The parameters of an operation, and once more with a mark those that are required.
fn parameters(operation: &Value) -> BTreeSet<String> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let named = all.flat_map(|one| {
        let name = format!(
            "{}:{}",
            one["in"].as_str().unwrap_or_default(),
            one["name"].as_str().unwrap_or_default()
        );
        let required = (one["required"] == true).then(|| format!("{name}!"));
        std::iter::once(name).chain(required)
    });
    named.collect()
}

/// The schemas that stand in this part of some operation, or below one that does.
fn reachable(document: &Value, part: &str) -> BTreeSet<String> {
    let (mut found, mut left) = (BTreeSet::new(), Vec::new());
    for (_, methods) in members(&document["paths"]) {
        members(methods).for_each(|(_, operation)| references(&operation[part], &mut left));
    }
    while let Some(name) = left.pop() {
        if found.insert(name.clone()) {
            references(&document["components"]["schemas"][&name], &mut left);
        }
    }
    found
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
            found.extend(name.map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// The check notices what it is for, and lets pass what only adds.
#[test]
fn what_breaks_clients_is_noticed() {
    let document = json!({
        "paths": {"/runs": {"post": {
            "parameters": [{"in": "query", "name": "limit"}],
            "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Start"}}}},
            "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Run"}}}}},
        }}},
        "components": {"schemas": {
            "Start": {"type": "object", "properties": {"input": {}, "wait": {"$ref": "#/components/schemas/Wait"}}, "required": ["input"]},
            "Wait": {"type": "string", "enum": ["accepted", "settled"]},
            "Run": {"type": "object", "properties": {"id": {}}, "required": ["id"]},
        }},
    });
    let changed = |pointer: &str, value: Value| {
        let mut new = document.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        breaks(&document, &new)
    };
    assert_eq!(breaks(&document, &document), Vec::<String>::new());
    let adds = json!({"input": {}, "wait": {"$ref": "#/components/schemas/Wait"}, "more": {}});
    assert_eq!(changed("/components/schemas/Start/properties", adds), Vec::<String>::new());
    for (pointer, value, expected) in [
        ("/paths/~1runs", json!({}), "post /runs is gone"),
        ("/paths/~1runs/post/parameters", json!([]), "the parameter query:limit is gone"),
        (
            "/paths/~1runs/post/parameters/0",
            json!({"in": "query", "name": "limit", "required": true}),
            "query:limit! is required now",
        ),
        ("/paths/~1runs/post/responses", json!({"200": {}}), "the response 201 is gone"),
        ("/components/schemas/Start/required", json!(["input", "wait"]), "Start.wait is required now"),
        ("/components/schemas/Wait/enum", json!(["accepted"]), "Wait does not take settled any more"),
        ("/components/schemas/Run/properties", json!({}), "Run.id is gone"),
        ("/components/schemas/Run/required", json!([]), "Run.id need not be there any more"),
        ("/components/schemas/Run/type", json!("string"), "Run is of another type"),
    ] {
        let found = changed(pointer, value);
        assert!(found.iter().any(|one| one.contains(expected)), "{pointer}: {found:?}");
    }
}
