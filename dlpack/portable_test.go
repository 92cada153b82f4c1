package dlpack_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestUnsupportedBuild: in builds without the exchange, its functions return errors.ErrUnsupported.
func TestUnsupportedBuild(t *testing.T) {
	if dlpack.Supported() {
		t.Skip("this build exchanges tensors; run with CGO_ENABLED=0")
	}
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Export(&dlpack.View{}, 0, true, dlpack.Owner{})), errors.ErrUnsupported)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Import(nil, true)), errors.ErrUnsupported)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Check(&dlpack.View{}, 0)), errors.ErrUnsupported)
	dlpack.Delete(nil, true)
	require.False(t, dlpack.Tensor{}.Valid())
	dlpack.Tensor{}.Release()
	require.Zero(t, dlpack.Live())
}

func ExampleDataType() {
	for _, d := range []dlpack.DataType{dlpack.Float32, dlpack.BFloat16, dlpack.Float4E2M1FN} {
		size, _ := d.ByteSize(5, false)
		text, err := d.TypeString()
		fmt.Println(d, d.BitSize(), size, text, err != nil)
	}
	d, _ := dlpack.ParseTypeString("|f8")
	fmt.Println(d)
	// Output:
	// float32 32 20 <f4 false
	// bfloat16 16 10  true
	// float4_e2m1fn 4 3  true
	// float64
}

func ExampleNegotiate() {
	for _, limit := range []*dlpack.Version{nil, {Major: 1, Minor: 0}} {
		versioned, err := dlpack.Negotiate(limit, dlpack.ReadOnly)
		fmt.Println(versioned, err)
	}
	// Output:
	// false dlpack: Negotiate: read-only memory: the legacy struct has no read-only flag: ask with max_version=(1, 0) or newer, or copy
	// true <nil>
}
