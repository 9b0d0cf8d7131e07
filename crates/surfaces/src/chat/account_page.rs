//! The page where somebody who has signed in says that an account in a chat is theirs (T13).
//!
//! GET shows whose account it is and changes nothing; the form has the token of every form (T21). Whoever confirms lends the account what
//! they may decide themselves, so the page names the account by its ids and says what follows.

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use standfast_engine::auth::Principal;
use standfast_engine::{AccountOffer, AccountRefusal};

use std::sync::LazyLock;

use crate::html::{self, Failure, PostedForm, Site, Templates, Token};
use crate::http::{App, Segment};

static PAGES: LazyLock<Templates> =
    LazyLock::new(|| Templates::new(&[("account.html", include_str!("templates/account.html"))]));

pub(super) fn routes(app: &App) -> Router<App> {
    Router::new()
        .route("/chat/account/{token}", get(show).post(link))
        .layer(from_fn_with_state(app.clone(), html::keep_token))
        .layer(from_fn(html::add_headers))
}

#[derive(Debug, Serialize)]
struct AccountPage {
    chat: &'static str,
    team: String,
    account: String,
    shown: String,
    person: String,
    is_linked: bool,
}

impl AccountPage {
    fn of(offer: AccountOffer, who: &Principal, is_linked: bool) -> AccountPage {
        AccountPage {
            chat: if offer.account.chat == "slack" { "Slack" } else { "Discord" },
            team: offer.account.team,
            account: offer.account.user,
            shown: offer.shown,
            person: who.user.to_string(),
            is_linked,
        }
    }
}

async fn show(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    Segment(offered): Segment,
) -> Result<Response, Failure> {
    let offer = app.engine.callbacks().chat_accounts().open(&who, &offered).map_err(refused)?;
    let page = AccountPage::of(offer, &who, false);
    Ok(PAGES.page(StatusCode::OK, "account.html", &Site::of(&who, &token), &page))
}

async fn link(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(token): Extension<Token>,
    Segment(offered): Segment,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    let offer = app.engine.callbacks().chat_accounts().link(&who, &offered).await.map_err(refused)?;
    let page = AccountPage::of(offer, &who, true);
    Ok(PAGES.page(StatusCode::OK, "account.html", &Site::of(&who, &token), &page))
}

fn refused(why: AccountRefusal) -> Failure {
    let status = match &why {
        AccountRefusal::NoOffer => StatusCode::NOT_FOUND,
        AccountRefusal::OtherTenant | AccountRefusal::NoSuchPerson(_) => StatusCode::FORBIDDEN,
        AccountRefusal::SomebodyElses => StatusCode::CONFLICT,
        AccountRefusal::Store(error) => {
            tracing::error!(%error, "chats: an account could not be linked");
            let text = "The account could not be linked right now. Try again.";
            return Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Not linked", text);
        }
    };
    Failure::new(status, "Not linked", &why.to_string())
}
