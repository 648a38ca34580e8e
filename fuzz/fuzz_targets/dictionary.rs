#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xio_fuzz::stored::dictionary(data));
