//! What commands can change beside their working directory, and how a refusal is told (S3-21).
//!
//! Each as root, as root where no control group counts, and as another user.

use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::sandbox::NoSandbox;

use super::{Place, Who, shell, shim};

/// S3-21: a directory of `writable` can be changed, its neighbours cannot; files there are the server's user's.
#[tokio::test]
async fn s3_21_writable_directories_can_be_changed() {
    for who in Who::all() {
        let place = Place::new();
        let more = place.at("other-tenant");
        let options = CommandOptions { writable: vec![more.clone()], ..place.options() };
        let Some(tool) = who.tool(&place, options) else { continue };
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&more).unwrap());
        let script = format!(
            "set -e; cd {}; cat theirs.txt; rm theirs.txt; mkdir made; echo x > made/x; chmod 700 made; touch -d 2001-01-01 made/x",
            more.display()
        );
        let said = shell(&tool, &script).await;
        assert_eq!((&said["exit_code"], &said["stdout"]), (&0.into(), &"theirs".into()), "{who:?}: {said}");
        assert!(!more.join("theirs.txt").exists());
        for path in ["made", "made/x"] {
            let made = std::fs::metadata(more.join(path)).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), owner, "{who:?}: {path}");
        }
        let said = shell(&tool, &format!("echo x > {}", place.at("data/new").display())).await;
        assert_ne!(said["exit_code"], 0, "{who:?}: {said}");
        assert!(!place.at("data/new").exists());
    }
}

/// S3-21: what the sandbox refuses is reported as that, with the path and the key; a command that fails by itself has no note.
#[tokio::test]
async fn s3_21_a_refusal_is_told_as_the_sandboxs() {
    for who in Who::all() {
        let place = Place::new();
        let Some(tool) = who.tool(&place, place.options()) else { continue };
        let theirs = place.at("other-tenant/theirs.txt");
        let python = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1/')";
        for (script, words) in [
            (format!("rm {}", theirs.display()), vec!["the sandbox refused it", "theirs.txt", "`writable`"]),
            (format!("cat {}", theirs.display()), vec!["the sandbox refused it", "theirs.txt", "`readable`"]),
            ("touch /etc/hosts".to_owned(), vec!["the sandbox refused it", "/etc/hosts", "`writable`"]),
            (format!("/usr/bin/python3 -c \"{python}\""), vec!["the sandbox refused it", "`network: true`"]),
        ] {
            let said = shell(&tool, &script).await;
            let note = said["note"].as_str().unwrap_or_default();
            assert!(words.iter().all(|word| note.contains(word)), "{who:?} {script}: {said}");
        }
        for script in ["exit 3", "cat missing.txt", "ls -la", "touch noexec; ./noexec"] {
            let said = shell(&tool, script).await;
            assert!(said.get("note").is_none(), "{who:?} {script}: {said}");
        }
        assert!(theirs.exists());
    }
}

/// T26: what is protected cannot be inside of a directory that commands can change.
#[test]
fn a_writable_directory_around_what_is_protected_is_refused() {
    let place = Place::new();
    if let Err(why) = standfast_tools::sandbox::probe() {
        println!("checked elsewhere that there is no tool: {why}");
        return;
    }
    let options = CommandOptions { writable: vec![place.at("data")], ..place.options() };
    let refused = CommandTool::through(options, shim()).unwrap_err();
    assert_eq!(refused, NoSandbox::Exposed { protected: place.at("data"), workspace: place.at("data") });
    let options = CommandOptions { writable: vec![place.at("nowhere")], ..place.options() };
    assert!(matches!(CommandTool::through(options, shim()), Err(NoSandbox::Directory { .. })));
}
