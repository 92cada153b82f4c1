// Package oip has the types of the Open Inference Protocol, version 2, that all transports share:
// datatypes, metadata, and errors for clients. All of it may be used from any goroutine.
package oip

// Tensor describes an input or output of a model. The JSON of these types is the protocol's.
type Tensor struct {
	Name     string   `json:"name"`
	Datatype Datatype `json:"datatype"`
	Shape    []int64  `json:"shape"` // -1: any extent
}

// Fits reports whether the tensor accepts a shape.
func (t *Tensor) Fits(shape []int64) bool {
	if len(shape) != len(t.Shape) {
		return false
	}
	for i, extent := range t.Shape {
		if extent >= 0 && shape[i] != extent {
			return false
		}
	}
	return true
}

// Model describes a model.
type Model struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
	Platform string   `json:"platform"`
	Inputs   []Tensor `json:"inputs"`
	Outputs  []Tensor `json:"outputs"`
}

// Server describes a server.
type Server struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// Entry is a model in the index of the repository.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}
