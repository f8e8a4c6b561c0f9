//! Offloads of a device. Switching one switches others that depend on it, so all are saved and restored.

use super::{Image, KnobDevice, KnobFailure, Part, from_image, refuse, to_image, understood};
use crate::prelude::*;
use model::OffloadKnob;
use sys::ethtool::{Features, OFFLOADS, Offload};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offloads {
    pub device: KnobDevice,
    pub knob: OffloadKnob,
}

fn offload(knob: OffloadKnob) -> Result<&'static Offload, KnobFailure> {
    let mut all = OFFLOADS.iter();
    let found = all.find(|offload| offload.name == knob.tool_name());
    understood(found, "ethtool does not have this offload")
}

fn switch(setting: &Setting) -> Result<bool, KnobFailure> {
    match setting.value {
        Value::Switch(on) => Ok(on),
        Value::Number(_) | Value::Numbers(_) | Value::Word(_) => {
            refuse("the value is not on or off")
        }
    }
}

impl Part for Offloads {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let now = self.device.driver(kernel)?.features()?;
        to_image([now.changeable, now.wanted, now.active])
    }

    fn plan(&self, kernel: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), KnobFailure> {
        switch(setting)?;
        self.device.driver(kernel)?.offload(offload(self.knob)?)?;
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        let (offload, on) = (offload(self.knob)?, switch(setting)?);
        let driver = self.device.driver(kernel)?;
        match driver.set_offload(offload, on) {
            // The offload may be fixed in the requested state.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
            other => other?,
        }
        // A driver may also refuse without an error.
        match driver.offload(offload)? == on {
            true => Ok(()),
            false => refuse(format!(
                "the driver of {} keeps it {} for ever",
                self.device.name,
                setting.knob.format_value(&Value::Switch(!on))
            )),
        }
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let on = self.device.driver(kernel)?.offload(offload(self.knob)?)?;
        Ok(Some(Value::Switch(on)))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let [changeable, wanted, active] = from_image(before, "their former state")?;
        self.device.driver(kernel)?.set_features(&Features {
            changeable,
            wanted,
            active,
        })?;
        step("offloads restored");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethtool_has_every_offload() {
        for knob in OffloadKnob::all() {
            assert!(offload(knob).is_ok(), "{}", knob.tool_name());
        }
    }
}
