//! Messages as JSON: the JSON mapping of Protocol Buffers, with the fields' names as the proto files have them, 64-bit numbers as numbers, and every
//! field there. A field that is added to the contract appears here by itself.

use std::sync::OnceLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

use crate::failure::Failure;

/// A message of the contract.
pub trait Described: Message + Name {}

impl<M: Message + Name> Described for M {}

fn pool() -> Result<&'static DescriptorPool, Failure> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(admin_proto::DESCRIPTORS).ok())
        .as_ref()
        .ok_or_else(|| Failure::here("this snapctl was built with a damaged contract"))
}

/// The message on one line, without its end.
pub fn line<M: Described>(message: &M) -> Result<String, Failure> {
    let name = M::full_name();
    let broken = |why: String| Failure::here(format!("{name} cannot be printed as JSON: {why}"));
    let descriptor = pool()?
        .get_message_by_name(&name)
        .ok_or_else(|| broken("it is not in the contract".to_owned()))?;
    let dynamic = DynamicMessage::decode(descriptor, &*message.encode_to_vec())
        .map_err(|error| broken(error.to_string()))?;
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .use_proto_field_name(true)
        .skip_default_fields(false);
    let mut bytes = Vec::new();
    dynamic
        .serialize_with_options(&mut serde_json::Serializer::new(&mut bytes), &options)
        .map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}
