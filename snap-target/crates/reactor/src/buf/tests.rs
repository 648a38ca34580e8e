use super::*;

#[test]
fn slices_cut_across_segments() {
    let mut buf = IoBuf::from_bytes(b"hello ").unwrap();
    buf.append(IoBuf::from_bytes(b"wide ").unwrap());
    buf.append(IoBuf::from_bytes(b"world").unwrap());
    let whole = b"hello wide world";
    assert_eq!(buf.len(), whole.len());
    for start in 0..=whole.len() {
        for end in start..=whole.len() {
            assert_eq!(buf.slice(start..end).to_vec(), &whole[start..end]);
        }
    }
}
