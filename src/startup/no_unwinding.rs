//! Functions of the library that unwinds, for programs without the tables that it reads (the profile `runner`).
//!
//! Nothing unwinds there, but the standard library captures a backtrace for each error if RUST_BACKTRACE is set. The library would
//! abort the process at its first step. Here, the stack has no frames. The linker then needs neither the library nor the code of the
//! standard library that reads debug information.

#![allow(unsafe_code)] // these symbols replace those of a library

use std::ffi::c_void;

/// `_URC_END_OF_STACK`.
const END_OF_STACK: i32 = 5;

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_frame: *const c_void, _argument: *mut c_void) -> i32 {
    END_OF_STACK
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_GetIP(_context: *mut c_void) -> usize {
    0
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_GetIPInfo(_context: *mut c_void, _before: *mut i32) -> usize {
    0
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_GetCFA(_context: *mut c_void) -> usize {
    0
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_FindEnclosingFunction(_address: *mut c_void) -> *mut c_void {
    std::ptr::null_mut()
}

/// Functions that only unwinding calls.
macro_rules! never_called {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> ! {
            std::process::abort()
        }
    )*};
}

never_called! {
    __gcc_personality_v0
    _Unwind_DeleteException
    _Unwind_ForcedUnwind
    _Unwind_GetDataRelBase
    _Unwind_GetLanguageSpecificData
    _Unwind_GetRegionStart
    _Unwind_GetTextRelBase
    _Unwind_RaiseException
    _Unwind_Resume
    _Unwind_SetGR
    _Unwind_SetIP
}
