//! Calls of functions in imported objects, which the linker finds by name.
//!
//! Numbers are extended to 64 bits, so the callee finds them however its compiler expects them, and only the bytes of a result's
//! type count.

use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, ValueKind};

use super::{Builder, CodegenCx, ok};
use crate::linked::{CType, Signature};

impl<'c> Builder<'_, 'c> {
    /// Calls a function with numbers and addresses, and returns its result, if it has one. Only the bytes of its type count.
    pub fn call_foreign(&mut self, name: &str, signature: &Signature, args: &[IntValue<'c>]) -> Option<IntValue<'c>> {
        // with this prefix, LLVM takes the rest as the symbol; here, it keeps the name apart from those of rbt's own functions
        let unique = format!("\u{1}{name}");
        let function = self.module.get_function(&unique).unwrap_or_else(|| self.declare_foreign(&unique, name, signature));
        let args: Vec<BasicMetadataValueEnum> = args.iter().map(|arg| (*arg).into()).collect();
        match ok(self.b.build_call(function, &args, "")).try_as_basic_value() {
            ValueKind::Basic(BasicValueEnum::IntValue(value)) => Some(value),
            ValueKind::Basic(_) | ValueKind::Instruction(_) => None,
        }
    }
}

impl<'c> CodegenCx<'c> {
    fn declare_foreign(&self, unique: &str, name: &str, signature: &Signature) -> FunctionValue<'c> {
        let params: Vec<BasicMetadataTypeEnum> = signature.params.iter().map(|_| self.i64t().into()).collect();
        let ty = if signature.result == CType::Void {
            self.llcx.void_type().fn_type(&params, false)
        } else {
            self.i64t().fn_type(&params, false)
        };
        let function = self.module.add_function(unique, ty, Some(Linkage::External));
        self.debug.describe_foreign_function(function, name, signature);
        function
    }
}
