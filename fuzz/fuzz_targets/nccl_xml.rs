#![no_main]
mod shared;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shared::check(bytes, shared::import::Input::NcclXml));
