//! Published V100 medians that the cost model is fitted on, as plain figures.
//!
//! Source: the measurements published with a topology-planned all-reduce for V100 serving and the replies to it (nine
//! samples after three warm-ups; SXM2 V100s, the PCIe quad on PCIe cards). Where several machines of a kind were
//! measured, a figure is the middle between the fastest and the slowest. It never interprets them. Start at [`ALL`].

/// One payload on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// KiB a rank, elements of two bytes.
    pub kib: u64,
    /// Whether partial sums were f32; the comparison then moves f32 tensors.
    pub wide: bool,
    /// The planned schedule, microseconds.
    pub planned_us: f64,
    /// What it was compared with, microseconds.
    pub other_us: f64,
}

const fn f16(kib: u64, planned_us: f64, other_us: f64) -> Figure {
    Figure {
        kib,
        wide: false,
        planned_us,
        other_us,
    }
}

const fn f32(kib: u64, planned_us: f64, other_us: f64) -> Figure {
    Figure {
        kib,
        wide: true,
        planned_us,
        other_us,
    }
}

/// All machines by the name of the family that is nearest to each.
pub const ALL: &[(&str, &[Figure])] = &[
    (
        "nvlink-pair",
        &[
            f16(1, 3.648, 9.272),
            f16(5, 3.778, 9.594),
            f16(10, 3.77, 10.07),
            f16(25, 4.024, 12.168),
            f16(40, 4.182, 12.75),
            f16(80, 4.728, 12.814),
            f32(1, 3.706, 13.992),
            f32(5, 3.914, 15.05),
            f32(10, 3.952, 15.944),
            f32(25, 4.156, 17.21),
            f32(40, 4.292, 17.64),
            f32(80, 4.636, 18.796),
        ],
    ),
    (
        "pix-pair",
        &[
            f16(1, 3.948, 10.672),
            f16(5, 4.648, 11.264),
            f16(10, 5.36, 13.604),
            f16(25, 7.536, 17.184),
            f16(40, 9.78, 19.296),
            f16(80, 16.188, 26.84),
            f32(1, 4.04, 15.624),
            f32(5, 4.784, 18.288),
            f32(10, 5.284, 20.1),
            f32(25, 7.608, 26.22),
            f32(40, 9.88, 31.7),
            f32(80, 16.336, 46.832),
        ],
    ),
    (
        "mixed-8",
        &[
            f16(1, 5.879, 21.55),
            f16(5, 6.341, 21.819),
            f16(10, 7.122, 27.863),
            f16(25, 9.582, 31.474),
            f16(40, 12.567, 36.338),
            f16(80, 19.342, 38.688),
            f32(1, 6.642, 23.575),
            f32(5, 9.083, 29.678),
            f32(10, 11.762, 31.826),
            f32(25, 19.557, 39.749),
            f32(40, 29.193, 38.985),
            f32(80, 49.765, 66.999),
            f16(128, 26.126, 54.318),
            f16(256, 46.921, 95.849),
            f16(512, 90.373, 165.07),
            f32(128, 70.807, 95.611),
            f32(256, 136.933, 165.6),
            f32(384, 202.418, 207.945),
            f32(448, 233.211, 229.161),
            f32(512, 273.733, 251.049),
        ],
    ),
    (
        "pix-quad",
        &[
            f16(1, 4.48, 4.23),
            f16(5, 5.38, 5.89),
            f16(10, 6.02, 7.17),
            f16(20, 7.17, 9.73),
            f16(40, 10.37, 15.11),
            f16(80, 17.54, 28.03),
            f16(100, 21.12, 40.32),
            f16(160, 30.46, 55.55),
            f16(240, 44.67, 82.05),
            f16(320, 55.43, 86.14),
        ],
    ),
    ("nvlink-quad", &[f16(10, 4.736, 4.612)]),
];
