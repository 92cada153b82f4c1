package transfer

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/usmbridge/usmbridge/usmarray"
)

// bigEndian reports whether this machine is big-endian.
var bigEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 0
}()

// SwapFor returns Elements.Swap for elements of a type in a file of the given byte order.
func SwapFor(fileBigEndian bool, dt usmarray.DataType) int {
	width := dt.Size()
	if dt.IsComplex() { // two units
		width /= 2
	}
	if fileBigEndian == bigEndian || width < 2 {
		return 0
	}
	return width
}

// swapBytes reverses each unit of 2, 4 or 8 bytes. It does nothing for other widths.
func swapBytes(b []byte, width int) {
	order := binary.LittleEndian // either order works, because loads and stores use the same
	switch width {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			order.PutUint16(b, bits.ReverseBytes16(order.Uint16(b)))
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			order.PutUint32(b, bits.ReverseBytes32(order.Uint32(b)))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			order.PutUint64(b, bits.ReverseBytes64(order.Uint64(b)))
		}
	}
}
