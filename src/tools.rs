//! The images of kernels/tools.cu: mixing node, copy node, start gate, delay, conversions.
//!
//! Built by this crate's own build script, so empty in a build without `nvcc`. Knows nothing about running them
//! (`device::cuda` does). Start at [`images`].

/// Fatbins, one a toolkit that took part, each 16-byte aligned.
pub fn images() -> &'static [&'static [u8]] {
    crate::builtin::tool_images()
}
