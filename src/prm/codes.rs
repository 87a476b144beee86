//! `codes!`: number types whose values have PRM names. An unknown number stays what it is.

/// Declares a number type with named values: associated constants, `name()`, `from_name()`, `ALL`, and a `Display` that
/// prints the name, or the number in hex. A string after the value is the PRM name where it is no Rust identifier or
/// would repeat the type's name.
macro_rules! codes {
    ($(
        $(#[$meta:meta])*
        pub struct $type:ident($int:ty) {
            $( $name:ident = $value:literal $(, $prm:literal)?; )*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub $int);

        #[allow(missing_docs, reason = "the names are the PRM's")]
        impl $type {
            $( pub const $name: Self = Self($value); )*
        }

        impl $type {
            /// Every named value with its PRM name, in order of their numbers.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$((Self($value), $crate::prm::codes::prm_name!($name $($prm)?))),*];

            /// PRM name of the value.
            pub fn name(self) -> Option<&'static str> {
                Self::ALL.binary_search_by_key(&self.0, |(v, _)| v.0).ok().map(|i| Self::ALL[i].1)
            }

            /// The value with that PRM name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().find(|(_, n)| *n == name).map(|(v, _)| *v)
            }
        }

        const _: () = {
            let mut i = 1;
            while i < $type::ALL.len() {
                assert!($type::ALL[i - 1].0.0 < $type::ALL[i].0.0, "values are in order");
                i += 1;
            }
        };

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }
    )* };
}

/// The PRM name of a code: the given string, or the identifier.
macro_rules! prm_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $prm:literal) => {
        $prm
    };
}

pub(crate) use {codes, prm_name};

#[cfg(test)]
mod tests {
    codes! {
        /// Test.
        pub struct Fruit(u8) {
            APPLE = 1;
            TWO = 2, "2FRUITS";
        }
    }

    #[test]
    fn known_values_have_names_and_unknown_ones_keep_their_number() {
        assert_eq!((Fruit::APPLE.name(), Fruit(2).name(), Fruit(3).name()), (Some("APPLE"), Some("2FRUITS"), None));
        assert_eq!(Fruit::from_name("2FRUITS"), Some(Fruit::TWO));
        assert_eq!(Fruit::from_name("TWO"), None);
        assert_eq!(
            format!("{} {} {:?} {:>6}", Fruit(1), Fruit(0xab), Fruit(2), Fruit(1)),
            "APPLE 0xab Fruit(2FRUITS)  APPLE"
        );
    }
}
