package syclobj_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestCodesHaveOneText: Go and C have the same text for every result that both have.
func TestCodesHaveOneText(t *testing.T) {
	for code := syclobj.Code(0); code <= syclobj.ErrNoCUDA; code++ {
		require.NotContains(t, code.Error(), "unknown", "%d", code)
		require.Equal(t, code.Error(), sycltest.CodeText(code), "%d", code)
	}
}

// TestFilterStringsNameBackendsAndTypes: filter strings, which C writes, use Go's names of backends and
// types.
func TestFilterStringsNameBackendsAndTypes(t *testing.T) {
	var machine sycltest.Machine
	for _, b := range []syclobj.Backend{syclobj.BackendCUDA, syclobj.BackendLevelZero, syclobj.BackendOpenCL, syclobj.BackendHIP} {
		p := sycltest.Platform{Backend: b, Name: b.String()}
		for _, typ := range []syclobj.DeviceType{syclobj.TypeAccelerator, syclobj.TypeCPU, syclobj.TypeCustom, syclobj.TypeGPU} {
			p.Devices = append(p.Devices, sycltest.Device{Type: typ, Name: typ.String()})
		}
		machine = append(machine, p)
	}
	if sycltest.Child(t, machine) == nil {
		return
	}
	rt, err := syclobj.Open()
	require.NoError(t, err)
	defer rt.Close()
	require.Len(t, rt.RootDevices(), 16)
	for _, d := range rt.RootDevices() {
		require.Equal(t, fmt.Sprintf("%v:%v:0", d.Info().Backend, d.Info().Type), d.FilterString())
		require.Equal(t, d.Platform().Info().Name, d.Info().Backend.String())
		require.Equal(t, d.Info().Name, d.Info().Type.String())
	}
}
