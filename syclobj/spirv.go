package syclobj

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// The frame of SPIR-V modules (SPIR-V specification 1.6, section 2.3).
const (
	spirvMagic  = 0x07230203
	spirvHeader = 5 // words
)

// checkSPIRV checks the frame of a module: its header, and the lengths of its instructions, which must end
// where the module does. A driver may crash on a truncated module. The driver checks the instructions
// themselves.
func checkSPIRV(module []byte) error {
	if len(module)%4 != 0 || len(module) < 4*spirvHeader {
		return fmt.Errorf("%w: %d bytes are not SPIR-V, which consists of at least 5 words of 4 bytes", ErrArgument, len(module))
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch magic := order.Uint32(module); magic {
	case spirvMagic:
	case bits.ReverseBytes32(spirvMagic):
		order = binary.BigEndian
	default:
		return fmt.Errorf("%w: a module begins with the number %#08x, not with %#08x", ErrArgument, spirvMagic, magic)
	}
	for at := 4 * spirvHeader; at < len(module); {
		words := int(order.Uint32(module[at:]) >> 16)
		if words == 0 || 4*words > len(module)-at {
			return fmt.Errorf("%w: the instruction at byte %d has %d words, but the module has only %d left", ErrArgument, at, words, (len(module)-at)/4)
		}
		at += 4 * words
	}
	return nil
}

// The instructions and numbers of SPIR-V 1.6 (sections 3.3, 3.7 and 3.52) that describe a
// kernel's parameters.
const (
	opName, opEntryPoint                 = 5, 15
	opTypeInt, opTypeFloat, opTypeVector = 21, 22, 23
	opTypeImage, opTypeSampler           = 25, 26
	opTypePointer, opTypeFunction        = 32, 33
	opFunction, opFunctionParameter      = 54, 55
	opTypeUntypedPointer                 = 4417
	modelKernel                          = 6
	storageConstant, storageGlobal       = 0, 5
	storageLocal, storageFunction        = 4, 7
)

// spirvReader reads the instructions of a module that has passed checkSPIRV.
type spirvReader struct {
	types     map[uint32]KernelParam // the parameter of each type
	functions map[uint32][]uint32    // the parameter types of each function type
	entries   map[uint32][]string    // the kernel names of each function
	names     map[uint32]string
	kernels   map[string][]KernelParam
	at        []KernelParam // the parameters of the current function that were not named yet
}

// spirvKernels returns a module's own description of its kernels' parameters: the kind of memory, or the
// size of values. It does not describe the targets of pointers, because compilers write arbitrary types
// there.
func spirvKernels(module []byte) map[string][]KernelParam {
	var order binary.ByteOrder = binary.LittleEndian
	if order.Uint32(module) == bits.ReverseBytes32(spirvMagic) {
		order = binary.BigEndian
	}
	r := spirvReader{map[uint32]KernelParam{}, map[uint32][]uint32{}, map[uint32][]string{}, map[uint32]string{}, map[string][]KernelParam{}, nil}
	for at := 4 * spirvHeader; at < len(module); {
		first := order.Uint32(module[at:])
		n := int(first >> 16)
		words := make([]uint32, n-1)
		for i := range words {
			words[i] = order.Uint32(module[at+4*(i+1):])
		}
		r.instruction(first&0xffff, words)
		at += 4 * n
	}
	return r.kernels
}

// instruction reads one instruction. Missing operands are ignored.
func (r *spirvReader) instruction(op uint32, words []uint32) {
	operand := func(i int) uint32 {
		if i < len(words) {
			return words[i]
		}
		return 0
	}
	id := operand(0)
	switch op {
	case opName:
		r.names[id] = spirvText(words[min(1, len(words)):])
	case opEntryPoint:
		if id == modelKernel && len(words) > 2 {
			r.entries[operand(1)] = append(r.entries[operand(1)], spirvText(words[2:]))
		}
	case opTypeInt:
		r.types[id] = KernelParam{Address: "private", Type: map[uint32]string{8: "char", 16: "short", 32: "int", 64: "long"}[operand(1)]}
	case opTypeFloat:
		if len(words) == 2 { // otherwise not an IEEE encoding
			r.types[id] = KernelParam{Address: "private", Type: map[uint32]string{16: "half", 32: "float", 64: "double"}[operand(1)]}
		}
	case opTypeVector:
		if of := r.types[operand(1)]; of.Address == "private" && of.Type != "" {
			lanes := map[uint32]string{2: "2", 3: "3", 4: "4", 8: "8", 16: "16"}[operand(2)]
			if lanes != "" {
				r.types[id] = KernelParam{Address: "private", Type: of.Type + lanes}
			}
		}
	case opTypeImage:
		r.types[id] = KernelParam{Address: "global", Type: "image2d_t"}
	case opTypeSampler:
		r.types[id] = KernelParam{Address: "private", Type: "sampler_t"}
	case opTypePointer, opTypeUntypedPointer:
		r.types[id] = pointerIn(operand(1))
	case opTypeFunction:
		r.functions[id] = words[min(2, len(words)):]
	case opFunction:
		r.function(operand(1), operand(3))
	case opFunctionParameter:
		if len(r.at) > 0 {
			r.at[0].Name = r.names[operand(1)]
			r.at = r.at[1:]
		}
	}
}

// pointerIn returns a parameter that points to memory of a storage class.
func pointerIn(class uint32) KernelParam {
	switch class {
	case storageConstant:
		return KernelParam{Address: "constant", Type: "void*", Const: true}
	case storageGlobal:
		return KernelParam{Address: "global", Type: "void*"}
	case storageLocal:
		return KernelParam{Address: "local", Type: "void*"}
	case storageFunction: // a struct by value
		return KernelParam{Address: "private"}
	}
	return KernelParam{}
}

// function records the parameters of a function that is a kernel.
func (r *spirvReader) function(id, typ uint32) {
	r.at = nil
	names := r.entries[id]
	params, known := r.functions[typ]
	if len(names) == 0 || !known || len(params) > maxKernelArgs {
		return
	}
	list := make([]KernelParam, len(params))
	for i, t := range params {
		list[i] = r.types[t]
	}
	for _, name := range names {
		r.kernels[name] = list
	}
	r.at = list
}

// spirvText returns a SPIR-V string: bytes up to a zero, the lowest of a word first.
func spirvText(words []uint32) string {
	var s strings.Builder
	for _, w := range words {
		for range 4 {
			if w&0xff == 0 {
				return s.String()
			}
			s.WriteByte(byte(w))
			w >>= 8
		}
	}
	return s.String()
}

// mergeParams fills gaps in the driver's description from the module's. It returns nil if neither
// describes a kernel.
func mergeParams(driver, module map[string][]KernelParam) map[string][]KernelParam {
	if driver == nil && len(module) > 0 {
		driver = map[string][]KernelParam{}
	}
	for name, params := range module {
		have := driver[name]
		if len(have) != len(params) {
			if len(have) == 0 {
				driver[name] = params
			}
			continue
		}
		for i, p := range params {
			switch {
			case have[i].Address == "":
				have[i] = p
			case have[i].Address == p.Address && have[i].Type == "":
				have[i].Type = p.Type
			}
		}
	}
	return driver
}
