package metrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usmbridge/usmbridge/interop/metrics"
	"github.com/usmbridge/usmbridge/memmgr"
)

// A service registers the collector once, and Prometheus reads the counters of each pool. A program
// with promhttp.Handler serves them.
func Example() {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithName("example"))
	defer pool.Close()
	b, err := memmgr.New(pool, memmgr.Request{Size: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Release()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(metrics.Tenants()))
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == "usmbridge_memory_requested_bytes" {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					fmt.Printf("%s=%q ", label.GetName(), label.GetValue())
				}
				fmt.Println(metric.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// place="host memory" pool="example" 1000
}
