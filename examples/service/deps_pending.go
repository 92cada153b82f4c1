package main

// What the transports and the admin pages stand on, until they are here.
import (
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/health"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/protobuf/proto"

	_ "github.com/usmbridge/usmbridge/interop/flight/codec"
	_ "github.com/usmbridge/usmbridge/interop/metrics"
)
