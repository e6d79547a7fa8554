//! A GPU and what is loaded on it, a rank and the buffers a caller would own.
//!
//! Only makes them; what they do together is `machine`'s business. Start at [`Gpu`].

use crate::builtin::tool_images;
use crate::device::DeviceError;
use crate::driver::context::{Attribute, Context};
use crate::driver::event::Event;
use crate::driver::memory::DeviceBuffer;
use crate::driver::module::{Function, Module};
use crate::driver::stream::Stream;
use crate::process::heap::Block;
use crate::registry::Element;
use std::sync::Arc;

/// Kernels of kernels/tools.cu on one device.
pub(super) struct Tools {
    /// f16, bf16, f32.
    mix: [Function; 3],
    pub copy: Function,
    pub nop: Function,
    pub ping: Function,
    pub chase: Function,
    pub fan: Function,
    pub gate: Function,
    pub delay: Function,
    /// f16 and bf16 to f32.
    pub widen: [Function; 2],
    /// f32 to f16 and bf16.
    pub narrow: [Function; 2],
    pub ping_far: Function,
    pub read: Function,
    pub busy: Function,
    /// f16, bf16, f32.
    soak: [Function; 3],
    pub lines_put: Function,
    pub lines_watch: Function,
    pub pull2: Function,
    pub staged: Function,
}

impl Tools {
    /// The mixing node of an element type.
    pub fn mix(&self, element: Element) -> &Function {
        of_element(&self.mix, element)
    }

    /// The checking node of an element type's soak.
    pub fn soak(&self, element: Element) -> &Function {
        of_element(&self.soak, element)
    }
}

fn of_element([f16, bf16, f32]: &[Function; 3], element: Element) -> &Function {
    match element {
        Element::F16 => f16,
        Element::Bf16 => bf16,
        Element::F32 => f32,
    }
}

/// A device and what is loaded on it.
pub(super) struct Gpu {
    pub context: Arc<Context>,
    pub multiprocessors: u32,
    /// Ranks that live here.
    pub ranks: u32,
    pub tools: Tools,
}

/// Device memory of a rank: its own, or what every rank of other processes has and maps too.
pub(super) enum Buffer {
    Own(DeviceBuffer),
    Shared { block: Block, address: u64 },
}

impl Buffer {
    pub const fn address(&self) -> u64 {
        match self {
            Self::Own(buffer) => buffer.address(),
            Self::Shared { address, .. } => *address,
        }
    }

    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Own(buffer) => buffer.bytes(),
            Self::Shared { block, .. } => block.bytes(),
        }
    }
}

/// A rank: its stream and the buffers a caller would own.
pub(super) struct Rank {
    /// Index into the machine's GPUs.
    pub gpu: usize,
    pub stream: Stream,
    pub start: Event,
    pub end: Event,
    pub input: Buffer,
    pub output: Buffer,
}

/// Hardware queues of a device unless the environment says otherwise; streams that share one wait for each other.
const QUEUES: usize = 8;

impl Gpu {
    pub fn new(ordinal: usize, sharing: usize) -> Result<Self, DeviceError> {
        let context = Context::new(ordinal)?;
        if context.device().attribute(Attribute::MapsHostMemory)? == 0 {
            let reason = format!("GPU {ordinal} cannot address host memory, which deadlines need");
            return Err(DeviceError::Unavailable { reason });
        }
        let module = Module::load(&context, tool_images())?;
        let tools = Tools {
            mix: [
                module.function("tf_mix_f16")?,
                module.function("tf_mix_bf16")?,
                module.function("tf_mix_f32")?,
            ],
            copy: module.function("tf_copy")?,
            nop: module.function("tf_nop")?,
            ping: module.function("tf_ping")?,
            chase: module.function("tf_chase")?,
            fan: module.function("tf_fan")?,
            gate: module.function("tf_gate")?,
            delay: module.function("tf_delay")?,
            widen: [module.function("tf_widen_f16")?, module.function("tf_widen_bf16")?],
            narrow: [module.function("tf_narrow_f16")?, module.function("tf_narrow_bf16")?],
            ping_far: module.function("tf_ping_far")?,
            read: module.function("tf_read")?,
            busy: module.function("tf_busy")?,
            soak: [
                module.function("tf_soak_f16")?,
                module.function("tf_soak_bf16")?,
                module.function("tf_soak_f32")?,
            ],
            lines_put: module.function("tf_lines_put")?,
            lines_watch: module.function("tf_lines_watch")?,
            pull2: module.function("tf_pull2")?,
            staged: module.function("tf_staged")?,
        };
        let multiprocessors = u32::try_from(context.device().attribute(Attribute::Multiprocessors)?).unwrap_or(1);
        Ok(Self {
            context,
            multiprocessors,
            ranks: sharing as u32,
            tools,
        })
    }
}

impl Rank {
    pub fn new(gpu: usize, context: &Arc<Context>) -> Result<Self, DeviceError> {
        Ok(Self {
            gpu,
            stream: Stream::new(context)?,
            start: Event::new(context)?,
            end: Event::new(context)?,
            input: Buffer::Own(DeviceBuffer::new(context, 0)?),
            output: Buffer::Own(DeviceBuffer::new(context, 0)?),
        })
    }
}

/// Streams that share a hardware queue wait for each other, so spinning kernels would never meet.
pub(super) fn enough_queues(sharing: usize, connections: Option<&str>) -> Result<(), DeviceError> {
    let queues = connections.and_then(|c| c.trim().parse().ok()).unwrap_or(QUEUES);
    if sharing <= queues {
        return Ok(());
    }
    let reason = format!(
        "{sharing} virtual ranks share a GPU that has {queues} hardware queues: set CUDA_DEVICE_MAX_CONNECTIONS=32 \
         before this process starts (32 is the most), or use more GPUs"
    );
    Err(DeviceError::Unavailable { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_virtual_ranks_than_queues_are_refused_before_they_hang() {
        assert!(enough_queues(8, None).is_ok());
        assert!(enough_queues(16, Some("32")).is_ok());
        let e = enough_queues(9, None);
        assert!(
            matches!(&e, Err(DeviceError::Unavailable { reason }) if reason.contains("CONNECTIONS=32")),
            "{e:?}"
        );
    }
}
