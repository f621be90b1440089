#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| milepost::fuzz_entry::record(data));
