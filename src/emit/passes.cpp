// Runs LLVM's passes over a module.
//
// The function of the C API for this, LLVMRunPasses, takes the names of passes as text. It therefore refers to every pass of
// LLVM, and a static binary would contain all of them: 3 MB of sanitizers, printers and passes for other machines. This file
// refers only to the passes that it names, and to those that they use.

#include "subroutines.h"
#include "llvm-c/Core.h"
#include "llvm-c/TargetMachine.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace llvm;

// The pipeline `function(sroa,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg,adce),globaldce`.
static ModulePassManager lean() {
  FunctionPassManager function;
  function.addPass(SROAPass(SROAOptions::ModifyCFG));
  function.addPass(SimplifyCFGPass());
  function.addPass(InstCombinePass(InstCombineOptions().setVerifyFixpoint(false)));
  function.addPass(SimplifyCFGPass());
  function.addPass(ADCEPass());
  ModulePassManager module;
  module.addPass(createModuleToFunctionPassAdaptor(std::move(function)));
  module.addPass(GlobalDCEPass());
  return module;
}

// The passes for subroutines and for code that runs once, in place of those of `default<O2>`. The code of these functions
// is rbt's own, so most of those passes have nothing to do, but take four times as long: for a script that prints stacks, most
// of the time of its compilation.
static FunctionPassManager subroutine() {
  FunctionPassManager function;
  function.addPass(SROAPass(SROAOptions::ModifyCFG));
  function.addPass(EarlyCSEPass());
  function.addPass(SimplifyCFGPass());
  function.addPass(InstCombinePass(InstCombineOptions().setVerifyFixpoint(false)));
  function.addPass(SimplifyCFGPass());
  function.addPass(ADCEPass());
  return function;
}

// What a module gets: the passes of `default<O2>`, only those that do not extend live ranges, or those for code that runs once.
enum Passes { FULL, LEAN, ONCE };

// Runs passes. `rarely`: as for `rbt_generate`. `known` may be null.
extern "C" void rbt_optimize(LLVMModuleRef module, LLVMTargetMachineRef target, Passes passes, bool rarely,
                             const KnownCode *known) {
  auto *machine = reinterpret_cast<TargetMachine *>(target);
  PassBuilder builder(machine);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  builder.registerLoopAnalyses(loops);
  builder.registerFunctionAnalyses(functions);
  builder.registerCGSCCAnalyses(components);
  builder.registerModuleAnalyses(modules);
  builder.crossRegisterProxies(loops, functions, components, modules);
  if (passes == LEAN) {
    lean().run(*unwrap(module), modules);
    return;
  }
  Subroutines subroutines(*unwrap(module), *machine, known, rarely, subroutine(), functions);
  if (passes == ONCE) {
    ModulePassManager once;
    once.addPass(createModuleToFunctionPassAdaptor(subroutine()));
    once.addPass(GlobalDCEPass());
    once.run(*unwrap(module), modules);
  } else {
    builder.buildPerModuleDefaultPipeline(OptimizationLevel::O2).run(*unwrap(module), modules);
  }
  subroutines.put_back();
}
