//! One target (`FUZZ_TARGET`) under libFuzzer, built with LLVM's coverage for sanitizers: see `fuzz/guided`.
#![no_main]

use linerate_fuzz::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    linerate_fuzz::target(&name).expect("FUZZ_TARGET names a target")
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
