package syclobj

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// SPIR-V, of which only the frame is read here (SPIR-V specification 1.6, section 2.3).
const (
	spirvMagic  = 0x07230203
	spirvHeader = 5 // words
)

// checkSPIRV is what is wrong with the frame of a module: its header, and the lengths of
// its instructions, which must end where the module does. A driver may end the process on
// a module that was cut off; what the instructions mean is the driver's to check.
func checkSPIRV(module []byte) error {
	if len(module)%4 != 0 || len(module) < 4*spirvHeader {
		return fmt.Errorf("%w: %d bytes are no SPIR-V, which is words of 4 bytes, 5 at least", ErrArgument, len(module))
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch magic := order.Uint32(module); magic {
	case spirvMagic:
	case bits.ReverseBytes32(spirvMagic):
		order = binary.BigEndian
	default:
		return fmt.Errorf("%w: a module begins with the number %#08x, this with %#08x", ErrArgument, spirvMagic, magic)
	}
	for at := 4 * spirvHeader; at < len(module); {
		words := int(order.Uint32(module[at:]) >> 16)
		if words == 0 || 4*words > len(module)-at {
			return fmt.Errorf("%w: the instruction at byte %d has %d words, of the module %d are left", ErrArgument, at, words, (len(module)-at)/4)
		}
		at += 4 * words
	}
	return nil
}
