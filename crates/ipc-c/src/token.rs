//! Tokens: the right to answer one call, as numbers that C may copy.
//!
//! A token says which client of which endpoint, which reply line, which sequence number. Using it
//! looks the client up and claims the call atomically (`ClientLink::claim_call`): of all copies one
//! can answer, once, and none can reach a call other than its own, whatever became of the client.

use crate::status::Status;
use crate::types::Token;
use sojourn_ipc::ClientId;
use sojourn_ipc::raw::{EndpointId, Seq};

/// Set in every token we gave out; a request that wants no answer has a token of zeroes.
const VALID: u64 = 1;

/// A token taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) client: ClientId,
    pub(crate) line: u8,
    pub(crate) seq: Seq,
}

impl Claim {
    /// No call.
    pub(crate) const NONE: Self =
        Self { client: ClientId { index: 0, generation: 0 }, line: 0, seq: Seq(0) };
}

impl Token {
    /// Answers nobody.
    pub(crate) const NOBODY: Self = Self { opaque: [0; 4] };

    /// The token of a call to endpoint `endpoint`.
    #[inline]
    pub(crate) fn new(endpoint: EndpointId, claim: Claim) -> Self {
        let client = u64::from(claim.client.index) | u64::from(claim.client.generation) << 32;
        let call = u64::from(claim.line) | u64::from(claim.seq.0) << 32;
        Self { opaque: [client, call, endpoint.0, VALID] }
    }

    /// What it claims, if it is one of this endpoint's.
    #[inline]
    pub(crate) fn claim(&self, endpoint: EndpointId) -> Result<Claim, Status> {
        let [client, call, origin, valid] = self.opaque;
        let line = u8::try_from(call as u32).map_err(|_| Status::Invalid)?;
        if valid != VALID || EndpointId(origin) != endpoint {
            return Err(Status::Invalid);
        }
        let client = ClientId { index: client as u32, generation: (client >> 32) as u32 };
        Ok(Claim { client, line, seq: Seq((call >> 32) as u32) })
    }
}
