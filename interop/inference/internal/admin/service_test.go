package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// service is an engine with models in Go whose pages are served on a port of this machine.
type service struct {
	url    string
	engine *engine.Engine
	runner *enginetest.Runner
	pool   *memmgr.Pool
	calls  *memmgr.Pool
	cancel context.CancelFunc // ends profiles
}

func newService(t *testing.T) *service {
	t.Helper()
	slow := enginetest.Identity()
	infer := slow.Infer
	slow.Infer = func(ctx context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error) {
		time.Sleep(2 * time.Millisecond)
		return infer(ctx, in, out)
	}
	models := []*enginetest.Model{slow, enginetest.Sum(), enginetest.Failing(errors.New("no"))}
	s := &service{runner: enginetest.NewRunner(models...)}
	const limit = 64 << 20
	s.pool = memmgr.NewPool(memmgr.NewLimit(memmgr.Host(), limit), memmgr.WithName("inference"))
	s.calls = memmgr.NewPool(memmgr.NewLimit(memmgr.Host(), limit/4), memmgr.WithName("calls"))
	results := memmgr.NewPool(memmgr.Host(), memmgr.WithName("results"))
	t.Cleanup(func() { require.NoError(t, s.calls.Close()); require.NoError(t, results.Close()) })
	s.engine = enginetest.With(t, s.runner, engine.Options{Memory: engine.Pool{Pool: s.pool, Limit: limit}, Calls: engine.Pool{Pool: s.calls, Limit: limit / 4}, Results: engine.Pool{Pool: results},
		Version: "test", Log: slog.New(slog.DiscardHandler)}, models...)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(ctx, s.engine, nil)
	server.Start()
	s.url = server.URL
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// request runs one request of n elements, like a transport.
func (s *service) request(model string, n int) error {
	_, err := enginetest.Call(context.Background(), s.engine, model, "x", []int64{int64(n)}, make([]float32, n))
	if err != nil {
		s.engine.Refused(oip.As(err).Kind)
	}
	return err
}

func (s *service) get(t *testing.T, path string) (status int, body string, header http.Header) {
	t.Helper()
	answer, err := http.Get(s.url + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text), answer.Header
}
