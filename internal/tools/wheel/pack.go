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

	"github.com/usmbridge/usmbridge/internal/pypackage"
)

// wheel describes a binary distribution (PEP 427).
type wheel struct {
	version string
	tag     string
	license []byte
}

const about = `Wheel-Version: 1.0
Generator: usmbridge
Root-Is-Purelib: false
Tag: %s
`

// epoch is the time of all members, so that equal input gives an equal file.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// write writes the wheel into the directory, replaces a file of the same name, and returns its path.
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
	type member struct {
		name string
		mode os.FileMode
		data []byte
	}
	members := []member{{libraryName, 0o755, code}}
	for _, f := range pypackage.Sources() {
		members = append(members, member{f.Name, 0o644, []byte(f.Data)})
	}
	for _, f := range pypackage.Metadata(w.version) {
		members = append(members, member{info + f.Name, 0o644, []byte(f.Data)})
	}
	members = append(members,
		member{info + "WHEEL", 0o644, fmt.Appendf(nil, about, w.tag)},
		member{info + "licenses/LICENSE", 0o644, w.license})
	for _, m := range members {
		if err := add(m.name, m.mode, m.data); err != nil {
			return "", err
		}
	}
	// RECORD lists itself without a hash.
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := add(info+"RECORD", 0o644, []byte(record.String())); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return w.place(dir, buf.Bytes())
}

// place writes the file under a temporary name and renames it, so that the wheel is never incomplete.
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
