// Runs the constructors of LLVM's global objects, such as its options, if the linker placed them in a separate section (see
// `build.rs`). Otherwise they ran before `main`, and the two symbols below are undefined.

using Constructor = void (*)();

extern "C" {
extern const Constructor rbt_late_start[] __attribute__((weak, visibility("hidden")));
extern const Constructor rbt_late_end[] __attribute__((weak, visibility("hidden")));

// Call this function once, before any other function of LLVM.
void rbt_construct_llvm() {
  for (const Constructor *constructor = rbt_late_start; constructor != rbt_late_end; ++constructor)
    (*constructor)();
}
}
