package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wheel is what a binary distribution says of itself (PEP 427).
type wheel struct {
	version string
	tag     string
	license []byte
}

// metadata follows the core metadata specification, version 2.1.
const metadata = `Metadata-Version: 2.1
Name: usmbridge
Version: %s
Summary: SYCL unified shared memory shared without copies, by __sycl_usm_array_interface__ and DLPack
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.11
Provides-Extra: sycl
Requires-Dist: dpctl>=0.17; extra == "sycl"
Requires-Dist: intel-opencl-rt; extra == "sycl"
`

const about = `Wheel-Version: 1.0
Generator: usmbridge
Root-Is-Purelib: false
Tag: %s
`

// epoch dates the members, so that equal input gives an equal file.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// write makes the wheel in the directory, replacing an older one of the same
// name, and returns its path.
func (w *wheel) write(dir, library string) (string, error) {
	code, err := os.ReadFile(library)
	if err != nil {
		return "", err
	}
	info := "usmbridge-" + w.version + ".dist-info/"
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	var record strings.Builder
	add := func(name string, mode os.FileMode, data []byte) error {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: epoch}
		h.SetMode(mode)
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
		_, err = f.Write(data)
		return err
	}
	members := []struct {
		name string
		mode os.FileMode
		data []byte
	}{
		{libraryName, 0o755, code},
		{info + "METADATA", 0o644, fmt.Appendf(nil, metadata, w.version)},
		{info + "WHEEL", 0o644, fmt.Appendf(nil, about, w.tag)},
		{info + "licenses/LICENSE", 0o644, w.license},
	}
	for _, m := range members {
		if err := add(m.name, m.mode, m.data); err != nil {
			return "", err
		}
	}
	// The record lists itself without a sum.
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := add(info+"RECORD", 0o644, []byte(record.String())); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return w.place(dir, buf.Bytes())
}

// place writes the file under another name first, so that no half of it shows.
func (w *wheel) place(dir string, data []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "usmbridge-"+w.version+"-"+w.tag+".whl")
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return "", err
	}
	return path, os.Rename(path+".part", path)
}
