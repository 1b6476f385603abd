//! Where output differs from bpftrace on purpose. For the man page.

/// Topic, and what is done here.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "printf: precision",
        "is that of C: %.5s prints at most five bytes, %.3d at least three digits, %.4r at most four bytes of a buffer; \
         bpftrace ignores it.",
    ),
    (
        "printf: flags",
        "may stand in any order; the space flag puts a space before a number that has no sign; zeros that fill a number stand \
         behind its sign, and none do where a minus asks for blanks; as in C.",
    ),
    ("printf: *", "as a width or precision is an error; bpftrace accepts it without an argument and ignores it."),
    (
        "literals",
        "Suffixes of C may be in capitals (1UL), and an exponent may follow several digits (12e3); bpftrace takes small letters \
         and one digit.",
    ),
    (
        "integers: division",
        "of signed numbers keeps the sign and rounds towards zero, as in C and as bpftrace has it of literals; of others it divides \
         as if they had no sign, and warns.",
    ),
    (
        "integers: shifts",
        "to the right of a negative number bring in ones, as in C and as bpftrace has it of literals; of others it brings in zeros. A \
         count of 64 or more is taken modulo 64; in bpftrace what comes out is left to chance.",
    ),
    (
        "integers: -x and ~x",
        "of a signed x of 1, 2 or 4 bytes keep the sign: -x of 5 is -5. In bpftrace it is 251 where it is printed or kept, and -5 in \
         a sum or behind a cast.",
    ),
    (
        "integers: literals",
        "that overflow in a product or difference are refused, as bpftrace does of most; (-9223372036854775808) / -1 ends it.",
    ),
    ("for: a range's variable", "has room for both ends; in bpftrace one from a literal to a variable may be too narrow."),
    (
        "while",
        "always loads: the kernel counts its turns, and after 8388607 in one run of the probe it is left, which is told. In \
         bpftrace the verifier must find the end by itself, else it refuses the script.",
    ),
    (
        "for: over a range",
        "of more than 8388608 numbers makes that many turns, as the kernel allows no more, which is told; in bpftrace it makes none.",
    ),
    ("strings: && and ||", "between literals ask of each whether it is empty; bpftrace asks the second the wrong way round."),
    ("strings: max_strlen", "is how many bytes of text str() keeps, whatever its value; from 1024 on bpftrace keeps one byte less."),
    (
        "strings: arrays of characters",
        "are arrays of `char`, by whatever name, and are read to their own end; what is full, without a NUL, ends in `..`, as there. \
         bpftrace reads a byte more where the script declares the struct, 0 at any index, nothing by str(), and of arrays of such \
         arrays the first alone; it shows arrays of unsigned char, so MAC and IPv6 addresses too, as text where the \
         kernel's or a binary's own types have them, and those of a typedef of char as numbers.",
    ),
    (
        "bit-fields",
        "of signed types have a sign, as in C; in bpftrace none has. A bool of C is true or false, and an enum has its names, wherever \
         the type comes from; in bpftrace those of a script's C part and of a binary are numbers in part.",
    ),
    (
        "strings: == with a literal",
        "is false where the literal is longer than the array of characters; bpftrace compares as many bytes as both have.",
    ),
    ("if", "needs no parentheses around any condition; bpftrace needs them around all but the simplest."),
    ("macros", "may name the script's maps; in bpftrace they see those only that are their arguments."),
    (
        "maps: declared kinds",
        "hash and lruhash may also hold an aggregation, which is kept per CPU as ever; bpftrace wants percpuhash for it.",
    ),
    ("maps: ctx", "may be a key or a value: it is an address."),
    (
        "constants",
        "of the kernel's interface (SIGKILL, O_CREAT, AF_INET, EPERM, TASK_RUNNING) are known without a header, where nothing else \
         has the name: `rbt help SIGKILL`.",
    ),
    ("has_cpid", "is true where there is a command of -c; in bpftrace it is true where there is none."),
    ("signal()", "knows every name with and without SIG; bpftrace does not know STOP or SEGV without it."),
    ("unwatch()", "is not there: since watchpoints on arguments are gone, there is nothing that it could end."),
    ("ctx: perf events", "is what the kernel has there: .regs, .sample_period and .addr read as in bpftrace, also through a variable."),
    (
        "settings: lazy_symbolication",
        "has no effect: what a process maps is noted while it lives, so that names are found after its end as well.",
    ),
    ("settings: use_blazesym", "has no effect: there is one symbolizer."),
    ("JSON: strings", "are UTF-8; each sequence of bytes that is not becomes U+FFFD."),
    (
        "JSON: map keys",
        "lose the spaces between the parts of a key, not those inside its strings, and only a tuple loses its parentheses; \
         bpftrace deletes every space, and parentheses of plain strings too.",
    ),
    (
        "maps: order",
        "of min() and max() is that of numbers with their sign, entries of equal value are ordered by key; keys of uint64 from 2^63 \
         on come last, in bpftrace first.",
    ),
    (
        "maps: integers of 1, 2 and 4 bytes",
        "are sorted by value as those of 8 bytes are; in bpftrace they come as the kernel has them, another time otherwise, and so do \
         literals, which are of such types.",
    ),
    (
        "lhist: last bucket",
        "starts where the last whole step ends, which is below max when the steps do not divide the range; values there are \
         counted in it.",
    ),
    ("lhist: a value equal to max", "is counted in the last bucket, as there."),
    ("tseries: top and div", "count: the last so many keys, values divided; bpftrace ignores both."),
    (
        "tseries: many intervals",
        "over 2048 (1365 with avg) are shared by all processors: of two updates in the same instant one may be lost. What the \
         kernel has room for is the limit, 262144 or more.",
    ),
    ("system()", "shows what a command that fails has written, too; bpftrace drops it."),
    ("tuples", "show strings without quotes, as bpftrace does and not as its documents have it; so do statistics and stacks."),
    ("printf: %f", "shows decimals, of quotients and averages too; bpftrace refuses it. %T and %B are not there."),
    (
        "print and clear, print and zero",
        "of one map in one block show one moment: no update is lost in between. In bpftrace what comes between the two is lost.",
    ),
    (
        "exit()",
        "ends the run for all probes at once: none does anything after it, `end` excepted. In bpftrace others go on until its user \
         side has read of it, also after an exit() in `begin`.",
    ),
    (
        "maps: sizes",
        "of `let @m = hash(n)` may be any expression that is known beforehand: constants of C, macros without parameters and operators.",
    ),
    ("comptime", "knows what `probe` is, for each of the probes that a body is for."),
    ("argN", "is a uint64, as it is in bpftrace, whose documents say int64."),
    ("interval", "is not limited to the process of -p, as in bpftrace, whose documents say that it is."),
    ("wildcards", "are `*` alone, as in bpftrace, one of whose documents speaks of `?`."),
    (
        "import",
        "takes .bt and .h files and folders of them. C sources and BPF objects (.bpf.c, .bpf.o) are refused: functions are written as \
         `fn`. `stdlib`, and what is in it, may be imported, and is there anyhow.",
    ),
    ("dw_ustack", "is refused: stacks of processes are followed by their frame pointers."),
    ("typeinfo", "names an aggregation of unsigned numbers as one of signed ones: sum_t for usum_t."),
    ("retval", "is not there in fentry probes, where nothing has been returned yet; bpftrace takes it."),
    (
        "-lv",
        "lists the arguments of USDT probes and of C++ functions too, and all structs and enums; bpftrace leaves out most packed \
         structs and enums of 64 bits. Types of the same name have that name; bpftrace numbers them, as in `console___2`. \
         Variable arguments are `...`; bpftrace calls them `void`.",
    ),
    ("printf", "takes any number of arguments; bpftrace takes 127."),
    ("print of an element that is not there", "shows the zero of its kind, for aggregations too."),
];
