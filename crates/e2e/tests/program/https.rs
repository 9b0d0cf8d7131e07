//! https from both ends: the server with a certificate of its own, reloaded when it changes; the client commands with the
//! authorities that they are given, and with a profile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use standfast_testkit::{Process, certify, serve_command, standfast, start, text, until};
use tempfile::TempDir;

const SCRIPT: &str = "replies:\n- text: done\n";

const CONFIG: &str = "
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: main-db, task: {}}}
server: {tls: {certificate: cert.pem, key: key.pem}, auth: {api_keys: true}}
";

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn served() -> (TempDir, Process, String) {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    certify(folder.path(), 1);
    let config = folder.path().join("standfast.yaml");
    let made =
        standfast().args(["keys", "create", "--user", "ann", "--config"]).arg(&config).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut command = serve_command(folder.path());
    let server =
        start(command.env("RUST_LOG", "info").stderr(File::create(folder.path().join("log")).unwrap()));
    (folder, server, key)
}

/// A command of somebody whose home is this folder.
fn types(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = standfast();
    command.args(arguments).env("HOME", folder).current_dir(folder);
    for other in ["XDG_CONFIG_HOME", "STANDFAST_KEY", "STANDFAST_SERVER", "STANDFAST_AUTHORITY"] {
        command.env_remove(other);
    }
    command
}

/// A certificate is trusted because of its authority, never because nobody looked; a profile remembers server, key and
/// authority, for its owner's eyes, and its key goes to no other server.
#[test]
fn a_client_trusts_the_authorities_it_is_given() {
    let (folder, server, key) = served();
    let path = folder.path();
    assert!(server.base.starts_with("https://127.0.0.1:"), "{}", server.base);
    let asked = ["holds", "--server", &server.base];
    let untrusted = types(path, &asked).env("STANDFAST_KEY", &key).output().unwrap();
    assert_eq!(untrusted.status.code(), Some(2), "{}", said(&untrusted));
    assert!(
        said(&untrusted).contains("with --authority FILE or STANDFAST_AUTHORITY"),
        "{}",
        said(&untrusted)
    );
    let plain = server.base.replace("https://", "http://");
    let unencrypted =
        types(path, &["holds", "--server", &plain]).env("STANDFAST_KEY", &key).output().unwrap();
    assert!(said(&unencrypted).contains("its address begins with https://"), "{}", said(&unencrypted));
    let with_authority = [&asked[..], &["--authority", "ca.pem"]].concat();
    let trusted = types(path, &with_authority).env("STANDFAST_KEY", &key).output().unwrap();
    assert!(trusted.status.success(), "{}", said(&trusted));

    // Without being given one, the system's: those that whoever runs the machine has named in the usual place.
    let of_the_system = types(path, &asked)
        .env("STANDFAST_KEY", &key)
        .env("SSL_CERT_FILE", path.join("ca.pem"))
        .output()
        .unwrap();
    assert!(of_the_system.status.success(), "{}", said(&of_the_system));

    let login = ["login", &server.base, "--authority", "ca.pem"];
    let refused = types(path, &login).env("STANDFAST_KEY", "sf_aaaaaaaa_bbbb").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let profile = path.join(".config/standfast/profile.json");
    assert!(!profile.exists(), "what does not work is not remembered");
    let done = types(path, &login).env("STANDFAST_KEY", &key).output().unwrap();
    assert!(done.status.success() && !said(&done).contains(&key), "{}", said(&done));
    assert_eq!(std::fs::metadata(&profile).unwrap().permissions().mode() & 0o777, 0o600);
    let sent = types(path, &["send", "ops", "hello", "--wait", "--json"]).output().unwrap();
    let run: serde_json::Value =
        serde_json::from_slice(&sent.stdout).unwrap_or_else(|_| panic!("{}", said(&sent)));
    assert_eq!(text(&run["status"]), "completed");

    let other = standfast_testkit::folder(
        &[("script", SCRIPT)],
        &CONFIG.replace("tls: {certificate: cert.pem, key: key.pem}, ", ""),
    );
    let other = start(&mut serve_command(other.path()));
    let elsewhere = types(path, &["holds", "--server", &other.base]).output().unwrap();
    assert!(said(&elsewhere).contains("requires an API key"), "no key went there: {}", said(&elsewhere));
    std::fs::set_permissions(&profile, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = types(path, &["holds"]).output().unwrap();
    assert!(said(&open).contains("run chmod 600 on it"), "{}", said(&open));
    assert!(types(path, &["logout"]).output().unwrap().status.success());
    assert!(!profile.exists());
}

/// The serial number of the certificate that a server shows.
fn serial(server: &Process) -> String {
    let address = server.base.strip_prefix("https://").unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address]).stdin(Stdio::null());
    let shown = command.output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shown"), shown.stdout).unwrap();
    let mut command = Command::new("openssl");
    let read =
        command.args(["x509", "-noout", "-serial", "-in"]).arg(folder.path().join("shown")).output().unwrap();
    String::from_utf8(read.stdout).unwrap().trim().to_owned()
}

/// A new certificate is taken without a restart; one that is none changes nothing. HTTP/2 and HTTP/1.1 are both spoken.
#[test]
fn a_changed_certificate_is_taken() {
    let (folder, server, key) = served();
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(serial(&server), "serial=01");
    std::fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
    until("the bad one is told", || log().contains("the changed certificate is invalid"));
    assert_eq!(serial(&server), "serial=01");
    certify(folder.path(), 2);
    until("the new one is shown", || serial(&server) == "serial=02");
    for version in ["--http2", "--http1.1"] {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            version,
            "--cacert",
            "ca.pem",
            "-w",
            " %{http_version}",
            "-H",
            &format!("authorization: Bearer {key}"),
        ]);
        let answer =
            curl.arg(format!("{}/api/v1/holds", server.base)).current_dir(folder.path()).output().unwrap();
        let expected = if version == "--http2" { " 2" } else { " 1.1" };
        assert!(
            said(&answer).ends_with(expected) && said(&answer).contains("\"holds\""),
            "{}",
            said(&answer)
        );
    }
    // Whoever speaks plain HTTP is not answered.
    let plain = server.base.replace("https://", "http://");
    assert!(!Command::new("curl").args(["-sS", "-m", "10", &plain]).output().unwrap().status.success());
}

/// Browsers send the cookie of a session over https only, and links lead to https: the server ends TLS itself, so it knows without
/// being told a `public_url`.
#[test]
fn a_server_with_tls_of_its_own_says_https_in_cookies_and_links() {
    let (folder, server, key) = served();
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert", "ca.pem", "-b", "jar", "-c", "jar"]).args(arguments);
        said(&curl.current_dir(folder.path()).output().unwrap())
    };
    let page = curl(&[&format!("{}/sign-in", server.base)]);
    let token = page.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let token = format!("csrf={}", token.unwrap_or_else(|| panic!("{page}")));
    let (key, sign_in) = (format!("key={key}"), format!("{}/sign-in", server.base));
    let signed_in = curl(&["-i", "--data-urlencode", &token, "--data-urlencode", &key, &sign_in]);
    let cookie = signed_in.lines().find(|line| line.contains("standfast_session=")).unwrap_or_default();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; Secure"), "{signed_in}");
    let form = curl(&[&format!("{}/me", server.base)]);
    let token = form.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let token = format!("csrf={}", token.unwrap_or_else(|| panic!("{form}")));
    let signed_out = curl(&["-i", "--data-urlencode", &token, &format!("{}/sign-out", server.base)]);
    let cookie = signed_out.lines().find(|line| line.contains("standfast_session=;")).unwrap_or_default();
    assert!(cookie.contains("; Secure"), "{signed_out}");
    let card = curl(&[&format!("{}/v1/agents/ops/.well-known/agent-card.json", server.base)]);
    assert!(card.contains(&format!("\"{}/v1/agents/ops\"", server.base)), "{card}");
}

/// The certificate that openssl makes when nobody says otherwise is that of an authority, which no server may show: the client says so,
/// and what to do.
#[test]
fn a_certificate_of_an_authority_is_told_as_one() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let path = folder.path();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]);
    let made = openssl.args(["-keyout", "key.pem", "-out", "cert.pem"]).current_dir(path).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let server = start(&mut serve_command(path));
    let refused =
        types(path, &["holds", "--server", &server.base, "--authority", "cert.pem"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        said(&refused).contains("make one with basicConstraints=critical,CA:FALSE"),
        "{}",
        said(&refused)
    );
}

/// The guide's chapter on TLS: its configuration and its commands, as they stand, but for the port.
#[test]
fn the_chapter_on_tls_works_as_it_stands() {
    let page = standfast_testkit::binary::repository_root().join("docs/identity.md");
    let page = std::fs::read_to_string(page).unwrap();
    let chapter = page.split("\n## TLS\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = |language: &str| -> Vec<&str> {
        let begin = format!("\n```{language}\n");
        chapter.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
    };
    let [config] = blocks("yaml")[..] else { panic!("{chapter}") };
    let [prepare, use_it] = blocks("sh")[..] else { panic!("{chapter}") };
    let stored = "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}\n\
         agents: {ops: {llm: script, session_store: main, task: {}}}\n";
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &format!("{stored}{config}\n"));
    let path = folder.path();
    let shell = |commands: &str| {
        let standfast = standfast_testkit::binary::path();
        let standfast = format!("standfast() {{ '{}' \"$@\"; }}", standfast.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("set -e\n{standfast}\n{commands}")]).env("HOME", path).current_dir(path);
        for other in ["XDG_CONFIG_HOME", "STANDFAST_KEY", "STANDFAST_SERVER", "STANDFAST_AUTHORITY"] {
            shell.env_remove(other);
        }
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{commands}\n{}", said(&output));
        said(&output)
    };
    shell(prepare);
    let server = start(serve_command(path).stderr(File::create(path.join("log")).unwrap()));
    let port = server.base.rsplit(':').next().unwrap();
    assert!(use_it.contains("https://localhost:8443"), "{use_it}");
    let printed = shell(&use_it.replace("https://localhost:8443", &format!("https://localhost:{port}")));
    assert!(path.join(".config/standfast/profile.json").exists(), "{printed}");
}

/// A certificate is for the name by which others reach the server: the doctor on its machine finds the server ready all the same.
#[test]
fn the_doctor_knows_a_server_that_speaks_https() {
    let (folder, server, _) = served();
    let port = server.base.rsplit(':').next().unwrap();
    let path = folder.path();
    std::fs::remove_file(path.join("ca.pem")).unwrap();
    let examined = types(path, &["doctor", "--offline", "--json", "--data", "data"]).output().unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&examined.stdout).unwrap_or_else(|_| panic!("{}", said(&examined)));
    let server = report["checks"].as_array().unwrap().iter().find(|one| one["check"] == "server").unwrap();
    assert_eq!(server["result"], "ok", "{report:#}");
    assert!(text(&server["message"]).contains(port), "{server}");
}

/// A certificate that is not there is reported with its key in the configuration.
#[test]
fn a_certificate_that_is_missing_is_told() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let output = serve_command(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("server.tls: cannot use the certificate"), "{}", said(&output));
}
