package backend_test

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/usmbridge/usmbridge/interop/inference/internal/builtin"
)

// BenchmarkRequests measures requests of built-in models from Begin to End, without a transport,
// from 32 concurrent clients.
func BenchmarkRequests(b *testing.B) {
	needNumba(b)
	for _, model := range []struct {
		name, input string
		shape       []int64
	}{{"sobel", "luminance", []int64{16, 16}}, {"sobel", "luminance", []int64{512, 512}}, {"identity", "x", []int64{256}}} {
		b.Run(fmt.Sprintf("%s%v", model.name, model.shape), func(b *testing.B) {
			e := open(b, builtin.Sources())
			b.SetParallelism(16)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := call(context.Background(), e, model.name, model.input, model.shape, nil); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// slots is a parameter of the benchmarks. 0 selects the default of the service.
var slots = flag.Int("slots", 0, "slots of the executor")
