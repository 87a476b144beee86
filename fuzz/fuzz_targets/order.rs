#![no_main]
//! See [`cx10_fuzz::order`].

libfuzzer_sys::fuzz_target!(init: cx10_fuzz::init(), |data: &[u8]| cx10_fuzz::one(cx10_fuzz::order::run, data));
