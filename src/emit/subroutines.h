// Reuse of the code of rbt's own functions ("subroutines"), which are the same in most scripts. See `subroutines.cpp`.

#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/PassManager.h"
#include <cstddef>
#include <cstdint>
#include <memory>

namespace llvm {
class DISubprogram;
class Function;
class MachineFunctionPass;
class Module;
class TargetMachine;
} // namespace llvm

extern "C" {
// The code of functions that were compiled before (`known_code.rs`). A key has 16 bytes.
struct KnownCode {
  void *context;
  // Returns false if there is none.
  bool (*find)(void *context, const uint8_t *key, const uint8_t **bytes, size_t *size);
  void (*keep)(void *context, const uint8_t *key, const uint8_t *bytes, size_t size);
};
}

// Is it one of rbt's own functions?
bool is_subroutine(const llvm::Function &function);

// Is it a part of a program that runs rarely, or a piece of a long one?
bool is_rare(const llvm::Function &function);

// Takes the bodies of subroutines, of parts of programs that run rarely, and of functions that they use, out of a module, so that passes of the module see
// declarations of them. The code of the others then does not depend on whether a subroutine's code is known.
class Subroutines {
public:
  // Functions whose code is not known get these passes, and their bodies back from `put_back`. `rarely`: as for `rbt_generate`.
  Subroutines(llvm::Module &module, const llvm::TargetMachine &machine, const KnownCode *known, bool rarely,
              llvm::FunctionPassManager passes, llvm::FunctionAnalysisManager &analyses);
  ~Subroutines();
  // Functions whose code is known get a body that only `known_code` replaces.
  void put_back();

private:
  struct Taken {
    llvm::Function *function;
    llvm::DISubprogram *description;
    bool is_local;
    // None if its code is known.
    llvm::Function *body;
  };
  llvm::Module &module;
  std::unique_ptr<llvm::Module> elsewhere;
  llvm::SmallVector<Taken, 32> taken;
};

// The last pass before the output: inserts known code, and keeps new code.
llvm::MachineFunctionPass *known_code(const KnownCode *known);
