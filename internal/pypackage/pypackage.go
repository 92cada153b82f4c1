// Package pypackage embeds the Python sources of the package usmbridge. In a program that embeds Python,
// importer.py imports them from the program. The wheel is built from the same files by hatchling, as
// pyproject.toml and hatch_build.py describe.
package pypackage

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
)

// importer is the file that imports the package in an embedded Python. It runs resources when files
// or metadata are requested. Neither file is part of the package.
const (
	importer  = "importer.py"
	resources = "resources.py"
)

// daskEntry is a separate module, so that Dask can load its entry point without the package.
const daskEntry = "_usmbridge_dask.py"

//go:embed importer.py resources.py _usmbridge_dask.py usmbridge/*.py usmbridge/*.pyi usmbridge/py.typed
var sources embed.FS

// File is a file of the package. Name is the path below site-packages, with slashes.
type File struct {
	Name string
	Data string
}

// Sources returns the files of the package and the module daskEntry, sorted by name.
func Sources() []File {
	files := []File{{daskEntry, text(daskEntry)}}
	// Reading embedded files cannot fail.
	_ = fs.WalkDir(sources, "usmbridge", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, File{name, text(name)})
		}
		return nil
	})
	return files
}

// Carried returns the files for an embedded Python: the importer first, then resources, the sources and
// the metadata of the version.
func Carried(version string) []File {
	files := append([]File{{importer, text(importer)}, {resources, text(resources)}}, Sources()...)
	for _, f := range Metadata(version) {
		files = append(files, File{path.Join("usmbridge.dist-info", f.Name), f.Data})
	}
	return files
}

func text(name string) string {
	data, err := sources.ReadFile(name)
	if err != nil {
		panic(fmt.Errorf("pypackage: %s is not embedded: %w", name, err))
	}
	return string(data)
}

// metadata describes the built-in package. It has the lines of the wheel's metadata that name the package and
// describe its use. pyproject.toml is the source of the wheel's; a test of package wheel compares them.
const metadata = `Metadata-Version: 2.4
Name: usmbridge
Version: %s
Summary: SYCL unified shared memory shared without copies, by __sycl_usm_array_interface__ and DLPack
License-Expression: Apache-2.0
Requires-Python: >=3.11
Project-URL: Homepage, https://github.com/usmbridge/usmbridge
`

// entryPoints: Numba calls init of the numba_extensions when it compiles for the
// first time; Dask calls register when dask.sizeof is imported.
const entryPoints = `[dask.sizeof]
usmbridge = _usmbridge_dask:register

[numba_extensions]
init = usmbridge:numba.init
`

// Metadata returns METADATA, entry_points.txt and top_level.txt of the built-in package.
func Metadata(version string) []File {
	return []File{
		{"METADATA", fmt.Sprintf(metadata, version)},
		{"entry_points.txt", entryPoints},
		{"top_level.txt", "_usmbridge_dask\nusmbridge\n"},
	}
}
