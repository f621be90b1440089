#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| milepost::fuzz_entry::key_path(data));
