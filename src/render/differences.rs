//! Deliberate differences from bpftrace, for the manual.

/// A topic, and how rbt differs.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "printf",
        "Precision and flags work as in C: %.5s prints at most five bytes, %.3d at least three digits, and %-05d no zeros on \
         the right. bpftrace ignores precision and the space flag, and pads with zeros before the sign and on the right. A width \
         of * is an error; bpftrace ignores it.",
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
        "structures of binaries",
        "rbt finds members of anonymous structures and unions, and prints structures within structures whole. bpftrace does so \
         for the kernel's types; in those of a binary it rejects such members, and prints inner structures as {}.",
    ),
    (
        "floating-point numbers",
        "rbt prints and stores members of type float and double, and casts them to integers. bpftrace prints them as null in a \
         structure, and rejects them otherwise.",
    ),
    (
        "strings: == with a literal",
        "The comparison is false if the literal is longer than the array of characters. bpftrace compares only as many bytes as \
         both have.",
    ),
    ("has_cpid", "It is true if rbt runs a command (-c). In bpftrace, it is true if there is no command."),
    ("signal()", "All names work with and without SIG. bpftrace does not know STOP and SEGV without it."),
    ("unwatch()", "It does nothing, because watchpoints on arguments no longer exist."),
    ("ctx: perf events", "ctx has the kernel's own layout. .regs, .sample_period and .addr read as in bpftrace, also through a variable."),
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
    ("tseries: top and div", "print() applies both: it limits the number of keys and divides the values. bpftrace ignores them."),
    (
        "tseries: many intervals",
        "All CPUs share a series of more than 2048 intervals (1365 with avg), and two simultaneous updates may lose one. The \
         memory of the kernel limits the number of intervals, to 262144 or more.",
    ),
    ("system()", "rbt prints the output of a command even if the command fails. bpftrace discards it."),
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
        "import",
        "rbt imports .bt files, .h files, and directories of them. It rejects C sources and BPF objects (.bpf.c, .bpf.o); write \
         functions with `fn`. Importing `stdlib` or its parts is allowed and unnecessary.",
    ),
    (
        "kstack: system calls",
        "At the tracepoint of a system call, rbt's kernel stacks start at the function that the tracepoint is in. In bpftrace, \
         the kernel decides: some kernels add a function of perf (perf_syscall_enter), and others yield an empty stack.",
    ),
    ("assert()", "A failed assertion names its place in the script only. bpftrace names the place in its library first."),
    (
        "ustack",
        "rbt unwinds user stacks by call frame information, and says why a stack is incomplete. Python frames replace the frames of the interpreter's loop, except in the modes raw and build_id. bpftrace follows frame pointers, \
         which most distributions do not compile in; rbt does so with `unwind_tables = 0`. dw_ustack is the same as ustack.",
    ),
    ("retval", "fentry probes have no retval, because the function has not returned yet. bpftrace accepts it."),
    (
        "-lv",
        "rbt also lists the arguments of USDT probes and C++ functions, and all structs and enums. bpftrace omits most packed \
         structs and 64-bit enums. Types with the same name keep it; bpftrace numbers them, as in `console___2`. Variable \
         arguments print as `...`, in bpftrace as `void`.",
    ),
    (
        "symbols: unknown addresses",
        "A user address without a symbol prints as its file and its place there (libc.so.6+0x2a1c0), which is the same in every \
         run. bpftrace prints the address in the process.",
    ),
    ("strstr()", "It returns -1 if the string does not occur, as documented. bpftrace returns the kernel's error number, -2."),
    (
        "settings: use_blazesym, lazy_symbolication",
        "They have no effect. rbt has one symbolizer, and it records the mappings of processes while they live, so it finds \
         symbols after they end as well.",
    ),
    (
        "what rbt accepts",
        "rbt accepts scripts that bpftrace rejects: conditions of `if` without parentheses, uppercase suffixes (1UL) and several \
         digits before an exponent (12e3), macros that use the script's maps, aggregations in maps declared as hash or lruhash, \
         ctx as a key of a map, constant expressions as sizes of maps, %f, %T and %B in printf(), which also takes more than \
         127 arguments, and constants of the kernel's interface without a header (SIGKILL, O_CREAT, AF_INET, EPERM, \
         TASK_RUNNING), and print(args) of a tracepoint. In C parts, it accepts typedefs, the language's own integer types, #define with parameters whose text \
         is an expression, and headers that are not installed, unless the script uses a name that only they define.",
    ),
];
