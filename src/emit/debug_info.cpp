// Creates the debug information for which LLVM 19 has no function in its C API.

#include "llvm-c/Core.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/LLVMContext.h"

using namespace llvm;

// Creates a file with its text.
extern "C" LLVMMetadataRef rbt_source_file(LLVMContextRef context, const char *name, size_t name_size, const char *text,
                                           size_t text_size) {
  return wrap(DIFile::get(*unwrap(context), StringRef(name, name_size), "", std::nullopt, StringRef(text, text_size)));
}
