//! Units in the names of columns, and the traps in them.

/// What a column counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// As it is printed; empty if unknown.
    pub name: &'static str,
    /// A time: less is better.
    pub is_time: bool,
    /// A rate in bytes rather than bits.
    pub in_bytes: bool,
}

/// The unit that the name of a column ends with.
pub(super) fn unit_of(column: &str) -> Unit {
    let endings: [(&[&str], &'static str, bool, bool); 7] = [
        (
            &["_gbits_per_s", "_gbit_s", "_gbps"],
            "Gbit/s",
            false,
            false,
        ),
        (&["mbits_per_s", "_mbit_s", "_mbps"], "Mbit/s", false, false),
        (&["_bits_per_s", "_bit_s", "_bps"], "bit/s", false, false),
        (&["mb_per_s", "mbytes_per_s", "_mb_s"], "MB/s", false, true),
        (&["_ms"], "ms", true, false),
        (&["_us"], "us", true, false),
        (&["_s", "_seconds"], "s", true, false),
    ];
    let found = endings
        .into_iter()
        .find(|(names, ..)| names.iter().any(|ending| column.ends_with(ending)));
    found.map_or(
        Unit {
            name: "",
            is_time: false,
            in_bytes: false,
        },
        |(_, name, is_time, in_bytes)| Unit {
            name,
            is_time,
            in_bytes,
        },
    )
}

/// What a ratio of two rates is if not an effect.
pub(super) fn trap(ratio: f64) -> Option<String> {
    let near = |wanted: f64, within: f64| {
        (ratio / wanted - 1.0).abs() < within || (ratio * wanted - 1.0).abs() < within
    };
    if near(8.0, 0.06) {
        return Some(
            "one is about 8 times the other, as where MB and Mbit are compared".to_owned(),
        );
    }
    [(1.024, "K"), (1.048_576, "M"), (1.073_741_824, "G")]
        .into_iter()
        .find(|(factor, _)| near(*factor, 0.0015))
        .map(|(factor, letter)| {
            format!(
                "the difference is just that between a {letter} of 1024 and one of 1000 ({:.1} %): \
                 look whether both were counted alike",
                100.0 * (factor - 1.0)
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_by_the_end_of_a_name() {
        for (column, name) in [
            ("mbits_per_s", "Mbit/s"),
            ("value_a_mb_per_s", "MB/s"),
            ("value_gbit_s", "Gbit/s"),
            ("value_ms", "ms"),
            ("value_s", "s"),
            ("value_seconds", "s"),
            ("value", ""),
        ] {
            assert_eq!(unit_of(column).name, name, "{column}");
        }
        assert!(unit_of("value_us").is_time && !unit_of("value_bit_s").is_time);
    }

    #[test]
    fn ratios_that_are_no_effects() {
        for suspect in [8.0, 1.0 / 8.0, 8.388_608, 1.0486, 1.0 / 1.024, 1.0737] {
            assert!(trap(suspect).is_some(), "{suspect}");
        }
        for plain in [1.0, 1.033, 1.0285, 0.9737, 7.0, 9.0, 1.19] {
            assert!(trap(plain).is_none(), "{plain}");
        }
    }
}
