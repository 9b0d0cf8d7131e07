//! A span: what was done, where it belongs, from when to when.
//!
//! Names of attributes follow the semantic conventions of OpenTelemetry where those have one (`gen_ai.…`, `http.…`), and begin
//! with `standfast.` otherwise. Values are ids, names, kinds and numbers. How it is written for a collector is not known here.

use std::borrow::Cow;

use standfast_core::trace::TraceContext;

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace and its own id.
    pub context: TraceContext,
    /// The span that it is part of.
    pub parent: Option<[u8; 8]>,
    /// What it is called.
    pub name: Cow<'static, str>,
    /// Its part in a conversation of programs.
    pub kind: SpanKind,
    /// When it began, in microseconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// What it was.
    pub attributes: Vec<Attribute>,
    /// What happened in between.
    pub events: Vec<SpanEvent>,
    /// Spans that it has to do with and is no part of.
    pub links: Vec<SpanLink>,
    /// Whether it failed.
    pub has_failed: bool,
}

/// The part of a span in a conversation of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// None.
    Internal,
    /// It answers a request.
    Server,
    /// It waits for an answer from elsewhere.
    Client,
}

/// A name and a value.
pub type Attribute = (&'static str, AttributeValue);

/// What an attribute says.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A name, an id, a kind.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// Several names.
    Texts(Vec<Cow<'static, str>>),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> AttributeValue {
        AttributeValue::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(Cow::Owned(text))
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> AttributeValue {
        AttributeValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> AttributeValue {
        AttributeValue::Number(i64::from(number))
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> AttributeValue {
        AttributeValue::Number(i64::from(number))
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> AttributeValue {
        AttributeValue::Flag(flag)
    }
}

/// Something that happened within a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// When, in microseconds since 1970.
    pub at: u64,
    /// More of it.
    pub attributes: Vec<Attribute>,
}

/// A span that another one has to do with.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLink {
    /// Which one.
    pub to: TraceContext,
    /// In which way.
    pub attributes: Vec<Attribute>,
}

impl SpanLink {
    /// A link that says nothing more.
    #[must_use]
    pub fn to(to: TraceContext) -> SpanLink {
        SpanLink { to, attributes: Vec::new() }
    }
}

impl Span {
    pub(super) fn new(
        context: TraceContext,
        parent: Option<[u8; 8]>,
        kind: SpanKind,
        name: Cow<'static, str>,
        begun: u64,
    ) -> Span {
        let (attributes, events, links) = (Vec::new(), Vec::new(), Vec::new());
        Span {
            context,
            parent,
            name,
            kind,
            begun,
            ended: begun,
            attributes,
            events,
            links,
            has_failed: false,
        }
    }

    /// Says more of it.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        if self.context.is_sampled {
            self.attributes.push((name, value.into()));
        }
    }

    /// It failed, in this way.
    pub fn fail(&mut self, kind: impl Into<AttributeValue>) {
        self.has_failed = true;
        self.set("error.type", kind);
    }
}
