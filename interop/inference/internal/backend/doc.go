// Package backend provides what models need: memory for tensors, with a limit, and Python, in this
// process or in workers. It loads models and returns their definitions and a runner, for an engine.
package backend
