//! Whether this host is a guest or a container, in the spirit of systemd-detect-virt(1).

use crate::proc;
use std::path::Path;

/// Names the hypervisor and the container around this process, as far as each is known: `kvm`,
/// `docker`, `docker on kvm`; `None` for neither.
pub(crate) fn detect() -> Option<String> {
    let signature = sys::process::hypervisor_signature();
    // What the firmware calls this machine; readable without privilege, absent on some small hypervisors.
    let firmware = ["sys_vendor", "product_name"]
        .map(|name| first_line(&format!("/sys/class/dmi/id/{name}")).unwrap_or_default());
    let firmware = firmware.each_ref().map(|name| &name[..]);
    let hypervisor = hypervisor(signature.as_deref(), firmware, first_line);
    let container = container(first_line, |path| Path::new(path).exists());
    match (container, hypervisor) {
        (Some(container), Some(hypervisor)) => Some(format!("{container} on {hypervisor}")),
        (one, other) => one.or(other),
    }
}

/// Signatures as systemd knows them (`src/basic/virt.c`).
const SIGNATURES: [(&str, &str); 9] = [
    ("KVMKVMKVM", "kvm"),
    ("TCGTCGTCGTCG", "qemu"),
    ("Microsoft Hv", "microsoft hyper-v"),
    ("VMwareVMware", "vmware"),
    ("XenVMMXenVMM", "xen"),
    ("bhyve bhyve", "bhyve"),
    ("QNXQVMBSQG", "qnx"),
    ("ACRNACRNACRN", "acrn"),
    ("SRESRESRESRE", "sre"),
];

/// What vendors write into DMI; any of them is a machine made of software.
const VENDORS: [(&str, &str); 11] = [
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Google Compute Engine", "google compute engine"),
    ("Amazon EC2", "amazon ec2"),
    ("Virtual Machine", "microsoft hyper-v"),
];

fn hypervisor(
    signature: Option<&str>,
    [vendor, product]: [&str; 2],
    first_line: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let by_dmi = VENDORS
        .iter()
        .find(|(text, _)| vendor.contains(text) || product.contains(text))
        .map(|(_, name)| (*name).to_owned())
        // Bare-metal instances of this vendor carry its name too, with "metal" as the product.
        .filter(|_| !product.contains("metal"));
    let by_signature = signature.map(|signature| {
        let known = SIGNATURES.iter().find(|(text, _)| signature == *text);
        match known {
            Some((_, name)) => (*name).to_owned(),
            None if signature.is_empty() => "an unknown hypervisor".to_owned(),
            None => format!("an unknown hypervisor ('{signature}')"),
        }
    });
    // The register names the technology, the firmware the product: both, if they say different things.
    match (by_signature, by_dmi) {
        (Some(technology), Some(product)) if technology != product => {
            Some(format!("{technology} ({product})"))
        }
        (Some(technology), _) => Some(technology),
        (None, Some(product)) => Some(product),
        // Without the register: Xen paravirtual guests, and machines whose device tree names it.
        (None, None) => first_line("/sys/hypervisor/type")
            .or_else(|| first_line("/proc/device-tree/hypervisor/compatible")),
    }
}

fn container(
    first_line: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&str) -> bool,
) -> Option<String> {
    // Written by container managers that follow systemd's interface; then the marks of the others.
    if let Some(name) = first_line("/run/systemd/container") {
        return Some(name);
    }
    let release = first_line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_wsl = release.contains("Microsoft") || release.contains("WSL");
    let marks = [
        (exists("/.dockerenv"), "docker"),
        (exists("/run/.containerenv"), "podman"),
        (exists("/proc/vz") && !exists("/proc/bc"), "openvz"),
        (is_wsl, "wsl"),
        (exists("/var/run/secrets/kubernetes.io"), "kubernetes"),
    ];
    let (_, name) = marks.into_iter().find(|(marked, _)| *marked)?;
    Some(name.to_owned())
}

fn first_line(path: &str) -> Option<String> {
    let text = proc::read(path).ok()?;
    let line = text.lines().next()?.trim_matches(['\0', ' ']);
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn guests_and_bare_metal() {
        let name = |signature, firmware| hypervisor(signature, firmware, nothing);
        assert_eq!(name(None, ["Dell Inc.", "PowerEdge R640"]), None);
        assert_eq!(name(None, ["Amazon EC2", "c5.metal"]), None);
        let named = |signature, firmware| name(signature, firmware).unwrap();
        assert_eq!(named(Some("KVMKVMKVM"), ["", ""]), "kvm");
        assert_eq!(
            named(Some("KVMKVMKVM"), ["QEMU", "Standard PC"]),
            "kvm (qemu)"
        );
        assert_eq!(
            named(Some("VMwareVMware"), ["VMware, Inc.", "VMware7,1"]),
            "vmware"
        );
        assert_eq!(
            named(Some("NewNewNewNew"), ["", ""]),
            "an unknown hypervisor ('NewNewNewNew')"
        );
        assert_eq!(named(None, ["QEMU", "KVM Virtual Machine"]), "qemu");
        let xen = |path: &str| (path == "/sys/hypervisor/type").then(|| "xen".to_owned());
        assert_eq!(hypervisor(None, ["", ""], xen).unwrap(), "xen");
    }

    #[test]
    fn containers_by_their_marks() {
        let marked = |mark: &'static str| container(nothing, move |path| path == mark);
        assert_eq!(marked("/.dockerenv").unwrap(), "docker");
        assert_eq!(marked("/run/.containerenv").unwrap(), "podman");
        assert_eq!(marked("/proc/vz").unwrap(), "openvz");
        assert_eq!(marked("none"), None);
        let nspawn =
            |path: &str| (path == "/run/systemd/container").then(|| "systemd-nspawn".to_owned());
        assert_eq!(container(nspawn, |_| false).unwrap(), "systemd-nspawn");
        let wsl = |path: &str| path.contains("osrelease").then(|| "5.15-WSL2".to_owned());
        assert_eq!(container(wsl, |_| false).unwrap(), "wsl");
    }
}
