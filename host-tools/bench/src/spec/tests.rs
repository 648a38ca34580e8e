//! What the options' texts mean, and what is refused.

use super::*;

fn with(settings: &[(&str, &str)]) -> Result<JobSpec, String> {
    let mut spec = JobSpec::new("job");
    for (name, value) in settings {
        spec.set(name, Some(value))?;
    }
    spec.check()?;
    Ok(spec)
}

#[test]
fn rates_are_for_each_direction() {
    let rate = |text| with(&[("rate", text)]).map(|spec| spec.rate);
    assert_eq!(rate("1m"), Ok([Some(1 << 20); 3]));
    assert_eq!(rate("1m,2k"), Ok([Some(1 << 20), Some(2048), Some(2048)]));
    assert_eq!(rate(",2k,1k"), Ok([None, Some(2048), Some(1024)]));
    assert!(rate("1,2,3,4").is_err());
}

#[test]
fn block_sizes_are_for_each_direction_as_in_fio() {
    let sizes = |name, text| {
        let all = with(&[(name, text)])?.bs;
        let single = |sizes: &BlockSizes| (sizes.unit(), sizes.max());
        Ok::<_, String>(all.each_ref().map(single))
    };
    let [four, eight, sixteen] = [4096, 8192, 16384].map(|bytes| (bytes, bytes));
    for (text, expected) in [
        ("8k", [eight; 3]),
        ("8k,16k", [eight, sixteen, sixteen]),
        ("8k,16k,", [eight, sixteen, four]),
        (",8k", [four, eight, eight]),
        (",8k,", [four, eight, four]),
        ("16k,8k,4k", [sixteen, eight, four]),
    ] {
        assert_eq!(sizes("bs", text), Ok(expected), "{text}");
    }
    assert_eq!(
        sizes("bsrange", "4k-8k,16k-16k"),
        Ok([(4096, 8192), sixteen, sixteen])
    );
    assert_eq!(
        sizes("bssplit", "4k/50:16k/50,8k"),
        Ok([(4096, 16384), eight, eight])
    );
    for text in ["1k,2k,3k,4k", "", "8k,x"] {
        assert!(sizes("bs", text).is_err(), "{text}");
    }
    // Only those of the job's directions count.
    let written = with(&[("rw", "randwrite"), ("bs", "5k,8k")]).unwrap();
    assert_eq!((written.bs_unit(), written.bs_is_single()), (8192, true));
    let sizes = [("rw", "rw"), ("bs", "5k,8k")];
    assert!(with(&sizes).unwrap_err().contains("no multiple"));
    let mut random = vec![("rw", "randrw"), ("bs", "4k,8k")];
    assert!(with(&random).unwrap_err().contains("norandommap"));
    random.push(("norandommap", "1"));
    assert_eq!(with(&random).unwrap().bs_max(), 8192);
}

#[test]
fn what_does_not_go_together_is_refused() {
    for settings in [
        &[("time_based", "1")][..],
        &[("iodepth", "4"), ("iodepth_batch", "8")],
        &[("iodepth", "4096"), ("bs", "64m")],
        &[("rw", "trim"), ("verify", "crc32c")],
        &[
            ("rw", "randwrite"),
            ("verify", "crc32c"),
            ("norandommap", "1"),
        ],
        &[("rw", "read"), ("verify", "crc32c"), ("bsrange", "4k-8k")],
        &[("ioengine", "libaio")],
    ] {
        assert!(with(settings).is_err(), "{settings:?}");
    }
    assert!(
        with(&[
            ("rw", "randwrite"),
            ("verify", "crc32c"),
            ("bsrange", "4k-8k")
        ])
        .is_ok()
    );
}

#[test]
fn an_unknown_option_is_named_with_the_one_that_was_meant() {
    let error = with(&[("iodeph", "4")]).unwrap_err();
    assert!(error.contains("is iodepth meant?"), "{error}");
    let error = with(&[("cgroup_nodelete", "1")]).unwrap_err();
    assert!(error.contains("--help"), "{error}");
    assert_eq!(distance("kitten", "sitting"), 3);
}

#[test]
fn each_name_is_taken_and_the_last_value_wins() {
    for name in NAMES {
        let mut spec = JobSpec::new("job");
        let error = spec.set(name, Some("\u{1}"));
        assert!(
            !matches!(&error, Err(why) if why.contains("not known")),
            "{name}: {error:?}"
        );
    }
    let spec = with(&[("bs", "4k"), ("blocksize", "8k"), ("end-fsync", "1")]).unwrap();
    assert_eq!(spec.bs_unit(), 8192);
    let given: Vec<_> = spec
        .given
        .iter()
        .map(|given| (given.name.as_str(), given.value.as_str()))
        .collect();
    assert_eq!(given, [("bs", "8k"), ("end_fsync", "1")]);
}

#[test]
fn a_limit_of_0_is_none_as_in_fio() {
    let zeros = ["runtime", "size", "io_size", "rate", "rate_iops"];
    let zeros = zeros.map(|name| (name, "0"));
    let mut spec = with(&zeros).unwrap();
    spec.given.clear();
    assert_eq!(spec, JobSpec::new("job"));
    assert_eq!(
        with(&[("rate", "0,4k,0")]).unwrap().rate,
        [None, Some(4096), None]
    );
    // Time without an end is no end.
    assert!(with(&[("time_based", "1"), ("runtime", "0")]).is_err());
}
