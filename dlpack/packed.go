package dlpack

// UnpackBits reads len(dst) packed elements of width bits (1 to 8) from src, starting with element first,
// each into the low bits of one byte of dst. Element i occupies the bits from i*width on, lowest bit
// first, across byte boundaries. Errors: [ErrShape] if src is too short, [ErrDataType] for an invalid
// width.
func UnpackBits(dst, src []byte, first int64, width int) error {
	if err := checkPacked("UnpackBits", int64(len(dst)), int64(len(src)), first, width); err != nil {
		return err
	}
	bit := uint64(first) * uint64(width)
	mask := byte(1<<width - 1)
	for i := range dst {
		word := uint16(src[bit/8]) >> (bit % 8)
		if bit%8+uint64(width) > 8 {
			word |= uint16(src[bit/8+1]) << (8 - bit%8)
		}
		dst[i] = byte(word) & mask
		bit += uint64(width)
	}
	return nil
}

// PackBits is the inverse of [UnpackBits]: it writes the low width bits of each byte of src as packed
// elements to dst, starting with element first, and keeps the other bits of dst.
func PackBits(dst, src []byte, first int64, width int) error {
	if err := checkPacked("PackBits", int64(len(src)), int64(len(dst)), first, width); err != nil {
		return err
	}
	bit := uint64(first) * uint64(width)
	mask := uint16(1<<width - 1)
	for _, v := range src {
		shift := bit % 8
		word, keep := (uint16(v)&mask)<<shift, ^(mask << shift)
		dst[bit/8] = dst[bit/8]&byte(keep) | byte(word)
		if shift+uint64(width) > 8 {
			dst[bit/8+1] = dst[bit/8+1]&byte(keep>>8) | byte(word>>8)
		}
		bit += uint64(width)
	}
	return nil
}

func checkPacked(op string, count, room, first int64, width int) error {
	if width < 1 || width > 8 {
		return opErr(op, ErrDataType, "a width of %d bits: packed elements have 1 to 8", width)
	}
	// Division instead of multiplication avoids overflow.
	if held := room/int64(width)*8 + room%int64(width)*8/int64(width); first < 0 || count > held || first > held-count {
		return opErr(op, ErrShape, "elements %d to %d of %d bits do not lie in %d bytes, which hold %d", first, first+count, width, room, held)
	}
	return nil
}
