//! Calls of kernel functions (kfuncs), which libbpf finds by name in the kernel's BTF.

use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::ValueKind;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue};

use super::{Builder, CodegenCx, ok};
use crate::bug;

/// The type of a parameter or result in BTF, which must agree with the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelType {
    /// No result.
    Nothing,
    /// An integer.
    Number,
    /// A pointer to a structure of this name.
    Struct(&'static str),
    /// `void *`.
    Anything,
}

impl<'c> Builder<'_, 'c> {
    /// Calls a function that returns a pointer. The caller has checked that the program can call it.
    pub fn call_kernel_ptr(&mut self, name: &str, types: &[KernelType], args: &[BasicMetadataValueEnum<'c>]) -> PointerValue<'c> {
        match self.kernel_call(name, types, args) {
            Some(BasicValueEnum::PointerValue(p)) => p,
            _ => bug!("{name} returns a pointer"),
        }
    }

    /// Calls a function that returns a number; only the bytes of its type count.
    pub fn call_kernel_number(&mut self, name: &str, types: &[KernelType], args: &[BasicMetadataValueEnum<'c>]) -> IntValue<'c> {
        match self.kernel_call(name, types, args) {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => bug!("{name} returns a number"),
        }
    }

    /// Calls a function that returns nothing.
    pub fn call_kernel(&mut self, name: &str, types: &[KernelType], args: &[BasicMetadataValueEnum<'c>]) {
        self.kernel_call(name, types, args);
    }

    /// `types` are those of the result and of the parameters.
    fn kernel_call(&mut self, name: &str, types: &[KernelType], args: &[BasicMetadataValueEnum<'c>]) -> Option<BasicValueEnum<'c>> {
        let function = match self.module.get_function(name) {
            Some(f) => f,
            None => self.declare_kernel_function(name, types),
        };
        match ok(self.b.build_call(function, args, "")).try_as_basic_value() {
            ValueKind::Basic(v) => Some(v),
            ValueKind::Instruction(_) => None,
        }
    }
}

impl<'c> CodegenCx<'c> {
    fn declare_kernel_function(&self, name: &str, types: &[KernelType]) -> FunctionValue<'c> {
        let (result, params) = match types {
            [result, params @ ..] => (*result, params),
            [] => (KernelType::Nothing, types),
        };
        let llvm: Vec<BasicMetadataTypeEnum> =
            params.iter().map(|t| if *t == KernelType::Number { self.i64t().into() } else { self.ptrt().into() }).collect();
        let ty = match result {
            KernelType::Nothing => self.llcx.void_type().fn_type(&llvm, false),
            KernelType::Number => self.i64t().fn_type(&llvm, false),
            KernelType::Struct(_) | KernelType::Anything => self.ptrt().fn_type(&llvm, false),
        };
        let function = self.module.add_function(name, ty, Some(Linkage::External));
        function.set_section(Some(".ksyms"));
        self.debug.describe_kernel_function(function, name, result, params);
        function
    }
}
