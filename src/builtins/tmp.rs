use super::*;
use crate::emit::Helper;
pub const ROWS: &[Builtin] = &[
    Builtin {
        name: "pid",
        params: &[],
        returns: Returns::Always(Type::uint(4)),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Code(|e, _, _| {
            let v = e.once("pid_tgid", |e| e.call(Helper::GetCurrentPidTgid, &[]));
            Operand::reg(Type::uint(4), e.shr(v, e.int(32), false))
        }),
    },
    Builtin {
        name: "comm",
        params: &[],
        returns: Returns::Always(Type::Str(16)),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Code(|e, _, _| {
            let p = e.once_ptr("comm", |e| {
                let p = e.alloc_kept(16);
                let n = e.int(16);
                e.call(Helper::GetCurrentComm, &[p.into(), n.into()]);
                p
            });
            Operand::mem(Type::Str(16), p)
        }),
    },
    Builtin {
        name: "arg0",
        params: &[],
        returns: Returns::Always(Type::U64),
        needs: Caps::ARGN,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Context(ArgRef::Index(0)),
    },
    Builtin {
        name: "curtask",
        params: &[],
        returns: Returns::By(|f| {
            Ok(f.sys.type_named(crate::system::TypeName::Struct, "task_struct").unwrap_or(Type::Void).ptr(crate::types::Space::Kernel))
        }),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Code(|e, u, _| {
            let v = e.once("curtask", |e| e.call(Helper::GetCurrentTask, &[]));
            Operand::reg(u.ty.clone(), v)
        }),
    },
    Builtin {
        name: "str",
        params: &[Param::new("p", Accepts::StrOrAddr)],
        returns: Returns::Always(Type::Str(1024)),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Code(|e, _, a| {
            let v = e.scalar(&a[0]);
            let s = match &a[0].ty {
                Type::Ptr(_, s) => *s,
                _ => e.space,
            };
            e.read_string(s, v, 1024)
        }),
    },
    Builtin {
        name: "exit",
        params: &[],
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Event(&Event {
            stops: true,
            capture: None,
            prepare: |_| {
                Ok(Box::new(|_, h| {
                    h.exit(0);
                    Ok(())
                }))
            },
        }),
    },
    Builtin {
        name: "printf",
        params: &[Param::new("fmt", Accepts::LitStr), Param::rest("args", Accepts::Printable)],
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Event(&Event {
            stops: false,
            capture: None,
            prepare: |_| {
                Ok(Box::new(|a, h| {
                    let t = format!("{a:?}\n");
                    h.say(crate::value::Output::Text { kind: "printf", data: t.into_bytes(), newline: false });
                    Ok(())
                }))
            },
        }),
    },
    Builtin {
        name: "count",
        params: &[],
        returns: Returns::Always(Type::Void),
        needs: Caps::NONE,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Aggregate(&Aggregate {
            layout: |_| Ok(Agg { function: "count".into(), signed: false, params: vec![], size: 8 }),
            update: |e, _, slot, _| {
                if let crate::emit::Repr::Mem(p, _) = slot.repr {
                    let one = e.int(1);
                    e.atomic_add(p, one)
                }
            },
            merge: |_, all| Value::Uint(all.iter().map(|b| u64::from_le_bytes(b[..8].try_into().unwrap())).sum()),
            kind: "map",
            read: Some(&Read {
                init: [0, 0],
                step: |e, a, s| {
                    let crate::emit::Repr::Mem(p, _) = s.repr else { return a };
                    let v = e.load(p, 0, crate::types::Int { bytes: 8, signed: false });
                    let x = e.scalar(&a[0]);
                    let sum = e.add(x, v);
                    let [_, b] = a;
                    [Operand::u64(sum), b]
                },
                finish: |_, a| a[0].clone(),
            }),
        }),
    },
    Builtin {
        name: "args",
        params: &[],
        returns: Returns::Always(Type::Args),
        needs: Caps::ARGS,
        risky: false,
        doc: "",
        example: "",
        lower: Lower::Context(ArgRef::All),
    },
];
