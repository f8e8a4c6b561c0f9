//! The scenarios in the box.

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

/// Name and text of each, in the order in which they are listed.
pub(crate) const ALL: &[(&str, &str)] = shipped![
    "home-lan",
    "home-lan-blackhole",
    "berkeley-chicago",
    "mac-lan",
    "nfs-lan",
    "virtio-cloud",
    "clean-lan",
    "long-fat",
    "dsl-bloat",
    "policed-cloud",
    "lossy-radio",
    "satellite",
    "datacentre",
];
