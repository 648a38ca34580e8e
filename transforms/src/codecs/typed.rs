//! Steps that are named by the element type that they make; the parameter is the type's code.

use crate::TransformError;
use crate::element::ElementType;
use crate::registry::{Descriptor, ElementTransform, Layout, Transform};

/// Such a step.
pub struct Typed {
    pub(super) descriptor: &'static Descriptor,
    /// What it makes.
    pub(super) types: &'static [ElementType],
    /// The layout after the step to one of these, or why it cannot follow.
    pub(super) output: fn(&Layout, ElementType) -> Result<Layout, &'static str>,
}

impl Typed {
    /// The type that a parameter stands for.
    fn target(&self, parameter: u32) -> Result<ElementType, TransformError> {
        u8::try_from(parameter)
            .ok()
            .and_then(ElementType::from_code)
            .filter(|element| self.types.contains(element))
            .ok_or_else(|| self.descriptor.bad_parameter(parameter))
    }
}

impl Transform for Typed {
    fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    fn parse(&self, text: &str) -> Option<Result<u32, TransformError>> {
        self.types
            .iter()
            .find(|element| element.name() == text)
            .map(|element| Ok(u32::from(element.code())))
    }

    fn format(&self, parameter: u32) -> String {
        match self.target(parameter) {
            Ok(element) => element.name().into(),
            Err(_) => format!("{}:{parameter}", self.descriptor.name),
        }
    }
}

impl ElementTransform for Typed {
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError> {
        let element = self.target(parameter)?;
        (self.output)(input, element).map_err(|why| TransformError::Input {
            step: element.name().into(),
            input: input.packing,
            why,
        })
    }
}
