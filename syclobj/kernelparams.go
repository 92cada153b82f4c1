package syclobj

import (
	"errors"
	"fmt"
	"strings"
)

// KernelParam is the driver's description of one parameter of a kernel, a value that owns nothing. If the
// driver does not describe it, the fields are empty, and only the driver checks the argument.
type KernelParam struct {
	Address string // "global", "constant", "local", or "private" for parameters passed by value
	Const   bool   // a pointer to const
	Type    string // as OpenCL C writes it, without qualifiers: "float*", "uint4"
	Name    string

	facts paramFacts // parsed from Type, once for each kernel
}

// paramFacts is the parsed name of a type.
type paramFacts struct {
	read, opaque, float, known bool
	bits, lanes                int
}

// readFacts parses the names of the types of a kernel's parameters.
func readFacts(params []KernelParam) {
	for i := range params {
		p := &params[i]
		f := paramFacts{read: true, opaque: p.opaque()}
		f.bits, f.float, f.lanes, f.known = p.Element()
		p.facts = f
	}
}

// String returns the declaration in OpenCL C.
func (p KernelParam) String() string {
	if p.Address == "" {
		return "a parameter that the driver does not describe"
	}
	var words []string
	if p.Address != "private" {
		words = append(words, p.Address)
	}
	if p.Const {
		words = append(words, "const")
	}
	for _, w := range []string{p.Type, p.Name} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// Element returns the scalar type of a pointer's target or of a value: its width in bits, whether it is a
// floating-point type, and the number of lanes (1 except for vectors). known reports whether the type is
// one of OpenCL C's own; otherwise the other results are meaningless.
func (p KernelParam) Element() (bits int, float bool, lanes int, known bool) {
	if f := &p.facts; f.read {
		return f.bits, f.float, f.lanes, f.known
	}
	return openCLType(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(p.Type), "*")))
}

var openCLScalars = map[string]struct {
	bits  int
	float bool
}{
	"char": {8, false}, "uchar": {8, false}, "short": {16, false}, "ushort": {16, false},
	"int": {32, false}, "uint": {32, false}, "long": {64, false}, "ulong": {64, false},
	"half": {16, true}, "float": {32, true}, "double": {64, true},
	"signed char": {8, false}, "unsigned char": {8, false}, "unsigned short": {16, false},
	"unsigned int": {32, false}, "unsigned": {32, false}, "unsigned long": {64, false},
}

// openCLType parses the name of a scalar or vector type.
func openCLType(name string) (bits int, float bool, lanes int, known bool) {
	if t, ok := openCLScalars[name]; ok {
		return t.bits, t.float, 1, true
	}
	base := strings.TrimRight(name, "0123456789")
	t, scalar := openCLScalars[base]
	n, vector := openCLLanes[name[len(base):]]
	if !scalar || !vector || strings.Contains(base, " ") {
		return 0, false, 0, false
	}
	return t.bits, t.float, n, true
}

var openCLLanes = map[string]int{"2": 2, "3": 3, "4": 4, "8": 8, "16": 16}

// valueBytes returns the size of a parameter that is passed by value, 0 if unknown. A vector of three has
// the size of four.
func (p *KernelParam) valueBytes() int {
	bits, _, lanes, ok := p.Element()
	if !ok {
		return 0
	}
	if lanes == 3 {
		lanes = 4
	}
	return bits / 8 * lanes
}

// opaque reports whether no argument of this package can be a value of the type.
func (p *KernelParam) opaque() bool {
	if p.facts.read {
		return p.facts.opaque
	}
	// Compare whole names: a program may define its own type image_params,
	// and a pointer to any type is accepted.
	switch p.Type {
	case "sampler_t", "queue_t", "event_t", "clk_event_t", "reserve_id_t":
		return true
	}
	for _, image := range []string{"image1d_", "image2d_", "image3d_"} {
		if strings.HasPrefix(p.Type, image) && strings.HasSuffix(p.Type, "_t") {
			return true
		}
	}
	return strings.HasPrefix(p.Type, pipePrefix)
}

// pipePrefix precedes the type of a pipe's packets, as in OpenCL C.
const pipePrefix = "pipe "

// takes returns an error if a parameter cannot take an argument, as far as it is described.
func (p *KernelParam) takes(a *KernelArg) error {
	switch {
	case a.kind == argNone:
		return fmt.Errorf("%w: the zero KernelArg: use PointerArg, ScalarArg, LocalArg or BytesArg", ErrArgument)
	case p.Address == "":
		return nil
	case p.opaque():
		return fmt.Errorf("the kernel takes %s: %w: images, samplers and pipes are not supported", p, errors.ErrUnsupported)
	case p.Address == "local":
		if a.kind != argLocal {
			return p.refuses("local memory")
		}
	case p.Address != "private":
		if a.kind != argPointer {
			return p.refuses("a pointer to USM")
		}
	case !a.isScalar() && a.kind != argBytes:
		return p.refuses("a value")
	default:
		return p.takesValue(a)
	}
	return nil
}

func (p *KernelParam) takesValue(a *KernelArg) error {
	want := p.valueBytes()
	if want == 0 {
		return nil
	}
	if a.size() != want {
		return p.refuses(fmt.Sprintf("a value of %d bytes", want))
	}
	_, float, lanes, _ := p.Element()
	half := float && want == 2 // passed as an integer
	if a.isScalar() && lanes == 1 && a.float != float && !half {
		return p.refuses("a number of that type")
	}
	return nil
}

func (p *KernelParam) refuses(want string) error {
	return fmt.Errorf("%w: the kernel takes %s: pass %s", ErrArgument, p, want)
}
