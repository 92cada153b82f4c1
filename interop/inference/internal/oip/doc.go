// Package oip has the words of the Open Inference Protocol, version 2, that every transport
// says in its own encoding: datatypes, metadata, and errors with what a client is told. It
// does nothing, and everything in it may be used from any goroutine.
package oip
