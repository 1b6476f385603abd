//! Deliberate differences from bpftrace, for the manual.

/// A topic, and the difference.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "messages",
        "Warnings and errors about a script go to standard error, in rbt's own words. bpftrace prints warnings to standard \
         output, which is then not valid JSON with -f json.",
    ),
    (
        "printf",
        "Precision and flags work as in C: %.5s prints at most five bytes, %.3d at least three digits, and %-05d no zeros on \
         the right. bpftrace ignores precision and the space flag, and pads with zeros before the sign and on the right.",
    ),
    (
        "integers",
        "Division of signed integers keeps the sign and rounds toward zero, and a right shift of a negative number shifts in \
         ones, as in C. bpftrace does the same only for literals. It treats other integers as unsigned. A shift count of 64 \
         or more is taken modulo 64. In bpftrace its result is undefined. The result of -x and ~x keeps the sign if x is a signed \
         integer of 1, 2 or 4 bytes: -x is -5 if x is 5. bpftrace prints and stores it as 251, but uses -5 in a sum or after a \
         cast. An overflow in a product or difference of literals is an error. bpftrace rejects most of them, and crashes on \
         (-9223372036854775808) / -1. hist() counts integers from 2^63 upward as unsigned. bpftrace counts them as negative.",
    ),
    (
        "arguments",
        "The signed arguments of system calls have the type that the tracepoint declares: args.dfd is an int, and AT_FDCWD is -100. \
         bpftrace reads all eight bytes of the record as an unsigned number, 4294967196. rbt reads arguments of C functions from the location in the debug information. bpftrace assumes the registers of the calling convention, even if the compiler uses others. If the result of a function is in a floating-point register or on a Go function's stack, or the function returns nothing, retval is an error, or its return is not probed if a pattern matches it. In bpftrace, retval is what is left in the integer register. retval of a function that returns 8 or 16 bits has the declared type, and of a user function that returns 32 bits, it is unsigned and has these bits. In bpftrace, it is the entire register, in which compilers may leave anything in the other bits.",
    ),
    (
        "loops",
        "A while loop always loads. The kernel limits a run of the probe to 8388607 iterations, and rbt reports a loop that \
         exceeds the limit. bpftrace's loops load only if the verifier can prove that they end. A for loop over more than \
         8388608 integers stops after that many, and rbt reports it. bpftrace runs no iteration at all. rbt also ends loops that take more than a second, except in begin, end and self probes. bpftrace has no such limit. The variable of a for \
         loop is wide enough for both ends of the range. In bpftrace it may be too narrow if the range goes from a literal to a \
         variable.",
    ),
    (
        "strings",
        "A string literal as an operand of && or || is true if it is not empty. bpftrace inverts the second operand. An array of characters is never equal to a longer literal. bpftrace compares only as many bytes as both have. str() keeps max_strlen bytes of text. bpftrace keeps one byte less if max_strlen is 1024 or more. rbt treats an array of `char`, also through a typedef, as a string of at most the array's length. If it is full and \
         lacks a NUL, the string ends in `..`, as in bpftrace. For structs that the script declares, bpftrace reads one byte \
         too many. In bpftrace, indexing such an array yields 0, str() of it is empty, and an array of such arrays shows only the first. bpftrace prints arrays of unsigned char (such as MAC and IPv6 addresses) in types of the kernel or of a binary as text, and arrays of a typedef of char as numbers.",
    ),
    (
        "structures and enums",
        "Bit-fields of signed types are signed, as in C. bpftrace treats all of them as unsigned. A C bool prints as true or \
         false, and an enum as its name, wherever the type is declared. bpftrace prints some of them as numbers if a script or a binary declares the type. In the types of a binary, rbt finds members of anonymous structures and prints structures within \
         structures whole. bpftrace does so for the kernel's types only. rbt prints and stores members of type float and double, \
         which bpftrace prints as null or rejects. An enum with negative enumerators is signed, as in C, and a pointer to an enum steps by the enum's size in memory. \
         bpftrace treats all values of enums as unsigned, and steps by 8 bytes.",
    ),
    (
        "strftime()",
        "A number from 10^18 upward is a time since 1970, wherever it comes from. Unless it is nsecs(tai), bpftrace adds the time of the boot to it. An empty format prints nothing. bpftrace prints (?).",
    ),
    (
        "casts to arrays",
        "An integer that is cast to an array keeps its sign: (uint8[2])-1 is [255,255]. bpftrace fills the bytes beyond the integer with zeros, or with what is in memory there.",
    ),
    (
        "keys that are looked up",
        "Elements whose keys become the same text when rbt prints them, such as those of two addresses in one function, two cgroups of one container, or two times within a minute, are printed as one if their values are aggregations or numbers that the script only adds to. bpftrace prints them one by one.",
    ),
    (
        "imports",
        "`stdlib` and its parts are those of rbt, even if there is a directory of that name, which is `./stdlib`. bpftrace prefers the directory.",
    ),
    (
        "columns",
        "In the position of an error or a warning, a column counts characters, so the underline stands below the text. bpftrace counts bytes.",
    ),
    ("has_cpid", "It is true if rbt runs a command (-c). In bpftrace, it is true if there is no command."),
    (
        "JSON",
        "Strings are UTF-8. U+FFFD replaces each sequence of bytes that is not valid UTF-8. In keys of maps, rbt removes the spaces between the parts of a key and the parentheses of tuples. bpftrace also removes spaces and parentheses within strings.",
    ),
    (
        "maps",
        "Integers of 1, 2 and 4 bytes, which include literals, sort by value, like those of 8 bytes. bpftrace prints them in the \
         kernel's order, which changes from run to run. min() and max() sort as signed numbers, and entries with equal values \
         sort by key. uint64 keys from 2^63 upward come last. In bpftrace they come first. print(@s[k]) prints the values of stats(). bpftrace prints zeros. sum() and avg() add integers of 1 and 2 bytes with their sign, and bpftrace without it. print() ignores `div` for stats(). bpftrace warns that it ignores `div`, but divides the average.",
    ),
    ("system()", "rbt prints the output of a command even if the command fails. bpftrace discards it."),
    (
        "runtime errors",
        "For each place in the script and each CPU, rbt prints at most 1,000 runtime errors (such as a division by zero) per second. While more than a sixteenth of the ring buffer is in use, it prints none. So errors do not displace the script's own events. rbt counts the errors that it does not print, and prints the total at the end. bpftrace loses events instead.",
    ),
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
        "stacks and symbols",
        "rbt unwinds user stacks by call frame information, and gives the reason if a stack is incomplete. Python frames replace the frames \
         of the interpreter's loop, except in the modes raw and build_id. bpftrace follows frame pointers, but most distributions compile without them. With `unwind_tables = 0`, rbt follows them too. dw_ustack is the same as ustack. A user address without a symbol prints as a file and an offset (libc.so.6+0x2a1c0), which are the same in every run. bpftrace prints the address in the process. At the tracepoint of a system call, kernel stacks start at the function that contains the tracepoint. In bpftrace they are empty on some kernels. The settings use_blazesym and lazy_symbolication have no \
         effect, because rbt records the mappings of processes during the run.",
    ),
    (
        "assert() and cpid",
        "A failed assertion, and the warning about cpid without a command, name a place in the script. bpftrace names a place in its own library, which changes with its version. In JSON, it names only that place.",
    ),
    (
        "cgroup_path()",
        "It searches the unified hierarchy, to which the IDs belong. bpftrace adds the cgroups of other hierarchies (version 1) whose \
         numbers happen to be equal.",
    ),
    (
        "-l and -lv",
        "rbt lists the functions, raw tracepoints and iterators to which it can attach. bpftrace omits functions and raw tracepoints \
         with many arguments, and lists iterators over the elements of a map, to which it cannot attach. `begin:*`, `test:*` and \
         `bench:*` do not list the names special::, test:: and benchmark::, because they are not probes. With -p, a pattern of USDT probes \
         matches those of the process, not those of other programs. With -v, rbt lists the arguments of USDT probes and C++ functions, and all structs and enums. bpftrace omits most packed \
         structs and 64-bit enums. If several types share a name, rbt lists each with this name. bpftrace appends a number, as in `console___2`. rbt prints variable arguments as `...`, and bpftrace as `void`.",
    ),
    (
        "what rbt rejects",
        "An empty command (-c '') is an error. bpftrace runs without a command. max_map_keys = 0 is an error. In bpftrace, maps then hold nothing. A second declaration of a map is an error. bpftrace uses the last one. `@a = @a` is an error if nothing else determines the type of the map. bpftrace assumes an integer. macaddr() of a literal is an error. bpftrace reads memory at that address. fentry probes have no retval, because the function has not returned yet. bpftrace accepts it. \
         Stacks, symbols, addresses and formatted times cannot be compared with == and !=. bpftrace compares the addresses of its copies, so usym(x) == usym(x) is false.",
    ),
    (
        "what rbt accepts",
        "rbt accepts scripts that bpftrace rejects. In the syntax, these are `if` without parentheses, uppercase suffixes (1UL), and several digits before an exponent (12e3). Macros can use the script's maps, sizes of maps can be constant expressions, and maps declared as hash or lruhash can hold aggregations. ctx can be a key of a map, and the ctx of perf events can be read through a variable. Names of signals need no SIG (STOP, SEGV), and constants of the kernel's interface need no header (SIGKILL, O_CREAT, AF_INET, EPERM, TASK_RUNNING, INT_MAX, NULL). printf() accepts %f, %T and %B, integers from a count(), and more than 127 arguments. print() accepts args of a tracepoint, an empty tuple, and @h[k] of a histogram. print(config) also shows rbt's own settings. pton() accepts IPv4 addresses within IPv6 addresses, and unwatch() does nothing. C parts can contain typedefs, the language's own integer types, #define with parameters whose text is an expression, and headers that are not installed, unless the script uses a name that only they define. A variable that is read outside the block that assigns it belongs to the whole probe, with a warning, as before bpftrace 0.22. missing_probes = warn and ignore also skip an iterator that the kernel lacks. skboutput() works in tracepoints, comm(PID) prints [unknown] where the kernel does not allow the lookup, and printf($1) takes a number. strstr() returns -1 if the string does not occur, as documented. bpftrace returns -2.",
    ),
];
