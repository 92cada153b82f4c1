package share

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fileScheme is the prefix of the addresses of socket files.
const fileScheme = "unix:"

// socketOf converts an address, in one of the forms that [Listen] describes, to the form of package net. file
// is the path of the socket file, or "" for a name in the abstract namespace.
func socketOf(op, address string) (name, file string, err error) {
	switch {
	case address == "":
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		return "@usmbridge/" + hex.EncodeToString(random[:]), "", nil
	case strings.HasPrefix(address, fileScheme):
		file, err = filepath.Abs(strings.TrimPrefix(address, fileScheme))
		name = file
	case address[0] == '@':
		name = address
	default:
		name, err = filepath.Abs(address)
		name = "@usmbridge/" + strconv.Itoa(os.Geteuid()) + name
		if len(name) >= maxAddress {
			sum := sha256.Sum256([]byte(name))
			name = "@usmbridge/" + strconv.Itoa(os.Geteuid()) + "/" + hex.EncodeToString(sum[:])
		}
	}
	if err != nil {
		return "", "", opError(op, ErrAddress, "%q: %w", address, err)
	}
	if len(name) < 2 || len(name) >= maxAddress || strings.ContainsRune(name, 0) {
		return "", "", opError(op, ErrAddress, "%q: the socket name has %d bytes, want 2 to %d without zero bytes", address, len(name), maxAddress-1)
	}
	return name, file, nil
}
