//! Synthetic kernels and modules in memory.

use std::io::Write;

use object::{Object, ObjectSection};

use crate::system::kernel_types::btf::{Blob, Kind, Writer};

pub const TEXT: u64 = 0xffff_ffff_8100_0000;
pub const INIT: u64 = 0xffff_ffff_8110_0000;
pub const RODATA: u64 = 0xffff_ffff_8200_0000;
pub const DATA: u64 = 0xffff_ffff_8300_0000;

/// A section of an ELF file.
#[derive(Default)]
pub struct Section {
    pub name: &'static str,
    /// SHT_…: 1 PROGBITS, 2 SYMTAB, 3 STRTAB, 4 RELA.
    pub kind: u32,
    /// SHF_…: 1 writable, 2 in memory, 4 code.
    pub flags: u64,
    pub address: u64,
    pub bytes: Vec<u8>,
    pub link: u32,
    pub info: u32,
    pub each: u64,
}

/// Makes an ELF file; `kind` 2 is linked, 1 is relocatable. Sections are numbered from 1; the last is the table of their names.
pub fn elf(kind: u16, mut sections: Vec<Section>) -> Vec<u8> {
    sections.push(Section { name: ".shstrtab", kind: 3, ..Section::default() });
    let mut names = vec![0];
    let places: Vec<u32> = sections
        .iter()
        .map(|s| {
            let at = names.len() as u32;
            names.extend(s.name.as_bytes());
            names.push(0);
            at
        })
        .collect();
    sections.last_mut().unwrap().bytes = names;
    let mut file = vec![0u8; 64];
    let mut headers = vec![0u8; 64];
    for (section, name) in sections.iter().zip(places) {
        file.resize(file.len().next_multiple_of(16), 0);
        headers.extend([name, section.kind].iter().flat_map(|w| w.to_le_bytes()));
        let (at, size) = (file.len() as u64, section.bytes.len() as u64);
        headers.extend([section.flags, section.address, at, size].iter().flat_map(|w| w.to_le_bytes()));
        headers.extend([section.link, section.info].iter().flat_map(|w| w.to_le_bytes()));
        headers.extend([8, section.each].iter().flat_map(|w| w.to_le_bytes()));
        file.extend(&section.bytes);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let start = file.len() as u64;
    file.extend(headers);
    file[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let halves = |at: usize, all: &[u16], file: &mut Vec<u8>| {
        for (n, half) in all.iter().enumerate() {
            file[at + n * 2..at + n * 2 + 2].copy_from_slice(&half.to_le_bytes());
        }
    };
    halves(16, &[kind, 62], &mut file);
    file[20] = 1;
    file[40..48].copy_from_slice(&start.to_le_bytes());
    halves(52, &[64, 0, 0, 64, sections.len() as u16 + 1, sections.len() as u16], &mut file);
    file
}

/// Bytes with an address, which refer to one another.
pub struct Memory {
    pub base: u64,
    pub bytes: Vec<u8>,
}

impl Memory {
    pub fn new(base: u64) -> Self {
        // Nothing is at the start, because its address could be mistaken for a null pointer.
        Self { base, bytes: vec![0; 16] }
    }

    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.extend(bytes);
        self.base + (self.bytes.len() - bytes.len()) as u64
    }

    pub fn text(&mut self, text: &str) -> u64 {
        self.put(&[text.as_bytes(), &[0]].concat())
    }

    pub fn longs(&mut self, longs: &[u64]) -> u64 {
        let bytes: Vec<u8> = longs.iter().flat_map(|l| l.to_le_bytes()).collect();
        self.put(&bytes)
    }
}

/// The form of the addresses in a symbol table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Until 6.3: offsets from a base, before the names; per-CPU data have absolute addresses.
    Before,
    /// The same with absolute addresses.
    Absolute,
    /// From 6.4: offsets from a base, after the tokens.
    After,
    /// Since 6.16: offsets relative to their own place; tables are aligned to four bytes.
    Itself,
}

/// Encodes sorted symbols (address, type, name) as the kernel does.
pub fn kallsyms(form: Form, at: u64, symbols: &[(u64, char, &str)]) -> Vec<u8> {
    let align = if form == Form::Itself { 4 } else { 8 };
    let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(align), 0);
    let mut names = Vec::new();
    let mut markers = Vec::new();
    for (n, (_, kind, name)) in symbols.iter().enumerate() {
        if n % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        // A token with several letters.
        let tokens = format!("{kind}{name}").replace("read", "\u{1}").into_bytes();
        if tokens.len() < 128 {
            names.push(tokens.len() as u8);
        } else {
            names.extend([tokens.len() as u8 | 0x80, (tokens.len() >> 7) as u8]);
        }
        names.extend(tokens);
    }
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for token in 0..=255u8 {
        index.extend((table.len() as u16).to_le_bytes());
        match token {
            1 => table.extend(b"read"),
            b'!'..=b'~' => table.push(token),
            _ => table.extend(b"??"),
        }
        table.push(0);
    }
    let base = TEXT;
    let offset = |address: u64| match form {
        Form::Before if address >= base => (base - 1).wrapping_sub(address) as u32,
        Form::Before => address as u32,
        Form::Absolute | Form::After | Form::Itself => address.wrapping_sub(base) as u32,
    };
    let mut all = b"something else before it".to_vec();
    pad(&mut all);
    match form {
        Form::Before => {
            all.extend(symbols.iter().flat_map(|s| offset(s.0).to_le_bytes()));
            pad(&mut all);
            all.extend(base.to_le_bytes());
        }
        Form::Absolute => all.extend(symbols.iter().flat_map(|s| s.0.to_le_bytes())),
        Form::After | Form::Itself => {}
    }
    all.extend((symbols.len() as u32).to_le_bytes());
    pad(&mut all);
    for part in [names, markers, table, index] {
        all.extend(part);
        pad(&mut all);
    }
    match form {
        Form::After => {
            all.extend(symbols.iter().flat_map(|s| offset(s.0).to_le_bytes()));
            pad(&mut all);
            all.extend(base.to_le_bytes());
        }
        Form::Itself => {
            for (n, symbol) in symbols.iter().enumerate() {
                let here = at + (all.len() - n * 4) as u64 + n as u64 * 4;
                all.extend((symbol.0.wrapping_sub(here) as u32).to_le_bytes());
            }
        }
        Form::Before | Form::Absolute => {}
    }
    all.extend(b"something else behind it");
    all
}

/// The types of events, and `task` for other tests.
pub fn btf() -> Vec<u8> {
    let mut w = Writer::new(None);
    let long = w.add(Kind::Int, false, "unsigned long", 0, 8, &[64]);
    let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
    let short = w.add(Kind::Int, false, "unsigned short", 0, 2, &[16]);
    let byte = w.add(Kind::Int, false, "unsigned char", 0, 1, &[8]);
    let mut add = |name: &str, size: u32, members: &[(&str, u32, u32)]| {
        let tail: Vec<u32> = members.iter().flat_map(|(name, ty, at)| [w.string(name), *ty, at * 8]).collect();
        w.add(Kind::Struct, false, name, members.len() as u32, size, &tail)
    };
    add("trace_entry", 8, &[("type", short, 0), ("flags", byte, 2), ("preempt_count", byte, 3), ("pid", int, 4)]);
    add("trace_event_call", 40, &[("class", long, 8), ("name", long, 16), ("data", long, 24), ("flags", int, 32)]);
    add("trace_event_class", 24, &[("system", long, 0), ("fields_array", long, 16)]);
    let field = [("type", long, 0), ("name", long, 8), ("size", int, 16), ("align", int, 20), ("is_signed", int, 24), ("len", int, 32)];
    add("trace_event_fields", 40, &field);
    add("tracepoint", 16, &[("name", long, 0)]);
    add("syscall_metadata", 32, &[("name", long, 0), ("nb_args", int, 12), ("types", long, 16), ("args", long, 24)]);
    add("task", 8, &[("pid", int, 0)]);
    let names = [("TRACE_EVENT_FL_TRACEPOINT", 16), ("TRACE_EVENT_FL_CUSTOM", 64), ("BPF_FUNC_loop", 181)];
    let tail: Vec<u32> = names.iter().flat_map(|(name, value)| [w.string(name), *value]).collect();
    w.add(Kind::Enum, false, "flags", names.len() as u32, 4, &tail);
    w.finish()
}

/// The types of a module, based on those.
pub fn split_btf() -> Vec<u8> {
    let base = Blob::from_vec(btf(), None).unwrap();
    let mut w = Writer::new(Some(&base));
    w.add(Kind::Struct, false, "of_module", 0, 4, &[]);
    w.finish()
}

/// Writes the descriptions of fields: type, name, size, alignment, sign, elements.
pub fn fields(to: &mut Memory, all: &[(&str, &str, u32, u32, u32, u32)]) -> u64 {
    let mut bytes = Vec::new();
    for (ty, name, size, align, signed, len) in all {
        let pointer = if *ty == "function" { u64::MAX } else { to.text(ty) };
        bytes.extend([pointer, to.text(name)].iter().flat_map(|l| l.to_le_bytes()));
        bytes.extend([*size, *align, *signed, 0, *len, 0].iter().flat_map(|w| w.to_le_bytes()));
    }
    bytes.extend([0; 40]);
    to.put(&bytes)
}

/// Writes a `struct trace_event_call`.
pub fn call(to: &mut Memory, class: u64, name: u64, data: u64, flags: u64) -> u64 {
    to.longs(&[0, class, name, data, flags])
}

/// Where the symbols of a synthetic kernel are.
#[derive(Clone, Copy, PartialEq)]
pub enum Table {
    /// In the kernel's own table.
    Own(Form),
    /// The same, without variables (no CONFIG_KALLSYMS_ALL).
    OwnOfCode(Form),
    /// In the symbol table of the file.
    File,
    /// In `System.map`.
    Elsewhere,
}

/// Makes a kernel with two traceable functions, one without kprobes, and one of init; an event, and the events of two system
/// calls.
pub fn kernel(form: Form) -> Vec<u8> {
    kernel_with(Table::Own(form)).0
}

/// Makes the same kernel as an image for arm64, with pointers in place or in relocations.
pub fn image(form: Form, relocated: bool) -> Vec<u8> {
    let file = kernel(form);
    let elf = object::File::parse(&*file).unwrap();
    let mut image = Vec::new();
    for section in elf.sections().filter(|s| s.address() != 0) {
        let at = (section.address() - TEXT) as usize;
        image.resize((at + section.size() as usize).next_multiple_of(8).max(image.len()), 0);
        image[at..at + section.size() as usize].copy_from_slice(section.data().unwrap());
    }
    image[0x38..0x3c].copy_from_slice(b"ARM\x64");
    if relocated {
        let is_pointer = |w: &u64| w >> 28 == TEXT >> 28;
        let words = image.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).enumerate();
        let all: Vec<_> = words.filter(|(_, w)| is_pointer(w)).map(|(n, w)| (n * 8, w)).collect();
        for (at, _) in &all {
            image[*at..at + 8].fill(0);
        }
        // As many relocations as a real kernel has.
        for (at, value) in all.iter().cycle().take(all.len().max(2000)) {
            image.extend([TEXT + *at as u64, 1027, *value].iter().flat_map(|w| w.to_le_bytes()));
        }
    }
    image
}

/// Makes the kernel and its `System.map`.
pub fn kernel_with(table: Table) -> (Vec<u8>, String) {
    let mut data = Memory::new(DATA);
    let system = data.text("sched");
    let all = [
        ("char[COMM]", "comm", 16, 1, 0, 16),
        ("pid_t", "pid", 4, 4, 1, 0),
        ("u64", "at", 8, 8, 0, 0),
        ("__data_loc char[]", "text", 4, 4, 0, 0),
    ];
    let array = fields(&mut data, &all);
    let class = data.longs(&[system, 0, array]);
    let name = data.text("made_switch");
    let tracepoint = data.longs(&[name, 0]);
    let switch = call(&mut data, class, tracepoint, 0, 16);

    let system = data.text("syscalls");
    let array = fields(&mut data, &[("int", "__syscall_nr", 4, 4, 1, 0), ("function", "", 0, 0, 0, 0)]);
    let class = data.longs(&[system, 0, array]);
    let mut enter = |call_name: &str, args: &[(&str, &str)]| {
        let types: Vec<u64> = args.iter().map(|a| data.text(a.0)).collect();
        let names: Vec<u64> = args.iter().map(|a| data.text(a.1)).collect();
        let (types, names) = (data.longs(&types), data.longs(&names));
        let name = data.text(&format!("sys_{call_name}"));
        let about = data.longs(&[name, (args.len() as u64) << 32, types, names]);
        let event = data.text(&format!("sys_enter_{call_name}"));
        (call(&mut data, class, event, about, 0), about)
    };
    let (open, about_open) = enter("open", &[("const char *", "filename"), ("int", "flags")]);
    let (gone, about_gone) = enter("gone", &[]);

    // The tables follow each other in this order.
    let mcount = data.longs(&[TEXT + 0x10, TEXT + 0x24, TEXT + 0x58, TEXT + 0x60, INIT, 0]);
    let events = data.longs(&[switch, open, gone]);
    data.longs(&[about_open, about_gone]);
    let blacklist = data.longs(&[TEXT + 0x60]);
    let errors = data.longs(&[TEXT + 0x20, 1]);
    let calls = data.longs(&[TEXT + 0x20, 0]);
    let marks = [
        (events, "__start_ftrace_events"),
        (events + 24, "__stop_ftrace_events"),
        (mcount, "__start_mcount_loc"),
        (mcount + 48, "__stop_mcount_loc"),
        (blacklist, "__start_kprobe_blacklist"),
        (blacklist + 8, "__stop_kprobe_blacklist"),
        (errors, "__start_error_injection_whitelist"),
        (errors + 16, "__stop_error_injection_whitelist"),
        (calls, "sys_call_table"),
    ];
    let mut symbols = vec![
        (TEXT, 'T', "_stext"),
        (TEXT + 0x10, 'T', "vfs_read"),
        (TEXT + 0x10, 'T', "vfs_read_too"),
        (TEXT + 0x20, 't', "__do_sys_open"),
        (TEXT + 0x20, 'T', "__x64_sys_open"),
        (TEXT + 0x40, 't', "not_to_trace"),
        (TEXT + 0x60, 't', "without_kprobe"),
        (TEXT + 0x100, 'T', "_etext"),
        (INIT, 'T', "_sinittext"),
        (INIT, 'D', "__init_begin"),
        (INIT, 't', "start_kernel"),
        (INIT + 0x100, 'T', "_einittext"),
        (INIT + 0x1000, 'R', "__init_end"),
    ];
    symbols.extend(marks.iter().map(|(at, name)| (*at, 'D', *name)));
    symbols.sort_by_key(|s| s.0);
    let more: Vec<(u64, String)> = (0..300).map(|n| (DATA + 0x10_0000 + n, format!("data_{n}"))).collect();
    symbols.extend(more.iter().map(|(at, name)| (*at, 'd', name.as_str())));
    let longest = "x".repeat(300);
    symbols.push((DATA + 0x20_0000, 'd', &longest));

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"CONFIG_OF_THE_IMAGE=y\n").unwrap();
    let config = [b"IKCFG_ST".as_slice(), &gzip.finish().unwrap(), b"IKCFG_ED"].concat();
    let mut rodata = [b"Linux version 6.0.0-made (somebody)\0BPF_ATOMIC uses\0".as_slice(), &config].concat();
    rodata.resize(rodata.len().next_multiple_of(16), 0);
    if let Table::OwnOfCode(_) = table {
        symbols.retain(|(_, kind, _)| kind.eq_ignore_ascii_case(&'t'));
    }
    if let Table::Own(form) | Table::OwnOfCode(form) = table {
        let tables = kallsyms(form, RODATA + rodata.len() as u64, &symbols);
        rodata.extend(tables);
    }
    let section = |name, flags, address, bytes| Section { name, kind: 1, flags, address, bytes, ..Section::default() };
    let mut sections = vec![
        section(".text", 6, TEXT, vec![0x90; 0x100]),
        section(".init.text", 6, INIT, vec![0x90; 0x100]),
        section(".rodata", 2, RODATA, rodata),
        section(".BTF", 2, RODATA + 0x80_0000, btf()),
        section(".data", 3, DATA, data.bytes),
    ];
    if table == Table::File {
        let (mut names, mut entries) = (vec![0u8], vec![0u8; 24]);
        for (address, kind, name) in &symbols {
            entries.extend((names.len() as u32).to_le_bytes());
            let in_section: u16 = [(DATA, 5), (RODATA, 3), (INIT, 2), (TEXT, 1)].iter().find(|(from, _)| address >= from).unwrap().1;
            // STB_GLOBAL if the type is a capital letter.
            entries.extend([if kind.is_ascii_uppercase() { 0x10 } else { 0 }, 0]);
            entries.extend(in_section.to_le_bytes());
            entries.extend([*address, 0].iter().flat_map(|w| w.to_le_bytes()));
            names.extend(name.as_bytes());
            names.push(0);
        }
        sections.push(Section { name: ".symtab", kind: 2, bytes: entries, link: 7, info: 1, each: 24, ..Section::default() });
        sections.push(Section { name: ".strtab", kind: 3, bytes: names, ..Section::default() });
    }
    let map = symbols.iter().map(|(address, kind, name)| format!("{address:016x} {kind} {name}\n")).collect();
    (elf(2, sections), map)
}

/// Makes a module with a traceable function, one of init, and an event.
pub fn module() -> Vec<u8> {
    // Addresses are relative to the section; each that is not 0 gets a relocation.
    let mut data = Memory::new(0);
    let system = data.text("made");
    let array = fields(&mut data, &[("int", "n", 4, 4, 1, 0)]);
    let class = data.longs(&[system, 0, array]);
    let name = data.text("mod_event");
    let call = call(&mut data, class, name, 0, 64);
    let relocation =
        |at: u64, symbol: u64, addend: u64| [at, symbol << 32 | 1, addend].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let mut of_data = Vec::new();
    for at in [call + 8, call + 16, class, class + 16, array, array + 8] {
        let place = at as usize..at as usize + 8;
        let value = u64::from_le_bytes(data.bytes[place.clone()].try_into().unwrap());
        data.bytes[place].fill(0);
        of_data.extend(relocation(at, 3, value));
    }
    let of_mcount = [relocation(0, 1, 0x14), relocation(8, 2, 0)].concat();
    let of_events = relocation(0, 3, call);
    let names = b"\0mod_read\0mod_init\0mod_other\0".to_vec();
    let mut symbols = vec![0u8; 24];
    let mut symbol = |name: u32, info: u8, section: u16, value: u64| {
        symbols.extend(name.to_le_bytes());
        symbols.extend([info, 0]);
        symbols.extend(section.to_le_bytes());
        symbols.extend([value, 4].iter().flat_map(|w| w.to_le_bytes()));
    };
    // Sections: 1 .text, 2 .init.text, 3 .data; then functions.
    symbol(0, 3, 1, 0);
    symbol(0, 3, 2, 0);
    symbol(0, 3, 3, 0);
    symbol(1, 2, 1, 0x10);
    symbol(10, 2, 2, 0);
    symbol(19, 2, 1, 0x40);
    let section = |name, flags, bytes| Section { name, kind: 1, flags, bytes, ..Section::default() };
    let relocations = |name, of: u32, bytes| Section { name, kind: 4, bytes, link: 10, info: of, each: 24, ..Section::default() };
    elf(
        1,
        vec![
            section(".text", 6, vec![0x90; 0x80]),
            section(".init.text", 6, vec![0x90; 0x20]),
            section(".data", 3, data.bytes),
            section("__mcount_loc", 2, vec![0; 16]),
            section("_ftrace_events", 3, vec![0; 8]),
            section(".BTF", 0, split_btf()),
            relocations(".rela.data", 3, of_data),
            relocations(".rela__mcount_loc", 4, of_mcount),
            relocations(".rela_ftrace_events", 5, of_events),
            Section { name: ".symtab", kind: 2, bytes: symbols, link: 11, info: 4, each: 24, ..Section::default() },
            Section { name: ".strtab", kind: 3, bytes: names, ..Section::default() },
        ],
    )
}
