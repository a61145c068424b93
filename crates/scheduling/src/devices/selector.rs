//! Selectors of devices: expressions in CEL.
//!
//! Parsing and evaluating is the `cel` crate's; Kubernetes' own functions are [`values`](super::values)'. Upstream
//! checks types before it evaluates. Here a type that does not fit is found when it is met, which makes no difference
//! for an expression that an API server has accepted. A function that this release does not know is refused by name.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{Context, DeclarationError, Env, ExecutionError, Program, Value};

pub(crate) use crate::devices::values::Input;
use crate::devices::values::extension;

/// The functions that are known, by name: those of the language, and Kubernetes' for strings, quantities, versions.
const FUNCTIONS: [&str; 43] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "dyn",
    "type",
    "of",
    "none",
    "ofNonZeroValue",
    "hasValue",
    "value",
    "or",
    "orValue",
    "quantity",
    "isQuantity",
    "sign",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "isInteger",
    "asInteger",
    "add",
    "sub",
    "semver",
    "isSemver",
    "major",
    "minor",
];

static ENVIRONMENT: LazyLock<Result<Arc<Env>, String>> =
    LazyLock::new(|| environment().map(Arc::new).map_err(|error| error.to_string()));

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings)?;
    env.add_extension(extension)?;
    env.set_error_on_duplicate_map_keys(false);
    env.add_macro(Macro::receiver("bind", 3, bind))?;
    Ok(env)
}

/// `cel.bind(name, value, expression)`.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    arguments: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let right =
        target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "cel"));
    if !right {
        return Ok(None);
    }
    let Ok([name, value, result]) = <[IdedExpr; 3]>::try_from(std::mem::take(arguments)) else {
        return Ok(None);
    };
    let Expr::Ident(name) = name.expr else {
        return Err(helper.new_error(name.id, "cel.bind() variable names must be simple identifiers"));
    };
    let iter_range = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
    let loop_cond = helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into())));
    let loop_step = helper.next_expr(Expr::Ident(name.clone()));
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range,
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name,
        accu_init: value,
        loop_cond,
        loop_step,
        result,
    })))))
}

/// Why a selector says neither yes nor no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Compile(String),
    Runtime(String),
}

/// A CEL expression over `device`. Equal if the text is.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    text: String,
    program: Arc<Result<Program, String>>,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Selector {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), program: Arc::new(compile(text)) }
    }

    /// One that fails on every device.
    pub(crate) fn broken(problem: &str) -> Self {
        Self { text: String::new(), program: Arc::new(Err(problem.to_owned())) }
    }

    pub(crate) fn matches(&self, device: &Input) -> Result<bool, Failure> {
        let program = self.program.as_ref().as_ref().map_err(|problem| Failure::Compile(problem.clone()))?;
        let env = ENVIRONMENT.as_ref().map_err(|problem| Failure::Compile(problem.clone()))?;
        let mut context = Context::with_env(Arc::clone(env));
        context.add_variable_as_val("device", Box::new(device.clone()));
        match judge(program.expression(), &context) {
            Ok(Value::Bool(yes)) => Ok(yes),
            Ok(other) => Err(Failure::Runtime(not_bool(&other))),
            Err(problem) => Err(Failure::Runtime(problem)),
        }
    }
}

fn compile(text: &str) -> Result<Program, String> {
    let env = ENVIRONMENT.as_ref().map_err(Clone::clone)?;
    let program = env.compile(text).map_err(|errors| format!("compilation failed: {errors}"))?;
    let references = program.references();
    let mut unknown = references.functions();
    unknown.retain(|name| {
        let operator = name.starts_with(|c: char| !c.is_ascii_alphabetic());
        !operator && *name != "patch" && !FUNCTIONS.contains(name)
    });
    unknown.sort_unstable();
    match unknown.first() {
        Some(name) => Err(format!("function {name:?} is not supported by this scheduler")),
        None => Ok(program),
    }
}

fn not_bool(value: &Value) -> String {
    let (name, what) = match value {
        Value::Int(_) => ("int", "unsupported type conversion from 'int' to bool"),
        Value::String(_) => ("string", "unsupported native conversion from string to 'bool'"),
        Value::Map(_) => ("map", "type conversion error from map to 'bool'"),
        Value::List(_) => ("list", "type conversion error from list to 'bool'"),
        _ => ("another", "type conversion error"),
    };
    format!("CEL result of type {name} could not be converted to bool: {what}")
}

/// Evaluates, and of two errors below one operator tells the left one, as upstream does.
fn judge(expression: &IdedExpr, context: &Context<'_, '_>) -> Result<Value, String> {
    match &expression.expr {
        Expr::Call(CallExpr { func_name, target: None, args }) => match (func_name.as_str(), args.as_slice())
        {
            (operators::LOGICAL_AND, [left, right]) => both(false, left, right, context),
            (operators::LOGICAL_OR, [left, right]) => both(true, left, right, context),
            (operators::LOGICAL_NOT, [operand]) => Ok(Value::Bool(!truth(judge(operand, context))?)),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                judge(if truth(judge(condition, context))? { yes } else { no }, context)
            }
            _ => leaf(expression, context),
        },
        _ => leaf(expression, context),
    }
}

fn leaf(expression: &IdedExpr, context: &Context<'_, '_>) -> Result<Value, String> {
    Value::resolve(expression, context).map_err(|error| words(&error))
}

fn truth(value: Result<Value, String>) -> Result<bool, String> {
    match value? {
        Value::Bool(yes) => Ok(yes),
        _ => Err(OVERLOAD.to_owned()),
    }
}

/// `decisive` decides, whichever side says it, and whatever the other side says.
fn both(
    decisive: bool,
    left: &IdedExpr,
    right: &IdedExpr,
    context: &Context<'_, '_>,
) -> Result<Value, String> {
    let left = truth(judge(left, context));
    if left == Ok(decisive) {
        return Ok(Value::Bool(decisive));
    }
    let right = truth(judge(right, context));
    if right == Ok(decisive) {
        return Ok(Value::Bool(decisive));
    }
    left.and(right).map(Value::Bool)
}

const OVERLOAD: &str = "no such overload";

/// An error in upstream's words, as far as they are known.
fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!(
            "no such key: {key}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check \
             with has() for optional fields"
        ),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedBinaryOperator(..) => OVERLOAD.to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
