//! The processor: what the transforms' kernels are chosen by.

use super::finding::Finding;

/// What the processor has.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "x86 is not made elsewhere")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// x86-64.
    X86 {
        /// AVX2 and BMI2.
        avx2: bool,
        /// AVX-512 with F, BW, VL, DQ, VBMI and VBMI2.
        avx512: bool,
    },
    /// 64-bit ARM: NEON is always there.
    Aarch64,
    /// Anything else.
    Other,
}

impl Cpu {
    /// Asks the processor.
    pub fn read() -> Cpu {
        match x86() {
            Some(cpu) => cpu,
            None if cfg!(target_arch = "aarch64") => Cpu::Aarch64,
            None => Cpu::Other,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn x86() -> Option<Cpu> {
    Some(Cpu::X86 {
        avx2: is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
        avx512: is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2"),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn x86() -> Option<Cpu> {
    None
}

/// Whether decoding has its fast kernels.
pub fn cpu(cpu: Cpu) -> Finding {
    let check = "processor";
    let slow = "unpacking, widening and checking run on scalar code: several times as long";
    match cpu {
        Cpu::X86 { avx512: true, .. } => Finding::ok(check, "x86-64 with AVX2 and AVX-512"),
        Cpu::X86 { avx2: true, .. } => Finding::ok(check, "x86-64 with AVX2"),
        Cpu::X86 { .. } => Finding::warn(
            check,
            "x86-64 without AVX2",
            slow,
            "a virtual machine: give it the machine's own processor model (QEMU: -cpu host)",
        ),
        Cpu::Aarch64 => Finding::ok(check, "aarch64 with NEON"),
        Cpu::Other => Finding::warn(
            check,
            std::env::consts::ARCH,
            slow,
            "x86-64 and aarch64 have kernels of their own",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn only_scalar_code_warns() {
        let x86 = |avx2, avx512| cpu(Cpu::X86 { avx2, avx512 }).verdict;
        assert_eq!(x86(true, true), Verdict::Ok);
        assert_eq!(x86(true, false), Verdict::Ok);
        assert_eq!(x86(false, false), Verdict::Warn);
        assert_eq!(cpu(Cpu::Aarch64).verdict, Verdict::Ok);
        assert_eq!(cpu(Cpu::Other).verdict, Verdict::Warn);
    }
}
