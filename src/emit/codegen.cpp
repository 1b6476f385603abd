// Generates code with LLVM's back end, and adds passes after the passes of LLVM.
//
// Before Linux 6.8, the verifier accepts a loop only if its back edge is a jump. If the last block of a loop falls through into
// the first, the verifier reports "back-edge from insn 41 to 42" (`push_insn` with `loop_ok`, kernel/bpf/verifier.c). LLVM lays
// out loops that way to save a jump, even if the blocks were in another order before.
//
// The processor v3, which is that of kernels before Linux 6.6, has branches with offsets of 16 bits only. If a branch goes farther,
// LLVM ends the process when it writes the object. This is reported as an error instead.
//
// The time for a block grows faster than its length, so long blocks of parts of long programs are split. The code stays the same.
//
// Of the 120 passes of LLVM's back end, a third has nothing to do in BPF code of rbt, and most of the others only make code faster.
// Setting them up and running them takes longer than generating the code of a short script.

#include "subroutines.h"
#include "llvm-c/Core.h"
#include "llvm-c/TargetMachine.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;

namespace {

// Returns the successors of a block in the verifier's order. The next block in the layout precedes the targets of jumps.
SmallVector<MachineBasicBlock *, 4> successors(MachineBasicBlock &block) {
  SmallVector<MachineBasicBlock *, 4> all;
  for (MachineInstr &jump : reverse(block.terminators()))
    for (const MachineOperand &operand : jump.operands())
      if (operand.isMBB())
        all.push_back(operand.getMBB());
  MachineBasicBlock *next = block.getNextNode();
  if (next && block.isSuccessor(next))
    all.insert(all.begin(), next);
  return all;
}

// Ends blocks that fall through into the start of a loop with a jump to it. The kernel removes a jump to the next instruction
// after it has verified the program, so this costs nothing at run time.
class BackEdges : public MachineFunctionPass {
public:
  static char ID;
  BackEdges() : MachineFunctionPass(ID) {}

  StringRef getPassName() const override { return "back edges as jumps"; }

  // Walks the graph as the verifier does. An edge is a back edge if it leads to a block on the current path.
  bool runOnMachineFunction(MachineFunction &function) override {
    const TargetInstrInfo &instructions = *function.getSubtarget().getInstrInfo();
    struct Step {
      MachineBasicBlock *block;
      SmallVector<MachineBasicBlock *, 4> rest;
    };
    SmallVector<Step, 32> path;
    SmallPtrSet<MachineBasicBlock *, 32> seen, open;
    bool changed = false;
    auto enter = [&](MachineBasicBlock *block) {
      seen.insert(block);
      open.insert(block);
      SmallVector<MachineBasicBlock *, 4> rest = successors(*block);
      std::reverse(rest.begin(), rest.end());
      path.push_back({block, std::move(rest)});
    };
    enter(&function.front());
    while (!path.empty()) {
      Step &step = path.back();
      if (step.rest.empty()) {
        open.erase(step.block);
        path.pop_back();
        continue;
      }
      MachineBasicBlock *from = step.block, *to = step.rest.pop_back_val();
      bool jumps = from->getFirstTerminator() != from->end();
      if (open.contains(to) && to == from->getNextNode() && !jumps) {
        instructions.insertBranch(*from, to, nullptr, {}, from->findPrevDebugLoc(from->end()));
        changed = true;
      }
      if (!seen.contains(to))
        enter(to);
    }
    return changed;
  }
};

char BackEdges::ID = 0;

// Reports branches that go too far, and removes them.
class BranchRange : public MachineFunctionPass {
public:
  static char ID;
  BranchRange() : MachineFunctionPass(ID) {}

  StringRef getPassName() const override { return "range of branches"; }

  bool runOnMachineFunction(MachineFunction &function) override {
    const TargetInstrInfo &instructions = *function.getSubtarget().getInstrInfo();
    // The positions of blocks, and of the instructions after branches.
    DenseMap<const MachineBasicBlock *, int64_t> starts;
    SmallVector<std::pair<MachineInstr *, int64_t>, 32> branches;
    int64_t slots = 0;
    for (MachineBasicBlock &block : function) {
      starts[&block] = slots;
      for (MachineInstr &instruction : block) {
        if (instruction.isMetaInstruction())
          continue;
        slots += instructions.getName(instruction.getOpcode()) == "LD_imm64" ? 2 : 1;
        if (any_of(instruction.operands(), [](const MachineOperand &operand) { return operand.isMBB(); }))
          branches.push_back({&instruction, slots});
      }
    }
    bool reported = false;
    for (auto [branch, end] : branches)
      for (const MachineOperand &operand : branch->operands())
        if (operand.isMBB() && !isInt<16>(starts[operand.getMBB()] - end) && !reported) {
          reported = true;
          const Function &source = function.getFunction();
          source.getContext().diagnose(DiagnosticInfoUnsupported(source, "branch range exceeded", branch->getDebugLoc()));
        }
    if (reported)
      for (auto [branch, end] : branches)
        branch->eraseFromParent();
    return reported;
  }
};

char BranchRange::ID = 0;

// Passes that change nothing, by the names that LLVM's options have for them.
const StringLiteral IDLE[] = {
    // Numbers of more than 64 bits, vectors, calls of libraries, and intrinsics that rbt does not use.
    "expand-large-div-rem", "expand-large-fp-convert", "lower-constant-intrinsics", "replace-with-veclib", "partially-inline-libcalls",
    "expandvp", "scalarize-masked-mem-intrin", "expand-reductions",
    // Garbage collection, exceptions, instrumentation, `callbr`, variables of threads, and stack maps.
    "gc-lowering", "shadow-stack-gc-lowering", "gc-analysis", "dwarf-eh-prepare", "funclet-layout", "post-inline-ee-instrument",
    "fentry-insert", "xray-instrumentation", "patchable-function", "machine-sanmd", "safe-stack", "callbrprepare", "tlshoist",
    "stackmap-liveness", "fixup-statepoint-caller-saved",
    // The places of variables in debug information, which rbt does not describe.
    "removeredundantdebugvalues", "livedebugvalues",
    // What the BPF target does not request, and reports.
    "localstackalloc", "machine-scheduler", "post-RA-sched", "shrink-wrap", "init-undef", "regallocscoringpass", "stack-frame-layout",
};

// Passes that only make code faster or smaller. Code that runs once or rarely needs none of them.
const StringLiteral FASTER[] = {
    "canon-freeze", "loop-reduce", "mergeicmps", "expand-memcmp", "consthoist", "codegenprepare", "early-tailduplication", "opt-phis",
    "early-machinelicm", "machine-cse", "machine-sink", "peephole-opt", "rename-independent-subregs", "machine-cp", "machinelicm",
    "postra-machine-sink", "machine-latecleanup", "tailduplication", "block-placement",
};

// Skips passes for the parts of programs that get few.
class Gate : public OptPassGate {
public:
  explicit Gate(const Module &module) : module(module) {}

  void skip(const Pass &pass) { names.insert(pass.getPassName()); }

  bool isEnabled() const override { return true; }

  // The description is `function (NAME)`: see `FunctionPass::skipFunction`.
  bool shouldRunPass(const StringRef pass, StringRef description) override {
    if (!names.contains(pass) || !description.consume_front("function (") || !description.consume_back(")"))
      return true;
    const Function *function = module.getFunction(description);
    return !function || !is_rare(*function);
  }

private:
  const Module &module;
  StringSet<> names;
};

// Adds the passes that a script needs.
class Needed : public legacy::PassManagerBase {
public:
  Needed(legacy::PassManager &passes, bool rarely, Gate &gate) : passes(passes), rarely(rarely), gate(gate) {}

  void add(Pass *pass) override {
    const PassInfo *info = PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID());
    bool makes_faster = info && is_contained(FASTER, info->getPassArgument());
    if (info && (is_contained(IDLE, info->getPassArgument()) || (rarely && makes_faster))) {
      delete pass;
      return;
    }
    if (makes_faster)
      gate.skip(*pass);
    passes.add(pass);
  }

private:
  legacy::PassManager &passes;
  bool rarely;
  Gate &gate;
};

// Takes the names of passes, but no passes.
class Names : public legacy::PassManagerBase {
public:
  SmallVector<StringRef> names;

  void add(Pass *pass) override {
    if (const PassInfo *info = PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID()))
      names.push_back(info->getPassArgument());
    delete pass;
  }
};

// The number of instructions from which on a block is split, and that of its parts.
const size_t LONG_BLOCK = 96;

// Splits long blocks of a function. Memory on the stack stays in the first one.
void split_blocks(Function &function) {
  for (BasicBlock *block = &function.getEntryBlock(); block; block = block->getNextNode()) {
    Instruction *instruction = &*block->getFirstNonPHIIt();
    for (Instruction &each : *block)
      if (isa<AllocaInst>(each))
        instruction = each.getNextNode();
    for (size_t length = 0; instruction && length < LONG_BLOCK; ++length)
      instruction = instruction->getNextNode();
    if (instruction && !instruction->isTerminator())
      block->splitBasicBlock(instruction);
  }
}

} // namespace

// For a test: the first name in the lists that LLVM's back end gives to no pass, as when LLVM has renamed it; null if there is none.
extern "C" const char *rbt_unknown_pass(LLVMTargetMachineRef target) {
  Names known;
  std::unique_ptr<TargetPassConfig> config(reinterpret_cast<LLVMTargetMachine *>(target)->createPassConfig(known));
  if (config->addISelPasses())
    return "";
  config->addMachinePasses();
  for (StringLiteral name : concat<const StringLiteral>(IDLE, FASTER))
    if (!is_contained(known.names, name))
      return name.data();
  return nullptr;
}

// Generates an object or assembly, as LLVMTargetMachineEmitToMemoryBuffer does. Returns null if the target has no such output.
// `rarely`: no code runs often. `known`: as for the passes.
extern "C" LLVMMemoryBufferRef rbt_generate(LLVMModuleRef module, LLVMTargetMachineRef target, LLVMCodeGenFileType kind,
                                            bool rarely, const KnownCode *known) {
  auto *machine = reinterpret_cast<LLVMTargetMachine *>(target);
  auto type = kind == LLVMAssemblyFile ? CodeGenFileType::AssemblyFile : CodeGenFileType::ObjectFile;
  SmallString<0> code;
  raw_svector_ostream out(code);
  for (Function &function : *unwrap(module))
    if (is_rare(function) && !function.isDeclaration())
      split_blocks(function);
  Gate gate(*unwrap(module));
  OptPassGate &around = unwrap(module)->getContext().getOptPassGate();
  legacy::PassManager passes;
  Needed needed(passes, rarely, gate);
  auto *info = new MachineModuleInfoWrapperPass(machine);
  TargetPassConfig *config = machine->createPassConfig(needed);
  config->setDisableVerify(true);
  passes.add(config);
  passes.add(info);
  if (config->addISelPasses())
    return nullptr;
  config->addMachinePasses();
  config->setInitialized();
  passes.add(new BackEdges());
  if (machine->getTargetCPU() == "v3")
    passes.add(new BranchRange());
  if (known)
    passes.add(known_code(known));
  if (machine->addAsmPrinter(passes, out, nullptr, type, info->getMMI().getContext()))
    return nullptr;
  passes.add(createFreeMachineFunctionPass());
  unwrap(module)->getContext().setOptPassGate(gate);
  passes.run(*unwrap(module));
  unwrap(module)->getContext().setOptPassGate(around);
  return LLVMCreateMemoryBufferWithMemoryRangeCopy(code.data(), code.size(), "");
}
