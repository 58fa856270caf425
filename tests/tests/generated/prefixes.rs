//! Short names of enumerators, and unions that convert to `Option` and `Result`.

use rpcrdma::xdr::{EncodeError, XdrDecode as _, XdrEncode as _};

use super::wire;
use crate::prefixes::{Contents, Found, GetattrRes, Kind, LookupRes, Maybe, Missing, SearchRes, Stat, Unless};

const FOUND: Found = Found { r#type: Kind::Dir, size: 3 };

#[test]
fn enumerators_lose_their_prefix() {
    assert_eq!(Kind::VARIANTS, [Kind::Reg, Kind::Dir]);
    assert_eq!(Kind::DEFAULT, Kind::Dir);
    assert_eq!(Stat::VARIANTS, [Stat::Ok, Stat::Perm, Stat::Noent]);
    wire(&Contents::Reg(b"ab".to_vec().into()), &[1, 2, 0x6162_0000]);
    wire(&Contents::Default, &[2]);
}

#[test]
fn enumerators_display_their_names_in_xdr() {
    assert_eq!(Stat::Noent.to_string(), "NFS3ERR_NOENT");
    assert_eq!(format!("{:>8}", Kind::Reg), "  NF3REG");
    let error: Box<dyn std::error::Error> = Stat::Perm.into();
    assert_eq!(error.to_string(), "NFS3ERR_PERM");
}

/// Uses `?` on a result, as a client does.
fn size(result: LookupRes) -> Result<u64, Stat> {
    Ok(result.into_result()?.size)
}

/// Converts a `Result` to a reply, as a handler does.
fn search(result: Result<Found, (Stat, Missing)>) -> SearchRes {
    result.into()
}

#[test]
fn a_union_over_a_status_is_a_result() {
    assert_eq!(size(LookupRes::Ok(FOUND)), Ok(3));
    assert_eq!(size(LookupRes::Default(Stat::Noent)), Err(Stat::Noent));
    let result: Result<Found, Stat> = LookupRes::Default(Stat::Perm).into();
    assert_eq!(LookupRes::from(result), LookupRes::Default(Stat::Perm));
    wire(&LookupRes::from(Ok(FOUND)), &[0, 2, 0, 3]);
    // An error cannot be success.
    assert!(matches!(LookupRes::from(Err(Stat::Ok)).to_bytes(), Err(EncodeError::CaseInDefault { .. })));
}

#[test]
fn void_cases_other_than_the_default_are_errors() {
    for (status, expected) in [(Stat::Perm, GetattrRes::Perm), (Stat::Noent, GetattrRes::Default(Stat::Noent))] {
        let result = GetattrRes::from(Err(status));
        assert_eq!(result, expected);
        assert_eq!(result.into_result(), Err(status));
    }
}

#[test]
fn data_of_a_failure_is_returned_with_the_status() {
    let failed = search(Err((Stat::Noent, Missing { tries: 2 })));
    wire(&failed, &[2, 2]);
    assert_eq!(failed.clone().into_result(), Err(Stat::Noent));
    assert_eq!(Result::from(failed), Err::<Found, _>((Stat::Noent, Missing { tries: 2 })));
    assert_eq!(search(Ok(FOUND)).into_result(), Ok(FOUND));
}

#[test]
fn a_union_over_a_boolean_is_an_option() {
    wire(&Maybe::from(Some(FOUND)), &[1, 2, 0, 3]);
    wire(&Maybe::from(None), &[0]);
    assert_eq!(Maybe::True(FOUND).as_option(), Some(&FOUND));
    assert_eq!(Option::from(Maybe::False), None::<Found>);
    wire(&Unless::from(Some("ab".into())), &[0, 2, 0x6162_0000]);
    wire(&Unless::from(None), &[1]);
    assert_eq!(Unless::False("ab".into()).into_option().unwrap(), "ab");
}

#[test]
fn borrowed_forms_convert_as_well() {
    let encoded = Unless::False("ab".into()).to_bytes().unwrap();
    let view: crate::prefixes::UnlessRef<'_> = rpcrdma::xdr::Decoder::new(&encoded).read_ref().unwrap();
    assert_eq!(view.into_option().unwrap(), "ab");
    assert_eq!(Unless::from_bytes(&encoded).unwrap(), Unless::False("ab".into()));
}
