// Reuses the code of rbt's own functions ("subroutines").
//
// Parts of programs that run rarely and pieces of long ones are treated in the same way, except that their code is not kept: a script
// of thousands of lines is such a part, and the passes of `default<O2>` would take longer than the run.
//
// They are the same in most scripts, and are most of the code of a script that takes user stacks, so LLVM would spend most of its
// time on them. The key of a function is a digest of its IR before optimization. Its code is kept as the instructions that the
// last pass of the back end left, not as bytes, because the output then relocates and describes them like all others.

#include "subroutines.h"
#include "llvm-c/Core.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/MachineInstrBuilder.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ModuleSlotTracker.h"
#include "llvm/Support/LEB128.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

// The key of a function, in hexadecimal digits: of one with known code, and of one whose code is to be kept.
static const char *const KNOWN = "rbt-known", *const NEW = "rbt-new";
// All locations of a subroutine: it has no place in the script.
static const unsigned LINE = 1, COLUMN = 1;

bool is_subroutine(const Function &function) { return function.hasFnAttribute("rbt-subroutine"); }

// They get the same passes as subroutines, but their code is not kept.
bool is_rare(const Function &function) { return function.hasFnAttribute("rbt-rare"); }

// Do the functions that it uses get all passes? It is a piece of a program that may run often.
static bool is_alone(const Function &function) { return function.getFnAttribute("rbt-rare").getValueAsString() == "alone"; }

// Adds the globals that a value refers to.
static void collect_globals(const Value *value, SetVector<GlobalValue *> &found) {
  const auto *constant = dyn_cast<Constant>(value);
  if (!constant)
    return;
  if (const auto *global = dyn_cast<GlobalValue>(constant)) {
    found.insert(const_cast<GlobalValue *>(global));
    return;
  }
  for (const Use &operand : constant->operands())
    collect_globals(operand, found);
}

static SetVector<GlobalValue *> globals_of(const Function &function) {
  SetVector<GlobalValue *> found;
  for (const Instruction &instruction : instructions(function))
    for (const Use &operand : instruction.operands())
      collect_globals(operand, found);
  return found;
}

// Appends text of IR without the numbers of debug information and of groups of attributes, which depend on the rest of the module.
// All functions of one kind have the same debug information and attributes.
static void append_normalized(StringRef text, SmallVectorImpl<char> &to) {
  while (!text.empty()) {
    size_t mark = text.find_first_of("!#");
    to.append(text.begin(), text.begin() + std::min(mark, text.size()));
    if (mark == StringRef::npos)
      return;
    text = text.drop_front(mark);
    bool is_debug = text.consume_front("!dbg !");
    if (!is_debug) {
      to.push_back(text.front());
      is_debug = text.front() == '#';
      text = text.drop_front();
    }
    if (is_debug)
      text = text.drop_while(isDigit);
  }
}

static std::string key_of(const Function &function, const SetVector<GlobalValue *> &globals, const TargetMachine &machine,
                          bool rarely, ModuleSlotTracker &slots) {
  std::string text;
  raw_string_ostream out(text);
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  out << major << '.' << minor << '.' << patch << ' ' << machine.getTargetCPU() << (rarely ? " rarely\n" : "\n");
  static_cast<const Value &>(function).print(out, slots);
  // the passes may use the values of constants
  for (const GlobalValue *global : globals)
    if (const auto *variable = dyn_cast<GlobalVariable>(global); variable && variable->isConstant())
      variable->print(out, slots);
  SmallString<0> normalized;
  append_normalized(text, normalized);
  XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(normalized.str()));
  return utohexstr(hash.high64, true, 16) + utohexstr(hash.low64, true, 16);
}

static void bytes_of(StringRef key, uint8_t (&bytes)[16]) {
  std::string raw = fromHex(key);
  std::copy_n(raw.begin(), std::min<size_t>(raw.size(), sizeof bytes), bytes);
}

Subroutines::Subroutines(Module &module, const TargetMachine &machine, const KnownCode *known, bool rarely,
                         FunctionPassManager passes, FunctionAnalysisManager &analyses)
    : module(module), elsewhere(std::make_unique<Module>("elsewhere", module.getContext())) {
  SmallSetVector<Function *, 32> all;
  for (Function &function : module)
    if (is_subroutine(function) && !function.isDeclaration())
      all.insert(&function);
  SetVector<GlobalValue *> used;
  ModuleSlotTracker slots(&module, false);
  // The number of subroutines and of functions that they use, when it is known.
  size_t subroutines = SIZE_MAX;
  for (size_t i = 0;; ++i) {
    if (i == all.size() && subroutines == SIZE_MAX) {
      subroutines = i;
      for (Function &function : module)
        if (is_rare(function) && !function.isDeclaration())
          all.insert(&function);
    }
    if (i >= all.size())
      break;
    Function &function = *all[i];
    SetVector<GlobalValue *> globals = globals_of(function);
    for (GlobalValue *global : globals) {
      used.insert(global);
      if (auto *callee = dyn_cast<Function>(global); callee && !callee->isDeclaration() && !is_alone(function))
        all.insert(callee);
    }
    used.insert(&function);
    const uint8_t *code;
    size_t size;
    bool has_key = known && i < subroutines;
    std::string key = has_key ? key_of(function, globals, machine, rarely, slots) : "";
    uint8_t bytes[16];
    bytes_of(key, bytes);
    bool is_known = has_key && known->find(known->context, bytes, &code, &size);
    if (has_key)
      function.addFnAttr(is_known ? KNOWN : NEW, key);
    taken.push_back({&function, function.getSubprogram(), function.hasLocalLinkage(), nullptr});
    if (!is_known)
      taken.back().body = Function::Create(function.getFunctionType(), GlobalValue::ExternalLinkage, "", *elsewhere);
  }
  for (Taken &each : taken)
    if (each.body) {
      passes.run(*each.function, analyses);
      // they may have replaced instructions by calls of intrinsics
      for (GlobalValue *global : globals_of(*each.function))
        used.insert(global);
    }
  // Passes of the module must not remove what the bodies refer to. Intrinsics move with the bodies, because passes rely on their
  // users being calls.
  used.remove_if([](GlobalValue *global) { return isa<Function>(global) && cast<Function>(global)->isIntrinsic(); });
  appendToCompilerUsed(module, used.getArrayRef());
  for (Taken &each : taken) {
    if (each.body) {
      analyses.clear(*each.function, each.function->getName());
      each.body->splice(each.body->begin(), each.function);
      each.function->setLinkage(GlobalValue::ExternalLinkage);
    } else {
      each.function->deleteBody();
    }
  }
  for (Function &function : module)
    if (function.isIntrinsic()) {
      Function *copy = Function::Create(function.getFunctionType(), function.getLinkage(), function.getName(), *elsewhere);
      copy->copyAttributesFrom(&function);
      function.replaceUsesWithIf(copy, [&](const Use &use) {
        const auto *call = dyn_cast<Instruction>(use.getUser());
        return call && call->getModule() == elsewhere.get();
      });
    }
}

Subroutines::~Subroutines() = default;

void Subroutines::put_back() {
  if (GlobalVariable *used = module.getNamedGlobal("llvm.compiler.used")) {
    Constant *all = used->getInitializer();
    used->eraseFromParent();
    all->destroyConstant();
  }
  for (Function &function : *elsewhere)
    if (function.isIntrinsic() && !function.use_empty()) {
      auto *original = cast<Function>(module.getOrInsertFunction(function.getName(), function.getFunctionType()).getCallee());
      original->copyAttributesFrom(&function);
      function.replaceAllUsesWith(original);
    }
  for (Taken &each : taken) {
    Function &function = *each.function;
    if (each.body) {
      function.splice(function.begin(), each.body);
      each.body->eraseFromParent();
    } else {
      IRBuilder<> builder(BasicBlock::Create(module.getContext(), "", &function));
      builder.CreateRet(Constant::getNullValue(function.getReturnType()));
      function.setSubprogram(each.description);
    }
    if (each.is_local)
      function.setLinkage(GlobalValue::InternalLinkage);
  }
}

namespace {

// Kinds of operands in kept code.
enum Kind : uint8_t { REGISTER, NUMBER, BLOCK, GLOBAL, SYMBOL };

// Kept code: the number of blocks; for each the number of successors, their numbers, the number of instructions, and these: the
// opcode, whether it has a location, the number of operands, and these: the kind, and its value. Numbers are in LEB128, names have
// their length before them.
class Writer {
public:
  SmallVector<uint8_t, 0> bytes;
  void number(uint64_t value) {
    uint8_t buffer[10];
    bytes.append(buffer, buffer + encodeULEB128(value, buffer));
  }
  void name(StringRef text) {
    number(text.size());
    bytes.append(text.bytes_begin(), text.bytes_end());
  }
};

class Reader {
public:
  Reader(const uint8_t *at, size_t size) : at(at), end(at + size) {}
  uint64_t number() {
    unsigned size = 0;
    const char *error = nullptr;
    uint64_t value = decodeULEB128(at, &size, end, &error);
    if (error)
      report_fatal_error("damaged code");
    at += size;
    return value;
  }
  StringRef name() {
    size_t size = number();
    if (size > size_t(end - at))
      report_fatal_error("damaged code");
    StringRef text(reinterpret_cast<const char *>(at), size);
    at += size;
    return text;
  }

private:
  const uint8_t *at, *end;
};

class KnownCodePass : public MachineFunctionPass {
public:
  static char ID;
  explicit KnownCodePass(const KnownCode *known) : MachineFunctionPass(ID), known(known) {}

  StringRef getPassName() const override { return "known code"; }

  bool runOnMachineFunction(MachineFunction &function) override {
    uint8_t key[16];
    const Function &of = function.getFunction();
    if (Attribute attribute = of.getFnAttribute(KNOWN); attribute.isValid()) {
      const uint8_t *code = nullptr;
      size_t size = 0;
      bytes_of(attribute.getValueAsString(), key);
      if (!known->find(known->context, key, &code, &size))
        report_fatal_error("known code is lost");
      insert(function, Reader(code, size));
      return true;
    }
    if (Attribute attribute = of.getFnAttribute(NEW); attribute.isValid()) {
      Writer writer;
      bytes_of(attribute.getValueAsString(), key);
      if (write(function, writer))
        known->keep(known->context, key, writer.bytes.data(), writer.bytes.size());
    }
    return false;
  }

private:
  const KnownCode *known;

  // The output of these is nothing.
  static bool is_without_code(const MachineInstr &instruction) {
    if (instruction.isInlineAsm())
      return StringRef(instruction.getOperand(0).getSymbolName()).empty();
    return instruction.isKill() || instruction.isImplicitDef() || instruction.isDebugInstr();
  }

  // Returns false if the function has something that this file does not know.
  static bool write(MachineFunction &function, Writer &writer) {
    function.RenumberBlocks();
    const DISubprogram *scope = function.getFunction().getSubprogram();
    writer.number(function.size());
    for (const MachineBasicBlock &block : function) {
      if (block.getAlignment() > Align(1) || block.hasAddressTaken() || block.isEHPad())
        return false;
      writer.number(block.succ_size());
      for (const MachineBasicBlock *next : block.successors())
        writer.number(next->getNumber());
      SmallVector<const MachineInstr *, 32> instructions;
      for (const MachineInstr &instruction : block)
        if (!is_without_code(instruction))
          instructions.push_back(&instruction);
      writer.number(instructions.size());
      for (const MachineInstr *instruction : instructions) {
        DebugLoc location = instruction->getDebugLoc();
        bool is_elsewhere = location && (location.getLine() != LINE || location.getCol() != COLUMN || location.getScope() != scope);
        if (is_elsewhere || instruction->isInlineAsm() || instruction->isCFIInstruction() || instruction->isBundled())
          return false;
        writer.number(instruction->getOpcode());
        writer.number(bool(location));
        writer.number(count_if(instruction->operands(), is_written));
        for (const MachineOperand &operand : instruction->operands())
          if (is_written(operand) && !write(operand, writer))
            return false;
      }
    }
    return true;
  }

  static bool is_written(const MachineOperand &operand) {
    return !operand.isRegMask() && !(operand.isReg() && operand.isImplicit());
  }

  static bool write(const MachineOperand &operand, Writer &writer) {
    if (operand.getTargetFlags())
      return false;
    switch (operand.getType()) {
    case MachineOperand::MO_Register:
      writer.number(REGISTER);
      writer.number(operand.getReg());
      return true;
    case MachineOperand::MO_Immediate:
      writer.number(NUMBER);
      writer.number(operand.getImm());
      return true;
    case MachineOperand::MO_MachineBasicBlock:
      writer.number(BLOCK);
      writer.number(operand.getMBB()->getNumber());
      return true;
    case MachineOperand::MO_GlobalAddress:
      writer.number(GLOBAL);
      writer.name(operand.getGlobal()->getName());
      writer.number(operand.getOffset());
      return operand.getGlobal()->hasName();
    case MachineOperand::MO_ExternalSymbol:
      writer.number(SYMBOL);
      writer.name(operand.getSymbolName());
      return true;
    default:
      return false;
    }
  }

  // Replaces the body of `put_back`, which is one block.
  static void insert(MachineFunction &function, Reader reader) {
    const TargetInstrInfo &instructions = *function.getSubtarget().getInstrInfo();
    const Module &module = *function.getFunction().getParent();
    DISubprogram *scope = function.getFunction().getSubprogram();
    DebugLoc location(DILocation::get(module.getContext(), LINE, COLUMN, scope));
    MachineBasicBlock &first = function.front();
    first.erase(first.begin(), first.end());
    SmallVector<MachineBasicBlock *, 32> blocks{&first};
    size_t count = reader.number();
    while (blocks.size() < count) {
      blocks.push_back(function.CreateMachineBasicBlock());
      function.push_back(blocks.back());
    }
    auto block = [&] {
      size_t number = reader.number();
      if (number >= blocks.size())
        report_fatal_error("damaged code");
      return blocks[number];
    };
    for (MachineBasicBlock *to : blocks) {
      for (size_t rest = reader.number(); rest > 0; --rest)
        to->addSuccessorWithoutProb(block());
      for (size_t rest = reader.number(); rest > 0; --rest) {
        const MCInstrDesc &opcode = instructions.get(reader.number());
        bool has_location = reader.number();
        MachineInstrBuilder made = BuildMI(*to, to->end(), has_location ? location : DebugLoc(), opcode);
        size_t operands = reader.number();
        for (size_t i = 0; i < operands; ++i)
          switch (reader.number()) {
          case REGISTER:
            made.addReg(reader.number(), i < opcode.getNumDefs() ? unsigned(RegState::Define) : 0);
            break;
          case NUMBER:
            made.addImm(reader.number());
            break;
          case BLOCK:
            made.addMBB(block());
            break;
          case GLOBAL: {
            const GlobalValue *global = module.getNamedValue(reader.name());
            if (!global)
              report_fatal_error("known code refers to something else");
            made.addGlobalAddress(global, reader.number());
            break;
          }
          case SYMBOL:
            made.addExternalSymbol(function.createExternalSymbolName(reader.name()));
            break;
          default:
            report_fatal_error("damaged code");
          }
      }
    }
  }
};

char KnownCodePass::ID = 0;

} // namespace

MachineFunctionPass *known_code(const KnownCode *known) { return new KnownCodePass(known); }
