package sycltest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestControls: objects and calls are counted.
func TestControls(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		require.Equal(t, sycltest.Objects{}, fake.Live())
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL(syclobj.BackendLevelZero)))(t)
		require.NotZero(t, fake.Live().Devices)
		require.Equal(t, 1, fake.Calls("DPCTLDeviceMgr_GetDevices"))
		require.NoError(t, rt.Close())
	})
}

func TestSubtestsHaveMachinesOfTheirOwn(t *testing.T) {
	for name, m := range map[string]sycltest.Machine{"one": sycltest.OneCPU, "three of them": sycltest.CPUFirst} {
		t.Run(name, func(t *testing.T) {
			sycltest.Child(t, m, func(*sycltest.Fake) {
				rt := testenv.Opened(syclobj.Open())(t)
				n := 0
				for _, p := range m {
					n += len(p.Devices)
				}
				require.Len(t, rt.RootDevices(), n)
			})
		})
	}
}
