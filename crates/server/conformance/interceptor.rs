//! What conformance kits expect of an agent that no run can express: a reply without a task, a context that is refused,
//! tokens of their own, an extension that clients must declare.
//!
//! The server calls it for every A2A request; what the kits choose is `behaviour.rs`.

use standfast_core::name::AgentName;
use standfast_engine::settings::{
    A2aDenial, A2aInterceptor, A2aMessage, A2aResource, MessageRoute, RequiredExtension,
};

use crate::agent::AGENT;
use crate::behaviour::{Behaviour, chosen};

/// The token that opens everything.
const VALID: &str = "itk-valid-token";

/// The token of a caller who is known and may do nothing.
const INSUFFICIENT: &str = "itk-insufficient-token";

/// The extension of the protocol that clients must know in the pass for it.
pub(crate) const REQUIRED_EXTENSION: &str = "urn:a2a:tck:required-extension";

/// The context that ACTS wants refused, where the TCK wants those of clients taken (CORE-CTX-001).
pub(crate) const REFUSED_CONTEXT: &str = "client-generated-context-that-should-be-rejected";

/// What is different about the server in the further passes of the kits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Passes {
    /// Nothing beyond the least: no streams, no push notifications, no extended card.
    pub(crate) reduced_capabilities: bool,
    /// Every request needs one of the kits' tokens.
    pub(crate) auth: bool,
    /// Clients must know [`REQUIRED_EXTENSION`].
    pub(crate) required_extension: bool,
    /// Clients of 0.3 read the card too, and a message that chooses nothing is asked about.
    pub(crate) v03: bool,
}

impl Passes {
    /// Those that the kits ask for by variables of the environment.
    #[must_use]
    pub(crate) fn in_environment(self, lookup: &dyn Fn(&str) -> Option<String>) -> Passes {
        let is_set = |name: &str| lookup(name).is_some_and(|value| !value.is_empty());
        Passes {
            reduced_capabilities: self.reduced_capabilities || is_set("ITK_ACTS_REDUCED_CAPABILITIES"),
            auth: self.auth || is_set("ITK_ACTS_AUTH"),
            ..self
        }
    }
}

/// Answers the server's questions as the kits expect.
#[derive(Debug)]
pub(crate) struct KitInterceptor {
    pub(crate) passes: Passes,
}

impl A2aInterceptor for KitInterceptor {
    /// In the pass for it every request needs a token; the extended card needs one in every pass.
    fn authorize(&self, bearer: Option<&str>, resource: A2aResource) -> Result<(), A2aDenial> {
        if resource == A2aResource::Any && !self.passes.auth {
            return Ok(());
        }
        match bearer {
            Some(VALID) => Ok(()),
            Some(INSUFFICIENT) => {
                Err(A2aDenial::Forbidden("this token is valid and grants nothing".to_owned()))
            }
            Some(_) | None => {
                let detail =
                    format!("send `Authorization: Bearer {VALID}`, the token of the conformance kits");
                Err(A2aDenial::Unauthenticated(detail))
            }
        }
    }

    fn credential(&self) -> Option<&'static str> {
        self.passes.auth.then_some("The token of the conformance kits")
    }

    fn required_extension(&self) -> Option<RequiredExtension> {
        self.passes.required_extension.then_some(RequiredExtension {
            uri: REQUIRED_EXTENSION,
            description: "Clients must declare it, for the test of required extensions.",
        })
    }

    /// The kits' next message chooses what happens next, so it supersedes what was asked.
    fn route(&self, agent: &AgentName, message: &A2aMessage<'_>) -> MessageRoute {
        if agent.as_str() != AGENT {
            return MessageRoute::Engine;
        }
        if message.context == Some(REFUSED_CONTEXT) {
            return MessageRoute::RefuseContext;
        }
        let choice = chosen(message.id, message.first_text);
        if message.task.is_none() && choice == Some(Behaviour::AnswersDirectly) {
            return MessageRoute::Reply("Direct message response".to_owned());
        }
        if message.has_data { MessageRoute::Engine } else { MessageRoute::Supersede }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kits_choose_their_pass_by_the_environment() {
        let only = |name: &'static str, value: &'static str| {
            Passes::default().in_environment(&|asked| (asked == name).then(|| value.to_owned()))
        };
        let auth = Passes { auth: true, ..Passes::default() };
        assert_eq!(only("ITK_ACTS_AUTH", "1"), auth);
        assert_eq!(only("ITK_ACTS_AUTH", ""), Passes::default());
        let reduced = Passes { reduced_capabilities: true, ..Passes::default() };
        assert_eq!(only("ITK_ACTS_REDUCED_CAPABILITIES", "yes"), reduced);
        assert_eq!(auth.in_environment(&|_| None), auth);
    }
}
