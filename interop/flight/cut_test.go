package flight

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight/internal/cuttest"
)

// If the connection of a put or a get breaks at any point, the former tensor stays unchanged, no
// part of the new one is stored, and both sides release all memory.
func TestCutAtEveryStage(t *testing.T) {
	const size = 24 << 20
	b := newTestbed(t, nil)
	former, next := numbers(t, b.mine, 10, 3), numbers(t, b.mine, size/4)
	defer former.Release()
	defer next.Release()
	require.NoError(t, b.client.Put(t.Context(), "x", former))
	require.NoError(t, b.client.Put(t.Context(), "big", next))
	kept := b.pool.Stats().RequestedBytes.Current
	mine := b.mine.Stats().RequestedBytes.Current
	stages := []int64{0, 9, 40, 150, 400, 900, 5000, 70_000, 1 << 20, 5 << 20, 20 << 20}
	for i, n := range append(stages, stages...) {
		cut := &cuttest.Cutter{To: b.at.Address, Up: n, Down: -1}
		if i >= len(stages) {
			cut.Up, cut.Down = -1, n
		}
		t.Run(fmt.Sprintf("up %d down %d", cut.Up, cut.Down), func(t *testing.T) {
			at := Location{"grpc+unix", filepath.Join(t.TempDir(), "p")}
			l, err := at.Listen()
			require.NoError(t, err)
			cut.Start(l)
			c := dial(t, at.String(), ClientOptions{})
			put := c.Put(t.Context(), "x", next)
			got, get := c.Get(t.Context(), "big", b.mine)
			if get == nil {
				got.Release()
			}
			if cut.Up >= 0 {
				require.Error(t, put)
			} else {
				require.Error(t, get)
			}
			require.NoError(t, c.Close())
			l.Close()
			cut.Wait()
			if put == nil { // the reply arrived, so the new tensor is stored
				require.NoError(t, b.client.Put(t.Context(), "x", former))
			}
			waitReleased(t)
			require.Eventually(t, func() bool {
				return b.server.Stats().Streams == 0 && b.pool.Stats().RequestedBytes.Current == kept && b.mine.Stats().RequestedBytes.Current == mine
			}, time.Minute, time.Millisecond)
			require.Equal(t, []string{"big", "x"}, b.server.Store().Names(""))
			now, err := b.client.Get(t.Context(), "x", b.mine)
			require.NoError(t, err)
			same(t, former, now)
			now.Release()
		})
	}
}
