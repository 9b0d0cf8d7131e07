//! The page of an approval link: one hold for one person, who need not be known to the browser otherwise (T6, T7, T8).
//!
//! GET shows and never decides: gateways of mail open every link. POST decides what the link is bound to, with a token that
//! only its page has, through the same function as every other decision. No script, no cookie; the address goes into no log,
//! no cache and to no other page. Who opens a link is the engine's to say (`submit/links.rs`).

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use standfast_core::hold::HoldKind;
use standfast_engine::auth::Principal;
use standfast_engine::secrets::ApprovalLink;
use standfast_engine::{EngineError, HoldView, LinkRefusal, OpenedLink, Snapshot};

use super::media::FileAccess;
use super::pages::ShownInstant;
use super::pages::context::{self, Conversation};
use super::routes::{PAGES, see_other};
use super::widget::{self, Widget, WidgetFailure, WidgetParts};
use super::{deciding, forms};
use crate::html::{self, Failure, PostedForm, Site, new_nonce};
use crate::http::{App, Segment, mount};
use crate::labels;

/// Bytes of arguments that are shown whole; a call with more is decided on its own page.
const WHOLE: usize = 64 * 1024;

/// Browsers run nothing here.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/link/{token}", get(show).post(decide))
        .layer(from_fn(keep_to_itself))
        .layer(from_fn(html::add_headers))
}

/// The address is a secret: no other page gets it, and no search engine keeps it.
async fn keep_to_itself(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert("x-robots-tag", HeaderValue::from_static("noindex, nofollow"));
    response
}

/// The page.
#[derive(Debug, Serialize)]
struct LinkPage {
    /// The hold as everywhere it stands within another page.
    hold: Widget,
    id: String,
    agent: String,
    owner: String,
    audience: String,
    link_ends: ShownInstant,
    risk: Option<&'static str>,
    conversation: Conversation,
    decided: Option<LinkDecision>,
    /// What went wrong with the decision that was just tried.
    notice: Option<LinkNotice>,
    /// Why nothing can be decided here.
    why_not: Option<String>,
    nonce: String,
    form_token: String,
}

#[derive(Debug, Serialize)]
struct LinkDecision {
    what: &'static str,
    by: String,
    at: ShownInstant,
    /// Whether it came after the deadline.
    late: bool,
}

#[derive(Debug, Serialize)]
struct LinkNotice {
    title: String,
    text: String,
}

/// One opening of a link.
struct Visit<'a> {
    app: &'a App,
    token: &'a str,
    opened: OpenedLink,
    base: String,
}

async fn show(
    State(app): State<App>,
    signed_in: Option<Extension<Principal>>,
    Segment(token): Segment,
) -> Result<Response, Failure> {
    let visit = Visit::new(&app, &token, signed_in)?;
    visit.page(&visit.read().await?, None).await
}

async fn decide(
    State(app): State<App>,
    signed_in: Option<Extension<Principal>>,
    Segment(token): Segment,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, Failure> {
    let visit = Visit::new(&app, &token, signed_in)?;
    let Form(fields) = form.map_err(|bad| Failure::new(bad.status(), "Unreadable form", &bad.body_text()))?;
    let posted = visit.checked(fields)?;
    let seen = visit.read().await?;
    // What is decided already is the engine's to tell: the same click once more is the same click.
    if seen.1.row.closed.is_none()
        && let Some(why) = why_not(&visit.opened, &seen.1)
    {
        let failure = Failure::new(StatusCode::CONFLICT, "Nothing was decided", &why);
        let objection = deciding::Objection { failure, pointer: None };
        let tried = WidgetFailure::of(seen.1.row.id, posted, objection);
        return visit.page(&seen, Some(tried)).await;
    }
    let hold = visit.opened.link.hold;
    if forms::asks_for_more(&posted) {
        return visit.page(&seen, Some(WidgetFailure::asking_for_more(hold, posted))).await;
    }
    match deciding::decide_on(&app, &visit.opened.who, (&seen.0, &seen.1), &posted).await? {
        Ok(()) => Ok(see_other(&format!("{}/link/{token}", visit.base))),
        // Somebody may have been faster: the page shows what is there now.
        Err(objection) => {
            visit.page(&visit.read().await?, Some(WidgetFailure::of(hold, posted, objection))).await
        }
    }
}

impl<'a> Visit<'a> {
    fn new(
        app: &'a App,
        token: &'a str,
        signed_in: Option<Extension<Principal>>,
    ) -> Result<Visit<'a>, Failure> {
        let signed_in = signed_in.map(|Extension(who)| who);
        let base = mount(&app.engine.settings()).to_owned();
        let opened = app.engine.submit().links().open(token, signed_in.as_ref());
        let opened = opened.map_err(|why| refused(&why, &base))?;
        Ok(Visit { app, token, opened, base })
    }

    /// The form of this page, deciding what the link is bound to, whatever else it says.
    fn checked(&self, fields: Vec<(String, String)>) -> Result<PostedForm, Failure> {
        let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let settings = self.app.engine.settings();
        let is_ours = settings
            .links
            .as_ref()
            .zip(field("nonce"))
            .zip(field("form"))
            .is_some_and(|((links, nonce), form)| links.keys.is_form_token(self.token, nonce, form));
        if !is_ours {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                "Form rejected",
                "Nothing was decided. The form is not that of this page. Open the link again and decide there.",
            ));
        }
        let ApprovalLink { digest, revision, .. } = &self.opened.link;
        let nonce = field("nonce").cloned().unwrap_or_default();
        let given = [
            ("digest", digest.map(|digest| digest.to_string()).unwrap_or_default()),
            ("revision", revision.to_string()),
            ("once", format!("link-{nonce}")),
        ];
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let posted = PostedForm::checked(fields, given);
        let word = posted.get("decision").unwrap_or_default();
        let is_decision = matches!(word.as_str(), "approve" | "deny" | "option" | "fields" | "answer");
        if !is_decision && !forms::asks_for_more(&posted) {
            let text = "The form has no decision. Nothing was decided.";
            return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", text));
        }
        Ok(posted)
    }

    /// The run of the hold, and the hold, at one moment.
    async fn read(&self) -> Result<(Snapshot, HoldView), Failure> {
        let (OpenedLink { link, who }, reads) = (&self.opened, self.app.engine.reads());
        let snapshot = reads.snapshot(who, link.hold.run).await?;
        let view = reads.views().hold_with_drift(who, &snapshot, link.hold).await?;
        Ok((snapshot, view))
    }

    /// The page of what was read; after a form that decided nothing, with what was entered and what was wrong.
    async fn page(
        &self,
        (snapshot, view): &(Snapshot, HoldView),
        tried: Option<WidgetFailure>,
    ) -> Result<Response, Failure> {
        let OpenedLink { link, who } = &self.opened;
        let now = self.app.engine.clock().now();
        let (row, nonce) = (&view.row, new_nonce());
        let settings = self.app.engine.settings();
        let form_token = settings.links.as_ref().and_then(|links| links.keys.form_token(self.token, &nonce));
        let address = format!("{}/link/{}", self.base, self.token);
        let reads = self.app.engine.reads();
        let root = match view.path.first() {
            None => Vec::new(),
            Some((root, _)) => reads.opening(who, *root).await.unwrap_or_default(),
        };
        let log = snapshot.log().await.map_err(EngineError::from)?;
        let conversation = context::conversation(snapshot.run(), view, log, &root);
        let parts = WidgetParts {
            view,
            action: address,
            now,
            tried: tried.as_ref(),
            who: &link.audience,
            files: FileAccess::AfterSignIn,
            said_before: conversation.hidden(),
        };
        let page = LinkPage {
            hold: widget::previewed(self.app, parts).await,
            conversation,
            id: row.id.to_string(),
            agent: row.agent.to_string(),
            owner: snapshot.run().facts.owner.to_string(),
            audience: link.audience.to_string(),
            link_ends: ShownInstant::new(link.expires_at, now),
            risk: super::pages::call::risk(view.risk).map(|risk| risk.text),
            decided: row.closed.as_ref().map(|closed| LinkDecision {
                what: labels::decision(Some(row.kind), closed.how),
                by: labels::actor(&closed.by),
                at: ShownInstant::new(closed.at, now),
                late: view.late,
            }),
            why_not: if row.closed.is_some() { None } else { why_not(&self.opened, view) },
            notice: tried
                .as_ref()
                .and_then(|tried| tried.failure.as_ref())
                .map(|failure| LinkNotice { title: failure.title.clone(), text: failure.text.clone() }),
            nonce,
            form_token: form_token.unwrap_or_default(),
        };
        let status = tried.as_ref().map_or(StatusCode::OK, WidgetFailure::status);
        Ok(PAGES.page(status, "link.html", &Site::anonymous().below(&self.base), &page))
    }
}

/// Why an open hold cannot be decided by this link.
fn why_not(opened: &OpenedLink, view: &HoldView) -> Option<String> {
    let (row, link) = (&view.row, &opened.link);
    let has_agreed = view.open.as_ref().is_some_and(|open| open.votes.contains(&link.audience));
    let bytes = view.arguments.as_ref().map_or(0, |arguments| arguments.text().len());
    if row.revision != link.revision || row.digest != link.digest {
        let text = "This link is for another version: what is asked has changed since it was issued. Sign in to decide \
                    what is shown here, or ask for a new link.";
        return Some(text.to_owned());
    }
    if !view.may_decide {
        let why = view.why_not.map(|why| why.to_string());
        return Some(format!("You may not decide this: {}.", why.unwrap_or_default()));
    }
    if view.needs_sign_in.is_some() {
        let text = "Approving this needs a recent sign-in at your identity provider, which a link is not. Sign in to decide.";
        return Some(text.to_owned());
    }
    if has_agreed {
        return Some("You have agreed. Others must agree too.".to_owned());
    }
    if !matches!(row.kind, HoldKind::Approval | HoldKind::Input) || view.ask.child.is_some() {
        return Some("Links decide approvals and questions. Sign in to decide this.".to_owned());
    }
    (bytes > WHOLE)
        .then(|| format!("{bytes} bytes of arguments are too many for this page. Sign in to decide."))
}

fn refused(why: &LinkRefusal, base: &str) -> Failure {
    let invalid = |status, text: &str| Failure::new(status, "This link cannot be used", text);
    match why {
        LinkRefusal::Invalid => invalid(
            StatusCode::NOT_FOUND,
            "It is incomplete, was changed, or is too old. Open it from the message again, or sign in.",
        ),
        LinkRefusal::Expired(hold) => {
            let text = "What it asks for may still be open: sign in to see it and to decide.";
            let way_on = Some((format!("{base}/approve/{hold}"), "Sign in and open it"));
            Failure { way_on, ..Failure::new(StatusCode::GONE, "This link has expired", text) }
        }
        LinkRefusal::NoSuchPerson => {
            invalid(StatusCode::FORBIDDEN, "The person whom it was issued for is not asked here any more.")
        }
        LinkRefusal::OtherPerson { audience, signed_in } => invalid(
            StatusCode::FORBIDDEN,
            &format!(
                "It is for {audience}, and you are signed in as {signed_in}. Sign out, and open it again."
            ),
        ),
        LinkRefusal::NotSignedIn => invalid(StatusCode::FORBIDDEN, "Sign in first, and open it again."),
        LinkRefusal::OlderNode => invalid(
            StatusCode::SERVICE_UNAVAILABLE,
            "The server is being upgraded, and links cannot be used until that is done. Try again later.",
        ),
    }
}
