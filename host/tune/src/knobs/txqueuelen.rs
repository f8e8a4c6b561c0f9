//! Transmit queue length of a device: what its plain queues hold.

use super::{Image, KnobDevice, KnobFailure, KnobLink, Part, from_image, number};
use crate::prelude::*;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Txqueuelen {
    pub device: KnobDevice,
}

impl Part for Txqueuelen {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        Ok(KnobLink::by_index(kernel, self.device.index)?
            .txqueuelen
            .into())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        self.device.set(kernel, libc::IFLA_TXQLEN, number(setting)?)
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let link = KnobLink::by_index(kernel, self.device.index)?;
        Ok(Some(Value::Number(link.txqueuelen.into())))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before = from_image(before, "its former length")?;
        self.device.set(kernel, libc::IFLA_TXQLEN, before)?;
        step("transmit queue length restored");
        Ok(())
    }
}
