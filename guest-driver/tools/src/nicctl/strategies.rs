//! The names of the card's coalescing strategies. The card is asked, since it may have other strategies than those
//! known when this tool was built.

use anyhow::{Result, bail};
use firmware::{
    StrategyKind,
    control::{RefusalCode, Reply, Request, StrategyCode},
};
use netif::Netif;
use weft_card_control::{Card, CardError};

/// Names by code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategies(Vec<String>);

impl Strategies {
    /// Makes the list of names that a card told.
    pub fn named<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Asks a card for its names. A card that does not tell them has those that this tool knows.
    pub(super) fn of(card: &mut Card<'_, impl Netif>) -> Result<Self> {
        let mut names = Vec::new();
        loop {
            let first = StrategyCode(u8::try_from(names.len()).unwrap_or(u8::MAX));
            match card.ask(&Request::GetStrategies { first }) {
                Ok(Reply::GetStrategies(told)) => {
                    let before = names.len();
                    names.extend(told.iter().map(|(_, name)| name.to_owned()));
                    if names.len() >= usize::from(told.total) || names.len() == before {
                        return Ok(Self(names));
                    }
                }
                Err(CardError::Refused(refusal)) if refusal.code == RefusalCode::Operation.code() => {
                    return Ok(Self::named(StrategyKind::NAMES.iter().copied()));
                }
                Ok(_) => bail!(CardError::Unexpected),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the codes, in order.
    pub(super) fn codes(&self) -> impl Iterator<Item = StrategyCode> + use<> {
        (0..=u8::MAX).take(self.0.len()).map(StrategyCode)
    }

    /// Returns the name that belongs to a code.
    #[must_use]
    pub fn name(&self, code: StrategyCode) -> String {
        let name = self.0.get(usize::from(code.0)).cloned();
        name.unwrap_or_else(|| code.0.to_string())
    }

    /// Returns the code that belongs to a name.
    ///
    /// # Errors
    /// Which names there are.
    pub fn code(&self, name: &str) -> Result<StrategyCode> {
        match self.codes().find(|code| self.name(*code) == name) {
            Some(code) => Ok(code),
            None => bail!("the card has no strategy {name:?}; it has {}", self.0.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_card_are_found_and_others_are_told() {
        let strategies = Strategies::named(["disabled", "every-second"]);
        assert_eq!(strategies.code("every-second").expect("known"), StrategyCode(1));
        assert_eq!(strategies.name(StrategyCode(1)), "every-second");
        assert_eq!(strategies.name(StrategyCode(7)), "7");
        let error = strategies.code("every-third").expect_err("unknown").to_string();
        assert_eq!(
            error,
            "the card has no strategy \"every-third\"; it has disabled, every-second"
        );
    }
}
