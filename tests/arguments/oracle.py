"""Compares the arguments of a program's functions according to gdb with the locations from which rbt would read them.

gdb runs this script. The environment variables PLACES and ANSWERS name files, and LIMIT and TIMEOUT (in seconds) are limits.
Each line of PLACES is a JSON object with a function's address, its symbol, and the name of each argument with its pieces, or the
reason why it has none. This script stops each function twice. It reads the pieces at the function's entry. It reads gdb's values
where gdb stops for `break FUNCTION`. ANSWERS receives one line for each argument and call, with a verdict: equal, entry (equal to
gdb's value at the entry, while the debug information after the entry is wrong), wrong, refused, or silent (gdb has no value).
"""

import json
import os
import time

import gdb

REGISTERS = {
    112: "rdi", 104: "rsi", 96: "rdx", 88: "rcx", 72: "r8", 64: "r9", 80: "rax", 40: "rbx", 56: "r10", 48: "r11", 152: "rsp",
    32: "rbp", 24: "r12", 16: "r13", 8: "r14", 0: "r15",
}
ANSWERS = open(os.environ["ANSWERS"], "w")
LIMIT = int(os.environ.get("LIMIT", "2"))
SCALARS = {
    getattr(gdb, "TYPE_CODE_" + n)
    for n in ["INT", "PTR", "ENUM", "BOOL", "CHAR", "REF", "RVALUE_REF", "FLAGS"]
}


def out(**what):
    ANSWERS.write(json.dumps(what) + "\n")
    ANSWERS.flush()


def register(name):
    return int(gdb.selected_frame().read_register(name)) & (2**64 - 1)


def memory(at, size):
    return bytes(gdb.selected_inferior().read_memory(at & (2**64 - 1), size))


def read(pieces):
    """Returns the bytes of an argument. A byte of padding is None."""
    got = []
    for p in pieces:
        if "register" not in p:
            got += [None] * p["size"]
        elif "above" in p:
            whole = register(REGISTERS[p["register"]]).to_bytes(8, "little")
            got += whole[p["above"]:p["above"] + p["size"]]
        else:
            at = register(REGISTERS[p["register"]]) + p["by"]
            if p["then"] is not None:
                at = int.from_bytes(memory(at, 8), "little") + p["then"]
            got += memory(at, p["size"])
    return got


def leaves(value, ty, at=0, depth=0):
    """Yields (offset, bytes) of each scalar in a value. Raises an exception if gdb has no value."""
    ty = ty.strip_typedefs()
    if ty.code in SCALARS:
        if ty.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            number = int(value.referenced_value().address)
        else:
            number = int(value)
        yield at, (number & (2 ** (8 * ty.sizeof) - 1)).to_bytes(ty.sizeof, "little")
    elif ty.code == gdb.TYPE_CODE_ARRAY:
        low, high = ty.range()
        step = ty.target().sizeof
        for n in range(low, min(high + 1, low + 64)):
            yield from leaves(value[n], ty.target(), at + (n - low) * step, depth + 1)
    elif ty.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION) and depth < 8:
        for f in ty.fields():
            if not hasattr(f, "bitpos") or f.artificial and not f.name:
                continue
            inner = f.type.strip_typedefs()
            if f.bitsize or inner.sizeof == 0:
                continue
            yield from leaves(value[f], inner, at + f.bitpos // 8, depth + 1)
    elif ty.code == gdb.TYPE_CODE_FLT:
        return
    else:
        raise gdb.error("a kind of type that is not compared")


def own_block(pc):
    """Returns the function at an address, and not a function that is inlined there."""
    found, block = None, gdb.block_for_pc(pc)
    while block is not None:
        found, block = block if block.function is not None else found, block.superblock
    return found


class Function:
    def __init__(self, told, bias):
        self.name = told["name"]
        self.at = told["address"] + bias
        self.args = told["args"]
        self.saved = {}
        self.calls = 0
        self.points = []

    def entered(self):
        self.calls += 1
        key = (gdb.selected_thread().num)
        saved = []
        for a in self.args:
            try:
                saved.append(read(a["pieces"]) if "pieces" in a else None)
            except (gdb.error, gdb.MemoryError) as e:
                saved.append("cannot read: " + str(e))
        self.saved[key] = (register("rsp"), saved)

    def compare(self, here, slots, decide):
        """Compares all arguments where gdb stops. With `slots`, compares those whose stack slots had no value at the entry."""
        key = (gdb.selected_thread().num)
        if key not in self.saved:
            return
        sp, saved = self.saved[key]
        frame = gdb.selected_frame()
        block = own_block(frame.pc())
        if block is None or block.start != self.at:
            return
        symbols = [s for s in block if s.is_argument]
        by_name = {s.name: s for s in symbols}
        # The arguments of a copy of a function are not in the original order.
        if len(symbols) != len(self.args) or len(by_name) == len(symbols):
            symbols = [by_name.get(a["name"]) for a in self.args]
        for a, symbol, mine in zip(self.args, symbols, saved):
            if a.get("done", 0) >= LIMIT:
                continue
            self.one(a, symbol, mine, frame, sp, here, slots, decide)

    def one(self, a, symbol, mine, frame, sp, here, slots, decide):
        told = {"function": self.name, "arg": a["name"]}
        if "pieces" not in a:
            if here and not decide:
                return
            a["done"] = LIMIT
            return out(verdict="refused", why=a["why"], **told)
        try:
            if symbol is None:
                raise gdb.error("no such argument")
            value = symbol.value(frame)
            place = value.address
            # gdb reads a stack slot, which the first instructions of the function fill.
            slot = place is not None and int(place) < sp and not value.is_optimized_out
            if slot and here:
                a["pending"] = decide
                return
            if slots and not (slot and a.pop("pending", False)):
                return
            if value.is_optimized_out:
                raise gdb.error("optimized out")
            if value.type.strip_typedefs().code == gdb.TYPE_CODE_FLT:
                raise gdb.error("floating point")
            if here:
                # This value is used if the debug information is wrong after the entry.
                a["entry"] = None if slot else [(at, data) for at, data in leaves(value, value.type)]
                if not decide:
                    return
            # The debug information describes function types as pointers beyond the end of the struct.
            want = [(at, data) for at, data in leaves(value, value.type) if at + len(data) <= value.type.sizeof]
        except (gdb.error, gdb.MemoryError, TypeError, ValueError, OverflowError) as e:
            if here and not decide:
                return
            a["done"] = a.get("done", 0) + 1
            return out(verdict="silent", why=str(e), **told)
        differs = isinstance(mine, list) and any(mine[at:at + len(data)] != list(data) for at, data in want)
        if slot and differs and not slots:
            # If the compiler's prologue ends early, gdb stops before the slot is filled. Compares again after the next line.
            a["pending"] = True
            return
        a["pending"] = False
        a["done"] = a.get("done", 0) + 1
        if isinstance(mine, str):
            return out(verdict="wrong", why=mine, **told)
        if differs and a.get("entry") and all(mine[at:at + len(data)] == list(data) for at, data in a["entry"]):
            return out(verdict="entry", **told)
        for at, data in want:
            if mine[at:at + len(data)] != list(data):
                had = mine[at:at + len(data)]
                return out(verdict="wrong", at=at, gdb=data.hex(), rbt=bytes(b or 0 for b in had).hex(), pieces=a["pieces"], **told)
        if not want and value.type.sizeof:
            return out(verdict="silent", why="nothing to compare", **told)
        out(verdict="equal", size=value.type.sizeof, **told)


class Point(gdb.Breakpoint):
    def __init__(self, function, at, entry, compares, slots=False):
        super().__init__("*%#x" % at, internal=True)
        self.silent = True
        self.function, self.entry, self.compares, self.slots = function, entry, compares, slots

    def stop(self):
        f = self.function
        try:
            if self.entry:
                f.entered()
            if self.compares or self.entry:
                f.compare(self.entry, self.slots, self.compares)
        except Exception as e:  # an error of this script must not count as an answer
            out(verdict="fault", function=f.name, why=repr(e))
        if f.calls >= 4 * LIMIT or f.calls >= LIMIT and all(a.get("done", 0) >= LIMIT for a in f.args):
            for p in f.points:
                p.enabled = False
        return time.time() > END


def second_row(table, low, high):
    """Returns the address of a function's second line."""
    rows = sorted({r.pc for r in table if low < r.pc < high})
    return rows[0] if rows else None


def where_gdb_stops(names):
    """Returns the addresses at which `break FUNCTION` stops, by function name."""
    found = {}
    for name in names:
        try:
            b = gdb.Breakpoint(function=name, internal=True)
        except (gdb.error, RuntimeError):
            continue
        found[name] = [l.address for l in b.locations if l.address]
        b.delete()
    return found


for setting in [
    "pagination off", "confirm off", "breakpoint pending off", "debuginfod enabled off", "print thread-events off", "python print-stack message",
    "disable-randomization on", "breakpoint always-inserted on", "non-stop off", "auto-load safe-path /", "follow-fork-mode parent",
    "detach-on-fork on", "max-value-size unlimited",
]:
    try:
        gdb.execute("set " + setting, to_string=True)
    except gdb.error:
        pass
gdb.execute("starti", to_string=True)
program = gdb.current_progspace().filename
pid = gdb.selected_inferior().pid
base = min(int(l.split("-")[0], 16) for l in open("/proc/%d/maps" % pid) if l.rstrip().endswith(os.path.realpath(program)))
functions = [json.loads(l) for l in open(os.environ["PLACES"])]
with open(program, "rb") as f:
    position_independent = f.read(18)[16] == 3
bias = base if position_independent else 0
stops = where_gdb_stops(dict.fromkeys(f["name"] for f in functions))
END = time.time() + float(os.environ.get("TIMEOUT", "60"))
for told in functions:
    f = Function(told, bias)
    try:
        block = own_block(f.at)
        if block is None or block.start != f.at:
            out(verdict="unknown", function=f.name)
            continue
        own = [at for at in stops.get(f.name, []) if block.start <= at < block.end]
        after = own[0] if own else f.at
        f.points.append(Point(f, f.at, True, after == f.at))
        if after != f.at:
            f.points.append(Point(f, after, False, True))
        # Arguments in stack slots are compared again after the next line.
        later = second_row(gdb.find_pc_line(f.at).symtab.linetable(), after, block.end)
        if later:
            f.points.append(Point(f, later, False, True, True))
    except (gdb.error, AttributeError) as e:
        out(verdict="unknown", function=f.name, why=str(e))
try:
    while gdb.selected_inferior().pid and time.time() < END:
        gdb.execute("continue", to_string=True)
        if gdb.selected_inferior().pid and gdb.selected_thread() is None:
            break
except gdb.error as e:
    out(verdict="ended", why=str(e))
try:
    gdb.execute("kill", to_string=True)
except gdb.error:
    pass
