// Lets statements that came out alike share one function.
//
// In a long script, many statements differ in numbers only: constants of the script, indices of records and of failures. The
// compiler puts each of them into a function of its own (`codegen/alike.rs`). Here, functions whose IR differs in numbers only
// become one, which gets the numbers as arguments. If there are more numbers than parameters, it gets the place of a row in a
// table of them. The functions of loops within such a function belong to it: they find the place of the row in memory.

#include "llvm-c/Core.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MathExtras.h"
#include <map>
#include <unordered_map>
#include <vector>

using namespace llvm;

// The parameters of these functions that pass numbers. The callers pass zeros until then.
static const unsigned FIRST_NUMBER = 3, NUMBERS = 2;

namespace {

// A constant that may become an argument.
struct Place {
  Instruction *instruction;
  unsigned operand;
};

// A function with those of its loops: what must be equal, and the numbers that may differ.
struct Shape {
  SmallVector<Function *, 1> functions;
  std::vector<uint64_t> tokens;
  std::vector<Place> places;
  SmallVector<uint64_t, 0> numbers;
};

// How a number follows from those that a call passes.
struct Source {
  unsigned column;
  uint64_t added;
};

} // namespace

// Is it a call of bpf_probe_read_user, bpf_probe_read_kernel, or one of their variants for strings? Helpers have numbers for addresses.
static bool reads_memory(const CallInst &call) {
  const auto *callee = dyn_cast<ConstantExpr>(call.getCalledOperand());
  const auto *helper = callee && callee->getOpcode() == Instruction::IntToPtr ? dyn_cast<ConstantInt>(callee->getOperand(0)) : nullptr;
  return helper && helper->getZExtValue() >= 112 && helper->getZExtValue() <= 115;
}

// May an unknown number be here? The verifier must not need the value: it needs that of sizes and offsets.
static bool may_vary(const Instruction &instruction, unsigned operand) {
  const auto *number = dyn_cast<ConstantInt>(instruction.getOperand(operand));
  if (!number || number->getBitWidth() < 8 || number->getBitWidth() > 64)
    return false;
  switch (instruction.getOpcode()) {
  case Instruction::Store:
    return operand == 0;
  case Instruction::ICmp:
  case Instruction::PHI:
  case Instruction::Add:
  case Instruction::Sub:
  case Instruction::Mul:
  case Instruction::UDiv:
  case Instruction::URem:
  case Instruction::Shl:
  case Instruction::LShr:
  case Instruction::AShr:
  case Instruction::And:
  case Instruction::Or:
  case Instruction::Xor:
    return true;
  case Instruction::Select:
  case Instruction::AtomicRMW:
  case Instruction::AtomicCmpXchg:
    return operand > 0;
  case Instruction::Call: {
    // No function of the module needs to know its numbers, but helpers do, except for the addresses from which they read.
    const auto &call = cast<CallInst>(instruction);
    const Function *callee = call.getCalledFunction();
    return callee ? !callee->isDeclaration() && operand < call.arg_size() : operand == 2 && reads_memory(call);
  }
  default:
    return false;
  }
}

// For the function of a loop: where the place of a row is, as an offset from its last parameter.
static std::optional<uint64_t> row_offset(const Function &function) {
  uint64_t offset;
  StringRef text = function.getFnAttribute("rbt-inner").getValueAsString();
  return text.empty() || text.getAsInteger(10, offset) ? std::nullopt : std::optional(offset);
}

// Adds a function to a shape, and those of its loops to the functions of the shape.
static void add_function(Shape &shape, Function &function) {
  DenseMap<const Value *, uint64_t> local;
  for (const Argument &argument : function.args())
    local.insert({&argument, local.size()});
  for (const BasicBlock &block : function) {
    local.insert({&block, local.size()});
    for (const Instruction &instruction : block)
      local.insert({&instruction, local.size()});
  }
  auto add_value = [&](Value *value) {
    auto *inner = dyn_cast<Function>(value);
    if (inner && row_offset(*inner)) {
      size_t at = find(shape.functions, inner) - shape.functions.begin();
      if (at == shape.functions.size())
        shape.functions.push_back(inner);
      // unlike addresses and numbers of local values
      shape.tokens.push_back(uint64_t(1) << 63 | at);
      return;
    }
    auto found = local.find(value);
    shape.tokens.push_back(found == local.end() ? reinterpret_cast<uintptr_t>(value) : found->second);
  };
  shape.tokens.reserve(shape.tokens.size() + 6 * local.size());
  shape.tokens.push_back(function.getVisibility());
  for (BasicBlock &block : function)
    for (Instruction &instruction : block) {
      shape.tokens.push_back(instruction.getOpcode());
      shape.tokens.push_back(instruction.getRawSubclassOptionalData());
      shape.tokens.push_back(reinterpret_cast<uintptr_t>(instruction.getType()));
      shape.tokens.push_back(instruction.getNumOperands());
      for (unsigned i = 0; i < instruction.getNumOperands(); ++i) {
        if (may_vary(instruction, i)) {
          shape.tokens.push_back(reinterpret_cast<uintptr_t>(instruction.getOperand(i)->getType()));
          shape.places.push_back({&instruction, i});
          shape.numbers.push_back(cast<ConstantInt>(instruction.getOperand(i))->getZExtValue());
        } else {
          add_value(instruction.getOperand(i));
        }
      }
      if (const auto *phi = dyn_cast<PHINode>(&instruction))
        for (BasicBlock *from : phi->blocks())
          add_value(from);
    }
}

static Shape shape_of(Function &function) {
  Shape shape{{&function}, {}, {}, {}};
  for (size_t i = 0; i < shape.functions.size(); ++i)
    add_function(shape, *shape.functions[i]);
  return shape;
}

// Do functions with the same tokens have the same operations? (Tokens contain neither predicates nor alignments.)
static bool is_same_function(const Function &a, const Function &b) {
  auto at = inst_begin(b), end = inst_end(b);
  for (const Instruction &instruction : instructions(a)) {
    if (at == end || instruction.hasMetadataOtherThanDebugLoc() || at->hasMetadataOtherThanDebugLoc() || !instruction.isSameOperationAs(&*at))
      return false;
    ++at;
  }
  return at == end;
}

static bool is_same(const Shape &a, const Shape &b) {
  return a.functions.size() == b.functions.size() &&
         all_of(zip(a.functions, b.functions), [](auto pair) { return is_same_function(*std::get<0>(pair), *std::get<1>(pair)); });
}

static unsigned width(const Place &place) { return place.instruction->getOperand(place.operand)->getType()->getIntegerBitWidth(); }

// Makes the first of these functions do the work of all.
static void share(Module &module, ArrayRef<Shape *> alike) {
  Shape &first = *alike.front();
  // Numbers with the same distance in all functions, such as those of failures, need one argument.
  SmallVector<size_t, 0> columns, order;
  SmallVector<std::optional<Source>, 0> sources(first.places.size());
  for (size_t i = 0; i < first.places.size(); ++i)
    if (any_of(alike, [&](const Shape *shape) { return shape->numbers[i] != first.numbers[i]; }))
      order.push_back(i);
  stable_sort(order, [&](size_t a, size_t b) { return width(first.places[a]) > width(first.places[b]); });
  for (size_t i : order) {
    uint64_t mask = maskTrailingOnes<uint64_t>(width(first.places[i]));
    for (unsigned c = 0; c < columns.size() && !sources[i]; ++c) {
      uint64_t added = first.numbers[i] - first.numbers[columns[c]];
      if (all_of(alike, [&](const Shape *shape) { return !((shape->numbers[i] - shape->numbers[columns[c]] - added) & mask); }))
        sources[i] = Source{c, added};
    }
    if (!sources[i]) {
      sources[i] = Source{unsigned(columns.size()), 0};
      columns.push_back(i);
    }
  }
  // The table has a power of two of bytes, so that a mask bounds the place of a row, and one more row.
  Function &function = *first.functions.front();
  bool within = any_of(order, [&](size_t i) { return first.places[i].instruction->getFunction() != &function; });
  IRBuilder<> builder(module.getContext());
  GlobalVariable *table = nullptr;
  size_t row = columns.size() * 8, bytes = PowerOf2Ceil(row * alike.size());
  if (columns.size() > NUMBERS || within) {
    SmallVector<uint64_t, 0> cells;
    for (const Shape *shape : alike)
      for (size_t column : columns)
        cells.push_back(shape->numbers[column]);
    cells.resize((bytes + row) / 8);
    Constant *content = ConstantDataArray::get(module.getContext(), ArrayRef<uint64_t>(cells));
    table = new GlobalVariable(module, content->getType(), true, GlobalValue::ExternalLinkage, content, function.getName() + "_numbers");
    table->setSection(".rodata.text");
    table->setAlignment(Align(8));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i])
      continue;
    auto [instruction, operand] = first.places[i];
    const auto *phi = dyn_cast<PHINode>(instruction);
    builder.SetInsertPoint(phi ? phi->getIncomingBlock(operand)->getTerminator() : instruction);
    Value *number;
    if (table) {
      Function &user = *instruction->getFunction();
      Value *at = function.getArg(FIRST_NUMBER);
      if (auto offset = row_offset(user))
        at = builder.CreateLoad(builder.getInt64Ty(), builder.CreateConstGEP1_64(builder.getInt8Ty(), user.getArg(user.arg_size() - 1), *offset));
      at = builder.CreateAnd(at, (bytes - 1) & ~uint64_t(7));
      at = builder.CreateGEP(builder.getInt8Ty(), table, at);
      at = builder.CreateConstGEP1_64(builder.getInt8Ty(), at, sources[i]->column * 8);
      number = builder.CreateLoad(builder.getInt64Ty(), at);
    } else {
      number = function.getArg(FIRST_NUMBER + sources[i]->column);
    }
    if (sources[i]->added)
      number = builder.CreateAdd(number, builder.getInt64(sources[i]->added));
    instruction->setOperand(operand, builder.CreateTrunc(number, instruction->getOperand(operand)->getType()));
  }
  for (size_t n = 0; n < alike.size(); ++n) {
    Shape &shape = *alike[n];
    for (Use &use : make_early_inc_range(shape.functions.front()->uses())) {
      auto *call = cast<CallInst>(use.getUser());
      call->setCalledFunction(&function);
      if (table)
        call->setArgOperand(FIRST_NUMBER, builder.getInt64(n * row));
      for (size_t c = 0; c < columns.size() && !table; ++c)
        call->setArgOperand(FIRST_NUMBER + c, builder.getInt64(shape.numbers[columns[c]]));
    }
    // those of loops after their users
    for (Function *unused : shape.functions)
      if (n)
        unused->eraseFromParent();
  }
}

// Merges functions with the attribute `rbt-alike`, each of which has one caller. Its value names what they were expected to have in
// common. If more than `max` functions would remain, `give_up` gets the names for which there are the most, until the others are
// few enough, and the module is incomplete. Returns whether it is complete.
extern "C" bool rbt_share_alike(LLVMModuleRef reference, size_t max, void (*give_up)(void *, const char *, size_t), void *data) {
  Module &module = *unwrap(reference);
  std::vector<std::unique_ptr<Shape>> shapes;
  std::vector<SmallVector<Shape *, 0>> groups;
  std::unordered_map<size_t, SmallVector<size_t, 1>> by_hash;
  std::map<StringRef, size_t> remaining;
  for (Function &function : module) {
    if (!function.hasFnAttribute("rbt-alike"))
      continue;
    auto shape = std::make_unique<Shape>(shape_of(function));
    auto &candidates = by_hash[hash_combine_range(shape->tokens.begin(), shape->tokens.end())];
    auto same = find_if(candidates, [&](size_t group) {
      const Shape &first = *groups[group].front();
      return first.tokens == shape->tokens && is_same(first, *shape);
    });
    if (same == candidates.end()) {
      candidates.push_back(groups.size());
      groups.push_back({shape.get()});
      ++remaining[function.getFnAttribute("rbt-alike").getValueAsString()];
    } else {
      groups[*same].push_back(shape.get());
      // only those of the first are used again
      std::vector<uint64_t>().swap(shape->tokens);
      std::vector<Place>().swap(shape->places);
    }
    shapes.push_back(std::move(shape));
  }
  if (size_t excess = groups.size(); excess > max) {
    SmallVector<std::pair<size_t, StringRef>, 0> by_number;
    for (const auto &[name, number] : remaining)
      by_number.push_back({number, name});
    llvm::sort(by_number, std::greater<>());
    for (const auto &[number, name] : by_number) {
      if (excess <= max)
        break;
      give_up(data, name.data(), name.size());
      excess -= number;
    }
    return false;
  }
  for (const auto &group : groups)
    if (group.size() > 1)
      share(module, group);
  return true;
}
