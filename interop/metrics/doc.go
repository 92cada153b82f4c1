// Package metrics exports the state of memory pools, their tenants, and the runners of Python
// functions to Prometheus ([NewCollector]). It is a module of its own, so that other programs need not
// build Prometheus's library.
//
// A collector always exports all open pools of package memmgr. [Tenants] adds the tenants of the pools,
// and [Runner] an executor or a pool of workers:
//
//	prometheus.MustRegister(metrics.NewCollector(metrics.Tenants(), metrics.Runner("models", pool)))
//
// A program with OpenTelemetry gives its reader the metrics of Prometheus's registry by the bridge
// go.opentelemetry.io/contrib/bridges/prometheus:
//
//	sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(prometheusbridge.NewMetricProducer()))
//
// The counters are read only when the monitoring system collects; nothing runs in between. Pools with
// the same name and place are added up, so that no two series have the same labels. Sizes are in
// bytes, durations in seconds. A [Collector] owns nothing and is safe for concurrent use.
//
// Without this module, package expvar can publish the same counters of the pools:
//
//	expvar.Publish("usmbridge", expvar.Func(func() any { return report.Vars() }))
package metrics
