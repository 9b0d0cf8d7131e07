//! `when:` — a CEL expression as a further condition of a hold or deny rule.
//!
//! It can tighten and never loosen: allow rules have none, and what cannot be evaluated holds. Its cost is bounded before it
//! runs: by the length of the expression, by the size of the arguments, and because no macro may stand inside another one.
//! Without the feature `cel` no expression is taken.

use crate::call::Call;

/// Bytes that an expression may have.
#[cfg(feature = "cel")]
const MAX_EXPRESSION: usize = 2_000;

/// Values that the arguments of a call may consist of.
#[cfg(feature = "cel")]
const MAX_VALUES: usize = 1_000;

/// Bytes of text and names in them.
#[cfg(feature = "cel")]
const MAX_BYTES: usize = 32 * 1024;

/// What an expression may name.
#[cfg(feature = "cel")]
const NAMES: &[&str] = &["tool", "agent", "user", "groups", "roles", "session", "args"];

/// What the language has; made once.
#[cfg(feature = "cel")]
static ENVIRONMENT: std::sync::LazyLock<std::sync::Arc<cel::Env>> =
    std::sync::LazyLock::new(|| std::sync::Arc::new(cel::Env::stdlib()));

/// An expression that was read.
pub(crate) struct Expression {
    #[cfg(feature = "cel")]
    program: cel::Program,
    #[cfg(not(feature = "cel"))]
    never: std::convert::Infallible,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Expression")
    }
}

#[cfg(not(feature = "cel"))]
impl Expression {
    pub(crate) fn parse(_: &str) -> Result<Expression, String> {
        Err("this build has no support for `when`".into())
    }

    pub(crate) fn evaluate(&self, _: &Call) -> Result<bool, String> {
        match self.never {}
    }
}

#[cfg(feature = "cel")]
impl Expression {
    /// Reads an expression.
    pub(crate) fn parse(text: &str) -> Result<Expression, String> {
        if text.len() > MAX_EXPRESSION {
            return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
        }
        let text = text.to_owned();
        let read = std::panic::catch_unwind(move || cel::Program::compile(&text));
        let program = match read {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => return Err(errors.to_string().lines().next().unwrap_or("not CEL").to_owned()),
            Err(_) => return Err("it is not CEL".into()),
        };
        if macros(program.expression()) > 1 {
            return Err("a macro such as `all` or `exists` stands inside another one, or an object is built: neither has a bound".into());
        }
        if let Some(unknown) = unknown_name(program.expression(), &[]) {
            return Err(format!("`{unknown}` is not known; there are {}", NAMES.join(", ")));
        }
        Ok(Expression { program })
    }

    /// What it says of a call; an error holds.
    pub(crate) fn evaluate(&self, call: &Call) -> Result<bool, String> {
        let arguments = call.arguments.value().ok_or("the arguments cannot be read")?;
        let mut left = Room { values: MAX_VALUES, bytes: MAX_BYTES };
        let arguments = value(arguments, &mut left)?;
        let evaluate = std::panic::AssertUnwindSafe(|| {
            let mut context = cel::Context::with_env(ENVIRONMENT.clone());
            let text = |text: &str| cel::Value::from(text.to_owned());
            let texts = |names: Vec<&str>| cel::Value::from(names.into_iter().map(text).collect::<Vec<_>>());
            context.add_variable_from_value("tool", text(call.tool.as_str()));
            context.add_variable_from_value("agent", text(call.agent.as_str()));
            context.add_variable_from_value("user", text(call.caller.user.as_str()));
            context.add_variable_from_value(
                "groups",
                texts(call.caller.groups.iter().map(|name| name.as_str()).collect()),
            );
            context.add_variable_from_value(
                "roles",
                texts(call.caller.roles.iter().map(|name| name.as_str()).collect()),
            );
            let session = call.session.as_ref().map_or(cel::Value::Null, |session| text(session.as_str()));
            context.add_variable_from_value("session", session);
            context.add_variable_from_value("args", arguments);
            self.program.execute(&context)
        });
        match std::panic::catch_unwind(evaluate) {
            Ok(Ok(cel::Value::Bool(truth))) => Ok(truth),
            Ok(Ok(_)) => Err("it is neither true nor false".into()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it could not be evaluated".into()),
        }
    }
}

/// How deep macros stand inside each other.
#[cfg(feature = "cel")]
fn macros(expression: &cel::common::ast::IdedExpr) -> usize {
    use cel::common::ast::Expr;
    let deepest = |all: Vec<&cel::common::ast::IdedExpr>| all.into_iter().map(macros).max().unwrap_or(0);
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
        Expr::Call(call) => deepest(call.target.iter().map(AsRef::as_ref).chain(&call.args).collect()),
        Expr::Comprehension(all) => {
            1 + deepest(vec![&all.iter_range, &all.accu_init, &all.loop_cond, &all.loop_step, &all.result])
        }
        Expr::List(list) => deepest(list.elements.iter().collect()),
        Expr::Select(select) => macros(&select.operand),
        // Literal objects are of no use in a condition.
        Expr::Map(_) | Expr::Struct(_) => 2,
    }
}

/// A name that is neither one of ours nor the variable of a macro.
#[cfg(feature = "cel")]
fn unknown_name(expression: &cel::common::ast::IdedExpr, bound: &[&str]) -> Option<String> {
    use cel::common::ast::Expr;
    match &expression.expr {
        Expr::Ident(name) => {
            let is_known = NAMES.contains(&name.as_str()) || bound.contains(&name.as_str());
            (!is_known).then(|| name.clone())
        }
        Expr::Unspecified | Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) => None,
        Expr::Call(call) => {
            let target = call.target.as_ref().and_then(|target| unknown_name(target, bound));
            target.or_else(|| call.args.iter().find_map(|argument| unknown_name(argument, bound)))
        }
        Expr::Comprehension(all) => {
            let mut inside = bound.to_vec();
            inside.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
            inside.extend(all.iter_var2.as_deref());
            let outside =
                [&all.iter_range, &all.accu_init].into_iter().find_map(|one| unknown_name(one, bound));
            let parts = [&all.loop_cond, &all.loop_step, &all.result];
            outside.or_else(|| parts.into_iter().find_map(|one| unknown_name(one, &inside)))
        }
        Expr::List(list) => list.elements.iter().find_map(|element| unknown_name(element, bound)),
        Expr::Select(select) => unknown_name(&select.operand, bound),
    }
}

/// How much the arguments may still have.
#[cfg(feature = "cel")]
struct Room {
    values: usize,
    bytes: usize,
}

#[cfg(feature = "cel")]
fn value(of: &crate::value::Value, left: &mut Room) -> Result<cel::Value, String> {
    use crate::value::Value;
    let too_large = || "the arguments are too large for an expression".to_owned();
    left.values = left.values.checked_sub(1).ok_or_else(too_large)?;
    let mut take = |text: &str| -> Result<(), String> {
        left.bytes = left.bytes.checked_sub(text.len()).ok_or_else(too_large)?;
        Ok(())
    };
    Ok(match of {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Text(text) => {
            take(text)?;
            cel::Value::from(text.clone())
        }
        Value::Number(None) => return Err("a number is too long".into()),
        Value::Number(Some(number)) => match number.to_string().parse::<i64>() {
            Ok(whole) => cel::Value::Int(whole),
            // Up to here a float keeps the order of decimals.
            Err(_) if number.significant_digits() <= 15 => {
                cel::Value::Float(number.to_string().parse().map_err(|_| "a number is too long")?)
            }
            Err(_) => return Err(format!("{number} has too many digits for an expression; use `where`")),
        },
        Value::List(items) => {
            let items: Result<Vec<cel::Value>, String> = items.iter().map(|item| value(item, left)).collect();
            cel::Value::from(items?)
        }
        Value::Map(members) => {
            let mut all: std::collections::HashMap<String, cel::Value> = std::collections::HashMap::new();
            for (name, member) in members {
                left.bytes = left.bytes.checked_sub(name.len()).ok_or_else(too_large)?;
                all.insert(name.clone(), value(member, left)?);
            }
            cel::Value::from(all)
        }
    })
}
