// Runs the constructors of LLVM's global objects, such as its options, where the linker has put them aside: see `build.rs`.
// Where it has not, they ran before `main`, and the two names are nowhere defined.

using Constructor = void (*)();

extern "C" {
extern const Constructor rbt_late_start[] __attribute__((weak, visibility("hidden")));
extern const Constructor rbt_late_end[] __attribute__((weak, visibility("hidden")));

// To be called once, before anything else of LLVM.
void rbt_construct_llvm() {
  for (const Constructor *constructor = rbt_late_start; constructor != rbt_late_end; ++constructor)
    (*constructor)();
}
}
