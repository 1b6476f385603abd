#![allow(unsafe_code)] // a process changes its own memory policy before it runs a program

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, thread, time::Duration};

use super::*;

/// A program with all that a start sets up: constructors, thread-local variables, relocated addresses, memory that begins as zeros,
/// and what the C library takes from the auxiliary vector. It has the mark of a runner.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

static struct { char name[16]; unsigned long size; } volatile mark = {"\x7frbt-run bundle:", 0};
static const char *const names[] = {"one", "two"};
static const char *const *volatile table = names;
static int zeros[100000], constructed;
static __thread int own = 7;

__attribute__((constructor)) static void construct(void) { constructed = 5; }

static int segments(struct dl_phdr_info *info, size_t size, void *count) {
  (void)size;
  *(int *)count += info->dlpi_phnum;
  return 0;
}

static void *run(void *unused) { return (void *)(long)(own += constructed + (unused != 0)); }

int main(int argc, char **argv) {
  int sum = 0, count = 0;
  for (int i = 0; i < 100000; i++)
    sum |= zeros[i];
  pthread_t thread;
  void *result;
  if (pthread_create(&thread, 0, run, 0) || pthread_join(thread, &result))
    return 3;
  dl_iterate_phdr(segments, &count);
  printf("%d %s %s %s\n", argc, argv[1], getenv("VARIABLE"), (const char *)getauxval(AT_EXECFN));
  printf("%s %d %d %d %ld\n", table[1], sum, constructed, own, (long)result);
  printf("headers %d %lu %d\n", count, getauxval(AT_PHNUM), memcmp((void *)(getauxval(AT_PHDR) - 64), "\177ELF", 4));
  printf("mark %lu, random %d, vdso %d\n", mark.size, getauxval(AT_RANDOM) != 0, time(0) > 0 && getauxval(AT_SYSINFO_EHDR));
  char *memory = malloc(3 << 20);
  memset(memory, 1, 3 << 20);
  char line[400], stack = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  int both = 0;
  while (fgets(line, sizeof line, maps))
    both += strstr(line, "wx") != 0, stack |= strstr(line, "[stack]") && strstr(line, "rw-p");
  printf("writable and executable %d, stack %d\n", both, stack);
  return 4;
}
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("rbt-exe-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Compiles a runner.
    fn runner(&self, options: &[&str]) -> Vec<u8> {
        let [source, program] = ["program.c", "program"].map(|name| self.0.join(name));
        fs::write(&source, PROGRAM).unwrap();
        let made = Command::new("cc").args(options).arg("-O1").arg("-w").arg(&source).arg("-o").arg(&program).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::read(program).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program that was written just now: a child of another test may still have the file open for writing.
fn run(command: &mut Command) -> Output {
    loop {
        match command.output() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => thread::sleep(Duration::from_millis(5)),
            result => return result.unwrap(),
        }
    }
}

fn started(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.arg("argument").env_clear().env("VARIABLE", "value");
    command
}

fn text(output: &Output) -> String {
    format!("{}{}{:?}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr), output.status.code())
}

const DAMAGED: &str = "error[bundle]: this program is damaged: it is truncated, or its digest does not match\n\
                       help: copy it again, or build it again\nSome(1)";

#[test]
fn a_compressed_program_starts_like_its_runner() {
    let folder = Folder::new("start");
    let runner = folder.runner(&["-static-pie"]);
    assert!(can_compress(&runner));
    let path = folder.write("p", &program(runner.clone(), b"contents", false).unwrap());
    let expected = text(&run(&mut started(&path)));
    let first = format!("2 argument value {}\ntwo 0 5 7 12\nheaders ", path.display());
    assert!(expected.starts_with(&first) && expected.ends_with("writable and executable 0, stack 1\nSome(4)"), "{expected}");
    assert!(expected.contains(" 0\nmark 8, random 1, vdso 1\n"), "{expected}");
    let bytes = program(runner.clone(), b"contents", true).unwrap();
    assert!(bytes.len() < runner.len() * 2 / 3, "{} of {}", bytes.len(), runner.len());
    fs::remove_file(&path).unwrap();
    folder.write("p", &bytes);
    assert_eq!(text(&run(&mut started(&path))), expected);
    assert_eq!(Bundle::embedded_in(&mut io::Cursor::new(bytes)).unwrap(), Some(b"contents".to_vec()));
}

#[test]
fn only_static_runners_are_compressed() {
    let folder = Folder::new("static");
    let runner = folder.runner(&["-pie"]);
    assert!(!can_compress(&runner));
    let path = folder.write("p", &program(runner.clone(), b"contents", true).unwrap());
    assert_eq!(run(&mut started(&path)).status.code(), Some(4));
    for end in [0, 10, 64, 100, 1000, runner.len() / 2] {
        assert!(!can_compress(&runner[..end]), "cut at {end}");
    }
    assert!(program(b"\x7fELF".to_vec(), b"contents", true).is_err(), "a runner has a mark");
}

#[test]
fn a_damaged_program_says_so() {
    let folder = Folder::new("damage");
    let bytes = program(folder.runner(&["-static-pie"]), b"contents", true).unwrap();
    let packed = STUB.len().next_multiple_of(4096) + 4096;
    let packed_end = bytes.len() - 24 - 8;
    for end in [packed + 1, packed + 4096, (packed + packed_end) / 2, packed_end - 5000, packed_end - 40] {
        let path = folder.write(&format!("cut{end}"), &bytes[..end]);
        assert_eq!(text(&run(&mut started(&path))), DAMAGED, "cut at {end}");
    }
    // the structure of the stub, messages in its code, and the compressed runner
    let message = memchr::memmem::find(&bytes, b"copy it again").unwrap();
    let places = (232..232 + 96).step_by(8).chain([message + 20, packed + 9, packed_end - 40]);
    for at in places.chain((packed..packed_end - 40).step_by(20_011)) {
        for flip in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            let path = folder.write("flip", &changed);
            let found = text(&run(&mut started(&path)));
            assert!(found.starts_with(DAMAGED.get(..60).unwrap()) && found.ends_with("Some(1)"), "byte {at} of {}: {found}", bytes.len());
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_refused_call_is_named() {
    let folder = Folder::new("refused");
    let path = folder.write("p", &program(folder.runner(&["-static-pie"]), b"contents", true).unwrap());
    let mut limited = started(&path);
    // SAFETY: setrlimit may be called between fork and exec
    unsafe {
        limited.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            if libc::setrlimit(libc::RLIMIT_AS, &raw const limit) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    let found = text(&run(&mut limited));
    assert!(
        found.starts_with("error[no-memory]: this program cannot unpack its code: mmap: there is not enough memory (ENOMEM)\nhelp: raise"),
        "{found}"
    );
    assert!(found.contains("--no-compress") && found.ends_with("\nSome(1)"), "{found}");

    // Linux 6.3 can forbid memory to become executable
    const PR_SET_MDWE: libc::c_int = 65;
    let mut confined = started(&path);
    // SAFETY: prctl may be called between fork and exec
    unsafe {
        confined
            .pre_exec(|| if libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOSYS)) });
    }
    let found = loop {
        match confined.output() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => return,
            result => break text(&result.unwrap()),
        }
    };
    let expected =
        "error[no-memory]: this program cannot unpack its code: mprotect for executable memory is denied (EACCES)\nhelp: a policy";
    assert!(found.starts_with(expected) && found.ends_with("\nSome(1)"), "{found}");
}
