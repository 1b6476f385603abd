//! Network addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Accepts, Builtin, CallInfo, CallSite, Codegen, Decoder, Param, Returns};
use crate::diag::Diagnostic;
use crate::emit::{Builder, Cmp, Helper, Operand, Repr};
use crate::probes::ContextFeatures;
use crate::system::TargetInfo;
use crate::types::{Deferred, Type};
use crate::value::Value;

/// `u32` family, then 16 bytes.
const INET: &str = "inet";
const MAC: &str = "macaddr_t";

/// `AF_INET` and `AF_INET6` of include/linux/socket.h.
const V4: u64 = 2;
const V6: u64 = 10;

pub(super) const ROWS: &[Builtin] = &[
    Builtin {
        name: "socket_cookie",
        params: &[Param::new("sock", Accepts::Addr)],
        returns: Returns::By(|f| {
            let ty = f.args.first().map(|a| &a.ty);
            if !ty.is_some_and(|ty| is_socket(f.sys, ty)) {
                let ty = ty.map(Type::to_string).unwrap_or_default();
                let d = Diagnostic::error("type-mismatch", f.span(0), format!("{} takes a pointer to a socket, but this is {ty}", f.name));
                return Err(d.help("use a `struct sock *` that is an argument of the probe, such as `args.sk`"));
            }
            f.require_probe_arg(0)?;
            Ok(Type::U64)
        }),
        needs: ContextFeatures::SOCKETS,
        risky: false,
        codegen: Codegen::Code(|e, _, args| {
            let sock = args.first().map_or(e.int(0), |a| e.scalar(a));
            Operand::u64(e.call(Helper::GetSocketCookie, &[sock.into()]))
        }),
        doc: "Returns the cookie of a socket, a number that identifies the socket for its lifetime. The struct sock * must be an argument of the probe.",
        example: "fentry:tcp_connect { printf(\"%llu\\n\", socket_cookie(args.sk)); }",
    },
    Builtin {
        name: "ntop",
        params: &[Param::new("family_or_address", Accepts::StrOrAddr), Param::optional("address", Accepts::StrOrAddr)],
        returns: Returns::By(|f| {
            if let [family, _] = f.args
                && (!family.ty.is_scalar() || matches!(family.ty, Type::Ptr(..)))
            {
                let message = format!("{} takes an integer as the family, but this is {}", f.name, family.ty);
                return Err(Diagnostic::error("type-mismatch", f.span(0), message));
            }
            if let Some(ty) = f.args.last().map(|a| &a.ty)
                && let Some(fault) = not_an_address(ty)
            {
                return Err(Diagnostic::error("type-mismatch", f.span(f.args.len() - 1), format!("{} takes {fault}", f.name)));
            }
            Ok(Deferred::plain(INET, 20))
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(ntop),
        doc: "Returns an IP address as text. An integer or 4 bytes in network byte order are an IPv4 address, and 16 bytes an IPv6 address. The first of two arguments is the address family (AF_INET 2, AF_INET6 10).",
        example: "begin { printf(\"%s\\n\", ntop(0x0100007f)); }",
    },
    Builtin {
        name: "pton",
        params: &[Param::new("address", Accepts::LitStr)],
        returns: Returns::By(|f| address(f).map(|a| Type::Array(Box::new(Type::uint(1)), octets(a).len() as u32))),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, _| {
            let text = String::from_utf8_lossy(u.text(0).unwrap_or_default()).into_owned();
            let bytes = text.parse().map(octets).unwrap_or_default();
            let at = e.alloc(16);
            e.store_bytes(at, &bytes);
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Returns the 4 or 16 bytes of a literal IP address, in network byte order.",
        example: "begin { printf(\"%s\\n\", ntop(pton(\"127.0.0.1\"))); }",
    },
    Builtin {
        name: "macaddr",
        params: &[Param::new("address", Accepts::StrOrAddr)],
        returns: Returns::By(|f| match f.args.first() {
            // an address may be known: kaddr() with a cast
            Some(a) if a.lit.is_some() && !matches!(a.ty, Type::Ptr(..)) => {
                Err(Diagnostic::error("type-mismatch", f.span(0), "a hardware address is six bytes in memory, not a literal"))
            }
            Some(a) if matches!(a.ty, Type::Array(..) | Type::Str(_)) && a.ty.size() < 6 => Err(Diagnostic::error(
                "type-mismatch",
                f.span(0),
                format!("a hardware address has 6 bytes, but {} has {}", a.ty, a.ty.size()),
            )),
            _ => Ok(Deferred::plain(MAC, 6)),
        }),
        needs: ContextFeatures::NONE,
        risky: false,
        codegen: Codegen::Code(|e, u, args| {
            let at = e.alloc(8);
            let zero = e.int(0);
            e.store(at, 0, 8, zero);
            if let Some(a) = args.first() {
                if let Repr::Mem(ptr, _) = a.repr {
                    e.copy(at, ptr, 6, 1);
                } else {
                    let (addr, space) = e.address(a);
                    e.read(space, at, 6, addr);
                }
            }
            Operand::mem(u.ty.clone(), at)
        }),
        doc: "Returns a 6-byte hardware address as text.",
        example: "begin { $p = (uint8 *)curtask; printf(\"%s\\n\", macaddr($p)); }",
    },
];

/// Does it point to a structure that begins with a `struct sock_common`? All kinds of sockets do.
fn is_socket(sys: &dyn TargetInfo, ty: &Type) -> bool {
    let Type::Ptr(to, _) = ty else { return false };
    let mut at = (**to).clone();
    loop {
        let record = if let Type::Struct(s) = &at {
            sys.expand(s)
        } else if let Type::Record(r) = &at {
            Some((**r).clone())
        } else {
            None
        };
        let Some(record) = record else { return false };
        if record.name == "sock_common" {
            return true;
        }
        let Some(first) = record.fields.into_iter().next() else { return false };
        at = first.ty;
    }
}

pub(super) const DECODERS: &[Decoder] = &[
    Decoder {
        name: INET,
        size: 20,
        from_int: false,
        decode: |_, bytes, _| {
            let family = bytes.first().copied().unwrap_or(0);
            let v4: Option<[u8; 4]> = bytes.get(4..8).and_then(|b| b.try_into().ok());
            let v6: Option<[u8; 16]> = bytes.get(4..20).and_then(|b| b.try_into().ok());
            Value::Text(match (u64::from(family), v4, v6) {
                (V4, Some(b), _) => Ipv4Addr::from(b).to_string(),
                (V6, _, Some(b)) => Ipv6Addr::from(b).to_string(),
                _ => String::new(),
            })
        },
    },
    Decoder {
        name: MAC,
        size: 6,
        from_int: false,
        decode: |_, bytes, _| {
            let octets: Vec<String> = bytes.iter().take(6).map(|b| format!("{b:02X}")).collect();
            Value::Text(octets.join(":"))
        },
    },
];

fn address(f: &CallInfo) -> Result<IpAddr, Diagnostic> {
    let text = String::from_utf8_lossy(f.text(0).unwrap_or_default()).into_owned();
    text.parse().map_err(|_| Diagnostic::error("bad-address", f.span(0), format!("`{text}` is not an IP address")))
}

fn octets(a: IpAddr) -> Vec<u8> {
    match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// Why a type is not an address.
fn not_an_address(ty: &Type) -> Option<String> {
    let bytes = matches!(ty, Type::Array(..) | Type::Str(_) | Type::Buf(_));
    (bytes && ty.size() < 4).then(|| format!("4 or 16 bytes, but {ty} has {}", ty.size()))
}

/// The size of an address of this type: 4, or 16 for types of that size.
fn width(ty: &Type) -> u32 {
    let bytes = if let Type::Ptr(to, _) = ty { to.size() } else { ty.size() };
    if bytes >= 16 { 16 } else { 4 }
}

fn ntop<'c>(e: &mut Builder<'_, 'c>, u: &CallSite, args: &[Operand<'c>]) -> Operand<'c> {
    let Some(address) = args.last() else { return Operand::void() };
    let ptr = e.alloc(24);
    e.zero(ptr, 24, 8);
    let bytes = e.offset(ptr, 4);
    let width = width(&address.ty);
    match args {
        [family, _] => {
            let family = e.scalar(family);
            e.store(ptr, 0, 4, family);
            if width == 16 || matches!(address.ty, Type::Ptr(..)) {
                // the family determines how many bytes can be read
                let six = e.cmp(Cmp::Eq, family, e.int(V6));
                let address = address.clone();
                let same = address.clone();
                e.if_else(six, move |e| read_bytes(e, &address, bytes, 16), move |e| read_bytes(e, &same, bytes, 4));
            } else {
                read_bytes(e, address, bytes, 4);
            }
        }
        _ => {
            let family = e.int(if width == 16 { V6 } else { V4 });
            e.store(ptr, 0, 4, family);
            read_bytes(e, address, bytes, width);
        }
    }
    Operand::mem(u.ty.clone(), ptr)
}

/// The bytes of an integer, of memory, or of a pointer's target.
fn read_bytes<'c>(e: &mut Builder<'_, 'c>, from: &Operand<'c>, to: crate::emit::PointerValue<'c>, size: u32) {
    match (from.repr, &from.ty) {
        (Repr::Reg(v), ty) if !matches!(ty, Type::Ptr(..)) && size <= 8 => e.store(to, 0, size as u8, v),
        (Repr::Mem(ptr, _), _) => e.copy(to, ptr, size, 1),
        _ => {
            let (addr, space) = e.address(from);
            e.read(space, to, size, addr);
        }
    }
}
