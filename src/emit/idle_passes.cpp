// Empty definitions of passes that LLVM's pipelines refer to, but that never change a script's code. This saves 3 MB of the
// binary, and the setup of the passes' options at each start.
//
// The linker extracts a member of LLVM's archives only for symbols that are otherwise undefined, so the definitions here
// keep it from extracting these passes. If a newer LLVM refers to further symbols of a member, linking fails because of
// duplicate symbols.
//
// The generated code must be identical to that of a build with LLVM's shared library, which contains all of these passes.

#include "llvm/IR/Module.h"
#include "llvm/Support/VirtualFileSystem.h"
#include "llvm/Transforms/Coroutines/CoroCleanup.h"
#include "llvm/Transforms/Coroutines/CoroEarly.h"
#include "llvm/Transforms/Coroutines/CoroElide.h"
#include "llvm/Transforms/Coroutines/CoroSplit.h"
#include "llvm/Transforms/IPO/Attributor.h"
#include "llvm/Transforms/IPO/HotColdSplitting.h"
#include "llvm/Transforms/IPO/IROutliner.h"
#include "llvm/Transforms/IPO/ModuleInliner.h"
#include "llvm/Transforms/IPO/OpenMPOpt.h"
#include "llvm/Transforms/IPO/SampleProfile.h"
#include "llvm/Transforms/Instrumentation/ControlHeightReduction.h"
#include "llvm/Transforms/Scalar/DFAJumpThreading.h"
#include "llvm/Transforms/Scalar/LoopDistribute.h"
#include "llvm/Transforms/Scalar/LoopFlatten.h"
#include "llvm/Transforms/Scalar/LoopInterchange.h"
#include "llvm/Transforms/Scalar/LoopUnrollAndJamPass.h"
#include "llvm/Transforms/Scalar/LowerMatrixIntrinsics.h"
#include "llvm/Transforms/Vectorize/LoopVectorize.h"
#include "llvm/Transforms/Vectorize/SLPVectorizer.h"

using namespace llvm;

#define IDLE(pass, ...) \
  PreservedAnalyses pass::run(__VA_ARGS__) { return PreservedAnalyses::all(); }
#define OF_MODULES(pass) IDLE(pass, Module &, ModuleAnalysisManager &)
#define OF_FUNCTIONS(pass) IDLE(pass, Function &, FunctionAnalysisManager &)
#define OF_CALLS(pass) IDLE(pass, LazyCallGraph::SCC &, CGSCCAnalysisManager &, LazyCallGraph &, CGSCCUpdateResult &)
#define OF_LOOPS(pass) IDLE(pass, LoopNest &, LoopAnalysisManager &, LoopStandardAnalysisResults &, LPMUpdater &)
#define UNNAMED(pass) \
  void pass::printPipeline(raw_ostream &, function_ref<StringRef(StringRef)>) {}

// BPF has no vectors.
OF_FUNCTIONS(LoopVectorizePass)
UNNAMED(LoopVectorizePass)
LoopVectorizePass::LoopVectorizePass(LoopVectorizeOptions) {}
AnalysisKey ShouldRunExtraVectorPasses::Key;
OF_FUNCTIONS(SLPVectorizerPass)

// rbt generates no coroutines, no OpenMP directives and no loops that are marked for distribution.
OF_MODULES(CoroEarlyPass)
OF_MODULES(CoroCleanupPass)
OF_FUNCTIONS(CoroElidePass)
OF_CALLS(CoroSplitPass)
CoroSplitPass::CoroSplitPass(bool) {}
OF_MODULES(OpenMPOptPass)
OF_CALLS(OpenMPOptCGSCCPass)
OF_FUNCTIONS(LoopDistributePass)

// A pipeline contains these only if an option or a profile requires them.
OF_MODULES(AttributorPass)
OF_CALLS(AttributorCGSCCPass)
OF_MODULES(AttributorLightPass)
OF_CALLS(AttributorLightCGSCCPass)
OF_FUNCTIONS(ControlHeightReductionPass)
ControlHeightReductionPass::ControlHeightReductionPass() {}
OF_FUNCTIONS(DFAJumpThreadingPass)
OF_MODULES(HotColdSplittingPass)
OF_MODULES(IROutlinerPass)
OF_LOOPS(LoopFlattenPass)
OF_LOOPS(LoopInterchangePass)
OF_LOOPS(LoopUnrollAndJamPass)
OF_FUNCTIONS(LowerMatrixIntrinsicsPass)
UNNAMED(LowerMatrixIntrinsicsPass)
OF_MODULES(ModuleInlinerPass)
OF_MODULES(SampleProfileLoaderPass)
SampleProfileLoaderPass::SampleProfileLoaderPass(std::string, std::string, ThinOrFullLTOPhase phase,
                                                 IntrusiveRefCntPtr<vfs::FileSystem>)
    : LTOPhase(phase) {}

// A linker option requires this symbol, so that the linker includes this object.
extern "C" void rbt_idle_passes() {}
