//! What packages bring along fits the program: the service of systemd, the values of the Helm chart, the compose file.
//!
//! What needs a container runtime or Helm itself is run by `cargo xtask dist --check`; what it is fed with is checked here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use standfast_testkit::standfast;

fn packaging(path: &str) -> PathBuf {
    standfast_testkit::binary::repository_root().join("packaging").join(path)
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(packaging(path)).unwrap()).unwrap()
}

/// The arguments of a command line are arguments that the program knows.
fn are_known(arguments: &[&str]) {
    let output = standfast().args(arguments).arg("--help").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The unit is one that systemd takes, with the program in its place, and its command line one that the program takes.
#[test]
fn the_unit_of_systemd_is_right() {
    let unit = std::fs::read_to_string(packaging("systemd/standfast.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/standfast ")).unwrap();
    are_known(&start.split(' ').collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let program = standfast_testkit::binary::path();
    let placed = unit.replace("/usr/bin/standfast", program.to_str().unwrap());
    let file = folder.path().join("standfast.service");
    std::fs::write(&file, placed).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains("standfast.service")).collect();
    assert!(output.status.success() && about_it.is_empty(), "{said}");
}

/// `Type=notify`: whoever starts the server hears when it is ready.
#[test]
fn systemd_is_told_when_the_server_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let hears = UnixDatagram::bind(&socket).unwrap();
    let mut command = standfast();
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    let server = standfast_testkit::start(command.env("NOTIFY_SOCKET", &socket).env("RUST_LOG", "warn"));
    let mut text = [0; 64];
    let length = hears.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"READY=1");
    let ready = standfast().args(["health", &server.base]).output().unwrap();
    assert!(ready.status.success(), "{}", String::from_utf8_lossy(&ready.stderr));
    let base = server.base.clone();
    drop(server);
    assert_eq!(standfast().args(["health", &base]).output().unwrap().status.code(), Some(1));
}

/// The values of the chart keep to their schema, and the configuration in them is one that the program takes.
#[test]
fn the_values_of_the_chart_are_right() {
    let schema: Value = serde_json::from_str(
        &std::fs::read_to_string(packaging("helm/standfast/values.schema.json")).unwrap(),
    )
    .unwrap();
    let values = yaml("helm/standfast/values.yaml");
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&values).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!validator.is_valid(&serde_json::json!({"replicas": 0})));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("standfast.yaml");
    std::fs::write(&file, values["config"].as_str().unwrap()).unwrap();
    let checked = standfast().args(["validate", "--allow-unset"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let template = std::fs::read_to_string(packaging("helm/standfast/templates/standfast.yaml")).unwrap();
    let arguments = template.lines().map(str::trim).skip_while(|line| *line != "args:").skip(1);
    let arguments = arguments.take_while(|line| line.starts_with("- ") || line.starts_with('#'));
    let fixed = arguments.filter_map(|line| line.strip_prefix("- ")).filter(|word| !word.contains("{{"));
    let fixed: Vec<&str> = fixed.collect();
    assert!(fixed.contains(&"--config=/etc/standfast/standfast.yaml"), "{fixed:?}");
    are_known(&fixed);
    let used = template.match_indices(".Values.").map(|(at, _)| {
        let rest = &template[at + ".Values.".len()..];
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).next().unwrap()
    });
    for path in used {
        let pointer = format!("/{}", path.trim_end_matches('.').replace('.', "/"));
        assert!(values.pointer(&pointer).is_some(), "the template uses {path}, which is no value");
    }
}

/// The compose file and the image start the program with arguments that it knows.
#[test]
fn containers_are_started_with_what_the_program_knows() {
    let compose = yaml("docker/compose.yaml");
    let command = compose["services"]["standfast"]["command"].as_array().unwrap();
    are_known(&command.iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>());
    let image = std::fs::read_to_string(packaging("docker/Dockerfile")).unwrap();
    for (line, skip) in [("CMD [\"serve\"", 0), ("HEALTHCHECK", 1)] {
        let line = image.lines().find(|text| text.starts_with(line)).unwrap();
        let words: Vec<String> = serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap();
        are_known(&words.iter().skip(skip).map(String::as_str).collect::<Vec<_>>());
    }
    assert!(image.contains("USER 65532"), "not as root");
}
