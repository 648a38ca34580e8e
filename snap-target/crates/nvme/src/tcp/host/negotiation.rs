//! ICReq and ICResp: what both ends agree on before the first command (TCP, "Initialize Connection").

use nvme_spec::tcp::{
    DGST_DATA, DGST_HEADER, IC_BYTES, IcReq, IcResp, MAXH2CDATA_MIN, PDA_MAX, PduType, offset,
};
use nvme_spec::{U16, U32};

use super::{HostError, HostOptions};
use crate::tcp::pdu::{FatalError, Framing};

/// MAXR2T of our ICReq, zero-based: one R2T of a command at a time.
const MAXR2T_Z: u32 = 0;

/// What holds on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Both ends send header digests.
    pub header_digest: bool,
    /// Both ends send data digests.
    pub data_digest: bool,
    /// CPDA: data that the host sends start at a multiple of (this + 1) * 4 bytes.
    pub cpda_z: u8,
    /// The most data bytes of one H2CData.
    pub maxh2cdata: u32,
}

impl Default for Negotiated {
    fn default() -> Self {
        Negotiated {
            header_digest: false,
            data_digest: false,
            cpda_z: 0,
            maxh2cdata: MAXH2CDATA_MIN,
        }
    }
}

impl Negotiated {
    /// How the controller frames what it sends: our HPDA is 0.
    pub(super) fn received_framing(self) -> Framing {
        Framing {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            alignment_z: 0,
        }
    }

    /// How we frame what we send.
    pub(super) fn sent_framing(self) -> Framing {
        Framing {
            alignment_z: self.cpda_z,
            ..self.received_framing()
        }
    }

    /// Reads an ICResp, the answer to what [`request`] made of `options`.
    pub(super) fn of(response: &IcResp, options: &HostOptions) -> Result<Negotiated, HostError> {
        if response.pfv.get() != 0 {
            return Err(FatalError::unsupported(offset::PFV, "PFV is not 0").into());
        }
        if response.cpda_z > PDA_MAX {
            return Err(FatalError::field(offset::PDA, "CPDA is above 31").into());
        }
        let header_digest = digest_used(response, DGST_HEADER, options.header_digest, "header")?;
        let data_digest = digest_used(response, DGST_DATA, options.data_digest, "data")?;
        let maxh2cdata = response.maxh2cdata.get();
        if maxh2cdata < MAXH2CDATA_MIN || !maxh2cdata.is_multiple_of(4) {
            return Err(FatalError::field(
                offset::MAXH2CDATA,
                "MAXH2CDATA is below 4096 or no multiple of 4",
            )
            .into());
        }
        Ok(Negotiated {
            header_digest,
            data_digest,
            cpda_z: response.cpda_z,
            maxh2cdata,
        })
    }
}

fn digest_used(
    response: &IcResp,
    bit: u8,
    wanted: bool,
    name: &'static str,
) -> Result<bool, HostError> {
    match (response.dgst & bit != 0, wanted) {
        (true, false) => Err(FatalError::field(
            offset::DGST,
            "a digest is enabled that was not asked for",
        )
        .into()),
        (false, true) => Err(HostError::DigestRefused(name)),
        (used, _) => Ok(used),
    }
}

pub(super) fn request(options: &HostOptions) -> IcReq {
    let header = if options.header_digest {
        DGST_HEADER
    } else {
        0
    };
    let data = if options.data_digest { DGST_DATA } else { 0 };
    IcReq {
        common: Framing::default().common(PduType::IC_REQ, 0, IC_BYTES),
        pfv: U16::ZERO,
        hpda_z: 0,
        dgst: header | data,
        maxr2t_z: U32::new(MAXR2T_Z),
        reserved_16: [0; 112],
    }
}
