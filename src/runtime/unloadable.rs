//! Programs that the kernel rejects because of their target rather than their code: functions that cannot be traced, and kinds
//! of objects without an iterator. The kernel rejects them when they are loaded, before anything is attached.

use super::attach_target::NoTarget;
use super::verifier_log::VerifierError;
use crate::codegen::artifact::Manifest;

/// The programs to omit after a failed load, as indices with reasons. None if the cause is different. `messages` are those
/// of libbpf.
pub(super) fn targets(why: &anyhow::Error, messages: &[String], manifest: &Manifest) -> Vec<(usize, String)> {
    let no_target = why.downcast_ref::<NoTarget>();
    let failed = no_target.map(|why| why.program.clone()).or_else(|| messages.iter().find_map(|line| failed_program(line)));
    let Some((index, program)) = manifest.programs.iter().enumerate().find(|(_, p)| Some(&p.function) == failed.as_ref()) else {
        return Vec::new();
    };
    if program.ty.row().traces_kernel_functions && denied(why) && super::privileges::missing().is_none() {
        // a rejection applies to all programs of the type, and repeats each time
        let same = manifest.programs.iter().enumerate().filter(|(_, p)| p.ty == program.ty);
        return same.map(|(i, _)| (i, "the kernel's policy forbids programs of this type".into())).collect();
    }
    if !program.ty.row().has_target {
        return Vec::new();
    }
    if let Some(refused) = why.downcast_ref::<VerifierError>() {
        let looked_at = refused.log.lines().any(is_instruction);
        // kernels before 6.16 reject some without a message: `btf_id_deny` of kernel/bpf/verifier.c
        let has_log = refused.log.lines().any(|line| !line.trim().is_empty() && !line.starts_with("processed "));
        let reason = if has_log { refused.reason.clone() } else { NOT_ALLOWED.into() };
        return if looked_at { Vec::new() } else { vec![(index, reason)] };
    }
    if no_target.is_some() || messages.iter().any(|line| line.contains(NO_TYPE)) {
        return vec![(index, "the kernel's types (BTF) do not have it".into())];
    }
    let kind = why.downcast_ref::<libbpf_rs::Error>().map(libbpf_rs::Error::kind);
    if kind == Some(libbpf_rs::ErrorKind::InvalidInput) {
        return vec![(index, NOT_ALLOWED.into())];
    }
    Vec::new()
}

/// Does the machine forbid loading, rather than reject the program's target?
pub(super) fn denied(why: &anyhow::Error) -> bool {
    why.downcast_ref::<libbpf_rs::Error>().is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::PermissionDenied)
}

/// `11: (79) r1 = …`
fn is_instruction(line: &str) -> bool {
    line.split_once(": (").is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

const NOT_ALLOWED: &str = "the kernel does not allow attaching such a program to it";
const NO_TYPE: &str = "failed to find kernel BTF type ID";

/// `libbpf: prog 'NAME': BPF program load failed: …`
pub(super) fn failed_program(line: &str) -> Option<String> {
    let (before, _) = line.split_once("': BPF program load failed").or_else(|| line.split_once(&format!("': {NO_TYPE}")))?;
    Some(before.split_once("prog '")?.1.to_owned())
}

/// The error in libbpf's words: `-E2BIG`.
pub(super) fn failure(line: &str) -> Option<&str> {
    Some(line.split_once("BPF program load failed: ")?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::artifact::Program;
    use crate::probes::ProgramType;

    #[test]
    fn the_script_or_its_target() {
        let program = |function: &str, ty| Program {
            function: function.into(),
            ty,
            sites: Vec::new(),
            lowered: None,
            why: String::new(),
            of_command: false,
            probes: Vec::new(),
            expansions: Vec::new(),
        };
        let manifest = Manifest {
            programs: vec![program("a", ProgramType::Tracepoint), program("b", ProgramType::Tracing), program("c", ProgramType::Tracing)],
            ..Manifest::default()
        };
        let refused = |log: &str| anyhow::Error::from(super::super::verifier_log::read("x", log, None));
        let messages = |name: &str| vec![format!("libbpf: prog '{name}': BPF program load failed: Invalid argument")];
        let log = "Attaching to this function is not supported\nprocessed 0 insns (limit 1000000)";
        let found = targets(&refused(log), &messages("b"), &manifest);
        assert!(matches!(found.as_slice(), [(1, reason)] if reason.contains("not supported")), "{found:?}");
        assert_eq!(targets(&refused(log), &messages("a"), &manifest), []);
        assert_eq!(targets(&refused(log), &messages("z"), &manifest), []);
        let code = "0: (79) r1 = *(u64 *)(r1 +0)\nR1 invalid mem access 'scalar'";
        assert_eq!(targets(&refused(code), &messages("b"), &manifest), []);
        let untyped = ["libbpf: prog 'c': failed to find kernel BTF type ID of 'x': -ESRCH".to_string()];
        assert_eq!(targets(&anyhow::anyhow!("no"), &untyped, &manifest).first().map(|(i, _)| *i), Some(2));
        let gone = anyhow::Error::from(NoTarget { program: "b".into() });
        assert_eq!(targets(&gone, &[], &manifest).first().map(|(i, _)| *i), Some(1));
    }
}
