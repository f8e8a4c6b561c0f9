//! Descriptors in the rings of a device.

use super::{Image, KnobDevice, KnobFailure, Part, from_image, number, refuse};
use crate::prelude::*;
use model::RingKnob;
use sys::ethtool::Bounded;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rings {
    pub device: KnobDevice,
    pub knob: RingKnob,
}

impl Rings {
    fn sizes(&self, kernel: &mut Kernel) -> Result<[Bounded; 2], KnobFailure> {
        let driver = self.device.driver(kernel)?;
        driver.rings().map_err(|error| self.cannot(error))
    }

    /// Receive is the first of the two, transmit the second.
    fn which(&self) -> usize {
        match self.knob {
            RingKnob::Rx => 0,
            RingKnob::Tx => 1,
        }
    }

    fn cannot(&self, error: io::Error) -> KnobFailure {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => KnobFailure::Words(format!(
                "the driver of {} has no rings whose size can be set",
                self.device.name
            )),
            _ => error.into(),
        }
    }
}

impl Part for Rings {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        let sizes = self.sizes(kernel)?.map(|ring| ring.current);
        Ok(sizes.to_vec().into())
    }

    fn plan(&self, kernel: &mut Kernel, setting: &Setting, _: &Image) -> Result<(), KnobFailure> {
        let most = self.sizes(kernel)?[self.which()].maximum;
        if number(setting)? > most {
            return refuse(format!(
                "the driver of {} allows at most {most}",
                self.device.name
            ));
        }
        Ok(())
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        let mut sizes = self.sizes(kernel)?.map(|ring| ring.current);
        sizes[self.which()] = number(setting)?;
        let [rx, tx] = sizes;
        let done = self.device.driver(kernel)?.set_rings(rx, tx);
        done.map_err(|e| self.cannot(e))
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let size = self.sizes(kernel)?[self.which()].current;
        Ok(Some(Value::Number(size.into())))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let [rx, tx]: [u32; 2] = from_image(before, "their former state")?;
        self.device.driver(kernel)?.set_rings(rx, tx)?;
        step("rings restored");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_rings_is_named_and_other_errors_stay() {
        let rings = |knob| Rings {
            device: KnobDevice {
                index: 1,
                name: "eth0".to_owned(),
            },
            knob,
        };
        let of = |errno| match rings(RingKnob::Rx).cannot(io::Error::from_raw_os_error(errno)) {
            KnobFailure::Words(words) => words,
            KnobFailure::Forbidden => "forbidden".to_owned(),
            KnobFailure::Gone => "gone".to_owned(),
        };
        let none = "the driver of eth0 has no rings whose size can be set";
        assert_eq!(of(libc::EOPNOTSUPP), none);
        assert_eq!([of(libc::EPERM), of(libc::ENODEV)], ["forbidden", "gone"]);
        assert_eq!(
            [rings(RingKnob::Rx).which(), rings(RingKnob::Tx).which()],
            [0, 1]
        );
    }
}
