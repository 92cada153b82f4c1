// Package metrics shows the pools of package memmgr to monitoring systems:
// [NewCollector] to Prometheus, [Observe] to OpenTelemetry. It is a module of its own,
// so that a program that wants neither does not build them.
//
// Both read the counters when they are asked ([memmgr.Pool.Stats], some ten
// microseconds for a pool) and run nothing by themselves. Pools of one name and place
// are added up, so that no two series have the same labels. Bytes are bytes,
// durations seconds.
//
// A program that wants neither can publish the same counters by package expvar:
//
//	expvar.Publish("usmbridge", expvar.Func(func() any { return report.Vars() }))
package metrics
