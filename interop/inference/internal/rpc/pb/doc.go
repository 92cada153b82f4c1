// Package pb has the messages of the Open Inference Protocol for gRPC, generated from
// inference.proto by protoc and protoc-gen-go 1.36.12.
package pb

//go:generate protoc --go_out=. --go_opt=paths=source_relative inference.proto
