//! Deliberate differences from bpftrace, for the manual.

/// A topic, and how rbt differs.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "printf: precision",
        "Precision works as in C: %.5s prints at most five bytes, %.3d at least three digits, and %.4r at most four bytes of a \
         buffer. bpftrace ignores precision.",
    ),
    (
        "printf: flags",
        "Flags work as in C. They may appear in any order, and the space flag puts a space before a number without a sign. \
         Zeros that pad a number follow its sign, and the minus flag overrides them.",
    ),
    ("printf: *", "A width or precision of * is an error. bpftrace accepts it without an argument and ignores it."),
    (
        "literals",
        "Suffixes of integers may be uppercase (1UL), and several digits may precede an exponent (12e3). bpftrace requires \
         lowercase suffixes and a single digit.",
    ),
    (
        "integers: division",
        "Division of signed integers keeps the sign and rounds toward zero, as in C. bpftrace does the same for literals only; \
         it divides other integers as unsigned ones and warns.",
    ),
    (
        "integers: shifts",
        "A right shift of a negative number shifts in ones, as in C. bpftrace does the same for literals only; it shifts zeros \
         into other integers. A shift count of 64 or more is taken modulo 64; in bpftrace its result is undefined.",
    ),
    (
        "integers: -x and ~x",
        "The result keeps the sign if x is a signed integer of 1, 2 or 4 bytes: -x is -5 if x is 5. bpftrace prints and stores \
         it as 251, but uses -5 in a sum or after a cast.",
    ),
    (
        "integers: literals",
        "An overflow in a product or difference of literals is an error; bpftrace rejects most of them. (-9223372036854775808) \
         / -1 makes bpftrace crash.",
    ),
    (
        "for: loop variable of a range",
        "The variable is wide enough for both ends of the range. In bpftrace, it may be too narrow if the range goes from a \
         literal to a variable.",
    ),
    (
        "while",
        "A while loop always loads. The kernel limits a run of the probe to 8388607 iterations, and rbt reports a loop that \
         exceeds the limit. bpftrace's loops load only if the verifier can prove that they end.",
    ),
    (
        "for: over a range",
        "A loop over more than 8388608 integers stops after that many, which is the kernel's limit, and rbt reports it. \
         bpftrace runs no iteration at all.",
    ),
    ("strings: && and ||", "A literal operand is true if it is not empty. bpftrace inverts the second operand."),
    ("strings: max_strlen", "str() keeps max_strlen bytes of text, whatever the value. bpftrace keeps one byte less from 1024 upward."),
    (
        "strings: arrays of characters",
        "rbt treats an array of `char`, also through a typedef, as a string of at most the array's length. If it is full and \
         lacks a NUL, the string ends in `..`, as in bpftrace. For structs that the script declares, bpftrace reads one byte \
         too many. It returns 0 for any index and an empty string from str(), and shows only the first of an array of such \
         arrays. It shows arrays of unsigned char (such as MAC and IPv6 addresses) of the kernel's and of binaries' types as \
         text, and arrays of a typedef of char as numbers.",
    ),
    (
        "bit-fields",
        "Bit-fields of signed types are signed, as in C; bpftrace treats all of them as unsigned. A C bool prints as true or \
         false, and an enum as its name, wherever the type is declared. bpftrace prints some of those that a script or a binary \
         declares as numbers.",
    ),
    (
        "strings: == with a literal",
        "The comparison is false if the literal is longer than the array of characters. bpftrace compares only as many bytes as \
         both have.",
    ),
    ("if", "No condition needs parentheses. bpftrace requires them around all but the simplest ones."),
    ("macros", "A macro may use the script's maps. In bpftrace, it may use only those that are its arguments."),
    (
        "maps: declared kinds",
        "Maps declared as hash or lruhash may also hold aggregations, which rbt keeps per CPU as always. bpftrace requires \
         percpuhash for them.",
    ),
    ("maps: ctx", "ctx may be a key or a value. It is an address."),
    (
        "constants",
        "Constants of the kernel's interface (SIGKILL, O_CREAT, AF_INET, EPERM, TASK_RUNNING) need no header, unless the script \
         uses the name for something else. `rbt help SIGKILL` explains one.",
    ),
    ("has_cpid", "It is true if rbt runs a command (-c). In bpftrace, it is true if there is no command."),
    ("signal()", "All names work with and without SIG. bpftrace does not know STOP and SEGV without it."),
    ("unwatch()", "It does nothing, because watchpoints on arguments no longer exist."),
    ("ctx: perf events", "ctx has the kernel's own layout. .regs, .sample_period and .addr read as in bpftrace, also through a variable."),
    (
        "settings: lazy_symbolication",
        "It has no effect. rbt records the mappings of processes while they live, so it finds symbols after they end as well.",
    ),
    ("settings: use_blazesym", "It has no effect, because rbt has only one symbolizer."),
    ("JSON: strings", "Strings are UTF-8. U+FFFD replaces each sequence of bytes that is not."),
    (
        "JSON: map keys",
        "rbt removes spaces between the parts of a key but not within strings, and parentheses of tuples only. bpftrace removes \
         all spaces, and parentheses of strings as well.",
    ),
    (
        "maps: order",
        "min() and max() sort as signed numbers, and entries with equal values sort by key. uint64 keys from 2^63 upward come \
         last; in bpftrace they come first.",
    ),
    (
        "maps: integers of 1, 2 and 4 bytes",
        "They sort by value, like those of 8 bytes. bpftrace prints them in the kernel's order, which changes from run to run. \
         This includes literals, which have such types.",
    ),
    (
        "lhist: last bucket",
        "The last bucket starts where the last whole step ends. If the steps do not divide the range, that is below max, and \
         values between there and max count in the last bucket.",
    ),
    ("tseries: top and div", "print() applies both: it limits the number of keys and divides the values. bpftrace ignores them."),
    (
        "tseries: many intervals",
        "All CPUs share a series of more than 2048 intervals (1365 with avg), and two simultaneous updates may lose one. The \
         memory of the kernel limits the number of intervals, to 262144 or more.",
    ),
    ("system()", "rbt prints the output of a command even if the command fails. bpftrace discards it."),
    ("tuples", "Strings in tuples print without quotes, as in bpftrace (its documentation shows quotes). So do statistics and stacks."),
    ("printf: %f", "rbt prints decimals, also of quotients and averages. bpftrace rejects %f, and lacks %T and %B."),
    (
        "print and clear, print and zero",
        "In one block, both calls act on the same contents of the map, so no update is lost. bpftrace loses updates between the \
         two calls.",
    ),
    (
        "exit()",
        "The run ends for all probes at once, and only `end` runs afterward. In bpftrace, other probes continue until user \
         space has read the event, even after an exit() in `begin`.",
    ),
    (
        "maps: sizes",
        "The size in `let @m = hash(n)` may be any constant expression, including C constants, macros without parameters, and \
         operators.",
    ),
    ("comptime", "`probe` is a constant. rbt evaluates it for each probe that shares a block."),
    ("argN", "argN is a uint64, as in bpftrace (its documentation says int64)."),
    ("interval", "-p does not limit interval probes to a process, as in bpftrace (its documentation says that it does)."),
    ("wildcards", "The only wildcard is `*`, as in bpftrace (its documentation mentions `?`)."),
    (
        "import",
        "rbt imports .bt files, .h files, and directories of them. It rejects C sources and BPF objects (.bpf.c, .bpf.o); write \
         functions with `fn`. Importing `stdlib` or its parts is allowed and unnecessary.",
    ),
    ("dw_ustack", "rbt rejects it, because it unwinds user stacks by frame pointers only."),
    ("retval", "fentry probes have no retval, because the function has not returned yet. bpftrace accepts it."),
    (
        "-lv",
        "rbt also lists the arguments of USDT probes and C++ functions, and all structs and enums. bpftrace omits most packed \
         structs and 64-bit enums. Types with the same name keep it; bpftrace numbers them, as in `console___2`. Variable \
         arguments print as `...`, in bpftrace as `void`.",
    ),
    ("printf", "The number of arguments is not limited. bpftrace accepts 127."),
    ("print of a missing element", "It prints the zero value of the type, for aggregations as well."),
];
