//go:build linux && cgo

package syclobj

/*
#include <stdlib.h>
#include "loader.h"
#include "objects.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/elfcheck"
	"github.com/usmbridge/usmbridge/internal/linkage"
)

// loadLibrary loads the SYCL library, once per process, in the search order that OpenContext describes.
// asked is the path of WithLibrary, or empty. ctx bounds the search, which may run python3.
func loadLibrary(ctx context.Context, asked string) (*Library, []Attempt, error) {
	source := "option"
	if asked == "" {
		asked, source = os.Getenv(EnvLibrary), EnvLibrary
	}
	if linkage.Static() {
		err := &libraryError{Path: libraryName, Reason: "the program is linked statically and cannot load shared libraries", Advice: "link it dynamically, without -static"}
		return nil, []Attempt{{Source: "program", Err: err}}, err
	}
	s := &librarySearch{asked: inDirectory(asked), source: source}
	process.Lock()
	defer process.Unlock()
	if lib, done, err := s.withoutSearch(); done {
		return lib, s.attempts, err
	}
	process.Unlock() // other goroutines must not wait for python3
	found := candidates(ctx)
	process.Lock()
	if lib, done, err := s.withoutSearch(); done {
		return lib, s.attempts, err
	}
	for _, candidate := range found {
		if candidate.Source == sourceLoader && ctx.Err() != nil {
			break // an interrupted search must not select a library of lower priority for the process
		}
		if candidate.Err != nil {
			s.attempts = append(s.attempts, candidate)
			continue
		}
		if lib, err := s.try(candidate.Source, candidate.Path); err == nil {
			return lib, s.attempts, nil
		}
	}
	return nil, s.attempts, s.failure()
}

// withoutSearch uses the loaded instance, or else the requested file. done is false if there is neither.
// The caller holds process.
func (s *librarySearch) withoutSearch() (lib *Library, done bool, err error) {
	if process.lib != nil {
		lib, err = s.adopt(process.lib.Path)
		return lib, true, err
	}
	if loaded, ok := findLoaded(libraryName); ok {
		lib, err = s.adopt(loaded)
		return lib, true, err
	}
	if s.asked != "" {
		lib, err = s.try(s.source, s.asked)
		return lib, true, err
	}
	return nil, false, nil
}

const (
	sourceLoaded = "already loaded"
	sourceLoader = "loader"
)

type librarySearch struct {
	asked, source string
	attempts      []Attempt
}

// adopt uses the instance that the process has already loaded.
func (s *librarySearch) adopt(loaded string) (*Library, error) {
	if s.asked != "" && !sameFile(s.asked, loaded) {
		err := &libraryError{Path: s.asked, Reason: s.source + " requests this file, but the process has loaded " + loaded + " already, and can have one only",
			Advice: "request that one, or open the library before other code loads it"}
		s.attempts = append(s.attempts, Attempt{Source: s.source, Path: s.asked, Err: err})
		return nil, err
	}
	if process.lib != nil {
		s.attempts = append(s.attempts, Attempt{Source: sourceLoaded, Path: process.lib.Path})
		return process.lib, nil
	}
	lib, err := s.try(sourceLoaded, loaded)
	if lib != nil {
		lib.Adopted = true
	}
	return lib, err
}

// try loads one file and records the attempt.
func (s *librarySearch) try(source, path string) (*Library, error) {
	lib, err := openLibrary(source, path)
	s.attempts = append(s.attempts, Attempt{Source: source, Path: path, Err: err})
	if err != nil {
		return nil, err
	}
	process.lib = lib
	return lib, nil
}

// failure returns the reason if no candidate can be used. An existing but broken library takes precedence
// over places without one.
func (s *librarySearch) failure() error {
	for _, a := range s.attempts {
		if e := (*libraryError)(nil); errors.As(a.Err, &e) && filepath.IsAbs(e.Path) {
			return e
		}
	}
	return &libraryError{Path: libraryName, Reason: "not found (already loaded, " + EnvLibrary + ", VIRTUAL_ENV, python3 on PATH, loader path)", Advice: adviceInstall}
}

// openLibrary loads the file at path, or, if path has no slash, the file that the dynamic loader finds.
func openLibrary(source, path string) (*Library, error) {
	if !strings.Contains(path, "/") {
		found, relative := onLoaderPath(path)
		if found == path && relative != "" {
			return nil, &libraryError{Path: path, Reason: "it exists in the directory " + strconv.Quote(relative) + " of the loader's path, which is relative to the working directory and therefore not used",
				Advice: "name directories of LD_LIBRARY_PATH in full, and leave none empty"}
		}
		path = found
	}
	version := dpctlVersion(path)
	if tooOld(version) {
		return nil, &libraryError{Path: path, Version: version, Reason: "too old: dpctl 0.17 or newer is needed", Advice: adviceUpgrade}
	}
	dir := environmentLib(path)
	if source != sourceLoaded { // the file of a loaded instance may have been deleted
		if err := checkFile(path, dir); err != nil {
			return nil, err
		}
	}
	var real, text [4096]C.char
	c := C.CString(path)
	defer C.free(unsafe.Pointer(c))
	d := C.CString(dir)
	defer C.free(unsafe.Pointer(d))
	switch C.usmb_load_open(c, d, &real[0], C.size_t(len(real)), &text[0], C.size_t(len(text))) {
	case C.USMB_LOAD_OPEN:
		return nil, &libraryError{Path: path, Reason: "cannot be loaded: " + C.GoString(&text[0]), Advice: adviceInstall}
	case C.USMB_LOAD_SYMBOL:
		return nil, &libraryError{Path: path, Symbol: C.GoString(&text[0]), Version: version, Reason: "not a libDPCTLSyclInterface.so of dpctl 0.17 or newer", Advice: adviceUpgrade}
	}
	lib := &Library{Path: C.GoString(&real[0]), Source: source}
	lib.DPCTLVersion = dpctlVersion(lib.Path)
	compiler := C.usmb_compiler_version()
	lib.CompilerVersion = C.GoString(compiler)
	C.usmb_text_free(compiler)
	sycl, _ := findLoaded("libsycl.so")
	lib.OpenCLDrivers = setUpOpenCL(filepath.Dir(sycl), sycl != "")
	lib.earlier = loadedBefore(filepath.Dir(sycl))
	if lib.earlier == "" && source == sourceLoaded {
		lib.earlier = "other code loaded SYCL, which lists its devices once: configure the driver before (some packages, such " +
			"as ray, list devices when they are imported), in Python by importing usmbridge first"
	}
	preloadOpenCL(sycl)
	return lib, nil
}

// checkFile refuses files that would crash or block dlopen: the file itself and its dependencies in dir. A
// name without a file is left to the loader, which may find it in its cache; the cache lists libraries
// only.
func checkFile(path, dir string) error {
	if !strings.Contains(path, "/") {
		return nil
	}
	err := elfcheck.File(path)
	if errors.Is(err, os.ErrNotExist) {
		return &libraryError{Path: path, Reason: "no such file", Err: err, Advice: adviceInstall}
	}
	if err != nil {
		return &libraryError{Path: path, Reason: "not a library that can be loaded", Err: err, Advice: adviceReplace}
	}
	if dir == "" {
		return nil
	}
	if file, err := elfcheck.Needed(path, dir); err != nil {
		return &libraryError{Path: path, Reason: "it needs " + file + ", which is not a library that can be loaded", Err: err, Advice: adviceReplace}
	}
	return nil
}

// onLoaderPath returns the file that the dynamic loader would select for a name: the first in its
// directories that can be loaded, else the first existing one, else the name. Directories that depend on
// the working directory are excluded, because anyone who can write there could choose the code that runs.
// relative is the first of those directories with the file.
func onLoaderPath(name string) (first, relative string) {
	var text [1 << 14]C.char
	C.usmb_load_path(&text[0], C.size_t(len(text)))
	first = name
	for _, dir := range filepath.SplitList(C.GoString(&text[0])) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if !filepath.IsAbs(dir) {
			relative = cmp.Or(relative, dir, ".")
			continue
		}
		if elfcheck.File(path) == nil {
			return path, relative
		}
		if first == name {
			first = path
		}
	}
	return first, relative
}

// loadExtra loads one more library, with its dependencies from its own directory, for libraries that need
// it by name.
func loadExtra(path string) {
	c := C.CString(path)
	defer C.free(unsafe.Pointer(c))
	dir := C.CString(filepath.Dir(path))
	defer C.free(unsafe.Pointer(dir))
	C.usmb_load_extra(c, dir)
}

// findLoaded returns the path of a loaded shared object whose file name starts with prefix.
func findLoaded(prefix string) (string, bool) {
	var path [4096]C.char
	c := C.CString(prefix)
	defer C.free(unsafe.Pointer(c))
	if C.usmb_load_find(c, &path[0], C.size_t(len(path))) == 0 {
		return "", false
	}
	return C.GoString(&path[0]), true
}
