//! Media types: what an agent takes and gives, and what a client accepts.
//!
//! A part of a type that the agent does not take is refused before anything happens. Of what an agent made, a client
//! gets the words in any case, and data and files only of the types that it accepts; the task keeps all of it.

use standfast_engine::settings::{Agent, Settings};

use super::error::{A2aError, Kind};
use super::operations::Operation;
use super::wire::{self, Part, StreamResponse};

/// What agents take and give, as their cards say it, unless the configuration says otherwise.
const USUAL: [&str; 2] = ["text/plain", "application/json"];

/// What they take beyond that: models can read any text and look at pictures.
const ALSO_TAKEN: [&str; 2] = ["text/*", "image/*"];

/// The media types that an agent takes, for its card.
pub(super) fn input(agent: &Agent) -> Vec<String> {
    agent.card.input_modes.clone().unwrap_or_else(usual)
}

/// The media types that an agent gives, for its card.
pub(super) fn output(agent: &Agent) -> Vec<String> {
    agent.card.output_modes.clone().unwrap_or_else(usual)
}

fn usual() -> Vec<String> {
    USUAL.map(str::to_owned).to_vec()
}

/// Refuses a message with a part of a type that the agent does not take.
pub(super) fn check(settings: &Settings, agent: &str, message: &wire::Message) -> Result<(), A2aError> {
    let (taken, listed) = (settings.agent(agent).map_or_else(usual, |agent| input(agent)), usual());
    let is_usual = taken == listed;
    let takes = |media: &str| {
        taken.iter().any(|range| fits(range, media))
            || is_usual && (ALSO_TAKEN.iter().any(|range| fits(range, media)) || media.ends_with("+json"))
    };
    for (at, part) in message.parts.iter().enumerate() {
        if let Some(media) = declared(part).filter(|media| !takes(media)) {
            let message = format!(
                "message.parts[{at}] has the media type {media}; this agent accepts {}",
                taken.join(", ")
            );
            return Err(A2aError::new(Kind::ContentTypeNotSupported, message));
        }
    }
    Ok(())
}

/// What a part says of its type: its own member, or the one in its metadata that some clients use instead.
fn declared(part: &Part) -> Option<String> {
    let in_metadata = || {
        let raw = part.metadata.as_ref()?.get("contentType")?;
        serde_json::from_str::<String>(raw.get()).ok()
    };
    let said = part.media_type.clone().filter(|media| !media.is_empty()).or_else(in_metadata)?;
    Some(bare(&said))
}

/// A media type in lower case, without its parameters.
fn bare(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a range such as `text/plain`, `image/*` or `*/*` has a media type in it. Older clients write `text` alone.
fn fits(range: &str, media: &str) -> bool {
    let range = bare(range);
    match range.split_once('/') {
        None => range == "*" || media.split('/').next() == Some(range.as_str()),
        Some(("*", "*")) => true,
        Some((kind, "*")) => media.split('/').next() == Some(kind),
        Some(_) => range == media,
    }
}

/// What a client accepts; nothing said means anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AcceptedModes(Option<Vec<String>>);

impl AcceptedModes {
    /// As an operation says it.
    pub(super) fn of(operation: &Operation) -> AcceptedModes {
        let (Operation::Send(request) | Operation::Stream(request)) = operation else {
            return AcceptedModes::default();
        };
        let said = request.configuration.as_ref().and_then(|wanted| wanted.accepted_output_modes.clone());
        AcceptedModes(said.filter(|modes| !modes.is_empty()))
    }

    /// Refuses a client that accepts nothing of what the agent gives.
    pub(super) fn check(&self, settings: &Settings, agent: &str) -> Result<(), A2aError> {
        let given = settings.agent(agent).map_or_else(usual, |agent| output(agent));
        if given.iter().any(|mode| self.has(mode)) {
            Ok(())
        } else {
            let message = format!(
                "configuration.acceptedOutputModes: this agent produces {}, and the client accepts none of them",
                given.join(", ")
            );
            Err(A2aError::new(Kind::ContentTypeNotSupported, message))
        }
    }

    fn has(&self, media: &str) -> bool {
        let media = bare(media);
        // An agent may give a range, such as `image/*`.
        self.0
            .as_ref()
            .is_none_or(|ranges| ranges.iter().any(|range| fits(range, &media) || fits(&media, &bare(range))))
    }

    fn takes(&self, part: &Part) -> bool {
        let media = match (&part.media_type, &part.text, &part.data) {
            (_, Some(_), _) => return true,
            (Some(media), None, _) => media.as_str(),
            (None, None, Some(_)) => "application/json",
            (None, None, None) => "application/octet-stream",
        };
        self.has(media)
    }

    /// Leaves out what is not accepted of what a task made. What it asks stays whole: without it nobody could decide.
    pub(super) fn tailor(&self, task: &mut wire::Task) {
        if self.0.is_none() {
            return;
        }
        for artifact in &mut task.artifacts {
            artifact.parts.retain(|part| self.takes(part));
        }
        task.artifacts.retain(|artifact| !artifact.parts.is_empty());
    }

    /// The same with an event of a stream; none where nothing is left of it.
    pub(super) fn tailored(&self, mut event: StreamResponse) -> Option<StreamResponse> {
        match &mut event {
            StreamResponse::Task(task) => self.tailor(task),
            StreamResponse::ArtifactUpdate(update) if self.0.is_some() => {
                let had_parts = !update.artifact.parts.is_empty();
                update.artifact.parts.retain(|part| self.takes(part));
                if had_parts && update.artifact.parts.is_empty() {
                    return None;
                }
            }
            StreamResponse::ArtifactUpdate(_)
            | StreamResponse::StatusUpdate(_)
            | StreamResponse::Message(_) => {}
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_media_types_in_them() {
        for (range, media, expected) in [
            ("text/plain", "text/plain", true),
            ("Text/Plain; charset=utf-8", "text/plain", true),
            ("text/*", "text/html", true),
            ("text", "text/html", true),
            ("*/*", "image/png", true),
            ("*", "image/png", true),
            ("image/*", "text/plain", false),
            ("image", "text/plain", false),
            ("text/plain", "text/html", false),
        ] {
            assert_eq!(fits(range, media), expected, "{range} {media}");
        }
    }

    #[test]
    fn words_are_always_accepted_and_the_rest_by_its_type() {
        let only =
            |modes: &[&str]| AcceptedModes(Some(modes.iter().map(|mode| (*mode).to_owned()).collect()));
        let data = Part::data(&1);
        let file = |media: &str| Part {
            raw: Some("dGNr".into()),
            media_type: Some(media.into()),
            ..Part::default()
        };
        assert!(only(&["image/png"]).takes(&Part::text("hello")));
        assert!(only(&["application/json"]).takes(&data) && !only(&["text/plain"]).takes(&data));
        assert!(only(&["image/*"]).takes(&file("image/png")) && !only(&["text"]).takes(&file("image/png")));
        assert!(AcceptedModes::default().takes(&file("image/png")));
    }

    /// What cannot be accepted at all is refused; one of several is enough.
    #[test]
    fn a_client_must_accept_something() {
        let settings = Settings::usual();
        let answer = |modes: &[&str]| {
            let accepts = AcceptedModes(Some(modes.iter().map(|mode| (*mode).to_owned()).collect()));
            accepts.check(&settings, "ops").map_err(|error| error.kind)
        };
        assert_eq!(answer(&["audio/wav", "application/json"]), Ok(()));
        assert_eq!(answer(&["text"]), Ok(()));
        assert_eq!(answer(&["audio/wav"]), Err(Kind::ContentTypeNotSupported));
        assert_eq!(AcceptedModes::default().check(&settings, "ops"), Ok(()));
    }
}
