//! The layout of structs: the platform's C ABI (System V for x86-64 and AArch64, which agree on everything used here), with
//! GCC's `packed` and `aligned` attributes and `#pragma pack`.

use super::lex::Sym;
use super::types::{Member, Ty, Types};

/// Maximum size of a struct in bytes.
const MAX_STRUCT_SIZE: u64 = 1 << 30;

/// A member as declared.
pub struct Declared {
    /// None: an anonymous struct or union, or an unnamed bit-field.
    pub name: Option<Sym>,
    /// Its type.
    pub ty: Ty,
    /// The width of a bit-field, in bits.
    pub width: Option<u64>,
    /// The attributes of the member.
    pub attrs: Attrs,
}

/// The effect of `__attribute__((…))` and `_Alignas` on layout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attrs {
    /// `packed`
    pub packed: bool,
    /// `aligned(n)`: bytes.
    pub aligned: Option<u32>,
}

impl Attrs {
    /// Combines both.
    pub fn and(self, other: Attrs) -> Attrs {
        Attrs { packed: self.packed || other.packed, aligned: self.aligned.max(other.aligned) }
    }
}

/// The size, alignment and member offsets of a struct or union. `max_align`: the limit of `#pragma pack`, in bytes.
///
/// # Errors
/// The fault in a member.
pub fn lay_out(
    types: &Types,
    declared: Vec<Declared>,
    union: bool,
    attrs: Attrs,
    max_align: Option<u32>,
) -> Result<(u32, u32, Vec<Member>), String> {
    let mut members = Vec::new();
    let (mut bit, mut align, mut end) = (0u64, 1u32, 0u64);
    let bound = |n: u32, packed: bool| {
        let n = if packed { 1 } else { n };
        max_align.map_or(n, |m| n.min(m))
    };
    for d in declared {
        if union {
            bit = 0;
        }
        let packed = attrs.packed || d.attrs.packed;
        let Some((size, natural)) = types.shape(&d.ty) else { return Err("a member has an incomplete type".into()) };
        let mut member_align = bound(natural, packed);
        if let Some(aligned) = d.attrs.aligned {
            member_align = member_align.max(aligned);
        }
        if let Some(width) = d.width {
            let unit = size * 8;
            if width == 0 {
                // it ends the unit
                bit = bit.next_multiple_of(u64::from(natural) * 8);
                continue;
            }
            if d.attrs.aligned.is_some() {
                bit = bit.next_multiple_of(u64::from(member_align) * 8);
            } else if !packed && max_align.is_none() && bit / unit != (bit + width - 1) / unit {
                bit = bit.next_multiple_of(unit);
            }
            // On x86-64 an unnamed bit-field does not affect the alignment.
            if d.name.is_some() {
                align = align.max(member_align);
                members.push(Member { name: d.name, bit, width: Some(width as u8), ty: d.ty });
            }
            bit += width;
        } else {
            bit = bit.next_multiple_of(u64::from(member_align) * 8);
            align = align.max(member_align);
            members.push(Member { name: d.name, bit, width: None, ty: d.ty });
            bit += size * 8;
        }
        end = end.max(bit);
        if end / 8 > MAX_STRUCT_SIZE {
            return Err("it is larger than a gigabyte".into());
        }
    }
    end = end.max(if union { 0 } else { bit });
    if let Some(aligned) = attrs.aligned {
        align = align.max(aligned);
    }
    let size = end.div_ceil(8).next_multiple_of(align.into());
    Ok((size as u32, align, members))
}
