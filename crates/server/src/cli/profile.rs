//! The profile: which server the client commands ask when nobody names one, with which key, and whom its certificate is
//! from. `standfast login` writes it, `standfast logout` removes it.
//!
//! A file for its owner's eyes alone; one that others could read is refused. The key in it goes to the server in it and to
//! no other.

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::client::{self, Failure, Key, ServerArgs};
use super::plain::plain;
use super::sign_in::{self, SignInAge, SignInMethod};

/// What is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    /// The URL of the server.
    pub(super) server: String,
    /// The key for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// A file with authorities that its certificate may be from, beside those of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authority: Option<PathBuf>,
}

/// What `login` can be told.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// The URL of the server, such as https://standfast.example.org.
    url: String,
    /// A PEM file with authorities that the server's certificate may be from, beside those that this machine trusts.
    #[arg(long, value_name = "FILE", env = "STANDFAST_AUTHORITY")]
    authority: Option<PathBuf>,
    /// Sign in at the server's identity provider with a browser on this machine. The default on a terminal if the server
    /// offers it and STANDFAST_KEY is not set.
    #[arg(long, conflicts_with = "device")]
    browser: bool,
    /// Sign in with a browser on another device, by a code.
    #[arg(long)]
    device: bool,
    /// Sign in again even if the identity provider still has a session, for approvals that need a recent sign-in.
    #[arg(long)]
    fresh: bool,
}

/// Where the profile is.
fn path() -> Result<PathBuf, String> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let folder = folder.ok_or_else(|| "there is no home directory to keep a profile in".to_owned())?;
    Ok(folder.join("standfast").join("profile.json"))
}

/// The profile, if there is one.
pub(super) fn load() -> Result<Option<Profile>, String> {
    let Ok(path) = path() else { return Ok(None) };
    let shown = path.display();
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read the profile {shown}: {error}")),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "others can read the profile {shown}, which has a key in it; run chmod 600 on it"
        ));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read the profile {shown}: {error}"))?;
    // What is wrong with it is not quoted: there may be a key beside it.
    let profile = serde_json::from_str(&text);
    profile
        .map(Some)
        .map_err(|_| format!("the profile {shown} cannot be read; write it again with `standfast login URL`"))
}

fn save(profile: &Profile) -> Result<PathBuf, String> {
    let path = path()?;
    let failed = |error: io::Error| format!("cannot write the profile {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let unfinished = path.with_extension("new");
    let _ = std::fs::remove_file(&unfinished);
    let made = File::options().write(true).create_new(true).mode(0o600).open(&unfinished);
    let text = serde_json::to_vec_pretty(profile).map_err(|error| error.to_string())?;
    made.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all())).map_err(failed)?;
    std::fs::rename(&unfinished, &path).map_err(failed)?;
    Ok(path)
}

pub(super) fn login(arguments: &Login) -> ExitCode {
    let url = arguments.url.trim_end_matches('/');
    let done = credential(arguments, url).and_then(|(key, user)| {
        let authority = arguments.authority.as_deref().map(absolute).transpose()?;
        let profile = Profile { server: url.to_owned(), key, authority };
        try_out(&profile)?;
        Ok((save(&profile)?, user))
    });
    match done {
        Ok((path, user)) => {
            let what = match user {
                Some(user) => format!("you are {}; your session", plain(&user)),
                None => "the key".to_owned(),
            };
            println!("commands of this user ask {} now; {what} is in {}", plain(url), path.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("standfast: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What the profile keeps, and who signed in if somebody did.
fn credential(arguments: &Login, url: &str) -> Result<(Option<String>, Option<String>), String> {
    let Login { authority, browser, device, fresh, .. } = arguments;
    let is_wanted = *browser || *device || *fresh;
    let may_be = std::env::var_os("STANDFAST_KEY").is_none() && io::stdin().is_terminal();
    if !is_wanted && !may_be {
        return Ok((key()?, None));
    }
    let way = if *device { SignInMethod::Device } else { SignInMethod::Browser };
    let sign_in = if *fresh { SignInAge::Fresh } else { SignInAge::Any };
    match sign_in::offer(url, authority.as_deref()) {
        Ok(Some(offer)) => {
            let (token, user) = sign_in::sign_in(url, authority.as_deref(), &offer, (way, sign_in))?;
            Ok((Some(token), Some(user)))
        }
        Ok(None) if is_wanted => Err(format!(
            "{} has no sign-in for the command line; its configuration needs server.auth.jwt.sign_in.cli_client_id",
            plain(url)
        )),
        Err(why) if is_wanted => Err(why),
        Ok(None) | Err(_) => Ok((key()?, None)),
    }
}

pub(super) fn logout() -> ExitCode {
    end_session();
    let removed = path().and_then(|path| match std::fs::remove_file(&path) {
        Ok(()) => Ok(format!("removed {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("there was no profile".to_owned()),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    });
    match removed {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("standfast: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Ends the session of the profile at its server, if it has one. A key goes on: others may use it.
fn end_session() {
    let Ok(Some(Profile { server, key: Some(key), authority })) = load() else { return };
    if !key.starts_with("sfs_") {
        return;
    }
    let asking = ServerArgs::for_server(server, Some(Key::new(key)), authority);
    let ended =
        client::Server::at(&asking, client::Form::Json).and_then(|server| server.delete("/sign-ins/current"));
    if let Err(Failure::Refused { said, .. } | Failure::CouldNotAsk(said)) = ended {
        eprintln!("standfast: the session could not be ended at the server: {said}");
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
}

/// The key: from the environment, else the first line of standard input.
fn key() -> Result<Option<String>, String> {
    let said = match std::env::var("STANDFAST_KEY") {
        Ok(key) => key,
        Err(_) => {
            if io::stdin().is_terminal() {
                eprint!("API key (empty for a server without authentication): ");
            }
            let mut line = String::new();
            io::stdin()
                .lock()
                .read_line(&mut line)
                .map_err(|error| format!("cannot read the key: {error}"))?;
            line
        }
    };
    Ok(Some(said.trim().to_owned()).filter(|key| !key.is_empty()))
}

/// One question, so that a profile that does not work is not written.
fn try_out(profile: &Profile) -> Result<(), String> {
    let key = profile.key.clone().map(Key::new);
    let asking = ServerArgs::for_server(profile.server.clone(), key, profile.authority.clone());
    match client::Server::at(&asking, client::Form::Json).and_then(|server| server.get("/holds?limit=1")) {
        Ok(_) => Ok(()),
        Err(Failure::Refused { said, .. } | Failure::CouldNotAsk(said)) => Err(said),
    }
}
