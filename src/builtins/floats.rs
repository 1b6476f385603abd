//! Floating-point numbers in memory. No builtin makes them: they are members of structs and targets of pointers.

use super::Decoder;
use crate::types::{Deferred, FLOATS};
use crate::value::Value;

pub(super) const DECODERS: &[Decoder] = &[decoder(FLOATS[0]), decoder(FLOATS[1])];

const fn decoder((name, size): (&'static str, u32)) -> Decoder {
    Decoder { name, size, from_int: false, decode: |_: &Deferred, bytes, _| number(bytes) }
}

fn number(bytes: &[u8]) -> Value {
    match (bytes.try_into(), bytes.try_into()) {
        (Ok(double), _) => Value::Float { value: f64::from_le_bytes(double), single: false },
        (_, Ok(single)) => Value::Float { value: f32::from_le_bytes(single).into(), single: true },
        _ => Value::None,
    }
}
