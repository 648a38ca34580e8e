//! Steps that are named by the element type that they make; the parameter is the type's code.

use crate::TransformError;
use crate::element::ElementType;
use crate::registry::Descriptor;

/// Such a step, and the types that it makes.
pub(super) struct Typed {
    pub(super) descriptor: &'static Descriptor,
    pub(super) types: &'static [ElementType],
}

impl Typed {
    /// The type that a parameter stands for.
    pub(super) fn target(&self, parameter: u32) -> Result<ElementType, TransformError> {
        u8::try_from(parameter)
            .ok()
            .and_then(ElementType::from_code)
            .filter(|element| self.types.contains(element))
            .ok_or_else(|| self.descriptor.bad_parameter(parameter))
    }

    /// The parameter of the step called `text`, if there is one.
    pub(super) fn parse(&self, text: &str) -> Option<Result<u32, TransformError>> {
        self.types
            .iter()
            .find(|element| element.name() == text)
            .map(|element| Ok(u32::from(element.code())))
    }

    /// The step's name.
    pub(super) fn format(&self, parameter: u32) -> String {
        match self.target(parameter) {
            Ok(element) => element.name().into(),
            Err(_) => format!("{}:{parameter}", self.descriptor.name),
        }
    }
}
