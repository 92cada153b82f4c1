// Package builtin contains the models that are served by default: identity, luminance and sobel.
package builtin

import (
	_ "embed"

	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
)

var (
	//go:embed identity.py
	identity string
	//go:embed luminance.py
	luminance string
	//go:embed sobel.py
	sobel string
)

// Sources returns the models, in the order of their names.
func Sources() []models.Source {
	return []models.Source{
		{Name: "identity", File: "<built-in identity.py>", Text: identity},
		{Name: "luminance", File: "<built-in luminance.py>", Text: luminance},
		{Name: "sobel", File: "<built-in sobel.py>", Text: sobel},
	}
}
