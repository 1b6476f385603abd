// Passes that LLVM's pipelines name and that never change a script's code, without their code: 3 MB of the binary, and the
// options that they set up at each start.
//
// The linker takes a member of LLVM's archives for what it defines and nothing else does. What is defined here it does not
// look for there. If a newer LLVM refers to more of a member than this, linking fails for a symbol defined twice.
//
// Code from a build with LLVM's shared library, which has all of them, must be the same byte by byte.

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

// BPF has no vectors
OF_FUNCTIONS(LoopVectorizePass)
UNNAMED(LoopVectorizePass)
LoopVectorizePass::LoopVectorizePass(LoopVectorizeOptions) {}
AnalysisKey ShouldRunExtraVectorPasses::Key;
OF_FUNCTIONS(SLPVectorizerPass)

// rbt makes neither coroutines nor OpenMP's directives, nor loops marked for distribution
OF_MODULES(CoroEarlyPass)
OF_MODULES(CoroCleanupPass)
OF_FUNCTIONS(CoroElidePass)
OF_CALLS(CoroSplitPass)
CoroSplitPass::CoroSplitPass(bool) {}
OF_MODULES(OpenMPOptPass)
OF_CALLS(OpenMPOptCGSCCPass)
OF_FUNCTIONS(LoopDistributePass)

// in a pipeline only if an option or a profile asks for them
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

// The linker is told to look for it, and finds this object.
extern "C" void rbt_idle_passes() {}
