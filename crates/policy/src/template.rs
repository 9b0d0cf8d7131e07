//! Texts with arguments of a call in braces, such as `order/{order.id}`: taken apart once, when a policy is read.
//!
//! What may be filled in, and how, is the business of whoever fills: `effect_key.rs`, `reconcile.rs`.

use crate::value::ArgumentPath;

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// It stands as it is.
    Text(String),
    /// The value of an argument.
    Argument(ArgumentPath),
}

/// Reads a template; `{{` and `}}` are braces. `what` is made of it, for mistakes: it needs one value for each argument.
pub(crate) fn parts(text: &str, what: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        if let Some(after) = after.strip_prefix("{{") {
            plain.push('{');
            rest = after;
        } else if let Some(after) = after.strip_prefix("}}") {
            plain.push('}');
            rest = after;
        } else {
            let inside = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            let (path, after) = inside.ok_or_else(|| {
                format!("{text:?} has a brace without its other half; write {{{{ or }}}} for a brace")
            })?;
            let path = ArgumentPath::parse(path)?;
            if path.is_plural() {
                return Err(format!("{path} may be many values; {what} needs one"));
            }
            parts.extend((!plain.is_empty()).then(|| Part::Text(std::mem::take(&mut plain))));
            parts.push(Part::Argument(path));
            rest = after;
        }
    }
    plain.push_str(rest);
    parts.extend((!plain.is_empty()).then_some(Part::Text(plain)));
    Ok(parts)
}
