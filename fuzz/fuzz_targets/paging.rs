#![no_main]
//! See [`cx10_fuzz::paging`].

libfuzzer_sys::fuzz_target!(init: cx10_fuzz::init(), |data: &[u8]| cx10_fuzz::one(cx10_fuzz::paging::run, data));
