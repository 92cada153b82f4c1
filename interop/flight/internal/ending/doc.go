// Package ending has release functions for tests that make structs of the Arrow C data
// interface byte by byte: they count, and spoil what the struct's owner gave, so that a use
// afterwards is seen.
package ending
