//! `standfast watch [RUN]`: what happens, as it happens.
//!
//! A run is followed by its events; the number of the last one is where a lost connection goes on, so a restart of the
//! server loses and repeats nothing. Without a run, the list of what is pending is looked at again and again.

use std::collections::BTreeMap;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Failure, Form, Server, ServerArgs, ask, read, segment};
use super::colour::Paint;
use super::holds::HoldBody;
use super::plain::{Text, plain};
use super::runs::RunBody;
use super::timeline::EventBody;

/// How long to wait before a lost server is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often to look at what is pending.
const LOOK: Duration = Duration::from_secs(1);

/// What to follow.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The id of a run. Without it: follow pending holds until you stop the command.
    run: Option<String>,
    /// When to stop following a run.
    #[arg(long, value_enum, default_value_t = WatchEnd::Settled)]
    until: WatchEnd,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WatchEnd {
    /// When the run is held or has ended.
    Settled,
    /// When the run has ended.
    Ended,
}

pub(super) fn run(watch: &Watch) -> ExitCode {
    ask(&watch.asking, |server| {
        match &watch.run {
            Some(run) => follow(server, run, watch.until)?,
            None => what_waits(server)?,
        }
        Ok(String::new())
    })
}

/// Follows a run, over as many connections as it takes.
fn follow(server: &Server, run: &str, until: WatchEnd) -> Result<(), Failure> {
    let path = format!("/runs/{}", segment(run));
    let mut screen = Screen::new(server.form);
    let mut last = 0;
    // What does not exist, and a server that is not there, is said at once and not tried again.
    server.get(&path)?;
    let mut is_lost = false;
    loop {
        match server.stream(&format!("{path}/events"), last) {
            Ok(stream) => {
                is_lost = false;
                if listen(server, &path, stream, until, &mut last, &mut screen)? {
                    return Ok(());
                }
            }
            Err(Failure::CouldNotAsk(_)) => {}
            Err(refused) => return Err(refused),
        }
        if !is_lost {
            screen.end_line()?;
            eprintln!("standfast: connection lost; retrying");
            is_lost = true;
        }
        std::thread::sleep(AGAIN);
    }
}

/// Prints what one connection brings; whether the run has come as far as is wanted.
fn listen(
    server: &Server,
    path: &str,
    stream: impl BufRead,
    until: WatchEnd,
    last: &mut u64,
    screen: &mut Screen,
) -> Result<bool, Failure> {
    let mut frame = Frame::default();
    for line in stream.lines() {
        let Ok(line) = line else { return Ok(false) };
        if !line.is_empty() {
            frame.take(&line);
            continue;
        }
        let Frame { kind, data } = std::mem::take(&mut frame);
        match kind.as_str() {
            "" => {}
            "delta" => screen.delta(&data)?,
            // The server cannot read the run just now; coming back goes on in the same place.
            "problem" => return Ok(false),
            _ => {
                let event: EventBody = read(&data)?;
                screen.event(&data, &event)?;
                *last = event.seq;
                if may_settle(event.kind.raw()) && is_reached(server, path, *last, until)? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// After these a run may wait or be over.
fn may_settle(kind: &str) -> bool {
    ["hold.", "call.", "run."].iter().any(|start| kind.starts_with(start))
}

/// Whether everything up to here is printed, and the run is as far as is wanted.
fn is_reached(server: &Server, path: &str, last: u64, until: WatchEnd) -> Result<bool, Failure> {
    let text = match server.get(path) {
        Ok(text) => text,
        // The stream will notice too.
        Err(Failure::CouldNotAsk(_)) => return Ok(false),
        Err(refused) => return Err(refused),
    };
    let run: RunBody = read(&text)?;
    let is_far_enough = match run.status.raw() {
        "completed" | "failed" | "canceled" | "rejected" => true,
        "held" => until == WatchEnd::Settled,
        _ => false,
    };
    Ok(is_far_enough && run.seq <= last)
}

/// One server-sent event.
#[derive(Default)]
struct Frame {
    kind: String,
    data: String,
}

impl Frame {
    fn take(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.kind = value.to_owned(),
            "data" if self.data.is_empty() => self.data = value.to_owned(),
            "data" => self.data = format!("{}\n{value}", self.data),
            // Comments keep the connection alive; the number is in the event itself.
            _ => {}
        }
    }
}

#[derive(Deserialize)]
struct Delta {
    text: Text,
}

/// What was printed, as far as the next print must know.
struct Screen {
    form: Form,
    paint: Paint,
    is_terminal: bool,
    /// A line of what the model is saying is not ended yet.
    is_mid_line: bool,
}

impl Screen {
    fn new(form: Form) -> Screen {
        let is_terminal = io::stdout().is_terminal();
        Screen { form, paint: Paint::for_stdout(), is_terminal, is_mid_line: false }
    }

    fn event(&mut self, data: &str, event: &EventBody) -> Result<(), Failure> {
        self.end_line()?;
        match self.form {
            Form::Json => put(&format!("{data}\n")),
            Form::Text => put(&event.painted(self.paint)),
        }
    }

    /// Words of the model: only a terminal shows them as they come; the reply has them all.
    fn delta(&mut self, data: &str) -> Result<(), Failure> {
        match self.form {
            Form::Json => put(&format!("{{\"type\":\"delta\",\"data\":{data}}}\n")),
            Form::Text if self.is_terminal => {
                let Delta { text } = read(data)?;
                let words: Vec<String> = text.raw().split('\n').map(plain).collect();
                let bar = if self.is_mid_line { "" } else { "    ~ " };
                self.is_mid_line = true;
                put(&format!("{bar}{}", words.join("\n    ~ ")))
            }
            Form::Text => Ok(()),
        }
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_mid_line) { put("\n") } else { Ok(()) }
    }
}

/// Looks at what is pending until it is stopped.
fn what_waits(server: &Server) -> Result<(), Failure> {
    let mut known: BTreeMap<String, ()> = BTreeMap::new();
    let (mut is_first, mut is_lost) = (true, false);
    loop {
        match server.list("/holds", &[]) {
            Ok(items) => {
                is_lost = false;
                news(server, &items, &mut known)?;
            }
            Err(Failure::CouldNotAsk(why)) if !is_first => {
                if !is_lost {
                    eprintln!("standfast: {why}");
                }
                is_lost = true;
            }
            Err(failure) => return Err(failure),
        }
        is_first = false;
        std::thread::sleep(LOOK);
    }
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

/// Prints what is new and what is gone.
fn news(server: &Server, items: &[Box<RawValue>], known: &mut BTreeMap<String, ()>) -> Result<(), Failure> {
    let mut open = BTreeMap::new();
    for item in items {
        let Id { id } = read(item.get())?;
        if known.remove(&id).is_none() {
            tell(server.form, "waits", item.get())?;
        }
        open.insert(id, ());
    }
    for id in std::mem::replace(known, open).into_keys() {
        match server.get(&format!("/holds/{}", segment(&id))) {
            Ok(text) => tell(server.form, "decided", text.trim())?,
            // It went with its run, or this caller may not see it any more.
            Err(Failure::Refused { .. }) => {}
            // Looked at again next time.
            Err(Failure::CouldNotAsk(_)) => drop(known.insert(id, ())),
        }
    }
    Ok(())
}

fn tell(form: Form, what: &str, hold: &str) -> Result<(), Failure> {
    match form {
        Form::Json => put(&format!("{{\"type\":\"{what}\",\"hold\":{hold}}}\n")),
        Form::Text => put(&format!("{}\n", read::<HoldBody>(hold)?.line())),
    }
}

/// Prints at once; whoever stopped reading ends the command.
fn put(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::CouldNotAsk(format!("cannot print events: {error}"))),
    }
}
