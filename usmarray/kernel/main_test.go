package kernel_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) { testsycl.Main(m) }

// build compiles OpenCL C and closes the program after the test.
func build(t testing.TB, q *syclobj.Queue, text string) *syclobj.Program {
	t.Helper()
	return testenv.Opened(q.BuildOpenCL(text, ""))(t)
}

// take returns a kernel and closes it after the test.
func take(t testing.TB, p *syclobj.Program, name string) *syclobj.Kernel {
	t.Helper()
	return testenv.Opened(p.Kernel(name))(t)
}

// resource returns the default pool of a kind on a queue.
func resource(t testing.TB, q *syclobj.Queue, kind syclobj.USMKind) memmgr.Resource {
	t.Helper()
	return testenv.Must(memmgr.Default(q, kind))(t)
}
