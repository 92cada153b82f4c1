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

// fileScheme begins the address of a socket that has a file.
const fileScheme = "unix:"

// Addresses, as [Listen] and [Dial] take them:
//
//	""            a random name in the abstract namespace (Listen only)
//	"@name"       that name in the abstract namespace
//	"unix:/path"  a socket file
//	anything else a path: it stands for a name in the abstract namespace, made from the
//	              absolute path and the user; no file is made
//
// socketOf gives the form that package net takes and what file it is, "" for none.
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
		return "", "", opError(op, ErrAddress, "%q has %d bytes; a socket's name has 2 to %d, none of them zero", address, len(name), maxAddress-1)
	}
	return name, file, nil
}
