// Package builtin contains the models that are served by default: identity, luminance and sobel.
package builtin

import (
	"embed"

	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
)

//go:embed *.py
var files embed.FS

// Sources returns the models, in the order of their names.
func Sources() (sources []models.Source) {
	for _, name := range []string{"identity", "luminance", "sobel"} {
		text, _ := files.ReadFile(name + ".py") // it is in the program
		sources = append(sources, models.Source{Name: name, File: "<built-in " + name + ".py>", Text: string(text)})
	}
	return sources
}
