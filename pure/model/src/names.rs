//! Values that have one name each, the same in text, JSON and files.

/// An enum of such values, with the word for what they are.
macro_rules! named {
    (
        $(#[$outer:meta])* $name:ident, $what:literal
        { $($(#[$inner:meta])* $value:ident = $text:literal,)* }
    ) => {
        $(#[$outer])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $($(#[$inner])* #[serde(rename = $text)] $value,)* }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$value),*];

            /// Its name in text, JSON and files.
            pub const fn name(self) -> &'static str {
                [$($text),*][self as usize]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                let found = $name::ALL.into_iter().find(|value| value.name() == text);
                let known = [$($text),*].join(", ");
                found.ok_or_else(|| format!("no such {} '{text}'; known: {known}", $what))
            }
        }
    };
}
pub(crate) use named;
