#!/usr/bin/env python3
"""Compares user stacks of rbt with those of gdb at random points in real programs.

A signal that the program ignores stops it under gdb, and gdb walks its stack. When gdb resumes the program, the kernel delivers
the signal with the same registers, and rbt records `ustack` at this point. The script compares the addresses of all frames.

For each program, one line reports how many stacks were equal and how many frames they had. The first differences precede it.
The exit status is 1 if a stack differs, and 2 if a program could not be measured."""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 127
# Programs ignore this signal by default, and nothing else sends it here.
SIGNAL = signal.SIGWINCH
SCRIPT = """tracepoint:signal:signal_deliver /args.sig == %d/ { printf("stop %%d\\n%%s\\n", tid, ustack(raw, %d)); }""" % (SIGNAL, LIMIT)

# This script runs in gdb and walks the stack at each stop.
IN_GDB = """
import gdb, os
for line in ("set pagination off", "set confirm off", "set debuginfod enabled off", "set print thread-events off",
             "set backtrace past-main on", "set backtrace past-entry on", "handle SIGWINCH stop nopass noprint",
             "handle SIGWINCH stop print pass", "handle SIGPIPE SIGUSR1 SIGUSR2 SIGCHLD SIGURG SIGALRM nostop noprint pass"):
    try: gdb.execute(line, to_string=True)
    except gdb.error: pass
gdb.execute("attach %d" % PID, to_string=True)
os.write(READY, b"x")
out = open(OUT, "w")
for _ in range(STOPS + 1):
    try: gdb.execute("continue", to_string=True)
    except gdb.error as e: break
    thread = gdb.selected_thread()
    if thread is None or not thread.is_valid(): break
    frames, frame = [], gdb.newest_frame()
    while frame is not None and len(frames) < LIMIT:
        # Skip inlined functions and the frames that gdb infers from tail calls, because they have no frame on the stack.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): frames.append("%x" % frame.pc())
        try: frame = frame.older()
        except gdb.error: break
    print("stop", thread.ptid[1], *frames, file=out, flush=True)
try: gdb.execute("detach", to_string=True)
except gdb.error: pass
gdb.execute("quit")
"""


def bash(folder):
    script = """deep() { if (( $1 > 0 )); then deep $(($1 - 1)); else local s=x; for ((j = 0; j < 50; j++)); do s+=$j; [[ $s =~ 4.*9 ]]; done; fi; }
while :; do for n in 1 5 17; do deep $n; done; x=$(printf '%s' "$n"); read -r _ <<< "$x"; done"""
    return ["bash", "-c", script]


def git(folder):
    subprocess.run(["git", "init", "-q", "r"], cwd=folder, check=True)
    with open(f"{folder}/stream", "w") as f:
        text = random.Random(1)
        for n in range(400):
            words = " ".join(str(text.randrange(1000)) for _ in range(3000)).replace(" 7", "\n7")
            f.write(f"commit refs/heads/main\ncommitter a <a@b> {n} +0000\ndata 1\nm\nM 644 inline f{n % 7}\ndata {len(words)}\n{words}\n")
    with open(f"{folder}/stream") as f:
        subprocess.run(["git", "fast-import", "--quiet"], cwd=f"{folder}/r", stdin=f, check=True)
    return ["git", "-C", f"{folder}/r", "pack-objects", "-q", "--all", "--no-reuse-delta", "--threads=1", "--window=4000", "--depth=50", "--stdout"]


def python3(folder):
    script = """import json, re, functools, collections
def walk(n): return [walk(n - 1), {str(n): re.sub('1+', lambda m: str(len(m.group())), '0110' * n)}] if n else []
while True:
    d = json.loads(json.dumps(walk(12)))
    sorted(map(str, range(999)), key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))
    collections.Counter(str(d))"""
    return [os.path.realpath(shutil.which("python3", path="/usr/bin:/bin") or sys.executable), "-c", script]


def sqlite3(folder):
    return ["sqlite3", ":memory:", "with recursive c(x, y) as (select 1, 'a' union all select x + 1, substr(y || x, -40) from c) "
            "select count(*), max(upper(y)), group_concat(y) filter (where y like '%9%8%'), sum(x in (select x from c limit 50)) from c where y glob '*1*'"]


def postgres(folder):
    import glob
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    shutil.chown(folder, "postgres")
    as_user = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*as_user, f"{programs}/initdb", "-D", f"{folder}/d"], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = subprocess.Popen([*as_user, f"{programs}/postgres", "-D", f"{folder}/d", "-k", folder, "-h", "", "-c", "max_parallel_workers_per_gather=0", "-c", "jit=off"],
                              cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sql = f"select pg_backend_pid(); select count(distinct md5(a::text || b)), string_agg(upper(b::text), ',' order by b desc) from generate_series(1, 3000000) a, generate_series(1, 50) b group by a % 7"
    client = subprocess.Popen([*as_user, "sh", "-c", 'for n in 1 2 3 4 5 6 7 8 9; do sleep 1; psql -h "$0" -XAtq -d postgres -f "$0/sql" > "$0/out" 2> /dev/null && break; done', folder],
                              cwd=folder)
    with open(f"{folder}/sql", "w") as f:
        f.write(sql)
    os.chmod(f"{folder}/sql", 0o644)
    for _ in range(150):
        time.sleep(0.2)
        try:
            pid = int(open(f"{folder}/out").readline())
        except (OSError, ValueError):
            continue
        return pid, [client, server]
    return None, [client, server]


def redis_server(folder):
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", f"{folder}/s", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
    time.sleep(1)
    load = """local t = {} for i = 1, 200 do redis.call('zadd', 'z', i, i); t[i] = cjson.encode({i, tostring(i)}) end redis.call('sort', 'z', 'alpha') return #t"""
    client = subprocess.Popen(["redis-benchmark", "-s", f"{folder}/s", "-q", "-c", "4", "-n", "100000000", "eval", load, "0"], stdout=subprocess.DEVNULL)
    return server.pid, [client, server]


def nginx(folder):
    with open(f"{folder}/c", "w") as f:
        f.write(f"""daemon off; master_process off; pid {folder}/p; error_log /dev/null;
events {{}} http {{ access_log {folder}/l; client_body_temp_path {folder}/b; proxy_temp_path {folder}/y; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
scgi_temp_path {folder}/g; gzip on; gzip_min_length 1; gzip_types *; autoindex on; server {{ listen unix:{folder}/s; root /usr/share; location ~ ^/(d.*)/$ {{ rewrite ^/(.*)/$ /doc/$1 break; }} }} }}""")
    server = subprocess.Popen(["nginx", "-c", f"{folder}/c", "-e", "/dev/null"])
    time.sleep(1)
    client = f"""import socket
while True:
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect({folder + "/s"!r})
    for n in range(90):
        s.sendall(b'GET /doc/ HTTP/1.1\\r\\nHost: a\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n')
        d = b''
        while not d.endswith(b'0\\r\\n\\r\\n'):
            r = s.recv(1 << 20)
            if not r: break
            d += r"""
    return server.pid, [subprocess.Popen([sys.executable, "-c", client]), server]


def gxx(folder):
    with open(f"{folder}/a.cc", "w") as f:
        f.write("#include <bits/stdc++.h>\n" + "".join(f"template<int N> struct F{n} {{ static int f(int x) {{ std::map<std::string, std::vector<int>> m; m[std::to_string(x)].push_back(N); "
                f"std::sort(m.begin()->second.begin(), m.begin()->second.end(), [](int a, int b) {{ return a % N < b % N; }}); return F{n}<N - 1>::f(x + N); }} }};\n"
                f"template<> struct F{n}<0> {{ static int f(int x) {{ return x; }} }}; int g{n}(int x) {{ return F{n}<60>::f(x); }}\n" for n in range(40)))
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()
    machine = subprocess.run(["g++", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    return [compiler, "-quiet", "-imultiarch", machine, "-D_GNU_SOURCE", "-O2", f"{folder}/a.cc", "-o", "/dev/null"]


def rustc(folder):
    with open(f"{folder}/a.rs", "w") as f:
        f.write("use std::collections::*;\n" + "".join(f"pub fn f{n}(v: &[u{8 << n % 4}]) -> BTreeMap<String, Vec<usize>> {{ let mut m = BTreeMap::new(); "
                f"for (i, x) in v.iter().enumerate() {{ m.entry(format!(\"{{x:?}}{n}\")).or_insert_with(Vec::new).push(i); }} m.values_mut().for_each(|w: &mut Vec<usize>| w.sort_by_key(|i| i % {n + 1})); m }}\n" for n in range(3000)))
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    return [f"{sysroot}/bin/rustc", "--crate-type=lib", "-O", "--emit=obj", "-o", f"{folder}/a.o", f"{folder}/a.rs"]


def go(folder):
    with open(f"{folder}/a.go", "w") as f:
        f.write("""package main
import ("encoding/json"; "fmt"; "regexp"; "sort"; "strings")
type t struct { A []*t; B map[string]int }
func deep(n int) *t { if n == 0 { return &t{B: map[string]int{"x": n}} }; return &t{A: []*t{deep(n - 1), deep(n / 2)}, B: map[string]int{fmt.Sprint(n): n}} }
func main() {
	r := regexp.MustCompile("[0-9]+x?")
	for { b, _ := json.Marshal(deep(9)); v := new(t); json.Unmarshal(b, v)
		s := strings.Split(r.ReplaceAllStringFunc(string(b), strings.ToUpper), ","); sort.Slice(s, func(i, j int) bool { return s[i] < s[j] }) } }
""")
    subprocess.run(["go", "build", "-o", "a", "a.go"], cwd=folder, check=True, env={**os.environ, "GO111MODULE": "off", "GOCACHE": f"{folder}/cache", "HOME": folder})
    return [f"{folder}/a"]


# Each function returns either a command, or the ID of the process to measure and a list of related processes.
PROGRAMS = {"bash": bash, "git": git, "python3": python3, "sqlite3": sqlite3, "postgres": postgres, "redis-server": redis_server,
            "nginx": nginx, "g++": gxx, "rustc": rustc, "go": go}


def ended(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def session(rbt, pid, stops, folder, pause):
    """Returns the stacks that gdb and rbt report for one process, as pairs of (thread, addresses), and the errors of rbt."""
    with open(f"{folder}/rbt", "w") as out:
        tracer = subprocess.Popen([rbt, "-q", "-p", str(pid), "-e", SCRIPT + ' begin { print("begin"); }'], stdout=out, stderr=subprocess.PIPE, text=True)
        for _ in range(600):
            time.sleep(0.1)
            if "begin" in open(f"{folder}/rbt").read() or tracer.poll() is not None:
                break
        time.sleep(0.5)
        ready, ready_to = os.pipe()
        with open(f"{folder}/in-gdb.py", "w") as f:
            f.write(f"PID, READY, OUT, STOPS, LIMIT = {pid}, {ready_to}, {folder + '/gdb'!r}, {stops}, {LIMIT}\n{IN_GDB}")
        open(f"{folder}/gdb", "w").close()
        gdb = subprocess.Popen(["gdb", "-q", "-nx", "-batch", "-x", f"{folder}/in-gdb.py"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, pass_fds=[ready_to])
        os.close(ready_to)
        os.read(ready, 1)
        os.close(ready)
        last, stopped_at = time.time(), 0
        while gdb.poll() is None and is_alive(pid) and time.time() - last < 60:
            time.sleep(random.uniform(0.001, pause))
            size = os.path.getsize(f"{folder}/gdb")
            if size != stopped_at:
                last, stopped_at = time.time(), size
            try:
                os.kill(pid, SIGNAL)
            except ProcessLookupError:
                break
        try:
            gdb.wait(20)
        except subprocess.TimeoutExpired:
            gdb.kill()
            gdb.wait()
        code = executable(pid)
        tracer.send_signal(signal.SIGINT)
        errors = tracer.communicate(timeout=60)[1]
    def gdb_stacks():
        for line in open(f"{folder}/gdb"):
            _, thread, *frames = line.split()
            # The outermost frames of Go programs have a caller at address 0.
            yield thread, frames[:-1] if frames[-1] == "0" else frames
    def rbt_stacks():
        for record in re.split(r"^stop ", open(f"{folder}/rbt").read(), flags=re.M)[1:]:
            thread, *frames = record.split("\n")
            frames = [f.strip() for f in frames if f.strip() and not f.startswith("@")]
            yield thread, [f if f.startswith("[") else f.removeprefix("0x").lstrip("0") for f in frames]
    return list(gdb_stacks()), list(rbt_stacks()), code, errors


def executable(pid):
    """Returns the ranges of a process's executable memory."""
    maps = (line.split() for line in open(f"/proc/{pid}/maps"))
    return [range(*(int(end, 16) for end in words[0].split("-"))) for words in maps if "x" in words[1]]


def without_data(frames, code):
    """Removes the last addresses that are not of code. Where a function in assembly has changed the stack, gdb takes a word of data
    for the return address, and rbt says `[not in code]` instead."""
    frames = list(frames)
    while frames and not any(int(frames[-1], 16) in part for part in code):
        frames.pop()
    return frames


def measure(rbt, name, stops, shown, pause):
    equal = frames = cut = differing = 0
    for _ in range(20):
        if equal + differing >= stops:
            break
        folder = tempfile.mkdtemp(prefix="rbt-stops-")
        others = []
        try:
            try:
                made = PROGRAMS[name](folder)
            except FileNotFoundError as missing:
                print(f"{name}: not installed ({missing.filename})")
                break
            if isinstance(made, list):
                own = subprocess.Popen(made, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                pid, others = own.pid, [own]
            else:
                pid, others = made
            if pid is None:
                break
            time.sleep(0.3)
            by_gdb, by_rbt, code, errors = session(rbt, pid, stops - equal - differing, folder, pause)
            if not by_gdb or not by_rbt:
                print(f"{name}: {len(by_gdb)} stops by gdb, {len(by_rbt)} by rbt\n{errors}")
                break
            # Ignore the last stop. gdb detaches there, and another thread may receive the next signal.
            for (thread, theirs), (thread_too, ours) in list(zip(by_gdb, by_rbt))[:-1]:
                if ours and ours[-1] == "[not in code]":
                    theirs = without_data(theirs, code)
                is_cut = bool(ours) and ours[-1].startswith("[") and len(ours) > 1
                if thread == thread_too and theirs == (ours[:-1] if is_cut else ours):
                    equal, frames, cut = equal + 1, frames + len(theirs), cut + is_cut
                    continue
                differing += 1
                if differing <= shown:
                    same = next((n for n, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
                    print(f"{name}, thread {thread} ({thread_too}): {same} frames equal, then\n  gdb {theirs[same:same + 6]} of {len(theirs)}\n  rbt {ours[same:same + 6]} of {len(ours)}")
        finally:
            for other in others:
                ended(other)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: {equal} of {equal + differing} stacks equal, {frames} frames" + (f"; {cut} stacks that rbt reports as truncated end at the same frame in gdb" if cut else ""), flush=True)
    return 2 if equal + differing < stops else min(differing, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100, metavar="STOPS", help="number of stops for each program (default: 100)")
    parser.add_argument("--rbt", default=os.environ.get("RBT", "target/debug/rbt"), metavar="FILE", help="the rbt binary (default: RBT, else target/debug/rbt)")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="number of differences to print for each program (default: 5)")
    parser.add_argument("--pause", type=float, default=0.02, metavar="SECONDS", help="maximum time between two signals (default: 0.02)")
    parser.add_argument("program", nargs="*", help=f"one of {', '.join(PROGRAMS)} (default: all)")
    options = parser.parse_args()
    unknown = [p for p in options.program if p not in PROGRAMS]
    if unknown:
        parser.error(f"unknown program {unknown[0]}; the programs are {', '.join(PROGRAMS)}")
    return max(measure(os.path.abspath(options.rbt), name, options.n, options.show, options.pause) for name in options.program or PROGRAMS)


if __name__ == "__main__":
    sys.exit(main())
