//! The MTU that IPv6 goes by on a device: a smaller one than the device's keeps every IPv6 packet small
//! that no route allows more, while the device takes more already.

use super::mtu::ipv6_file;
use super::{Image, KnobDevice, KnobFailure, Part, from_image, number};
use crate::prelude::*;
use std::fs;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mtu6 {
    pub device: KnobDevice,
}

impl Mtu6 {
    /// The file, if the device is still there under its name.
    fn file(&self, kernel: &mut Kernel) -> Result<String, KnobFailure> {
        let device = KnobDevice::by_index(kernel, self.device.index)?;
        Ok(ipv6_file(&device.name))
    }
}

impl Part for Mtu6 {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let text = fs::read_to_string(self.file(kernel)?)?;
        Ok(text.trim().into())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        // The kernel refuses more than the device takes (`addrconf_sysctl_mtu`).
        Ok(fs::write(self.file(kernel)?, number(setting)?.to_string())?)
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let image = self.read(kernel)?;
        let mtu = image.as_str().and_then(|text| text.parse().ok());
        Ok(mtu.map(Value::Number))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let text: String = from_image(before, "its former MTU of IPv6")?;
        fs::write(self.file(kernel)?, text)?;
        step("MTU of IPv6 restored");
        Ok(())
    }
}
