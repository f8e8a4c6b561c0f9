//! How long a device waits before it interrupts.

use super::{Image, KnobDevice, KnobFailure, Part, from_image, number, refuse, to_image};
use crate::prelude::*;
use model::CoalescingKnob;
use sys::ethtool;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InterruptDelay {
    pub device: KnobDevice,
    pub knob: CoalescingKnob,
}

impl InterruptDelay {
    /// Receive is the first of the two, transmit the second.
    fn which(&self) -> usize {
        match self.knob {
            CoalescingKnob::Rx => 0,
            CoalescingKnob::Tx => 1,
        }
    }

    fn now(&self, kernel: &mut Kernel) -> Result<ethtool::Coalescing, KnobFailure> {
        let driver = self.device.driver(kernel)?;
        driver.coalescing().map_err(|error| self.cannot(error))
    }

    fn cannot(&self, error: io::Error) -> KnobFailure {
        let name = &self.device.name;
        KnobFailure::Words(match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => {
                format!("the driver of {name} has no such delay of interrupts")
            }
            Some(libc::EINVAL | libc::ERANGE) => {
                format!("the driver of {name} does not take this delay")
            }
            _ => return error.into(),
        })
    }
}

impl Part for InterruptDelay {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        to_image(self.now(kernel)?.0)
    }

    fn plan(&self, kernel: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), KnobFailure> {
        number(setting)?;
        self.now(kernel).map(drop)
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        let asked = number(setting)?;
        let changed = self.now(kernel)?.with_delay_us(self.which(), asked);
        let done = self.device.driver(kernel)?.set_coalescing(&changed);
        done.map_err(|error| self.cannot(error))?;
        // A driver may round it, or not have this one at all.
        match self.now(kernel)?.delays_us()[self.which()] {
            Some(now) if now == asked => Ok(()),
            now => refuse(format!(
                "the driver of {} makes {} of it",
                self.device.name,
                now.map_or("an adaptive one".to_owned(), |us| format!("{us} us"))
            )),
        }
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let delay = self.now(kernel)?.delays_us()[self.which()];
        Ok(delay.map(|us| Value::Number(us.into())))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before = ethtool::Coalescing(from_image(before, "its former state")?);
        self.device.driver(kernel)?.set_coalescing(&before)?;
        step("coalescing restored");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_refuses_is_named_and_other_errors_stay() {
        let delay = |knob| InterruptDelay {
            device: KnobDevice {
                index: 1,
                name: "eth0".to_owned(),
            },
            knob,
        };
        let of = |errno| match delay(CoalescingKnob::Rx).cannot(io::Error::from_raw_os_error(errno))
        {
            KnobFailure::Words(words) => words,
            KnobFailure::Forbidden => "forbidden".to_owned(),
            KnobFailure::Gone => "gone".to_owned(),
        };
        let none = "the driver of eth0 has no such delay of interrupts";
        assert_eq!(of(libc::EOPNOTSUPP), none);
        let other = "the driver of eth0 does not take this delay";
        assert_eq!([of(libc::EINVAL), of(libc::ERANGE)], [other; 2]);
        assert_eq!([of(libc::EPERM), of(libc::ENODEV)], ["forbidden", "gone"]);
        let which = [CoalescingKnob::Rx, CoalescingKnob::Tx].map(|knob| delay(knob).which());
        assert_eq!(which, [0, 1]);
    }
}
