// Package oip has the types of the Open Inference Protocol, version 2, that all transports share:
// datatypes, metadata, and errors for clients. All of it may be used from any goroutine.
package oip
