//! How ProtoJSON is read and written: the two macros that define messages and oneofs, and the readers of scalar values.
//!
//! Derived serde code is not used for messages, because it accepts arrays as positional structs and needs three
//! attributes on each field for what ProtoJSON says once: either spelling of a name, null means unset, unknown names are
//! skipped. A field is declared with its presence:
//!
//! - `always`: REQUIRED in the proto, always printed; reads as the default when it is missing (validation is elsewhere),
//! - `mandatory`: a REQUIRED message without a sensible default, always printed; refused when it is missing,
//! - `implicit`: no presence, not printed when it is the default,
//! - `optional`: presence is tracked, the Rust field is an `Option`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value as it stands in a field. `null` never reaches it: for a field that means unset.
pub(crate) trait Value<'de>: Sized {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

thread_local! {
    /// How many entries a list may have while something is read here.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Reads something whose lists have at most so many entries. More of them are an error as soon as they are met, before they take any room.
pub(crate) fn within<T>(most: usize, read: impl FnOnce() -> T) -> T {
    /// Sets it back, come what may.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            MOST.set(self.0);
        }
    }
    let _before = Before(MOST.replace(most));
    read()
}

/// Reads the value of a field; `None` stands for null.
pub(crate) fn field<'de, A, T>(map: &mut A) -> Result<Option<T>, A::Error>
where
    A: MapAccess<'de>,
    T: Value<'de>,
{
    map.next_value_seed(Nullable(PhantomData))
}

/// Whether an implicit field is left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $presence:ident $field:ident $json:literal: $ty:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $crate::wire::message!(@type $presence $ty), )*
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $( $crate::wire::message!(@print $presence map, $json, self.$field); )*
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::wire::message!(@names $( $field $json, )*);
                struct Reader;
                impl<'de> serde::de::Visitor<'de> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a ", stringify!($name), " object"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        $( let mut $field: Option<Option<$ty>> = None; )*
                        while let Some(found_name) = map.next_key::<Name>()? {
                            match found_name {
                                $( Name::$field => {
                                    if $field.is_some() {
                                        return Err(serde::de::Error::duplicate_field($json));
                                    }
                                    $field = Some($crate::wire::field(&mut map)?);
                                } )*
                                Name::Unknown => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                }
                            }
                        }
                        Ok($name { $( $field: $crate::wire::message!(@finish $presence $json, $field.flatten()), )* })
                    }
                }
                deserializer.deserialize_map(Reader)
            }
        }

        $crate::wire::value!($name);
    };

    (@type optional $ty:ty) => { Option<$ty> };
    (@type $presence:ident $ty:ty) => { $ty };

    (@print always $map:ident, $json:literal, $value:expr) => { $map.serialize_entry($json, &$value)?; };
    (@print mandatory $map:ident, $json:literal, $value:expr) => { $map.serialize_entry($json, &$value)?; };
    (@print implicit $map:ident, $json:literal, $value:expr) => {
        if !$crate::wire::is_default(&$value) {
            $map.serialize_entry($json, &$value)?;
        }
    };
    (@print optional $map:ident, $json:literal, $value:expr) => {
        if let Some(value) = &$value {
            $map.serialize_entry($json, value)?;
        }
    };

    (@finish always $json:literal, $value:expr) => { $value.unwrap_or_default() };
    (@finish mandatory $json:literal, $value:expr) => {
        match $value {
            Some(value) => value,
            None => return Err(serde::de::Error::missing_field($json)),
        }
    };
    (@finish implicit $json:literal, $value:expr) => { $value.unwrap_or_default() };
    (@finish optional $json:literal, $value:expr) => { $value };

    // The names of a message's fields: what the sender wrote, in either spelling, to one enum.
    (@names $( $field:ident $json:literal, )*) => {
        #[expect(non_camel_case_types, reason = "the variants are named after the fields")]
        enum Name { $( $field, )* Unknown }

        impl<'de> serde::Deserialize<'de> for Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct NameReader;
                impl serde::de::Visitor<'_> for NameReader {
                    type Value = Name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a field name")
                    }

                    #[allow(unreachable_patterns, reason = "one-word names are spelled the same both ways")]
                    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Name, E> {
                        Ok(match name {
                            $( $json | stringify!($field) => Name::$field, )*
                            _ => Name::Unknown,
                        })
                    }
                }
                deserializer.deserialize_identifier(NameReader)
            }
        }
    };
}

/// A message that is nothing but a oneof: an object with one key. With `or Variant`, an object without a known member
/// is that variant; without it, such an object is refused.
macro_rules! oneof {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident($ty:ty) = $field:ident $json:literal, )*
        }
        $( or $(#[$unset_meta:meta])* $unset:ident )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant($ty), )*
            $( $(#[$unset_meta])* $unset, )?
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                match self {
                    $( Self::$variant(value) => map.serialize_entry($json, value)?, )*
                    $( Self::$unset => {} )?
                }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::wire::message!(@names $( $field $json, )*);
                struct Reader;
                impl<'de> serde::de::Visitor<'de> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a ", stringify!($name), " object"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut found: Option<$name> = None;
                        while let Some(found_name) = map.next_key::<Name>()? {
                            let member = match found_name {
                                $( Name::$field => $crate::wire::field(&mut map)?.map($name::$variant), )*
                                Name::Unknown => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    None
                                }
                            };
                            if member.is_some() {
                                if found.is_some() {
                                    return Err($crate::wire::two_members(stringify!($name)));
                                }
                                found = member;
                            }
                        }
                        $( let found = found.or(Some($name::$unset)); )?
                        found.ok_or_else(|| $crate::wire::no_member(stringify!($name), &[$( $json, )*]))
                    }
                }
                deserializer.deserialize_map(Reader)
            }
        }

        $crate::wire::value!($name);
    };
}

/// Lets a type that implements `Deserialize` stand in a field.
macro_rules! value {
    ($name:ty) => {
        impl<'de> $crate::wire::Value<'de> for $name {
            fn read<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        }
    };
}

pub(crate) use {message, oneof, value};

pub(crate) fn two_members<E: de::Error>(of: &str) -> E {
    E::custom(format_args!("more than one member of the oneof of {of} is set"))
}

pub(crate) fn no_member<E: de::Error>(of: &str, members: &[&str]) -> E {
    E::custom(format_args!("{of} needs one of {}", members.join(", ")))
}

value!(String);
value!(bool);

impl<'de> Value<'de> for i32 {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Int)
    }
}

impl<'de, T: Value<'de>> Value<'de> for Vec<T> {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List(PhantomData))
    }
}

impl<'de, T: Value<'de>> Value<'de> for BTreeMap<String, T> {
    fn read<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Map(PhantomData))
    }
}

struct Nullable<T>(PhantomData<T>);

impl<'de, T: Value<'de>> DeserializeSeed<'de> for Nullable<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Value<'de>> Visitor<'de> for Nullable<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer).map(Some)
    }
}

/// An element of a list or a map, where null has no meaning and is refused by the value's own reader.
struct Element<T>(PhantomData<T>);

impl<'de, T: Value<'de>> DeserializeSeed<'de> for Element<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

struct List<T>(PhantomData<T>);

impl<'de, T: Value<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let most = MOST.get();
        let mut list = Vec::new();
        while let Some(element) = seq.next_element_seed(Element(PhantomData))? {
            if list.len() == most {
                return Err(de::Error::custom(format_args!("must hold at most {most} entries")));
            }
            list.push(element);
        }
        Ok(list)
    }
}

struct Map<T>(PhantomData<T>);

impl<'de, T: Value<'de>> Visitor<'de> for Map<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BTreeMap<String, T>, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Element(PhantomData))?;
            if entries.insert(key, value).is_some() {
                return Err(de::Error::custom("a key of the map appears twice"));
            }
        }
        Ok(entries)
    }
}

/// ProtoJSON int32: a number or a string that holds one; `5.0` and `1e2` are integers too.
struct Int;

impl Visitor<'_> for Int {
    type Value = i32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 32-bit integer")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i32, E> {
        i32::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i32, E> {
        i32::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<i32, E> {
        let in_range = value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX);
        if in_range && value.fract() == 0.0 {
            // Exact: the value is integral and in range.
            return Ok(value as i32);
        }
        Err(E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i32, E> {
        if let Ok(value) = text.parse::<i32>() {
            return Ok(value);
        }
        let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        match text.parse::<f64>() {
            Ok(value) if is_number => self.visit_f64(value),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}
