// Package backend is what models run on: memory for tensors, with a limit, and Python, in
// this process or in workers. It gives an engine its Memory, its Runner and its Models.
package backend
