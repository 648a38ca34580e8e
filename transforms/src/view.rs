//! The view chain: from a stream's element type to the presented one.

use std::fmt;

use crate::TransformError;
use crate::contract::Contract;
use crate::element::{ElementType, Packing};
use crate::registry::{self, Kind, Layout, Step};

/// What a view makes of a stream's elements: nothing, or another type. Integers become integers, each value checked on the way; floating point
/// becomes floating point, rounded where the type is narrower, or blocks of numbers that share a scale (`q8_0`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewChain {
    /// The step, and the types before and behind it; `None` presents the elements as they were.
    cast: Option<Cast>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cast {
    step: [Step; 1],
    source: ElementType,
    presented: Packing,
}

impl ViewChain {
    /// The view that presents the source's exact bytes, whatever its type.
    #[must_use]
    pub fn identity() -> ViewChain {
        ViewChain { cast: None }
    }

    /// Reads `none`, the name of a type, or `q8_0`.
    ///
    /// # Errors
    /// A name that is unknown or no element-wise step, or a type that the source cannot be presented in.
    pub fn parse(text: &str, source: ElementType) -> Result<ViewChain, TransformError> {
        if text == "none" {
            return Ok(ViewChain::identity());
        }
        let (kind, parameter) = registry::by_text(text)?;
        let descriptor = kind.transform().descriptor();
        let step = Step {
            id: descriptor.id,
            version: descriptor.version,
            parameter,
        };
        ViewChain::from_steps(&[step], source)
    }

    /// The view of stored steps; none is the identity.
    ///
    /// # Errors
    /// An unknown transform or version, a step that no view has, or a type that the source cannot be presented in.
    pub fn from_steps(steps: &[Step], source: ElementType) -> Result<ViewChain, TransformError> {
        let step = match steps {
            [] => return Ok(ViewChain::identity()),
            [step] => *step,
            _ => {
                return Err(TransformError::TooManySteps {
                    steps: steps.len(),
                    max: 1,
                });
            }
        };
        let kind = registry::by_step(&step)?;
        let refuse = |why| TransformError::Order {
            step: kind.transform().format(step.parameter),
            why,
        };
        let Kind::Element(transform) = kind else {
            return Err(refuse("a view has element-wise steps only"));
        };
        let input = Layout {
            packing: Packing::Whole(source),
            range: source.range(),
        };
        let presented = transform.output(&input, step.parameter)?.packing;
        match presented {
            Packing::Bits(_) => return Err(refuse("a view presents whole elements")),
            Packing::Int8 { .. } => {
                let why = "it is for storing: what is presented has no place for its scales";
                return Err(refuse(why));
            }
            Packing::Whole(_) | Packing::Q8_0 => {}
        }
        Ok(ViewChain {
            cast: Some(Cast {
                step: [step],
                source,
                presented,
            }),
        })
    }

    /// The steps, as a volume stores them.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.cast.as_ref().map_or(&[], |cast| &cast.step)
    }

    /// Whether the elements are presented as they were.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.cast.is_none()
    }

    /// What becomes of the stream's values.
    #[must_use]
    pub fn contract(&self) -> Contract {
        match &self.cast {
            None => Contract::Lossless,
            Some(cast) => match cast.presented {
                Packing::Whole(presented) => Contract::of(cast.source, presented),
                // Whoever reads the blocks multiplies, in f32.
                _ => Contract::of_q8_0(ElementType::F32),
            },
        }
    }

    /// How elements are presented when the stream's type is `source`: whole, or in blocks.
    ///
    /// # Errors
    /// [`TransformError::ViewSource`] when the view was made for another type.
    pub fn presented(&self, source: ElementType) -> Result<Packing, TransformError> {
        match &self.cast {
            None => Ok(Packing::Whole(source)),
            Some(cast) if cast.source == source => Ok(cast.presented),
            Some(cast) => Err(TransformError::ViewSource {
                view: Packing::Whole(cast.source),
                stored: source,
            }),
        }
    }
}

/// The canonical text, which [`ViewChain::parse`] reads back.
impl fmt::Display for ViewChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cast {
            None => f.pad("none"),
            Some(cast) => cast.presented.fmt(f),
        }
    }
}
