package sycltest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestControls: objects and calls are counted.
func TestControls(t *testing.T) {
	fake := sycltest.Child(t, sycltest.TwoGPUs)
	if fake == nil {
		return
	}
	require.Equal(t, sycltest.Objects{}, fake.Live())
	rt, err := syclobj.Open(syclobj.RequireSYCL(syclobj.BackendLevelZero))
	require.NoError(t, err)
	require.NotZero(t, fake.Live().Devices)
	require.Equal(t, 1, fake.Calls("DPCTLDeviceMgr_GetDevices"))
	require.NoError(t, rt.Close())
}

func TestSubtestsHaveMachinesOfTheirOwn(t *testing.T) {
	for name, m := range map[string]sycltest.Machine{"one": sycltest.OneCPU, "three of them": sycltest.CPUFirst} {
		t.Run(name, func(t *testing.T) {
			if sycltest.Child(t, m) == nil {
				return
			}
			rt, err := syclobj.Open()
			require.NoError(t, err)
			defer rt.Close()
			n := 0
			for _, p := range m {
				n += len(p.Devices)
			}
			require.Len(t, rt.RootDevices(), n)
		})
	}
}
