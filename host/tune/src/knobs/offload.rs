//! Offloads of a device. Switching one switches others that depend on it, so all are kept and put back.

use super::{Device, Failure, Image, Link, Part, refuse};
use crate::crash_points::step;
use crate::kernel::Kernel;
use model::{OffloadKnob, Setting, Value};
use serde::{Deserialize, Serialize};
use sys::ethtool::{Ethtool, Features, OFFLOADS, Offload};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offloads {
    pub device: Device,
    pub knob: OffloadKnob,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    changeable: Vec<u32>,
    wanted: Vec<u32>,
    active: Vec<u32>,
}

impl Offloads {
    /// The driver, by the name that the device has now.
    fn driver(&self, kernel: &mut Kernel) -> Result<Ethtool, Failure> {
        let link = Link::by_index(kernel, self.device.index)?;
        Ok(Ethtool::open(&link.device.name)?)
    }

    fn cannot(&self, setting: &Setting, is: bool) -> Failure {
        Failure::Words(format!(
            "the driver of {} keeps it {} for ever",
            self.device.name,
            setting.knob.say(&Value::Switch(is))
        ))
    }
}

fn offload(knob: OffloadKnob) -> Result<&'static Offload, Failure> {
    OFFLOADS
        .iter()
        .find(|offload| offload.name == knob.tool_name())
        .ok_or_else(|| Failure::Words("ethtool does not have this offload".into()))
}

fn switch(setting: &Setting) -> Result<bool, Failure> {
    match setting.value {
        Value::Switch(on) => Ok(on),
        Value::Number(_) | Value::Numbers(_) | Value::Word(_) => {
            refuse("the value is not on or off")
        }
    }
}

impl Part for Offloads {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, Failure> {
        let Features {
            changeable,
            wanted,
            active,
        } = self.driver(kernel)?.features()?;
        let kept = Kept {
            changeable,
            wanted,
            active,
        };
        serde_json::to_value(kept).map_err(|e| Failure::Words(e.to_string()))
    }

    fn plan(&self, kernel: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), Failure> {
        switch(setting)?;
        self.driver(kernel)?.offload(offload(self.knob)?)?;
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), Failure> {
        let (driver, offload, on) = (self.driver(kernel)?, offload(self.knob)?, switch(setting)?);
        let cannot = || self.cannot(setting, !on);
        match driver.set_offload(offload, on) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                // It may be as it is to be, for ever.
                if driver.offload(offload)? == on {
                    Ok(())
                } else {
                    Err(cannot())
                }
            }
            other => Ok(other?),
        }?;
        // A driver may refuse without a word.
        if driver.offload(offload)? == on {
            Ok(())
        } else {
            Err(cannot())
        }
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, Failure> {
        let on = self.driver(kernel)?.offload(offload(self.knob)?)?;
        Ok(Some(Value::Switch(on)))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), Failure> {
        let kept: Kept = serde_json::from_value(before.clone())
            .map_err(|_| Failure::Words("their former state is unreadable".into()))?;
        self.driver(kernel)?.set_features(&Features {
            changeable: kept.changeable,
            wanted: kept.wanted,
            active: kept.active,
        })?;
        step("offloads put back");
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
