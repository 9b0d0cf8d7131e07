//! An identity provider on this machine: it publishes keys and signs whatever a test wants signed.
//!
//! It signs with aws-lc directly and puts tokens together by hand, so that it can make those that no library would.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const ISSUER: &str = "https://login.example/";
pub(crate) const AUDIENCE: &str = "standfast";

/// A key pair with its name.
pub(crate) struct SigningKey {
    pub(crate) id: String,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl SigningKey {
    pub(crate) fn rsa(id: &str) -> SigningKey {
        SigningKey { id: id.into(), pair: Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub(crate) fn p256(id: &str) -> SigningKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        SigningKey { id: id.into(), pair: Pair::P256(pair) }
    }

    pub(crate) fn p384(id: &str) -> SigningKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        SigningKey { id: id.into(), pair: Pair::P384(pair) }
    }

    pub(crate) fn ed(id: &str) -> SigningKey {
        SigningKey { id: id.into(), pair: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    /// The public half as it is published.
    pub(crate) fn jwk(&self) -> Value {
        let ec = |pair: &EcdsaKeyPair, curve: &str| {
            let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
            json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)})
        };
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": encoded(parts.n), "e": encoded(parts.e)})
            }
            Pair::P256(pair) => ec(pair, "P-256"),
            Pair::P384(pair) => ec(pair, "P-384"),
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key())})
            }
        };
        jwk["kid"] = self.id.clone().into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// A token with this header and these claims, byte for byte.
    pub(crate) fn sign(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let (random, message) = (SystemRandom::new(), signed.as_bytes());
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let how: &'static dyn RsaEncoding = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    other => panic!("{other}"),
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(how, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::P256(pair) | Pair::P384(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        };
        format!("{signed}.{}", encoded(signature))
    }

    /// An ordinary token.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let algorithm = match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed(_) => "EdDSA",
        };
        self.token_by(algorithm, claims)
    }

    pub(crate) fn token_by(&self, algorithm: &str, claims: &Value) -> String {
        let header = json!({"alg": algorithm, "kid": self.id, "typ": "JWT"});
        self.sign(algorithm, &header.to_string(), &claims.to_string())
    }
}

/// What the provider answers.
#[derive(Clone)]
pub(crate) enum Answer {
    Keys(Value),
    Text(u16, String),
    /// To another address of its own that has keys.
    Redirect,
    /// Never, as far as anybody waits.
    Slow,
}

/// A set of keys as it is published.
pub(crate) fn published(keys: &[&SigningKey]) -> Answer {
    Answer::Keys(json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}))
}

/// A provider; dropping it makes it go away.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<AtomicUsize>,
    followed: Arc<AtomicUsize>,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.go_away();
    }
}

impl Provider {
    pub(crate) async fn with(answer: Answer) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut provider = Provider {
            address: listener.local_addr().unwrap(),
            answer: Arc::new(Mutex::new(answer)),
            asked: Arc::default(),
            followed: Arc::default(),
            serving: None,
        };
        provider.serve(listener);
        provider
    }

    pub(crate) fn jwks_url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    /// From now on.
    pub(crate) fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// How often it was asked for its keys.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How often somebody came by a redirect.
    pub(crate) fn followed(&self) -> usize {
        self.followed.load(Ordering::SeqCst)
    }

    pub(crate) async fn is_asked(&self, times: usize) {
        for _ in 0..2000 {
            if self.asked() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("asked {} times, not {times}", self.asked());
    }

    /// Nothing listens any more. Whoever is connected already gets nothing, as every answer ends its connection.
    pub(crate) fn go_away(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }

    /// At the same address as before.
    pub(crate) async fn come_back(&mut self) {
        for _ in 0..500 {
            if let Ok(listener) = TcpListener::bind(self.address).await {
                return self.serve(listener);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("somebody else has {}", self.address);
    }

    fn serve(&mut self, listener: TcpListener) {
        let (answer, asked, followed) = (self.answer.clone(), self.asked.clone(), self.followed.clone());
        let keys = move || {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = answer.lock().unwrap().clone();
            async move { ([("connection", "close")], respond(answer).await) }
        };
        let elsewhere = move || {
            followed.fetch_add(1, Ordering::SeqCst);
            async { "{\"keys\":[]}" }
        };
        let router = Router::new().route("/keys", get(keys)).route("/elsewhere", get(elsewhere));
        self.serving = Some(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
    }
}

async fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Keys(keys) => keys.to_string().into_response(),
        Answer::Text(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Answer::Redirect => Redirect::temporary("/elsewhere").into_response(),
        Answer::Slow => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::OK.into_response()
        }
    }
}
