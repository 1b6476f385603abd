//! Evaluates an expectation over the final maps of a run.

use super::range::{Range, Undefined};
use super::value::{CallArgs, Element, Val, measured_range};
use super::{Constant, Expr, Kind, MapRef, Ty};
use crate::output::FinalResults;
use crate::value::{MapView, Value};

/// The reason for a missing value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoValue {
    /// What has no value.
    pub text: String,
    pub why: String,
}

pub(super) struct Eval<'a> {
    pub last: &'a FinalResults,
    /// Events were lost: the counts are bounds.
    pub lossy: bool,
}

impl Eval<'_> {
    pub fn eval(&self, e: &Expr) -> Result<Val, NoValue> {
        let stop = |why: &str| NoValue { text: e.text.clone(), why: why.into() };
        let undefined = |why: Undefined| match why {
            Undefined::DividedByZero => stop("division by zero"),
            Undefined::TooLarge => stop("the number is too large"),
        };
        Ok(match &e.kind {
            Kind::Constant(Constant::Number(n)) => Val::Number(Range::exact(*n)),
            Kind::Constant(Constant::Text(text)) => Val::Text(Some(text.clone())),
            Kind::Constant(Constant::Truth(truth)) => Val::Truth(Some(*truth)),
            Kind::Constant(Constant::Tuple(_)) => Val::Truth(None),
            Kind::Read(of) => self.read(of, e.ty),
            Kind::Call { function, map: of, rest } => {
                let Some(view) = self.view(of) else { return Err(stop("the map could not be read")) };
                let elements = elements(view, of);
                let (estimated, unbounded) = (is_estimate(view), self.is_unbounded(view));
                let wanted =
                    CallArgs { name: &of.map, elements: &elements, shape: of.shape, rest, lossy: self.lossy, estimated, unbounded };
                (function.eval)(&wanted).map_err(|why| stop(&why))?
            }
            Kind::Negate(of) => Val::Number(self.eval(of)?.range().negated().map_err(undefined)?),
            Kind::Not(of) => Val::Truth(self.eval(of)?.truth().map(|truth| !truth)),
            Kind::Math(op, a, b) => Val::Number(self.eval(a)?.range().math(*op, self.eval(b)?.range()).map_err(undefined)?),
            Kind::Compare(op, a, b) => Val::Truth(match (self.eval(a)?, self.eval(b)?) {
                (Val::Text(a), Val::Text(b)) => a.zip(b).map(|(a, b)| (a == b) == (*op == crate::syntax::ast::BinOp::Eq)),
                (a, b) => a.range().compare(*op, b.range()),
            }),
            // the second operand is not evaluated if the first decides
            Kind::And(a, b) => match self.eval(a)?.truth() {
                Some(false) => Val::Truth(Some(false)),
                Some(true) => self.eval(b)?,
                None => Val::Truth(self.eval(b)?.truth().filter(|truth| !truth)),
            },
            Kind::Or(a, b) => match self.eval(a)?.truth() {
                Some(true) => Val::Truth(Some(true)),
                Some(false) => self.eval(b)?,
                None => Val::Truth(self.eval(b)?.truth().filter(|truth| *truth)),
            },
        })
    }

    fn is_unbounded(&self, view: &MapView) -> bool {
        self.last.unbounded.contains(&view.name)
    }

    pub fn view(&self, of: &MapRef) -> Option<&MapView> {
        self.last.maps.iter().find(|view| view.name == of.map)
    }

    /// The value as the script itself would read it: a missing one is zero or an empty string.
    fn read(&self, of: &MapRef, ty: Ty) -> Val {
        let view = self.view(of);
        let found = view.and_then(|view| elements(view, of).into_iter().next());
        match ty {
            Ty::Number => Val::Number(match self.lossy && view.is_some_and(|view| is_estimate(view) || self.is_unbounded(view)) {
                true => Range::ANY,
                false => measured_range(found.and_then(|e| e.shown()).unwrap_or(0), of.shape, self.lossy),
            }),
            Ty::Truth => Val::Truth((!self.lossy).then(|| found.and_then(|e| e.shown()).is_some_and(|n| n != 0))),
            Ty::Text => {
                let text = |e: Element| match e.value {
                    Value::Str { bytes, .. } => Some(bytes.clone()),
                    Value::Text(text) => Some(text.clone().into_bytes()),
                    Value::None
                    | Value::Bool(_)
                    | Value::Int(_)
                    | Value::Uint(_)
                    | Value::Float { .. }
                    | Value::Ptr(_)
                    | Value::Enum { .. }
                    | Value::Bytes(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Record(_)
                    | Value::Stack(_)
                    | Value::Hist(_)
                    | Value::Stats(_)
                    | Value::Avg(_)
                    | Value::Percentiles(_)
                    | Value::Series(_)
                    | Value::HeatMap(_) => None,
                };
                Val::Text((!self.lossy).then(|| found.and_then(text).unwrap_or_default()))
            }
        }
    }
}

/// Have some runs counted for others? Such values may be too high as well as too low.
fn is_estimate(view: &MapView) -> bool {
    view.weights.is_some_and(|weights| weights.runs > weights.passed)
}

/// The element, if it exists, or all elements.
pub(super) fn elements<'a>(view: &'a MapView, of: &MapRef) -> Vec<Element<'a>> {
    let meant = |key: &Value| of.key.as_ref().is_none_or(|wanted| wanted.is(key));
    view.entries.iter().filter(|(key, _)| meant(key)).map(|(key, value)| Element { key, value }).collect()
}
