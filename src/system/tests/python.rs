//! The layouts of Python's structures against the debug information of the Pythons of this machine: those that pyenv built, and
//! Debian's `python3-dbg`.

use std::path::{Path, PathBuf};

use crate::system::binary::python::{self, Layout};
use crate::system::machine::live::Live;
use crate::system::{TargetInfo, TypeName};
use crate::types::Type;

/// Offset of a member, by a path of members.
fn offset(live: &Live, path: &Path, kind: TypeName, name: &str, members: &[&str]) -> Option<u32> {
    let mut ty = live.type_in_binary(path, 0, kind, name).ok()??;
    let mut offset = 0;
    for member in members {
        let Type::Struct(of) = &ty else { return None };
        let field = live.member(of, member)?;
        offset += field.offset;
        ty = field.ty;
    }
    Some(offset)
}

fn pythons() -> Vec<PathBuf> {
    let folders = |pattern: &str| {
        let (folder, rest) = pattern.split_once('*').unwrap();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|e| PathBuf::from(format!("{}{rest}", e.path().display()))).collect::<Vec<_>>()
    };
    let home = std::env::var("HOME").unwrap_or_default();
    let built = folders(&format!("{home}/.pyenv/versions/*/lib")).into_iter().flat_map(|lib| {
        std::fs::read_dir(lib).into_iter().flatten().flatten().map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with(".so.1.0"))
    });
    built.chain((8..15).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}-dbg")))).filter(|p| p.exists()).collect()
}

#[test]
fn layouts_agree_with_debug_information() {
    let live = Live::new();
    let mut compared = Vec::new();
    for path in pythons() {
        let Some(Ok(layout)) = python::read_file(&path, &path).map(|p| p.layout) else { continue };
        // some are named only by a typedef
        let of = |name: &str, members: &[&str]| {
            let of = |kind| offset(&live, &path, kind, name, members);
            of(TypeName::Struct).or_else(|| of(TypeName::Plain))
        };
        let text = |members: &[&str]| of("PyASCIIObject", members);
        let Some(interpreters) = of("pyruntimestate", &["interpreters", "head"]) else { continue };
        let first = |all: &[(&str, &str)]| all.iter().find_map(|(of_struct, member)| of(of_struct, &[member]));
        let code = |members: &[&str]| members.iter().find_map(|m| of("PyCodeObject", &[m]));
        let thread_frame = first(&[("_ts", "current_frame"), ("_ts", "frame"), ("_ts", "cframe")]);
        let said = Layout {
            interpreters,
            interpreter_next: of("_is", &["next"]).unwrap(),
            threads: of("_is", &["threads", "head"]).or_else(|| of("_is", &["tstate_head"])).unwrap(),
            thread_next: of("_ts", &["next"]).unwrap(),
            thread_id: of("_ts", &["thread_id"]).unwrap(),
            thread_frame: thread_frame.unwrap(),
            cframe_offset: if layout.cframe_offset > 0 {
                of("_PyCFrame", &["current_frame"]).or_else(|| of("_cframe", &["current_frame"])).map_or(0, |at| at + 1)
            } else {
                0
            },
            frame_previous: first(&[("_PyInterpreterFrame", "previous"), ("_frame", "f_back")]).unwrap(),
            frame_code: first(&[("_PyInterpreterFrame", "f_executable"), ("_PyInterpreterFrame", "f_code"), ("_frame", "f_code")]).unwrap(),
            frame_instruction: first(&[("_PyInterpreterFrame", "instr_ptr"), ("_PyInterpreterFrame", "prev_instr"), ("_frame", "f_lasti")])
                .unwrap(),
            frame_entry: first(&[("_PyInterpreterFrame", "is_entry"), ("_PyInterpreterFrame", "owner")]).unwrap_or(0),
            object_type: of("_object", &["ob_type"]).unwrap(),
            code_line: code(&["co_firstlineno"]).unwrap(),
            code_file: code(&["co_filename"]).unwrap(),
            code_name: code(&["co_qualname", "co_name"]).unwrap(),
            code_table: code(&["co_linetable", "co_lnotab"]).unwrap(),
            code_start: code(&["co_code_adaptive"]).unwrap_or(0),
            code_version: code(&["co_version"]).map_or(0, |at| at & !7),
            text_length: text(&["length"]).unwrap(),
            text_state: text(&["state"]).unwrap(),
            bytes_start: of("PyBytesObject", &["ob_sval"]).unwrap(),
            ..layout
        };
        assert_eq!(layout, said, "{}", path.display());
        compared.push(layout.minor);
    }
    if compared.is_empty() {
        eprintln!("skipped: no Python has debug information");
    }
    compared.sort_unstable();
    eprintln!("compared: {compared:?}");
}
